// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
)

// outbox holds reports, in their order, until the cell has taken them. For each server it holds at
// most one report for each thing that the worker did, and one of the power state.
type outbox struct {
	kick chan struct{} // has a value when there is something

	mu     sync.Mutex
	queue  []cellwire.Report
	sent   int            // so many at the beginning are under way
	counts map[string]int // by uuid
}

func newOutbox() *outbox { return &outbox{kick: make(chan struct{}, 1), counts: map[string]int{}} }

// add appends a report. A power state replaces one that was not sent, if nothing else was reported
// of the server after that.
func (o *outbox) add(r cellwire.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer signal(o.kick)
	if r.Kind == cellwire.ReportPower && o.counts[r.UUID] > 0 {
		for i := len(o.queue) - 1; i >= o.sent; i-- {
			if o.queue[i].UUID != r.UUID {
				continue
			}
			if o.queue[i].Kind == cellwire.ReportPower {
				o.queue[i] = r
				return
			}
			break
		}
	}
	o.queue = append(o.queue, r)
	o.counts[r.UUID]++
}

// begin returns the first reports, which count as under way until done or requeue.
func (o *outbox) begin(limit int) []cellwire.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = min(limit, len(o.queue))
	return slices.Clone(o.queue[:o.sent])
}

// done removes those that were under way.
func (o *outbox) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.queue[:o.sent] {
		if o.counts[r.UUID]--; o.counts[r.UUID] == 0 {
			delete(o.counts, r.UUID)
		}
	}
	o.queue, o.sent = slices.Delete(o.queue, 0, o.sent), 0
}

// requeue queues those that were under way again.
func (o *outbox) requeue() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = 0
}

// clear drops all reports.
func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue, o.sent = nil, 0
	clear(o.counts)
}

func (o *outbox) has(uuid string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[uuid] > 0
}

func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// reportLoop has the cell take the reports.
func (w *Worker) reportLoop(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-w.registered:
	}
	var failures backoff
	limit := cellwire.MaxReports
	for {
		batch := w.outbox.begin(limit)
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-w.outbox.kick:
			}
			continue
		}
		asked, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
		answer, err := w.cfg.Cell.Reports(asked, w.cfg.Host, batch)
		cancel()
		switch {
		case err == nil:
			failures.reset()
			limit = cellwire.MaxReports
			w.recordAccepted(batch, answer)
		case ctx.Err() != nil:
			w.outbox.requeue()
			return
		case refusedWith(err, http.StatusBadRequest), refusedWith(err, http.StatusRequestEntityTooLarge):
			if limit = max(len(batch)/2, 1); len(batch) > 1 { // one of them is at fault
				w.outbox.requeue()
				continue
			}
			w.log.Error().Err(err).Str("instance", batch[0].UUID).Str("report", string(batch[0].Kind)).
				Msg("The cell rejected a report as invalid. The report is dropped.")
			w.recordAccepted(batch, cellwire.ReportsAnswer{})
		default:
			w.outbox.requeue()
			w.log.Debug().Err(err).Int("reports", len(batch)).Msg("The cell did not accept the reports. Retrying.")
			if !wait.For(ctx, max(failures.next(retryCell), retryAfter(err))) {
				return
			}
		}
	}
}

// ended reports whether nothing is wanted of a server on this host any more when the cell has taken
// a report.
func (s *server) ended(r cellwire.Report) bool {
	switch r.Kind {
	case cellwire.ReportFailed: // it is in error, or another host builds it
		return s.item.Want == cellwire.WantPresent
	case cellwire.ReportGone:
		return s.item.Want == cellwire.WantGone
	case cellwire.ReportArrived:
		return s.item.Want == cellwire.WantArriving && r.Fault != nil && r.Migration == migrationOf(s.item).UUID
	case cellwire.ReportLeft:
		return (s.item.Want == cellwire.WantLeft || s.item.Want == cellwire.WantLeaving) &&
			r.Migration == migrationOf(s.item).UUID
	default:
		return false
	}
}

// recordAccepted records what the cell took, or will not take.
func (w *Worker) recordAccepted(batch []cellwire.Report, answer cellwire.ReportsAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outbox.done()
	for i, r := range batch {
		if i < len(answer.Refused) && answer.Refused[i] != "" {
			w.log.Warn().Str("instance", r.UUID).Str("report", string(r.Kind)).Str("reason", answer.Refused[i]).
				Msg("The cell rejected a report because it has a newer state of the server. It sends new work if " +
					"any is needed.")
		}
		if s := w.servers[r.UUID]; s != nil && s.answered && s.ended(r) {
			s.known = false
			w.forget(s)
		}
	}
}
