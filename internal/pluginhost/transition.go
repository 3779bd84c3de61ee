// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

func (p *Plugin) currentSpec() Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec
}

func (p *Plugin) setSpec(spec Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spec, p.status.Path = spec, spec.Path
}

// setState changes the plugin's state, with a reason if it is a failure. Every change is logged,
// passed to the callback, and wakes waiters.
func (p *Plugin) setState(state State, reason error) {
	p.transition(state, reason, 0)
}

func (p *Plugin) transition(state State, reason error, delay time.Duration) {
	now := time.Now()
	p.mu.Lock()
	was := p.status.State
	same := was == state && (reason == nil || reason.Error() == p.status.LastError)
	if reason != nil {
		p.status.LastError, p.status.LastErrorAt = textutil.Clip(reason.Error(), 4000), now
		p.cause = reason
	}
	if was != state {
		p.status.State, p.status.Since = state, now
	}
	p.status.NextAttempt = time.Time{}
	if delay > 0 {
		p.status.NextAttempt = now.Add(delay)
	}
	switch state {
	case Healthy, Degraded:
		p.attempted = true
	case Backoff, Quarantined, NotInstalled, Incompatible, Refused, Disabled, Stopped:
		p.attempted, p.status.PID = true, 0
	case Discovered, Verified, Starting, Configured:
	}
	if state == Disabled {
		p.cause = nil
	}
	if state == Disabled || state == Stopped {
		p.warnings = nil
	}
	status := p.status
	if !same {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.mu.Unlock()
	if same {
		return
	}
	event := p.log.WithLevel(state.level()).Str("state", string(state)).
		Str("from", string(was)) // sent below
	if reason != nil {
		event = event.Err(reason)
	}
	if delay > 0 && !refusesConfig(reason) {
		event = event.Stringer("retry_in", delay.Round(time.Millisecond))
	}
	if state.serving() {
		event = event.Int("pid", status.PID).Str("version", status.Version).Int("restarts", status.Restarts)
	}
	event.Msg(state.meaningOf(reason))
	if p.onTransition != nil {
		p.onTransition(status)
	}
}

// activate lets a process serve calls.
func (s *supervisor) activate(inst instance) *activeProcess {
	id := inst.Identity()
	next := &activeProcess{instance: inst}
	s.mu.Lock()
	select {
	case <-s.hung: //nolint:errcheck // a report about the former process; reports are sent with the lock held
	default:
	}
	s.active, s.calls, s.cause = next, callRecords{}, nil
	s.status.PID, s.status.Version, s.status.SDK = id.PID, id.Version, id.SDK
	s.status.SHA256, s.status.Sandbox, s.status.SandboxLacks, s.status.Capabilities = id.SHA256, id.Sandbox,
		id.SandboxLacks, id.Capabilities
	s.status.Restarts, s.status.Replacements = s.started-1-s.replaced, s.replaced
	s.mu.Unlock()
	s.setState(Healthy, nil)
	return next
}

// deactivate rejects new calls. next is the state once the process has ended; with a cause it is
// killed.
func (s *supervisor) deactivate(next State, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active, s.cause, s.next, s.status.Since, s.status.Warnings = nil, cause, next, time.Now(), nil
	if cause != nil {
		s.status.PID = 0
		s.status.LastError, s.status.LastErrorAt = textutil.Clip(cause.Error(), 4000), s.status.Since
	}
}

// drain stops a replaced process when it has finished its calls, after timeout, or when the plugin
// stops.
func (s *supervisor) drain(ctx context.Context, old *activeProcess, timeout, grace time.Duration) {
	idle := s.idle(old)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-old.Done():
	case <-timer.C:
	case <-ctx.Done():
	}
	s.end(old, idle, grace)
}

// end stops a process, or kills it if the plugin's stop is forced.
func (s *supervisor) end(old *activeProcess, idle <-chan struct{}, grace time.Duration) {
	old.stopping.Store(true)
	unhook := context.AfterFunc(s.forced, old.Abort)
	defer unhook()
	old.Stop(grace, idle)
}

// idle returns a channel that is closed when a process without new calls has answered all its
// calls.
func (s *supervisor) idle(old *activeProcess) <-chan struct{} {
	idle := make(chan struct{})
	s.draining.Go(func() {
		old.calls.Wait()
		close(idle)
	})
	return idle
}
