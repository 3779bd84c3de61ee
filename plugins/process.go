// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// The descriptors of a plugin process. Its standard output carries the handshake, and a stray line
// of a driver or a C library would make the start fail. So before any driver code runs, descriptor
// 1 becomes a second standard error, and only Serve has the real one.
var (
	handshakeStdout = os.Stdout
	stderr          = os.Stderr
)

// init runs before the init functions of drivers, which import this package. It does nothing in a
// process that the agent did not start as a plugin.
func init() {
	if !startedByAgent() {
		return
	}
	runtime.LockOSThread() // for watchParent: main stays on the thread that the process began with
	saved, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return // there is no standard output: the handshake reports it
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		_ = unix.Close(saved)
		return
	}
	handshakeStdout = os.NewFile(uintptr(saved), "handshake")
}

// fromAgent is whether the environment had the cookie at the start of the process. Serve removes
// it: a program that the driver starts is not a plugin.
// A process that enters a sandbox is not a plugin yet.
var fromAgent = os.Getenv(protocol.CookieKey) == protocol.CookieValue && os.Args[0] != protocol.SandboxArg

func startedByAgent() bool { return fromAgent }

// nameProcess sets the name that ps and top show: "driver-libvirt". Without it the name would be
// "3", because the agent starts plugins by file descriptor. The kernel keeps 15 bytes.
func nameProcess(executable string) {
	name := "driver-" + strings.TrimPrefix(filepath.Base(executable), "compute-driver-")
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// closeExecutable sets close-on-exec on the descriptor that the process was executed from.
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

// watchParent kills the process when its parent dies, with its process group if it leads one.
//
// The agent makes the kernel send a plugin SIGKILL then, which would leave the plugin's children
// behind. So watchParent changes the signal to one that only wakes a stopped process. It is a
// setting of the initial thread, on which Serve runs if main called it; elsewhere it stays SIGKILL.
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

// waitForDeath returns when this process' parent is no longer pid.
func waitForDeath(pid int) {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		defer func() { _ = unix.Close(fd) }()
		for os.Getppid() == pid { // the descriptor can be that of a later process with the same number
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
