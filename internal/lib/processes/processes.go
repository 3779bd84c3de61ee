// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one process at a moment.
type Process struct {
	PID, Parent, Group, Session int
	// State is the letter that ps shows: Z is a zombie.
	State   byte
	Threads int
	// Started is the start time in clock ticks since boot: with PID it identifies a process, also
	// after the number is used again.
	Started uint64
	// Memory is its resident memory in bytes. Pages that processes share count for each of them.
	Memory int64
}

// All lists the processes that can be seen.
//
// Errors: /proc cannot be listed. Cost: one small file for each process.
func All() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := Lookup(pid); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

// Lookup returns one process, and false if it does not exist.
func Lookup(pid int) (Process, bool) {
	raw, err := os.ReadFile(path(pid, "stat"))
	if err != nil {
		return Process{}, false
	}
	p, err := parse(raw)
	return p, err == nil
}

func path(pid int, file string) string { return filepath.Join("/proc", strconv.Itoa(pid), file) }

// parse reads /proc/PID/stat: "7 (any) name) S 1 …".
func parse(stat []byte) (Process, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("%q is not a line of /proc/PID/stat", stat)
	}
	fields := strings.Fields(string(stat[end+1:])) // from the third one
	const state, parent, group, session, threads, started, rss = 0, 1, 2, 3, 17, 19, 21
	if len(fields) <= rss {
		return Process{}, fmt.Errorf("%q is not a line of /proc/PID/stat", stat)
	}
	var p Process
	var pages int64
	var err error
	number := func(text string, to *int) {
		if n, bad := strconv.Atoi(text); bad == nil {
			*to = n
		} else {
			err = bad
		}
	}
	number(strings.TrimSpace(string(stat[:open])), &p.PID)
	number(fields[parent], &p.Parent)
	number(fields[group], &p.Group)
	number(fields[session], &p.Session)
	number(fields[threads], &p.Threads)
	if n, bad := strconv.ParseUint(fields[started], 10, 64); bad == nil {
		p.Started = n
	} else {
		err = bad
	}
	if n, bad := strconv.ParseInt(fields[rss], 10, 64); bad == nil {
		pages = n
	} else {
		err = bad
	}
	p.State, p.Memory = fields[state][0], pages*int64(os.Getpagesize())
	return p, err
}

// Family returns the process pid, those of its group, and all their descendants, in the order of
// all.
func Family(all []Process, pid int) []Process {
	in := map[int]bool{}
	for _, p := range all {
		if p.PID == pid || p.Group == pid {
			in[p.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !in[p.PID] && in[p.Parent] {
				in[p.PID], grown = true, true
			}
		}
	}
	var out []Process
	for _, p := range all {
		if in[p.PID] {
			out = append(out, p)
		}
	}
	return out
}

// maxDepth bounds how many ancestors of a process are looked at.
const maxDepth = 1000

// InFamily reports whether the process pid is in the [Family] of another one. A process whose
// parent has ended has no ancestors any more.
//
// Cost: one small file for each ancestor.
func InFamily(pid, family int) bool {
	for range maxDepth {
		p, found := Lookup(pid)
		switch {
		case !found:
			return false
		case p.PID == family || p.Group == family:
			return true
		}
		pid = p.Parent
	}
	return false
}

// OpenFiles counts the open descriptors of a process, and is 0 if they cannot be read.
func OpenFiles(pid int) int {
	entries, err := os.ReadDir(path(pid, "fd"))
	if err != nil {
		return 0
	}
	return len(entries)
}

// CommandLine is the command line of a process, or its name in brackets if that is empty.
func CommandLine(pid int) string {
	raw, _ := os.ReadFile(path(pid, "cmdline"))
	if words := strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " ")); words != "" {
		return words
	}
	raw, _ = os.ReadFile(path(pid, "comm"))
	return "[" + strings.TrimSpace(string(raw)) + "]"
}

// EnvironContains reports whether the environment that a process was started with contains text.
func EnvironContains(pid int, text string) bool {
	raw, err := os.ReadFile(path(pid, "environ"))
	return err == nil && bytes.Contains(raw, []byte(text))
}
