// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var packagesDir = flag.String("packages", "", "directory with two directories of deb packages: previous, and newer")

// What an operator installs and removes.
const (
	allPackages = "compute-agent compute-agent-common compute-agent-driver-libvirt compute-agent-placement " +
		"compute-agent-cells"
	previously = "/opt/previous"
	newer      = "/opt/newer"
	// The previous release ran all services as one user.
	managePreviously = "manage() { runuser -u compute-agent -- compute-agent cells manage \"$@\" --config " +
		"/etc/compute-agent/compute-api.toml; }; manage "
)

// TestPackages installs only deb packages in a system whose PID 1 is systemd, as docs/install.md
// says, and upgrades, downgrades, removes and purges them while a guest runs: `make test-install`.
//
// The older packages have the programs, the units and the configuration of the previous release,
// which ran all services as one user (packaging/previous.sh).
func TestPackages(t *testing.T) {
	root := withRoot(t)
	previous := packagesIn(t, "previous")
	if previous == nil {
		t.Skip("make test-install ALL=1 upgrades the previous release")
	}
	for to, debs := range map[string][]string{previously: previous, newer: packagesIn(t, "newer")} {
		command(t, "install", append([]string{"-D", "-m", "644", "-t", root + to}, debs...)...)
	}
	inMachine(t, root, []part{
		{"install", testPackagesInstall},
		{"configure and start", testPackagesStart},
		{"upgrade", testPackagesUpgrade},
		{"roll back", testPackagesRollBack},
		{"upgrade again", testPackagesUpgradeAgain},
		{"reboot", testPackagesReboot},
		{"remove", testPackagesRemove},
		{"install again", testPackagesInstallAgain},
		{"purge", testPackagesPurge},
	})
}

// packagesIn returns the deb packages in a directory of the flag -packages, nil if it is not there.
func packagesIn(t *testing.T, directory string) []string {
	t.Helper()
	dir := filepath.Join(*packagesDir, directory)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	debs := testproc.Try(filepath.Glob(filepath.Join(dir, "*.deb"))).Or(t)
	if len(debs) != 6 {
		t.Fatalf("-packages=%s: %d packages in %s, want 6; make test-install makes them",
			*packagesDir, len(debs), directory)
	}
	return debs
}

// TestPackageFiles installs, upgrades, removes and purges the packages in a system that does not
// run, as in an image that is being built, and checks the files that are there after each step.
func TestPackageFiles(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "../packaging/test.sh", debianRoot(t, rootCache(t)), *packagesDir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("packaging/test.sh: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// apt is the command that installs all packages of a directory. Configuration files that were
// changed are kept without a question.
func apt(dir string) string {
	out := "DEBIAN_FRONTEND=noninteractive apt-get install --yes --allow-downgrades --option " +
		"Dpkg::Options::=--force-confold"
	for name := range strings.FieldsSeq(allPackages) {
		out += " " + dir + "/" + name + "_*.deb"
	}
	return out
}

// idle checks that no unit of ours is started, or would be by a boot.
func (m *machine) idle(t *testing.T, when string) {
	t.Helper()
	for what, script := range map[string]string{
		"started": "systemctl list-units --all --plain --no-legend 'compute-agent*' | awk '$3 != \"inactive\"'",
		"enabled": "systemctl list-unit-files --no-legend --state=enabled,enabled-runtime,linked 'compute-agent*' " +
			"|| true; find /etc/systemd -name 'compute-agent*' -type l",
	} {
		testproc.Equal(t, m.sh(t, script), "", "%s: units are %s:\n%s", when, what)
	}
	m.nothingRuns(t)
}

func testPackagesInstall(t *testing.T, m *machine) {
	m.sh(t, apt(previously))
	m.idle(t, "after the installation")
	if out := m.sh(t, "systemd-analyze verify --man=no /usr/lib/systemd/system/compute-agent*.service "+
		"/usr/lib/systemd/system/compute-agent*.socket 2>&1"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
}

func testPackagesStart(t *testing.T, m *machine) {
	m.write(t, "/etc/compute-agent/conf.d/50-guests.toml", withGuests)
	m.sh(t, "echo '# changed by the operator' >>/etc/compute-agent/compute-agent.toml")
	m.run(t, "compute-agent", "config", "check")
	m.run(t, "systemctl", "enable", "--now", socketUnit, cell0Unit, cell1Unit, apiUnit, agentUnit)
	m.healthy(t, services...)
	m.makeServer(t, managePreviously)
}

// install installs packages while a client looks at the inventories, and the guest runs. At no
// moment may an inventory be gone or another one, or a request be refused by Placement, which the
// agent would count as a failed pass. The amount of memory does not count: that of a machine with a
// balloon changes at any time.
func (m *machine) install(t *testing.T, dir string) {
	t.Helper()
	domain := m.domain(t)
	m.sh(t, `
		rm -rf /run/watch; mkdir /run/watch; date '+%F %T' >/run/watch/since
		placement="curl -sS -m 60 -H X-Auth-Token:admin http://127.0.0.1:8778/resource_providers"
		root=$($placement | grep -o '"uuid": *"[^"]*"' | head -1 | cut -d '"' -f 4)
		memory='s/("MEMORY_MB": *\{"total": *)[0-9]+([^}]*"max_unit": *)[0-9]+/\1some\2some/'
		inventories() {
			$placement/$root/inventories -w ' %{http_code}\n' 2>&1 |
				sed -E -e 's/"resource_provider_generation": *[0-9]*,*//' -e "$memory"
		}
		inventories >/run/watch/inventories
		( while [ ! -e /run/watch/enough ]; do inventories >>/run/watch/inventories; done ) >/dev/null 2>&1 &
		`+apt(dir)+` >/run/watch/apt 2>&1 || { cat /run/watch/apt; failed=yes; }
		touch /run/watch/enough; wait
		[ -z "${failed:-}" ]`)
	answers := m.sh(t, "sort /run/watch/inventories | uniq -c")
	if strings.Count(answers, "\n") != 1 || !strings.Contains(answers, `"MEMORY_MB":{"total":some`) ||
		!strings.HasSuffix(answers, " 200\n") {
		t.Errorf("answers for the inventories while %s was installed, with their numbers:\n%s", dir, answers)
	}
	m.run(t, "journalctl", "--sync")
	agent := m.sh(t, `journalctl --no-pager --output=cat --unit=compute-agent --since="$(cat /run/watch/since)"`)
	if strings.Contains(agent, "The pass failed") || !strings.Contains(agent, "Finished the pass") {
		t.Errorf("passes of the agent while %s was installed:\n%s", dir, agent)
	}
	testproc.Equal(t, m.domain(t), domain, "the guest is another process: domain %s, then %s", domain)
	testproc.Equal(t, m.allocations(t), m.guest.allocations, "the allocations changed:\n%s\n%s", m.guest.allocations)
}

func testPackagesUpgrade(t *testing.T, m *machine) {
	m.sh(t, `mkdir -m 700 /root/backup; cd /root/backup
		compute-agent placement db backup /root/backup/placement.db --state-dir /var/lib/compute-agent-placement
		compute-agent cells backup /root/backup/cell0.db --state-dir /var/lib/compute-agent-cell-cell0
		compute-agent cells backup /root/backup/cell1.db --state-dir /var/lib/compute-agent-cell-cell1
		compute-agent cells manage db backup /root/backup/compute_api.db --config /etc/compute-agent/compute-api.toml`)
	m.install(t, newer)
	// The operator upgrades a database in a file, and has a copy of it.
	if status := m.property(t, apiUnit, "ExecMainStatus"); status != "3" {
		t.Errorf("the compute API ended with %s, before its database was upgraded, want 3", status)
	}
	m.upgradeAPI(t)
	m.upgraded(t)
	if config := m.run(t, "cat", "/etc/compute-agent/compute-agent.toml"); !strings.Contains(config,
		"# changed by the operator") {
		t.Errorf("the upgrade lost a change to the configuration:\n%s", config)
	}
}

// upgradeAPI does what the compute API says when it does not start.
func (m *machine) upgradeAPI(t *testing.T) {
	t.Helper()
	m.sh(t, manage+"db upgrade")
	m.run(t, "systemctl", "start", apiUnit)
}

// upgraded checks what the newer release makes of what the previous one left.
func (m *machine) upgraded(t *testing.T) {
	t.Helper()
	m.instancesDropIn(t)
	m.healthy(t, services...)
	m.ownership(t, "after the upgrade")
	m.states(t, "after the upgrade")
	m.awaitStatus(t, "ACTIVE")
	testproc.Contains(t, m.sh(t, manage+"list"), "cell1", "the API has no cell1 after the upgrade:\n%s")
}

// testPackagesRollBack: an older release refuses the databases in files that the newer one has
// upgraded. Their services stop before, and their copies take their place. The agent waits for
// Placement meanwhile.
func testPackagesRollBack(t *testing.T, m *machine) {
	domain := m.domain(t)
	m.run(t, "systemctl", "stop", apiUnit, cell0Unit, cell1Unit, socketUnit, placementUnit)
	m.sh(t, apt(previously))
	for file, of := range map[string]string{
		"placement.db":   "compute-agent-placement/placement.db",
		"compute_api.db": "compute-agent-cells-api/compute_api.db",
		"cell0.db":       "compute-agent-cell-cell0/cell.db", "cell1.db": "compute-agent-cell-cell1/cell.db",
	} {
		m.sh(t, "rm -f /var/lib/"+of+"*; install -o compute-agent -m 600 /root/backup/"+file+" /var/lib/"+of)
	}
	m.run(t, "systemctl", "start", socketUnit, placementUnit, cell0Unit, cell1Unit, apiUnit)
	m.healthy(t, services...)
	m.awaitStatus(t, "ACTIVE")
	testproc.Equal(t, m.domain(t), domain, "after going back, the guest's domain is %s")
	testproc.Equal(t, m.allocations(t), m.guest.allocations, "after going back, the allocations are\n%s")
}

func testPackagesUpgradeAgain(t *testing.T, m *machine) {
	m.install(t, newer)
	m.upgradeAPI(t)
	m.upgraded(t)
}

func testPackagesReboot(t *testing.T, m *machine) {
	m.reboot(t)
	m.figures(t)
	m.api(t, "POST", "/servers/"+m.guest.server+"/action", `{"os-start": null}`)
	m.awaitStatus(t, "ACTIVE")
}

// figures logs how long each service took to be ready after a boot, and the memory that it and its
// driver use: docs/install.md has them.
func (m *machine) figures(t *testing.T) {
	t.Helper()
	for _, s := range services {
		out := m.sh(t, "eval \"$(systemctl show -p MainPID -p InactiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic "+s.unit+")\""+`
			echo "ready after $(((ActiveEnterTimestampMonotonic - InactiveExitTimestampMonotonic) / 1000)) ms;" \
				$(for pid in $MainPID $(pgrep -P $MainPID); do
					awk -v of=$(readlink /proc/$pid/exe) '/^(VmRSS|RssAnon):/ { printf "%s %s %d MiB; ", of, $1, $2 / 1024 }' /proc/$pid/status
				done)`)
		t.Logf("%s: %s", s.unit, out)
	}
}

// guestRuns checks that the guest of a host without agents is alive.
func (m *machine) guestRuns(t *testing.T) {
	t.Helper()
	if state := strings.TrimSpace(m.run(t, "virsh", "--connect=qemu:///system", "domstate",
		m.guest.server)); state != "running" {
		t.Errorf("the guest is %s", state)
	}
}

func testPackagesRemove(t *testing.T, m *machine) {
	m.sh(t, "DEBIAN_FRONTEND=noninteractive apt-get remove --yes "+allPackages)
	m.idle(t, "after the removal")
	m.guestRuns(t)
	for _, file := range []string{
		"/etc/compute-agent/compute-agent.toml", "/etc/compute-agent/conf.d/50-guests.toml",
		"/var/lib/compute-agent/compute_id",
		"/var/lib/compute-agent-placement/placement.db", "/var/lib/compute-agent-cells-api/compute_api.db",
		"/var/lib/compute-agent-cell-cell1/cell.db",
	} {
		m.run(t, "test", "-s", file)
	}
	if _, err := m.try("test", "-e", "/usr/bin/compute-agent"); err == nil {
		t.Error("the removal left the program")
	}
}

func testPackagesInstallAgain(t *testing.T, m *machine) {
	m.sh(t, apt(newer))
	m.idle(t, "after the installation over what was removed")
	m.run(t, "systemctl", "enable", "--now", socketUnit, cell0Unit, cell1Unit, apiUnit, agentUnit)
	m.healthy(t, services...)
	m.awaitStatus(t, "ACTIVE")
}

func testPackagesPurge(t *testing.T, m *machine) {
	m.sh(t, "DEBIAN_FRONTEND=noninteractive apt-get purge --yes "+allPackages)
	m.idle(t, "after the purge")
	m.guestRuns(t)
	instance := "/var/lib/compute-agent-instances/instance-" + m.guest.server
	want := []string{
		"/etc/compute-agent", "/etc/compute-agent/conf.d", "/etc/compute-agent/conf.d/50-guests.toml",
		"/etc/systemd/system/compute-agent.service.d", "/etc/systemd/system/compute-agent.service.d/instances.conf",
		"/var/lib/compute-agent-images", "/var/lib/compute-agent-images/" + image,
		"/var/lib/compute-agent-instances", instance,
	}
	m.run(t, "test", "-s", instance+"/disk")
	left := strings.Fields(
		m.sh(t, "find / -xdev -path /proc -prune -o -path /sys -prune -o -path /opt -prune -o -path "+
			"'/var/lib/compute-agent-instances/*/*' -o -path '*compute-agent*' -print"))
	slices.Sort(left)
	if !slices.Equal(left, want) {
		t.Errorf("the purge leaves\n%s\nwant\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	for _, user := range []string{"compute-agent", "compute-agent-placement", "compute-agent-cells-api",
		"compute-agent-cell", "compute-agent-libvirt"} {
		if _, err := m.try("id", user); err != nil {
			t.Error(fmt.Errorf("the user %s is gone, who may own files elsewhere: %w", user, err))
		}
	}
}
