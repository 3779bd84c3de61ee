// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// recheckInterval is when the parent of a zombie that is not an orphan is checked again: it may
// have become one.
const recheckInterval = time.Second

// CheckReaping reports why orphans cannot be distinguished from processes of this program. Then
// none must be reaped.
func CheckReaping() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	defer func() { _ = self.Release() }()
	var known bool
	if err := self.WithHandle(func(uintptr) {
		var held map[int]bool
		if held, err = ownProcesses(); err == nil {
			known = held[os.Getpid()]
		}
	}); err != nil {
		return fmt.Errorf("descriptors of processes (pidfd, Linux 5.4): %w", err)
	}
	switch {
	case err != nil:
		return err
	case !known:
		return errors.New("/proc is of another PID namespace than this process: mount one of its own")
	}
	return nil
}

// ReapOrphans reaps orphans that have ended, until ctx ends. Only the first process of a PID
// namespace gets any, and [CheckReaping] must have returned nil.
//
// Cost: one system call for each end of a process; for an orphan, /proc and all open files are
// read.
func ReapOrphans(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	later := time.NewTimer(0)
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
		case <-later.C:
		}
		if left := reap(); left {
			later.Reset(recheckInterval)
		}
	}
}

// reap reaps the orphans that have ended. left reports ended children that are not orphans.
func reap() (left bool) {
	if !anyEnded() {
		return false
	}
	pids := zombies(os.Getpid())
	// After the zombies, so that it holds those of this program: their descriptors stay until they
	// are reaped.
	known, err := ownProcesses()
	if err != nil {
		return true
	}
	for _, pid := range pids {
		if known[pid] {
			left = true
			continue
		}
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG, nil), unix.EINTR) {
		}
	}
	return left
}

// anyEnded reports whether a child has ended and is not reaped.
func anyEnded() bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && info.Signo != 0
		}
	}
}

// zombies returns the children of a process that have ended and are not reaped.
func zombies(parent int) []int {
	all, _ := All() // CheckReaping has read /proc
	var pids []int
	for _, p := range all {
		if p.State == 'Z' && p.Parent == parent {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// ownProcesses returns the processes that this one holds a descriptor of.
func ownProcesses() (map[int]bool, error) {
	const dir = "/proc/self/fdinfo"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing open process descriptors: %w", err)
	}
	pids := map[int]bool{}
	for _, e := range entries {
		info, err := os.ReadFile(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // it was closed
		case err != nil:
			return nil, fmt.Errorf("listing open process descriptors: %w", err)
		}
		for line := range bytes.Lines(info) {
			if text, found := bytes.CutPrefix(line, []byte("Pid:")); found {
				if pid, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && pid > 0 {
					pids[pid] = true
				}
			}
		}
	}
	return pids, nil
}
