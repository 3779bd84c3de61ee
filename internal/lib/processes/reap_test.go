// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// firstEnv makes the test's program the first process of a PID namespace.
const firstEnv = "REAPER_TEST_FIRST"

func TestMain(m *testing.M) {
	switch os.Getenv(firstEnv) {
	case "":
		os.Exit(m.Run())
	case "without /proc":
		if err := CheckReaping(); err == nil || !strings.Contains(err.Error(), "PID namespace") {
			fail(errors.New(fmt.Sprint("with the /proc of another namespace: ", err)))
		}
	default:
		if err := first(); err != nil {
			fail(err)
		}
	}
	os.Exit(0)
}

func fail(err error) {
	_, _ = fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestReapOrphans runs [first] in its own PID namespace, and in one with the /proc of its parent,
// where nothing must be reaped.
func TestReapOrphans(t *testing.T) {
	if os.Geteuid() != 0 {
		testproc.NotRun(t, "being the first process of a PID namespace needs root")
	}
	for _, where := range []string{"with /proc", "without /proc"} {
		t.Run(where, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/proc/self/exe")
			cmd.Env = append(os.Environ(), firstEnv+"="+where)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
				Pdeathsig: syscall.SIGKILL}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("the first process of a container: %v: %s", err, out)
			}
		})
	}
}

// first is run by the first process: orphans end before and after it starts to reap, and each child
// of its own keeps its exit status, also one that is not waited for yet.
func first() error {
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return fmt.Errorf("this is process %d", os.Getpid())
	}
	if err := CheckReaping(); err != nil {
		return err
	}
	if err := family(); err != nil { // its orphan can end before ReapOrphans runs
		return err
	}
	late := exec.Command("/bin/sh", "-c", "exit 7")
	if err := late.Start(); err != nil {
		return err
	}
	if err := unix.Waitid(unix.P_PID, late.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); ReapOrphans(ctx) }()
	var families sync.WaitGroup
	problems := make(chan error, 50)
	for range cap(problems) {
		families.Go(func() { problems <- family() })
	}
	families.Wait()
	close(problems)
	for err := range problems {
		if err != nil {
			return err
		}
	}
	only := []int{late.Process.Pid}
	if err := until(func() bool { return slices.Equal(children(), only) }); err != nil {
		return fmt.Errorf("children are %v, want %v: %w", children(), only, err)
	}
	if err := exited(late.Wait()); err != nil {
		return fmt.Errorf("the child that was not waited for: %w", err)
	}
	cancel()
	<-done
	if err := family(); err != nil {
		return err
	}
	if err := until(func() bool { return len(zombies(1)) == 1 }); err != nil {
		return fmt.Errorf("orphans are reaped after ReapOrphans has returned, or the test makes none: %w", err)
	}
	return nil
}

// family runs a child that leaves an orphan behind, which ends after it.
func family() error {
	return exited(exec.Command("/bin/sh", "-c", "(while kill -0 $$; do :; done) 2>/dev/null >&2 & exit 7").Run())
}

// exited checks the exit code of a child.
func exited(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		return fmt.Errorf("a child ended with: %w", err)
	}
	return nil
}

// children returns all children of this process.
func children() []int {
	var pids []int
	all, _ := All()
	for _, p := range all {
		if p.Parent == 1 {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func until(f func() bool) error {
	deadline := time.Now().Add(2 * time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			return errors.New("not within 2 minutes")
		}
		runtime.Gosched()
	}
	return nil
}

func TestOursListsProcessesUntilTheyAreWaitedFor(t *testing.T) {
	testproc.Check(t, CheckReaping())
	cmd := exec.Command("/bin/sh", "-c", "exit 0")
	testproc.Check(t, cmd.Start())
	pid := cmd.Process.Pid
	testproc.Check(t, unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	if known, err := ownProcesses(); err != nil || !known[pid] {
		t.Errorf("a zombie of this program is not listed: %v, %v", known, err)
	}
	if !slices.Contains(zombies(os.Getpid()), pid) || !anyEnded() {
		t.Error("it is not listed as a zombie")
	}
	testproc.Check(t, cmd.Wait())
	if known, err := ownProcesses(); err != nil || known[pid] {
		t.Errorf("it was waited for, and is still listed: %v, %v", known, err)
	}
}
