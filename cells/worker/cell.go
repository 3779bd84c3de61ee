// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
)

// heartbeatResult is the outcome of a heartbeat.
type heartbeatResult struct {
	up      bool
	since   time.Time // it is so
	err     string
	denied  bool // err is a refusal of who we are
	refused []string
	// problems are why nodes get no new servers.
	problems []cellwire.NodeProblem
	service  cellwire.Service
}

// serviceState is what the cell says of the service.
type serviceState struct {
	disabled bool
	reason   string
}

// heartbeatLoop shows life, at the cell's pace. It returns when the heartbeat under way is
// answered: one that is cancelled may reach the cell after the final report, and the host would
// count as up for a minute. It waits no longer than stopTimeout.
func (w *Worker) heartbeatLoop(ctx context.Context) {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var bound sync.WaitGroup
	bound.Go(func() {
		select {
		case <-requests.Done():
			return
		case <-ctx.Done():
		}
		_ = wait.For(requests, stopTimeout)
		cancel()
	})
	defer bound.Wait()
	defer cancel()
	w.awaitNodes(ctx)
	var failures backoff
	usual := reportInterval
	for ctx.Err() == nil {
		w.refreshNodes(ctx)
		state, err := w.heartbeat(requests)
		if ctx.Err() != nil && err != nil {
			w.unanswered = true
			return
		}
		w.recordHeartbeat(state, err)
		interval := usual
		// never longer than usual: a cell that is up again treats this host as down until the next
		// heartbeat
		if err != nil {
			interval = max(failures.next(min(usual, retryCell)), retryAfter(err))
		} else {
			failures.reset()
			if s := time.Duration(state.ReportInterval) * time.Second; s > 0 {
				usual = min(s, maxReportInterval)
				interval = usual
			}
		}
		if !wait.Until(ctx, interval, w.heartbeatNow) {
			return
		}
	}
}

// reportExtent is what of a report a cell takes: older ones refuse what they do not know.
type reportExtent int

const (
	wholeReport    reportExtent = iota
	withoutProcess              // for a cell that is older than turns and Starting
	onlyNodes                   // for one that is older than abilities
)

// extentFor is how much of a report a cell takes, by its answer.
func (w *Worker) extentFor(state cellwire.HostState) reportExtent {
	switch {
	case state.Turn > 0 && w.cfg.Process.Token != "":
		return wholeReport
	case state.Abilities || state.Turn > 0:
		return withoutProcess
	}
	return onlyNodes
}

// heartbeat sends one report. If an older cell refuses it with 400, it is sent again with fewer
// fields. A cell whose answer says that it accepts more, or details of nodes, gets them with the
// next report.
func (w *Worker) heartbeat(ctx context.Context) (cellwire.HostState, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	ctx = w.traceAddress(ctx)
	usual, detailed := w.extent, w.detailed
	state, err := w.cfg.Cell.Report(ctx, w.cfg.Host, w.hostReport(false))
	if detailed && refusedWith(err, http.StatusBadRequest) {
		w.detailed = false
		state, err = w.cfg.Cell.Report(ctx, w.cfg.Host, w.hostReport(false))
	}
	for refusedWith(err, http.StatusBadRequest) && w.extent < onlyNodes {
		w.extent++
		state, err = w.cfg.Cell.Report(ctx, w.cfg.Host, w.hostReport(false))
	}
	if err != nil {
		return state, err
	}
	w.turn = state.Turn
	if more := w.extentFor(state); w.extent == usual && more < usual {
		w.extent = more
		signal(w.heartbeatNow)
	}
	if !detailed && state.Details {
		w.detailed = true
		signal(w.heartbeatNow)
	}
	return state, nil
}

// hostReport is the report of the host, as much of it as the cell takes.
func (w *Worker) hostReport(stopping bool) cellwire.HostReport {
	report := cellwire.HostReport{Version: w.cfg.Version, Nodes: w.reportable(), Stopping: stopping}
	if w.extent < withoutProcess {
		report.Process, report.Turn = &w.cfg.Process, w.turn
		report.Starting = !stopping && w.starting()
	}
	for i := range report.Nodes {
		if w.extent >= onlyNodes {
			report.Nodes[i].Abilities = nil
		}
		if !w.detailed {
			report.Nodes[i].Details = nil
		}
	}
	return report
}

// recordHeartbeat records the outcome of a heartbeat.
func (w *Worker) recordHeartbeat(state cellwire.HostState, err error) {
	w.mu.Lock()
	was := w.lastHeartbeat
	if up := err == nil; up != was.up || was.since.IsZero() {
		w.lastHeartbeat.since = time.Now()
		w.lastHeartbeat.up = up
	}
	w.lastHeartbeat.err, w.lastHeartbeat.denied = "", denied(err)
	if err != nil {
		w.lastHeartbeat.err = err.Error()
	} else {
		w.lastHeartbeat.refused, w.lastHeartbeat.service = slices.Clone(state.Refused), state.Service
		w.lastHeartbeat.problems = clipProblems(state.Problems)
	}
	w.mu.Unlock()
	switch {
	case err != nil && (was.up || was.since.IsZero()):
		w.log.Warn().Err(err).
			Msg("The cell is unavailable. Guests are not affected. The agent keeps polling for work and queues " +
				"its reports.")
	case err == nil && !was.up:
		w.log.Info().Str("service", state.Service.UUID).Msg("Registered this host with the cell.")
	}
	if err != nil {
		return
	}
	for _, uuid := range state.Refused {
		of := func(p cellwire.NodeProblem) bool { return p.UUID == uuid }
		// The cell may be older than HostState.Problems.
		if !slices.Contains(was.refused, uuid) && !slices.ContainsFunc(state.Problems, of) {
			w.log.Error().Str("node", uuid).
				Msg("The cell rejected the node because another host owns it. No server is scheduled to it " +
					"on this host.")
		}
	}
	for _, p := range clipProblems(state.Problems) {
		if !slices.Contains(was.problems, p) {
			w.log.Error().Str("node", p.UUID).Str("problem", string(p.Code)).Str("why", p.Message).
				Msg("The node gets no new servers on this host.")
		}
	}
	w.updateService(state.Service)
	select {
	case <-w.registered:
	default:
		close(w.registered) // by this loop only
	}
}

// maxProblems bounds the problems of nodes that are kept of an answer.
const maxProblems = 64

// clipProblems are the problems of an answer that are kept: a cell is believed, not trusted.
func clipProblems(all []cellwire.NodeProblem) []cellwire.NodeProblem {
	kept := slices.Clone(all[:min(len(all), maxProblems)])
	for i := range kept {
		p := &kept[i]
		p.UUID, p.Host, p.Code = textutil.Clip(p.UUID, 64),
			textutil.Clip(p.Host, 255), cellwire.NodeProblemCode(textutil.Clip(string(p.Code), 64))
		p.Message = textutil.Clip(p.Message, 2*cellwire.MaxProblem)
	}
	return kept
}

// retryAfter is how long the cell has asked to wait before the next request.
func retryAfter(err error) time.Duration {
	var refused *cellwire.Error
	if errors.As(err, &refused) {
		return refused.RetryAfter
	}
	return 0
}

// denied reports whether the cell and the agent reject each other's identity.
func denied(err error) bool {
	return cellclient.IsCertificate(err) || refusedWith(err, http.StatusUnauthorized) ||
		refusedWith(err, http.StatusForbidden)
}

// refusedWith reports whether err is a rejection with a status.
func refusedWith(err error, status int) bool {
	var refused *cellwire.Error
	return errors.As(err, &refused) && refused.Status == status
}

// updateService passes on whether the service is disabled, if that is new.
func (w *Worker) updateService(s cellwire.Service) {
	if w.cfg.Disable == nil {
		return
	}
	w.disabling.Lock()
	defer w.disabling.Unlock()
	now := serviceState{disabled: s.Disabled}
	if now.disabled {
		now.reason = s.DisabledReason
	}
	if w.disabled != nil && *w.disabled == now {
		return
	}
	if err := w.cfg.Disable(now.disabled, now.reason); err != nil {
		w.log.Error().Err(err).Bool("disabled", now.disabled).
			Msg("Could not store whether the cell disabled this host's service. Retrying.")
		return
	}
	w.disabled = &now
}

// pollLoop asks for what is new, again and again.
func (w *Worker) pollLoop(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-w.registered:
	}
	var failures backoff
	for ctx.Err() == nil {
		w.mu.Lock()
		after, epoch := w.revision, w.epoch
		w.mu.Unlock()
		begun := time.Now()
		asked, cancel := context.WithTimeout(ctx, pollWait+w.cfg.Timeout)
		work, err := w.cfg.Cell.Work(asked, w.cfg.Host, after, epoch, pollWait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if refusedWith(err, http.StatusNotFound) {
				signal(w.heartbeatNow) // it does not know this host (any more)
			}
			// It may come back with its database from a backup, and grow past the revision that is
			// known here: then what is new after that is not all.
			w.mu.Lock()
			w.revision = 0
			w.mu.Unlock()
			w.log.Debug().Err(err).Msg("Polling the cell for work failed.")
			wait.For(ctx, max(failures.next(retryCell), retryAfter(err)))
			continue
		}
		failures.reset()
		if work.Service.UUID != "" {
			w.updateService(work.Service)
		}
		newer := w.merge(ctx, work) && work.Revision > after
		newer = w.serveStreams(ctx, work.Streams) || newer
		// it does not wait or has no newer state: do not poll without pause
		if !newer && time.Since(begun) < pollWait/2 {
			wait.For(ctx, time.Second/2+rand.N(time.Second/2))
		}
	}
}
