// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time that the service and its database have used so far, in user and kernel
// mode, by all their processes. It comes from the processes' CPU clocks, which count nanoseconds
// where /proc/PID/stat counts ticks of 10 ms.
func (p *peer) CPU() (time.Duration, error) {
	pids, err := p.pids()
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, pid := range pids {
		// The clock id of a process's CPU time, as clock_getcpuclockid(3) makes it.
		const cpuClockSched = 2
		var at unix.Timespec
		if err := unix.ClockGettime(^int32(pid)<<3|cpuClockSched, &at); err != nil {
			return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
		}
		sum += time.Duration(at.Nano())
	}
	return sum, nil
}

// memory is what processes hold, in bytes.
type memory struct {
	// PSS counts pages that processes share once, in parts; RSS counts them for each.
	PSS, RSS int64
}

// Memory is what the service and its database hold now.
func (p *peer) Memory() (memory, error) {
	pids, err := p.pids()
	if err != nil {
		return memory{}, err
	}
	var sum memory
	for _, pid := range pids {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return memory{}, err
		}
		for line := range strings.Lines(string(rollup)) {
			fields := strings.Fields(line)
			if len(fields) != 3 || fields[2] != "kB" {
				continue
			}
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return memory{}, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			switch fields[0] {
			case "Pss:":
				sum.PSS += kib << 10
			case "Rss:":
				sum.RSS += kib << 10
			}
		}
	}
	return sum, nil
}

// pids are the processes of the peer: those that were started and all below them.
func (p *peer) pids() ([]int, error) {
	if len(p.processes) == 0 {
		return nil, errors.New("the peer does not run")
	}
	children, err := childrenByParent()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, proc := range p.processes {
		pids = append(pids, proc.cmd.Process.Pid)
	}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	slices.Sort(pids)
	return pids, nil
}

func childrenByParent() (map[int][]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// PID (NAME) STATE PARENT …, and a name may hold anything.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	return children, nil
}
