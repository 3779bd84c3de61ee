// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var withSystemd = flag.Bool("systemd", false, "boot a Debian with systemd and test the units in it; needs root")

// service is a unit that runs one of our processes.
type service struct {
	unit    string
	healthy string // a script that succeeds when it does its work
}

const (
	agentUnit     = "compute-agent.service"
	placementUnit = "compute-agent-placement.service"
	socketUnit    = "compute-agent-placement.socket"
	apiUnit       = "compute-agent-cells-api.service"
	cell0Unit     = "compute-agent-cell@cell0.service"
	cell1Unit     = "compute-agent-cell@cell1.service"
)

var services = []service{
	{agentUnit, "systemctl show --value -p StatusText compute-agent | grep '^reporting 1 node'; compute-agent status"},
	{placementUnit, "curl -sSf -m 5 http://127.0.0.1:8778/"},
	{apiUnit, "curl -sSf -m 5 -H 'X-Auth-Token: admin' http://127.0.0.1:8774/v2.1/servers"},
	{cell1Unit, "curl -sSf -m 5 --unix-socket /run/compute-agent-cell-cell1/cell-cell1.sock http://cell/healthz"},
}

// TestUnits tests the units in a system whose PID 1 is systemd: `make test-systemd`, with
// DISTRIBUTION another one than Debian 12.
//
//	debootstrap ─▶ root in the cache ─▶ copy ─▶ make install DESTDIR=copy
//	                                              │
//	test ── nsenter ──▶ systemctl, curl, virsh ──▶ systemd-nspawn -b: systemd, libvirtd,
//	                                                  QEMU, our units
//
// The machine that runs the test needs root, debootstrap, systemd-nspawn and, for the first run,
// the network; it needs no systemd of its own.
//
// It installs the product as documented and runs it under systemd. The parts follow one
// another on one machine.
func TestUnits(t *testing.T) {
	root := withRoot(t)
	command(t, "make", "--no-print-directory", "-C", "..", "install", "DESTDIR="+root)
	inMachine(t, root, []part{
		{"install", testInstall},
		{"start", testStart},
		{"requests wait while Placement restarts", testRequestsWait},
		{"isolation", testIsolation},
		{"isolation of drivers", testDriverIsolation},
		{"reports read-only", testReportsReadOnly},
		{"reload", testReload},
		{"crash", testCrash},
		{"watchdog", testWatchdog},
		{"limits", testLimits},
		{"wrong configuration and usage", testWrong},
		{"refusal", testRefusal},
		{"a disk that comes late", testLateDisk},
		{"credentials", testCredentials},
		{"power of CPUs", testCPUPower},
		{"guest", testGuest},
		{"upgrade from one user for all", testUpgradeFromOneUser},
		{"reboot", testReboot},
		{"stop", testStop},
	})
}

// part is a part of a test on one machine.
type part struct {
	name string
	run  func(*testing.T, *machine)
}

// needsRoot skips tests that boot a machine unless they are asked for.
func needsRoot(t *testing.T) {
	t.Helper()
	if !*withSystemd {
		t.Skip("THE UNITS AND PACKAGES ARE NOT TESTED UNDER SYSTEMD: make test-systemd does")
	}
	if os.Getuid() != 0 {
		t.Fatal("only root can boot a container")
	}
	for _, tool := range []string{"debootstrap", "systemd-nspawn", "nsenter", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v; run: tools/packages.sh systemd", err)
		}
	}
}

// withRoot returns a Debian root for a machine.
func withRoot(t *testing.T) string {
	t.Helper()
	needsRoot(t)
	t.Parallel() // each has a machine of its own
	return freshRoot(t)
}

// inMachine boots a root and runs the parts, of which each depends on those before it.
func inMachine(t *testing.T, root string, parts []part) {
	t.Helper()
	m := &machine{root: root, name: nameOf(t)}
	t.Cleanup(m.kill)
	m.boot(t)
	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, m) }) {
			for _, s := range append(services, service{unit: cell0Unit}, service{unit: socketUnit}) {
				status, _ := m.try("systemctl", "--no-pager", "--full", "--lines=30", "status", s.unit)
				t.Log(status)
			}
			return // what follows depends on it
		}
	}
	m.halt(t, "poweroff")
}

// healthy waits until all services do their work.
func (m *machine) healthy(t *testing.T, of ...service) {
	t.Helper()
	for _, s := range of {
		eventually(t, s.unit, func() error {
			if out, err := m.try("sh", "-euc", s.healthy); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
}

// testInstall: `make install DESTDIR=` has put the files there; what it runs on a live machine
// follows here.
func testInstall(t *testing.T, m *machine) {
	m.run(t, "systemd-sysusers", "compute-agent.conf")
	m.run(t, "systemd-tmpfiles", "--create", "compute-agent.conf")
	m.run(t, "systemctl", "daemon-reload")
	units := "/usr/lib/systemd/system/compute-agent"
	out := m.sh(t, "systemd-analyze verify --man=no "+units+"*.service "+units+"*.socket 2>&1")
	testproc.Equal(t, out, "", "systemd-analyze verify: %s")
	m.ownership(t, "right after the installation")
}

// ownership checks the owners of files. The service's user must not be able to change the
// configuration or the plugins.
func (m *machine) ownership(t *testing.T, when string) {
	t.Helper()
	for path, want := range map[string]string{
		"/etc/compute-agent":                    "root:root 755",
		"/etc/compute-agent/compute-agent.toml": "root:root 644",
		"/etc/compute-agent/conf.d":             "root:root 755",
		"/etc/compute-agent/credentials":        "root:root 700",
		"/usr/libexec/compute-agent/plugins":    "root:root 755",
		"/var/lib/compute-agent-images":         "root:root 755",
		"/var/lib/compute-agent-instances":      "compute-agent:compute-agent 711",
	} {
		if got := strings.TrimSpace(m.run(t, "stat", "--format=%U:%G %a", path)); got != want {
			t.Errorf("%s: %s is %s, want %s", when, path, got, want)
		}
	}
}

// testStart starts all services with the configuration that is installed, Placement by its socket.
func testStart(t *testing.T, m *machine) {
	m.run(t, "systemctl", "enable", "--now", socketUnit)
	if state := m.property(t, placementUnit, "ActiveState"); state != "inactive" {
		t.Errorf("Placement is %s before the first request", state)
	}
	m.healthy(t, services[1])
	testproc.Equal(t, m.property(t, placementUnit, "ActiveState"), "active", "Placement is %s after a request")
	m.run(t, "systemctl", "enable", "--now", cell0Unit, cell1Unit, apiUnit, agentUnit)
	m.healthy(t, services...)
	for unit, says := range map[string]string{
		agentUnit: `Status: "reporting 1 node`, placementUnit: `Status: "serving Placement on 127.0.0.1:8778"`,
		apiUnit: `Status: "serving the compute API on 127.0.0.1:8774"`, cell1Unit: `Status: "serving cell cell1 on`,
	} {
		if status := m.run(t, "systemctl", "--no-pager", "status", unit); !strings.Contains(status, says) {
			t.Errorf("systemctl status %s does not show %s:\n%s", unit, says, status)
		}
	}
	m.ownership(t, "with the services started")
	m.states(t, "with the services started")
}

// states checks that state and runtime directories, with all that is in them, belong to the user of
// their service.
func (m *machine) states(t *testing.T, when string) {
	t.Helper()
	for _, one := range []struct{ name, user, state, runtime string }{
		{"compute-agent", "compute-agent", "750", "750"},
		{"compute-agent-placement", "compute-agent-placement", "700", "700"},
		{"compute-agent-cells-api", "compute-agent-cells-api", "700", "700"},
		{"compute-agent-cell-cell0", "compute-agent-cell", "700", "711"},
		{"compute-agent-cell-cell1", "compute-agent-cell", "700", "711"},
	} {
		for path, mode := range map[string]string{"/var/lib/" + one.name: one.state, "/run/" + one.name: one.runtime} {
			want := one.user + ":" + one.user + " " + mode
			if got := strings.TrimSpace(m.run(t, "stat", "--format=%U:%G %a", path)); got != want {
				t.Errorf("%s: %s is %s, want %s", when, path, got, want)
			}
			if others := m.run(t, "find", path, "!", "-user", one.user); others != "" {
				t.Errorf("%s: not all below %s belongs to %s:\n%s", when, path, one.user, others)
			}
		}
	}
}

// testReportsReadOnly: the agent, which is in no group, reports all that libvirt knows, also the
// domain capabilities, which libvirt gives to users with write access only.
func testReportsReadOnly(t *testing.T, m *machine) {
	if groups := strings.TrimSpace(m.run(t, "id", "-nG", "compute-agent")); groups != "compute-agent" {
		t.Errorf("the groups of compute-agent are %s", groups)
	}
	m.run(t, "systemctl", "restart", agentUnit)
	m.healthy(t, services[0])
	if out := m.sh(t, "compute-agent tree --traits"); !strings.Contains(out, "COMPUTE_ARCH_X86_64") {
		t.Errorf("the tree has no traits from the domain capabilities:\n%s", out)
	}
	if out := m.sh(t, "compute-agent status --output json"); strings.Contains(out, "domain-capabilities") {
		t.Errorf("the driver warns about domain capabilities:\n%s", out)
	}
	if out, err := m.try("compute-agent", "doctor"); strings.Contains(out, "group libvirt") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	// They are lost, and the warning says how to get them back.
	m.run(t, "systemctl", "stop", "compute-agent-domain-capabilities.service")
	m.run(t, "rm", "-rf", "/run/compute-agent-domain-capabilities")
	m.run(t, "systemctl", "mask", "--runtime", "compute-agent-domain-capabilities.service")
	m.run(t, "systemctl", "restart", agentUnit)
	eventually(t, "a warning about the domain capabilities", func() error {
		if out := m.sh(t, "compute-agent status --output json"); !strings.Contains(out,
			"systemctl restart compute-agent-domain-capabilities") {
			return fmt.Errorf("the status is %s", out)
		}
		return nil
	})
	if out := m.sh(t, "compute-agent tree --traits"); !strings.Contains(out, "COMPUTE_ARCH_X86_64") {
		t.Errorf("the traits are not kept without the domain capabilities:\n%s", out)
	}
	m.run(t, "systemctl", "unmask", "--runtime", "compute-agent-domain-capabilities.service")
	m.run(t, "systemctl", "restart", agentUnit)
	m.healthy(t, services[0])
}

// testRequestsWait: the socket stays open, so no request is refused while Placement restarts.
func testRequestsWait(t *testing.T, m *machine) {
	out := m.sh(t, `
		mkdir -p /run/units; rm -f /run/units/*
		( while [ ! -e /run/units/enough ]; do curl -sS -m 30 -o /dev/null -w '%{http_code}\n' http://127.0.0.1:8778/ || echo failed; done >/run/units/codes 2>&1 ) &
		for i in 1 2 3; do systemctl restart compute-agent-placement.service; done
		touch /run/units/enough; wait
		sort /run/units/codes | uniq -c`)
	if f := strings.Fields(out); len(f) != 2 || f[1] != "200" {
		t.Errorf("answers while Placement restarted three times, with their numbers:\n%s", out)
	}
}

// testReload: a reload takes effect, and one that is refused leaves the agent as it is.
func testReload(t *testing.T, m *machine) {
	const file = "/etc/compute-agent/conf.d/50-reload.toml"
	before := m.property(t, agentUnit, "MainPID")
	m.write(t, file, "[log]\nlevel = \"debug\"\n")
	m.run(t, "systemctl", "reload", agentUnit)
	m.run(t, "compute-agent", "refresh")
	eventually(t, "an entry of level debug in the journal", func() error {
		if out, err := m.try("journalctl", "--boot", "--no-pager", "--quiet",
			"--unit="+agentUnit, "PRIORITY=7"); err != nil || strings.TrimSpace(out) == "" {
			return fmt.Errorf("it is missing: %w", err)
		}
		return nil
	})
	m.write(t, file, "[log]\nno_such_key = 1\n")
	m.run(t, "systemctl", "reload", agentUnit)
	// The command does not wait for the agent, which may not have ended the reload before.
	eventually(t, "the status to show that the reload was refused", func() error {
		if status, _ := m.try("compute-agent", "status",
			"--runtime-dir=/run/compute-agent"); !strings.Contains(status, "reload-refused") {
			return fmt.Errorf("it is %s", status)
		}
		return nil
	})
	m.remove(t, file)
	m.run(t, "systemctl", "reload", agentUnit)
	m.healthy(t, services[0])
	if after := m.property(t, agentUnit, "MainPID"); after != before {
		t.Errorf("the agent was restarted: process %s, then %s", before, after)
	}
}
