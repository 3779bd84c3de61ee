// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/reportclient"
)

// sample is what happened in a phase, or what one worker saw of it.
type sample struct {
	wall          time.Duration
	reads, writes []time.Duration // until the head of the answer
	statuses      []int           // of 400 and more; 0: no answer
	passes        int
	conflicts     int // passes that failed because others wrote
	failed        int // other passes that failed
	why           []string
}

func (s *sample) answered(method string, status int, took time.Duration) {
	if method == http.MethodGet {
		s.reads = append(s.reads, took)
	} else {
		s.writes = append(s.writes, took)
	}
	if status == 0 || status >= http.StatusBadRequest {
		s.statuses = append(s.statuses, status)
	}
}

func (s *sample) passed(err error) {
	s.passes++
	switch {
	case err == nil:
	case errors.Is(err, reportclient.ErrConflict):
		s.conflicts++
	default:
		s.failed++
		if len(s.why) < 3 {
			s.why = append(s.why, err.Error())
		}
	}
}

func (s *sample) add(o *sample) {
	s.reads, s.writes = append(s.reads, o.reads...), append(s.writes, o.writes...)
	s.statuses, s.why = append(s.statuses, o.statuses...), append(s.why, o.why...)
	s.passes, s.conflicts, s.failed = s.passes+o.passes, s.conflicts+o.conflicts, s.failed+o.failed
}

func (s *sample) requests() int { return len(s.reads) + len(s.writes) }

// refused counts the answers that refuse, by status.
func (s *sample) refused() string {
	counts := map[int]int{}
	for _, status := range s.statuses {
		counts[status]++
	}
	if len(counts) == 0 {
		return "none refused"
	}
	return fmt.Sprintf("refused, by status (0: without an answer): %v", counts)
}

// latencies are the median, the 99th of a hundred and the longest.
func latencies(of []time.Duration) string {
	if len(of) == 0 {
		return "none"
	}
	slices.Sort(of)
	at := func(percent int) float64 { return of[min(len(of)*percent/100, len(of)-1)].Seconds() * 1000 }
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f, longest %.0f", at(50), at(99), at(100))
}

// report is a summary of a phase of a fleet.
func (s *sample) report(f *fleet, long time.Duration, before, after usage) string {
	var out strings.Builder
	n, agents := max(s.requests(), 1), len(f.agents)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, "  "+format+"\n", args...) }
	line("%d requests (%d writes), %.2f an agent; %s; %d passes, %d of them gave up after conflicts, %d failed",
		s.requests(), len(s.writes), float64(s.requests())/float64(agents),
		s.refused(), s.passes, s.conflicts, s.failed)
	busiest := int64(0)
	for i := range f.seconds {
		busiest = max(busiest, f.seconds[i].Load())
	}
	line("in %v of simulated time: %.0f requests/s, at most %d in one second; %d connections for requests, %d probes",
		long, float64(s.requests())/long.Seconds(), busiest,
		after.connections-before.connections, after.probes-before.probes)
	line("in %.1f s of real time: %.0f requests/s; reads %s; writes %s",
		s.wall.Seconds(), float64(s.requests())/s.wall.Seconds(), latencies(s.reads), latencies(s.writes))
	if after.memory.RSS > 0 {
		cpu := after.cpu - before.cpu
		line("servers and databases: %.1f s of CPU time, %.3f s per 1,000 requests, %.3f ms an agent, %.2f CPUs in "+
			"simulated time; RSS %d MiB before, %d after",
			cpu.Seconds(), cpu.Seconds()/float64(n)*1000, cpu.Seconds()*1000/float64(agents),
			cpu.Seconds()/long.Seconds(), before.memory.RSS>>20, after.memory.RSS>>20)
	}
	line("this simulator: %.1f s of CPU time", (after.own - before.own).Seconds())
	for _, why := range s.why {
		line("failed: %s", why)
	}
	return out.String()
}
