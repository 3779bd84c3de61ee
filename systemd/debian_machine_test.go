// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// patience is how long something may take that should take a moment, also where the tests of a
// whole machine run beside.
const patience = 90 * time.Second

// machine is a container whose PID 1 is systemd.
type machine struct {
	root    string   // its files, as this machine sees them
	name    string   // which no other one of the machine that runs the test has
	options []string // of systemd-nspawn; without any it has no network and writes to its root
	// guest is the server that the test has made in it, and what it has in Placement.
	guest   struct{ server, allocations string }
	group   *os.File // its control group, where no systemd makes one
	console bytes.Buffer
	nspawn  *exec.Cmd
	ended   chan struct{} // closed when nspawn has ended
	leader  int           // its PID 1, as this machine counts
}

// nameOf is the name of a test's machine, or of its files.
func nameOf(t *testing.T) string { return fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), os.Getpid()) }

// boot starts the machine and waits until systemd has started everything.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	if m.options == nil {
		m.options = []string{"--private-network", "--directory=" + m.root}
	}
	args := []string{"systemd-nspawn", "--machine=" + m.name, "--register=no", "--keep-unit", "--console=pipe",
		// without it nspawn refuses them, unlike a machine
		"--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self", "--boot",
		// for SIGTERM, which it gets when the test is killed: by a SIGKILL the container would stay
		"--kill-signal=SIGKILL"}
	args = append(args, m.options...)
	// this machine has a systemd: it delegates control groups to the container
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		args = append([]string{"systemd-run", "--scope", "--quiet", "--collect", "--property=Delegate=yes"}, args...)
	}
	m.leader = 0
	m.console.Reset()
	m.nspawn = exec.Command(args[0], args[1:]...) // it is ended by the test
	// as on a Debian 12, whatever this machine has
	m.nspawn.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	m.nspawn.Stdout, m.nspawn.Stderr = &m.console, &m.console
	m.nspawn.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	m.ownGroup(t)
	must(t, m.nspawn.Start())
	ended := make(chan struct{})
	m.ended = ended
	go func() { defer close(ended); _ = m.nspawn.Wait() }()
	eventually(t, "the container's first process", func() (err error) {
		select {
		case <-ended:
			t.Fatalf("the container ended at once: %v\n%s", m.nspawn.ProcessState, m.console.String())
		default:
		}
		m.leader, err = firstProcess(m.nspawn.Process.Pid)
		return err
	})
	eventually(t, "the end of the boot", func() error {
		state, err := m.try("systemctl", "is-system-running")
		switch strings.TrimSpace(state) {
		case "running":
			return nil
		case "degraded":
			failed, _ := m.try("systemctl", "--failed", "--no-legend", "--plain")
			t.Logf("Units of the container failed:\n%s", failed)
			return nil
		}
		return fmt.Errorf("%s %w", state, err)
	})
}

// halt ends the machine: by poweroff, or by reboot, after which boot goes on.
func (m *machine) halt(t *testing.T, how string) {
	t.Helper()
	_, _ = m.try("systemctl", "--no-block", how) // the answer may get lost with the machine
	select {
	case <-m.ended:
	case <-time.After(patience):
		t.Errorf("the container does not end by %s:\n%s", how, m.console.String())
		m.kill()
	}
}

// kill ends the machine whatever it does.
func (m *machine) kill() {
	if m.nspawn == nil {
		return
	}
	select {
	case <-m.ended:
		return
	default:
	}
	if m.leader != 0 {
		_ = syscall.Kill(m.leader, syscall.SIGKILL) // all processes of the container go with it
	}
	_ = m.nspawn.Process.Kill()
	<-m.ended
}

// firstProcess is the child of nspawn that is PID 1 in a namespace.
func firstProcess(nspawn int) (int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", nspawn, nspawn))
	if err != nil {
		return 0, err
	}
	for _, child := range strings.Fields(string(children)) {
		status, err := os.ReadFile(filepath.Join("/proc", child, "status"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "NSpid:" && f[len(f)-1] == "1" {
				return strconv.Atoi(child)
			}
		}
	}
	return 0, errors.New("not there yet")
}

// try runs a program in the machine and returns what it wrote.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return m.inside(ctx, args...)
}

// inside is try for what may take until a context ends.
func (m *machine) inside(ctx context.Context, args ...string) (string, error) {
	out, err := m.command(ctx, args...).CombinedOutput()
	return string(out), err
}

// command is a program that is about to run in the machine.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	inside := []string{"--target", strconv.Itoa(m.leader),
		"--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--",
		"env", "--ignore-environment", "--chdir=/", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd := exec.CommandContext(ctx, "nsenter", append(inside, args...)...)
	cmd.Dir, cmd.WaitDelay = "/", time.Second // processes that it leaves behind may hold its output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run is try for what must succeed.
func (m *machine) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.try(args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// sh runs a script.
func (m *machine) sh(t *testing.T, script string) string {
	t.Helper()
	return m.run(t, "sh", "-euc", script)
}

// write writes a file of the machine.
func (m *machine) write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(filepath.Join(m.root, path)), 0o755))
	must(t, os.WriteFile(filepath.Join(m.root, path), []byte(content), 0o644))
}

// remove removes a file of the machine.
func (m *machine) remove(t *testing.T, path string) {
	t.Helper()
	must(t, os.Remove(filepath.Join(m.root, path)))
}

// property is a property of a unit.
func (m *machine) property(t *testing.T, unit, name string) string {
	t.Helper()
	return strings.TrimSpace(m.run(t, "systemctl", "show", "--value", "--property="+name, unit))
}

// number is a property that is one.
func (m *machine) number(t *testing.T, unit, name string) int {
	t.Helper()
	return testproc.Try(strconv.Atoi(m.property(t, unit, name))).Or(t)
}

// journal is what a unit and systemd wrote about it, in this boot.
func (m *machine) journal(t *testing.T, unit string) string {
	t.Helper()
	m.run(t, "journalctl", "--sync") // what journald has received is in the files then
	return m.run(t, "journalctl", "--boot", "--no-pager", "--output=cat", "--unit="+unit)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() error) {
	t.Helper()
	testproc.Eventually(t, patience, what, is)
}

// ownGroup has the container start in a control group of its own, where no systemd makes one: two
// containers in one group would take it from each other.
func (m *machine) ownGroup(t *testing.T) {
	t.Helper()
	if m.nspawn.Path != "" && filepath.Base(m.nspawn.Path) != "systemd-nspawn" {
		return // systemd-run makes it
	}
	if m.group == nil {
		m.makeGroup(t)
	}
	m.nspawn.SysProcAttr.UseCgroupFD, m.nspawn.SysProcAttr.CgroupFD = true, int(m.group.Fd())
}

// makeGroup makes the control group, which is removed with the test that boots the machine first.
func (m *machine) makeGroup(t *testing.T) {
	t.Helper()
	hierarchy, err := exec.CommandContext(t.Context(), "findmnt", "--noheadings", "--first-only",
		"--types=cgroup2", "--output=TARGET").Output()
	must(t, err)
	groups := testproc.Try(os.ReadFile("/proc/self/cgroup")).Or(t)
	_, ours, _ := strings.Cut("\n"+string(groups), "\n0::")
	ours, _, _ = strings.Cut(ours, "\n")
	group := filepath.Join(strings.TrimSpace(string(hierarchy)), ours, "units-"+m.name)
	must(t, os.MkdirAll(group, 0o755))
	m.group = testproc.Try(os.Open(group)).Or(t)
	t.Cleanup(func() {
		m.kill()
		_ = m.group.Close()
		removeGroups(t, group)
	})
}

// removeGroups removes a control group without processes, and those below it.
func removeGroups(t *testing.T, group string) {
	t.Helper()
	entries := testproc.Try(os.ReadDir(group)).Or(t)
	for _, entry := range entries {
		if entry.IsDir() {
			removeGroups(t, filepath.Join(group, entry.Name()))
		}
	}
	eventually(t, "the control group "+group+" to be empty", func() error { return os.Remove(group) })
}
