// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testhost"
)

// insideEnv tells the program where in its namespaces it is: their first process, or the one that
// tells the story.
const (
	insideEnv   = "MADE_UP_HOST"
	isFirst     = "init"
	tellsStory  = "story"
	interrupted = 130
)

// hostName is the name of the made-up host.
const hostName = "cn1"

// isolate runs this program again in namespaces of its own, as their first process: when it ends,
// all others in them do, and what they mounted, listened on and put into /dev/shm disappears.
func isolate(ctx context.Context, args []string) error {
	if os.Geteuid() != 0 {
		return testhost.ErrNotRoot
	}
	// The kernel tells the child when this thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), insideEnv+"="+isFirst)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGTERM,
	}
	err := cmd.Run()
	var failed *exec.ExitError
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: %w", testhost.ErrNotRoot, err)
	case errors.As(err, &failed) && failed.Exited():
		os.Exit(failed.ExitCode()) // it has said why
	}
	return err
}

// begin is the first process in the namespaces. It returns only what keeps it from being that.
func begin(args []string) error {
	if err := furnish(); err != nil {
		return err
	}
	code, err := first(args)
	if err == nil {
		os.Exit(code)
	}
	return err
}

// first is what the first process in the namespaces does: it buries what others leave behind
// (libvirt waits for that), until the story has ended, and returns the exit code.
func first(args []string) (int, error) {
	if err := os.Setenv(insideEnv, tellsStory); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	story, err := os.StartProcess("/proc/self/exe", append(os.Args[:1:1], args...), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, err
	}
	pid := story.Pid
	go func() { // ends with the process
		for s := range signals {
			if s == syscall.SIGTERM { // the other one comes from the terminal, to all
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
	}()
	for {
		var status syscall.WaitStatus
		switch ended, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case ended == pid && status.Signaled():
			return interrupted, nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}

// furnish makes the namespaces usable: processes of their own in /proc, space in /dev/shm, the
// loopback interface, a host name.
func furnish() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts private: %w", err)
	}
	for _, m := range []struct{ source, target, kind, data string }{
		{"proc", "/proc", "proc", ""},
		{"tmpfs", "/dev/shm", "tmpfs", "mode=1777"},
	} {
		if err := syscall.Mount(m.source, m.target, m.kind, syscall.MS_NOSUID|syscall.MS_NODEV, m.data); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := syscall.Sethostname([]byte(hostName)); err != nil {
		return fmt.Errorf("naming the host: %w", err)
	}
	return loopback()
}

// loopback brings the interface up on which Placement listens.
func loopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the loopback interface: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("the loopback interface: %w", err)
	}
	return nil
}
