// SPDX-License-Identifier: Apache-2.0

package reaper

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

// again is when it is looked once more after a zombie was left to somebody who is about to reap it: if nobody does, it is an orphan by then.
const again = time.Second

// Check says whether orphans can be told from processes of ours here. Without that none may be reaped.
func Check() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	defer func() { _ = self.Release() }()
	var known bool
	if err := self.WithHandle(func(uintptr) {
		var held map[int]bool
		if held, err = ours(); err == nil {
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

// Run reaps orphans that have ended, and those that end, until the context does. Only the first process of a PID namespace gets any, and for
// it [Check] must have found nothing wrong.
//
// Cost: one system call for each end of a process; for those of orphans also a look at all processes and at all open files.
func Run(ctx context.Context) {
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
			later.Reset(again)
		}
	}
}

// reap reaps the orphans that have ended and reports whether there are other children that have.
func reap() (left bool) {
	if !anyEnded() {
		return false
	}
	pids := zombies(os.Getpid())
	// After they were found, so that a process of ours among them is known: its descriptor stays until it is reaped.
	known, err := ours()
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

// anyEnded reports whether a child has ended and waits for being reaped.
func anyEnded() bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && info.Signo != 0
		}
	}
}

// zombies are the children of a process that have ended and are not reaped.
func zombies(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // errors are of the pattern only
	var pids []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it is gone
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if state, ppid := parseStat(stat); err == nil && state == "Z" && ppid == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parseStat takes state and parent out of /proc/PID/stat: "7 (any) name) Z 1 …".
func parseStat(stat []byte) (state string, parent int) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return "", 0
	}
	return string(fields[0]), parent
}

// ours are the processes of which this one has a descriptor. An error means that it cannot be told.
func ours() (map[int]bool, error) {
	const dir = "/proc/self/fdinfo"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("processes of our own: %w", err)
	}
	pids := map[int]bool{}
	for _, e := range entries {
		info, err := os.ReadFile(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // it was closed
		case err != nil:
			return nil, fmt.Errorf("processes of our own: %w", err)
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
