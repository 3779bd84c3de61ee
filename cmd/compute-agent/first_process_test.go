// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealFirstProcess runs the agent as the first process of a PID namespace, as in a container
// without an init: it reaps an orphan, and leaves its driver's process to who wants to know how
// that ended.
func TestRealFirstProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if os.Geteuid() != 0 {
		testproc.NotRun(t, "being the first process of a PID namespace needs root")
	}
	s := newSite(t)
	s.configure("flat", "")
	agent := testproc.Try(exec.LookPath("compute-agent")).Or(t)
	end := filepath.Join(s.dir, "end")
	check(t, syscall.Mkfifo(end, 0o600))
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/bin/sh",
		"-c", `mount -t proc proc /proc && ((read x <"$0") &) && exec "$@"`,
		end, agent, "run", "--config", filepath.Join(s.dir, "agent.toml"))
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	check(t, cmd.Start())
	driver := func() health.Driver {
		view, err := control.NewClient(filepath.Join(s.dir, "run", "agent.sock")).Status(t.Context())
		if err != nil || len(view.Drivers) == 0 {
			return health.Driver{}
		}
		return view.Drivers[0]
	}
	s.eventually("the first pass", func() bool {
		d := driver()
		return len(d.Report.Nodes) > 0 &&
			d.Report.Nodes[0].Passes > 0
	})

	orphans := childrenNamed(t, cmd.Process.Pid, "sh")
	if len(orphans) != 1 {
		t.Fatalf("orphans: %v", orphans)
	}
	w, err := os.OpenFile(end, os.O_WRONLY, 0) // what it waits for
	check(t, err)
	check(t, w.Close())
	s.eventually("the end of the orphan, and not as a zombie,",
		func() bool { return len(childrenNamed(t, cmd.Process.Pid, "sh")) == 0 })

	plugins := childrenNamed(t, cmd.Process.Pid, "")
	if len(plugins) != 1 {
		t.Fatalf("processes of the driver: %v", plugins)
	}
	check(t, syscall.Kill(plugins[0], syscall.SIGKILL))
	s.eventually("the driver", func() bool { return driver().Plugin.Restarts == 1 })
	testproc.Contains(t, driver().Plugin.LastError, "signal: killed", "how the driver's process ended: %q")

	check(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, &log)
	}
}

// childrenNamed are the children of a process whose names begin so, zombies too.
func childrenNamed(t *testing.T, parent int, name string) []int {
	t.Helper()
	files := testproc.Try(filepath.Glob("/proc/[0-9]*/stat")).Or(t)
	var pids []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it is gone
		}
		_, rest, _ := strings.Cut(string(stat), "(")
		at := strings.LastIndexByte(rest, ')')
		if at < 0 {
			continue
		}
		fields := strings.Fields(rest[at+1:])
		if strings.HasPrefix(rest, name) && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid := testproc.Try(strconv.Atoi(filepath.Base(filepath.Dir(file)))).Or(t)
			pids = append(pids, pid)
		}
	}
	return pids
}
