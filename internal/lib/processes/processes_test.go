// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestParseReadsNamesWithParentheses(t *testing.T) {
	const line = "7 (a) b (c) S 1 7 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 12 0 4711 99 3 18446744073709551615"
	got, err := parse([]byte(line))
	want := Process{PID: 7, Parent: 1, Group: 7, Session: 5, State: 'S', Threads: 12, Started: 4711,
		Memory: int64(3 * os.Getpagesize())}
	if err != nil || got != want {
		t.Errorf("parse: got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "7 (a", ")(", "7 (a) S 1 7", strings.Replace(line, " 1 7 5", " one 7 5", 1),
		strings.Replace(line, "4711", "-", 1)} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestFamilyHasGroupAndDescendantsInOtherSessions(t *testing.T) {
	// A shell gives what it starts in the background /dev/null as standard input, so the pipe is
	// number 3.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec 3<&0; setsid sh -c 'echo $$; read x <&3' & wait")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "FAMILY=of-this-test"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout := testproc.Try(cmd.StdoutPipe()).Or(t)
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	testproc.Check(t, err)
	line := testproc.Try(bufio.NewReader(stdout).ReadString('\n')).Or(t)
	child := testproc.Try(strconv.Atoi(strings.TrimSpace(line))).Or(t)
	all := testproc.Try(All()).Or(t)
	pids := map[int]Process{}
	for _, p := range Family(all, cmd.Process.Pid) {
		pids[p.PID] = p
	}
	if len(pids) != 2 || pids[child].Session != child ||
		pids[child].Memory == 0 || pids[cmd.Process.Pid].Group != cmd.Process.Pid {
		t.Errorf("%d and %d: %+v", cmd.Process.Pid, child, pids)
	}
	if !InFamily(child, cmd.Process.Pid) || !InFamily(child, os.Getpid()) || !InFamily(child, child) ||
		InFamily(cmd.Process.Pid, child) || InFamily(os.Getpid(), child) {
		t.Errorf("which of %d, %d and %d is within another one", os.Getpid(), cmd.Process.Pid, child)
	}
	if OpenFiles(child) < 3 || !EnvironContains(child, "FAMILY=of-this-test") ||
		EnvironContains(child, "FAMILY=of-another") ||
		!strings.HasPrefix(CommandLine(child), "sh -c echo") {
		t.Errorf("%d open files, %q", OpenFiles(child), CommandLine(child))
	}
	_ = stdin.Close() // both end on that
	testproc.NoError(t, cmd.Wait())
	if _, there := Lookup(child); there {
		t.Errorf("process %d exists after its end", child)
	}
	if InFamily(child, child) || OpenFiles(child) != 0 || EnvironContains(child, "") || CommandLine(child) != "[]" {
		t.Error("an ended process has data")
	}
}
