// SPDX-License-Identifier: Apache-2.0

package testproc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var binaries = testproc.Of("cmd/compute-driver-fake")

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// shell starts a shell script.
func shell(t *testing.T, script string, forget ...string) *testproc.Process {
	t.Helper()
	p := testproc.Start(t, "a script", exec.Command("sh", "-c", script), forget...)
	p.KilledBy(t)
	return p
}

// TestLog: the lines of both outputs are kept in order, and waits begin at marks.
func TestLog(t *testing.T) {
	p := shell(t, "trap 'echo two three again; exit 0' USR1; echo one two; echo chatter; echo two three >&2; while "+
		":; do sleep 0.01; done", "chat", "ter")
	if line := p.Await(t, 0, "three", "two"); line != "two three" {
		t.Errorf("it waits for %q", line)
	}
	mark := p.Mark()
	p.Freeze(t)
	if err := p.Signal(syscall.SIGUSR1); err != nil { // it does not notice yet
		t.Error(err)
	}
	if p.Mark() != mark {
		t.Error("one that is frozen goes on")
	}
	p.Thaw(t)
	if line := p.Await(t, mark, "two"); line != "two three again" {
		t.Errorf("after the mark it waits for %q", line)
	}
	if code := p.Exit(t); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if diff := cmp.Diff([]string{"one two", "two three", "two three again"}, p.Lines()); diff != "" {
		t.Error(diff)
	}
	if all, since := p.Count(0, "two"), p.Count(mark, "two"); all != 3 || since != 1 {
		t.Errorf("%d lines, since the mark %d", all, since)
	}
}

// TestUntilProcessEnds: the last lines of a process count, and then Until reports that there are no
// more.
func TestUntilProcessEnds(t *testing.T) {
	p := shell(t, "echo first; echo last; exit 7")
	seen := map[string]int{}
	look := func(wanted string) (string, bool) {
		return p.Until(t, "it", 0, func(line string) bool { seen[line]++; return line == wanted })
	}
	if line, said := look("last"); !said || line != "last" {
		t.Errorf("%q, %v", line, said)
	}
	clear(seen)
	if line, said := look("never"); said {
		t.Errorf("it wrote %q", line)
	}
	if diff := cmp.Diff(map[string]int{"first": 1, "last": 1}, seen); diff != "" {
		t.Errorf("lines are not looked at once:\n%s", diff)
	}
	if code := p.Exit(t); code != 7 {
		t.Errorf("it ended with %d", code)
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		t.Error("one that has ended gets a signal")
	}
}

// TestStopAndKill: Stop lets a process end, Kill does not; a stopped one can be killed, and one
// that is gone. It is started again, and its output goes on.
func TestStopAndKill(t *testing.T) {
	const script = `trap 'echo good night; exit 0' TERM; echo up; while :; do sleep 0.01; done`
	p := shell(t, script)
	p.Await(t, 0, "up")
	p.Stop(t)
	if p.Count(0, "good night") != 1 {
		t.Errorf("it wrote %q", p.Lines())
	}
	mark := p.Again(t)
	p.Await(t, mark, "up")
	p.Freeze(t)
	p.Kill()
	p.Kill()
	if p.Code() != -1 || p.Count(mark, "good night") != 0 || p.Count(0, "up") != 2 {
		t.Errorf("it ended with %d and wrote %q", p.Code(), p.Lines())
	}
}

// TestBinaries: a binary is built when it is run first, and is not under the influence of this
// process's variables.
func TestBinaries(t *testing.T) {
	t.Setenv("COMPUTE_AGENT_LOG_LEVEL", "debug")
	file := filepath.Join(binaries.Dir(), "compute-driver-fake")
	cmd := binaries.Command("compute-driver-fake")
	if _, err := os.Stat(file); err != nil || cmd.Path != file {
		t.Errorf("the command is %s: %v", cmd.Path, err)
	}
	for _, v := range cmd.Env {
		if strings.HasPrefix(v, "COMPUTE_AGENT_") {
			t.Errorf("it gets %s", v)
		}
	}
	// A driver that is not started by the agent says so, and ends.
	if out, code := binaries.Run(t, "compute-driver-fake"); code == 0 || out == "" {
		t.Errorf("it ended with %d and wrote %q", code, out)
	}
}

// TestNoBuild: a command that cannot be built fails where it is started, with what is the matter.
func TestNoBuild(t *testing.T) {
	cmd := testproc.Of("cmd/compute-agent").Command("compute-agent")
	if err := cmd.Start(); err == nil || !strings.Contains(err.Error(), "TestMain") {
		t.Errorf("starting it: %v", err)
	}
}
