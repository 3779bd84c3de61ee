// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// usage is what the processes have used so far.
type usage struct {
	api, cells       time.Duration // CPU time
	heap             uint64        // bytes that live, after a collection
	apiRSS, cellsRSS string        // the most so far
}

func (w *world) usage() usage {
	var self syscall.Rusage
	check(w.t, syscall.Getrusage(syscall.RUSAGE_SELF, &self))
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return usage{
		api:   time.Duration(self.Utime.Nano() + self.Stime.Nano()),
		cells: w.cpuOf(w.healthy.cmd.Process.Pid), heap: memory.HeapAlloc,
		apiRSS: w.peakRSS(os.Getpid()), cellsRSS: w.peakRSS(w.healthy.cmd.Process.Pid),
	}
}

// cpuOf reads /proc/PID/stat, whose clock ticks a hundred times a second.
func (w *world) cpuOf(pid int) time.Duration {
	text := testproc.Try(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))).Or(w.t)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime, the 14th and 15th of all
		n := testproc.Try(strconv.ParseInt(field, 10, 64)).Or(w.t)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func (w *world) peakRSS(pid int) string {
	text := testproc.Try(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))).Or(w.t)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kib := testproc.Try(strconv.Atoi(strings.Fields(line)[0])).Or(w.t)
	return fmt.Sprintf("%d MiB", kib>>10)
}

// line is what the requests of a crowd took and cost.
func (o outcome) line(name string, before, after usage) string {
	n := o.asked()
	per := func(d time.Duration) float64 { return milliseconds(d) / float64(n) }
	return fmt.Sprintf("%s: %d requests in %.1f s; fastest %.1f ms, p50 %.1f, p99 %.1f, slowest %.1f; CPU of one "+
		"%.1f ms here and %.1f in the cells; heap %d MiB, peak RSS %s here, %s in the cells",
		name, n, o.Elapsed.Seconds(), milliseconds(o.quantile("", 0)), milliseconds(o.quantile("", 0.5)),
		milliseconds(o.quantile("", 0.99)), milliseconds(o.quantile("", 1)),
		per(after.api-before.api), per(after.cells-before.cells), after.heap>>20, after.apiRSS, after.cellsRSS)
}

// report is the line, and a table of the kinds.
func (o outcome) report(name string, before, after usage) string {
	var out strings.Builder
	out.WriteString(o.line(name, before, after) + "\n")
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, kind := range kinds {
		_, _ = fmt.Fprintf(table, "  %s\tp50 %.1f ms\tp99 %.1f ms\tslowest %.1f ms\t%d\n", kind,
			milliseconds(o.quantile(kind, 0.5)), milliseconds(o.quantile(kind, 0.99)),
			milliseconds(o.quantile(kind, 1)), len(o.Took[kind]))
	}
	_ = table.Flush()
	return out.String()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
