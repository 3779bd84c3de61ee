// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

//go:embed testdata/modular-daemons.sh
var makeModularDaemons []byte

// modularDaemons are those that the agent's libvirt consists of, with what virtqemud starts by
// itself.
var modularDaemons = []string{"virtqemud", "virtnodedevd",
	"virtnetworkd", "virtstoraged", "virtsecretd", "virtnwfilterd"}

// TestModularDaemons runs the agent where libvirt is virtqemud, virtnodedevd and so on, as on
// Fedora, instead of libvirtd:
//
//	make test-systemd DISTRIBUTION=debian-13 RUN='^TestModularDaemons$'
//
// Debian packages libvirtd alone. The other daemons are built from its source, which takes minutes;
// later runs use them again.
func TestModularDaemons(t *testing.T) {
	root := withRoot(t)
	if *onDistribution != "debian-13" {
		t.Fatalf("testdata/modular-daemons.sh is for the libvirt of debian-13, not that of %s", *onDistribution)
	}
	command(t, "cp", "-a", buildModularDaemons(t)+"/.", root)
	command(t, "make", "--no-print-directory", "-C", "..", "install", "DESTDIR="+root)
	inMachine(t, root, []part{
		{"install", testInstall},
		{"start", testStart},
		{"change of daemons", testModularChange},
		{"reports read-only", testReportsReadOnly},
		{"devices", testModularDevices},
		{"guest", testGuest},
		{"restarts of daemons", testModularRestarts},
		{"reboot", testReboot},
		{"stop", testStop},
	})
}

// buildModularDaemons returns a directory with the daemons and their units, as they are in a root.
func buildModularDaemons(t *testing.T) string {
	t.Helper()
	cache := rootCache(t)
	from := debianRoot(t, cache)
	sum := sha256.Sum256(append([]byte(filepath.Base(from)), makeModularDaemons...))
	return cached(t, cache, fmt.Sprintf("modular-%x", sum[:6]), "the modular daemons of libvirt", func(part string) {
		build := part + "-build"
		must(t, os.RemoveAll(build))
		defer func() { must(t, os.RemoveAll(build)) }()
		command(t, "cp", "-a", "--reflink=auto", from, build)
		must(t, testproc.WriteExecutable(filepath.Join(build, policyRC), []byte(noServices)))
		must(t, testproc.WriteExecutable(filepath.Join(build, "make.sh"), makeModularDaemons))
		inRoot(t, build, "/make.sh")
		command(t, "cp", "-a", filepath.Join(build, "modular"), part)
	})
}

// tree is what the agent reports, with its traits.
func (m *machine) tree(t *testing.T) string {
	t.Helper()
	return m.sh(t, "compute-agent refresh && compute-agent tree --traits")
}

// doctorSays checks the lines of `compute-agent doctor` about libvirt.
func (m *machine) doctorSays(t *testing.T, lines ...string) {
	t.Helper()
	out, _ := m.try("compute-agent", "doctor")
	for _, line := range lines {
		testproc.Contains(t, out, line, "doctor does not say %q:\n%s", line)
	}
}

// testModularChange: the agent, which runs, goes over to the other daemons when they replace
// libvirtd, and reports the same.
func testModularChange(t *testing.T, m *machine) {
	before, pid := m.tree(t), m.property(t, agentUnit, "MainPID")
	m.doctorSays(t, "a daemon listens on /run/libvirt/libvirt-sock-ro")
	m.run(t, "systemctl", "disable", "--now", "libvirtd.service", "libvirtd.socket",
		"libvirtd-ro.socket", "libvirtd-admin.socket")
	m.doctorSays(t, "libvirt is installed, but its daemon does not run")
	for _, daemon := range modularDaemons {
		m.run(t, "systemctl", "enable", "--now", daemon+".socket", daemon+"-ro.socket", daemon+"-admin.socket")
	}
	m.healthy(t, services[0])
	testproc.Equal(t, m.tree(t), before, "libvirtd:\n%s\nmodular daemons:\n%s", before)
	testproc.Equal(t, m.property(t, agentUnit, "MainPID"), pid, "the agent was process %s, and is %s", pid)
	testproc.Equal(t, m.property(t, "libvirtd.service", "ActiveState"), "inactive", "libvirtd is %s")
	m.doctorSays(t, "a daemon listens on /run/libvirt/virtqemud-sock-ro")
}

// testModularDevices: virtqemud asks virtnodedevd for the host's devices. The agent cannot connect
// without it, and says so. When it was restarted, virtqemud has an ended connection to it for each
// client that it had: the agent connects again.
func testModularDevices(t *testing.T, m *machine) {
	m.run(t, "systemctl", "stop", "virtnodedevd.socket",
		"virtnodedevd-ro.socket", "virtnodedevd-admin.socket", "virtnodedevd.service")
	m.run(t, "systemctl", "restart", agentUnit)
	const start = "systemctl enable --now virtnodedevd.socket virtnodedevd-ro.socket"
	eventually(t, "a message about virtnodedevd", func() error {
		if out, _ := m.try("compute-agent", "status"); !strings.Contains(out, start) {
			return fmt.Errorf("the status is %s", out)
		}
		return nil
	})
	m.doctorSays(t, "virtqemud runs, but virtnodedevd does not", start)
	m.sh(t, start)
	m.healthy(t, services[0])

	m.run(t, "systemctl", "restart", "virtnodedevd.service")
	const file = "/etc/compute-agent/conf.d/50-devices.toml"
	// devices are compared when it changes
	m.write(t, file, "[drivers.libvirt.config]\nreserved_host_memory_mb = 256\n")
	m.run(t, "systemctl", "reload", agentUnit)
	m.refreshed(t)
	if out := m.sh(t, "compute-agent status --output json"); strings.Contains(out, "node-devices") {
		t.Errorf("the devices are not compared after a restart of virtnodedevd:\n%s", out)
	}
	m.remove(t, file)
	m.run(t, "systemctl", "reload", agentUnit)
	m.refreshed(t)
}

// refreshed waits until a pass of the agent succeeds.
func (m *machine) refreshed(t *testing.T) {
	t.Helper()
	eventually(t, "a pass that succeeds", func() error {
		if out, err := m.try("compute-agent", "refresh"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	m.healthy(t, services[0])
}

// testModularRestarts: the guest goes on while the daemons restart, and the agent finds them again.
func testModularRestarts(t *testing.T, m *machine) {
	m.doctorSays(t, "a daemon listens on /run/libvirt/virtqemud-sock")
	before, pid := m.domain(t), m.property(t, agentUnit, "MainPID")
	for _, daemon := range []string{"virtqemud", "virtnodedevd"} {
		m.run(t, "systemctl", "restart", daemon+".service")
		m.refreshed(t)
		testproc.Equal(t, m.domain(t), before, "restart of %s: the guest was domain %s, and is %s", daemon, before)
	}
	m.api(t, "POST", "/servers/"+m.guest.server+"/action", `{"reboot": {"type": "HARD"}}`)
	eventually(t, "the guest to be another domain", func() error {
		if m.domain(t) == before {
			return errors.New("it is the same")
		}
		return nil
	})
	m.awaitStatus(t, "ACTIVE")
	testproc.Equal(t, m.property(t, agentUnit, "MainPID"), pid, "the agent was process %s, and is %s", pid)
}
