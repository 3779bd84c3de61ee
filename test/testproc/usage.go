// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time that processes have used so far, in user and kernel mode. It comes from
// the processes' CPU clocks, which count nanoseconds where /proc/PID/stat counts ticks of 10 ms.
func CPU(pids ...int) (time.Duration, error) {
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

// Memory is what processes hold, in bytes.
type Memory struct {
	// PSS counts pages that processes share once, in parts; RSS counts them for each.
	PSS, RSS int64
}

// MemoryOf is what processes hold now.
func MemoryOf(pids ...int) (Memory, error) {
	var sum Memory
	for _, pid := range pids {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return Memory{}, err
		}
		for line := range strings.Lines(string(rollup)) {
			fields := strings.Fields(line)
			if len(fields) != 3 || fields[2] != "kB" {
				continue
			}
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return Memory{}, fmt.Errorf("read the memory of process %d: %w", pid, err)
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

// Machine describes what figures are measured on, and what it was doing before.
func Machine() string {
	model := "an unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%s; %d x %s, %s/%s, %s; load before: %s",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), model,
		runtime.GOOS, runtime.GOARCH, runtime.Version(),
		strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "))
}
