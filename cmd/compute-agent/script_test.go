// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var binaries = testproc.Of("cmd/compute-driver-fake")

// run runs the tests with a directory for binaries.
type run struct{ m *testing.M }

func (r run) Run() int { return binaries.Main(r.m) }

func TestMain(m *testing.M) {
	testscript.Main(run{m}, map[string]func(){
		"compute-agent": main, "compute-agent-killed": killedMain,
		"compute-driver-fake": func() { plugins.Serve(fake.New()) }, trial.SuiteProgram: suiteMain,
	})
}

// suiteMain is the program that the agent finds beside itself.
func suiteMain() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	if err := drivertest.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		panic(err)
	}
}

// TestScripts runs commands as a user types them; each file in testdata/script is a story.
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script")
}

// TestRealScripts runs those that begin with a database of OpenStack's Placement.
func TestRealScripts(t *testing.T) {
	t.Parallel()
	needsUpstream(t)
	runScripts(t, "testdata/real")
}

func runScripts(t *testing.T, dir string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"old-placement": oldPlacement,
			"exits": exits, "await": await},
		Setup: func(env *testscript.Env) error {
			env.Setenv("COMPUTE_AGENT_AGENT_RUNTIME_DIR", "/nonexistent-compute-agent")
			return turn(env)
		},
	})
}

// turn has a script wait as tests do: testscript runs all at once.
func turn(env *testscript.Env) error {
	end, err := testproc.Turn(testproc.Light)
	if err == nil {
		env.Defer(end)
	}
	return err
}

// exits is the command `exits CODE PROGRAM ARGS...`: exec, with the exit code that it must have.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// await is the command `await FILE`: it waits until the file exists.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	for end := time.Now().Add(testproc.Patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(ts.MkAbs(args[0]))
		switch {
		case err == nil:
			return
		case time.Now().After(end):
			ts.Fatalf("after %v: %v", testproc.Patience, err)
		}
	}
}
