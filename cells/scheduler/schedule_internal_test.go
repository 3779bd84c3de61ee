// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"
	"time"
)

// TestPutOffMeanwhile: what was found due and unanswered, and was put off since by the worker that
// had it, is not tried.
func TestPutOffMeanwhile(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for name, again := range map[string]bool{"due": false, "put off": true} {
		s := &Scheduler{opts: Options{Workers: 1, Now: func() time.Time { return now }},
			locks: serverLocks{servers: map[string]chan struct{}{}}}
		d := &backoff{}
		d.recordUnanswered("server", true, true, now.Add(-time.Minute))
		tried := false
		tasks := s.unanswered(d, []task{{server: "server", key: "server", do: func(query bool) { tried = query }}})
		if again {
			d.recordUnanswered("server", true, true, now)
		}
		w := s.newWorkers()
		s.dispatchUnanswered(w, d, tasks)
		w.all.Wait()
		if len(tasks) != 1 || tried == again || len(s.locks.servers) > 0 {
			t.Errorf("%s: %d tasks, it is tried: %t, these are taken: %v", name, len(tasks), tried, s.locks.servers)
		}
	}
}
