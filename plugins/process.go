// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
)

// The descriptors of a plugin process. Its standard output carries the handshake, where one stray line of a driver, or of
// the C library that it links, would make the start fail. So before any driver code runs, descriptor 1 becomes a second
// standard error, and only Serve knows the real one.
var (
	handshakeStdout = os.Stdout
	stderr          = os.Stderr
)

// init runs before the init functions of packages that import this one, that is, of drivers. In any process but one that
// the agent started as a plugin it does nothing.
func init() {
	if !startedByAgent() {
		return
	}
	runtime.LockOSThread() // for watchParent: main stays on the thread that the process began with
	saved, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return // no standard output at all: the handshake will fail, and say so
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		_ = unix.Close(saved)
		return
	}
	handshakeStdout = os.NewFile(uintptr(saved), "handshake")
}

// fromAgent is what the environment said at the start of the process. Serve takes it out of there: a program that the driver starts, another copy
// of itself perhaps, is no plugin.
var fromAgent = os.Getenv(protocol.CookieKey) == protocol.CookieValue

func startedByAgent() bool { return fromAgent }

// nameProcess sets the name that ps and top show: "driver-libvirt". The agent starts plugins by file descriptor, after
// which they would be called "3". The kernel keeps 15 bytes.
func nameProcess(executable string) {
	name := "driver-" + strings.TrimPrefix(filepath.Base(executable), "compute-driver-")
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// closeExecutable marks the descriptor that the process was executed from as not to be inherited.
func closeExecutable() {
	const fd = 3
	var opened, running unix.Stat_t
	if unix.Fstat(fd, &opened) != nil || unix.Stat("/proc/self/exe", &running) != nil {
		return
	}
	if opened.Dev == running.Dev && opened.Ino == running.Ino {
		unix.CloseOnExec(fd)
	}
}

// watchParent ends the process when its parent dies, and what it started with it, if the process leads its group.
//
// The agent has the kernel send a plugin SIGKILL then, which would leave what the plugin started behind. So from here on the
// signal is another one, which only wakes a process that is stopped. It belongs to the thread that the process began with,
// on which Serve is if main called it; elsewhere SIGKILL it stays.
func watchParent() {
	parent := os.Getppid()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0)
	runtime.UnlockOSThread()
	go func() {
		waitForDeath(parent)
		if unix.Getpgrp() == os.Getpid() {
			_ = unix.Kill(-os.Getpid(), unix.SIGKILL)
		}
		os.Exit(1)
	}()
}

// waitForDeath returns when our parent is no longer the process pid.
func waitForDeath(pid int) {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		defer func() { _ = unix.Close(fd) }()
		for os.Getppid() == pid { // the descriptor may be that of a later process of the same number
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, 60_000); n > 0 || (err != nil && err != unix.EINTR) {
				break
			}
		}
	}
	for os.Getppid() == pid {
		time.Sleep(time.Second)
	}
}
