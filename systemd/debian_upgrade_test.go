// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"strings"
	"testing"
)

// testUpgradeFromOneUser: before there was a user for each service, all state belonged to
// compute-agent, which was a member of the group libvirt, and the configuration was open to that
// group only. What `make install` runs and a restart are all that an upgrade takes.
func testUpgradeFromOneUser(t *testing.T, m *machine) {
	node := m.sh(t, "compute-agent tree --output json | head -c 300")
	cells := m.sh(t, manage+"list --output json")
	m.run(t, "systemctl", "stop", agentUnit, apiUnit, cell0Unit, cell1Unit, socketUnit, placementUnit)
	m.sh(t, `chown -R compute-agent:compute-agent /var/lib/compute-agent /var/lib/compute-agent-*
		chown root:root /var/lib/compute-agent-images
		chown root:compute-agent /etc/compute-agent /etc/compute-agent/conf.d; chmod 750 /etc/compute-agent /etc/compute-agent/conf.d`)

	m.run(t, "systemd-sysusers", "compute-agent.conf")
	m.run(t, "systemd-tmpfiles", "--create", "compute-agent.conf")
	m.run(t, "systemctl", "start", socketUnit, cell0Unit, cell1Unit, apiUnit, agentUnit)
	m.healthy(t, services...)
	m.ownership(t, "after the upgrade")
	m.states(t, "after the upgrade")
	if after := m.sh(t, "compute-agent tree --output json | head -c 300"); !strings.Contains(after, `"uuid"`) ||
		after[:200] != node[:200] {
		t.Errorf("Placement has another tree after the upgrade:\n%s\n%s", node, after)
	}
	if after := m.sh(t, manage+"list --output json"); after != cells {
		t.Errorf("the API has other cells after the upgrade:\n%s\n%s", cells, after)
	}
	m.awaitStatus(t, "ACTIVE")
	if after := m.allocations(t); after != m.guest.allocations {
		t.Errorf("the allocations changed with the upgrade:\n%s\n%s", m.guest.allocations, after)
	}
}
