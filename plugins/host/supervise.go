// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
)

// supervisor is the state of one run of a plugin, touched by its goroutine only.
type supervisor struct {
	*Plugin
	breaker  breaker
	draining sync.WaitGroup  // processes that were replaced and finish their calls
	started  int             // processes
	replaced int             // processes of which another one took over
	forced   context.Context //nolint:containedctx // see running
}

// supervise keeps the process running until ctx ends. It returns when nothing of the plugin is
// left.
func (p *Plugin) supervise(ctx context.Context, r *running) {
	defer func() {
		p.mu.Lock()
		p.run = nil
		p.mu.Unlock()
		r.abort()
		close(r.done)
	}()
	s := &supervisor{Plugin: p, forced: r.forced, breaker: breaker{policy: p.currentSpec().Restart, jitter: p.jitter}}
	for ctx.Err() == nil {
		s.runOnce(ctx)
	}
	s.draining.Wait()
	s.to(Stopped, nil)
}

// runOnce is one life of the process, from its executable to its end, and the pause after it.
func (s *supervisor) runOnce(ctx context.Context) {
	spec := s.currentSpec()
	s.breaker.policy = spec.Restart
	if spec.Disabled {
		s.to(Disabled, nil)
		s.pause(ctx, nil)
		return
	}
	s.to(Discovered, nil)
	inst, err := s.launch(ctx, spec, s.log, func(state State) { s.to(state, nil) })
	if err == nil {
		s.started++
		err = s.watchProcess(ctx, inst)
	}
	if ctx.Err() != nil || err == nil { // the end, or a reload that disables it
		return
	}
	if state := lasting(err); state != "" {
		if state == NotInstalled { // no process has failed
			s.breaker.reset()
		}
		s.transition(state, err, 0)
		s.awaitOtherFile(ctx, spec, state, err)
		return
	}
	delay, quarantined := s.breaker.failed(time.Now())
	state := Backoff
	if quarantined {
		state = Quarantined
	}
	s.transition(state, err, delay)
	s.pause(ctx, time.After(delay))
}

// lasting is the state after a failure that another start of the same file would repeat, "" for
// others.
func lasting(err error) State {
	switch {
	case errors.Is(err, ErrIncompatible):
		return Incompatible
	case errors.Is(err, ErrUntrusted), errors.Is(err, ErrNotExecutable):
		return Refused
	case errors.Is(err, ErrNotInstalled):
		return NotInstalled
	}
	return ""
}

// pause waits for a timer (nil: for ever), a reload or the end. It reports whether there was a
// reload.
func (s *supervisor) pause(ctx context.Context, until <-chan time.Time) (reloaded bool) {
	select {
	case <-until:
	case <-ctx.Done():
	case o := <-s.reloads:
		s.setSpec(o.spec)
		s.breaker.reset()
		s.replyAfterAttempt(ctx, o)
		return true
	}
	return false
}

// awaitOtherFile waits until the executable is another one, a reload or the end. A file that is not
// trusted is also tried again when it passes the checks, or fails another one: a directory above it
// may have been the reason.
func (s *supervisor) awaitOtherFile(ctx context.Context, spec Spec, state State, why error) {
	interval := spec.Restart.BackoffMax
	if state == NotInstalled { // an update may be putting it there
		interval = spec.Restart.BackoffBase
	}
	tried, _ := s.identify(spec.Path)
	for ctx.Err() == nil {
		if s.pause(ctx, time.After(interval)) {
			return
		}
		now, err := s.identify(spec.Path)
		if err != nil && (state == Incompatible || state == NotInstalled) {
			continue
		}
		if err != nil || now != tried {
			return
		}
		if errors.Is(why, ErrUntrusted) {
			if err := s.verify(spec); err == nil || err.Error() != why.Error() {
				return
			}
		}
	}
}

// watchProcess watches over a process until it ends, fails, or must end. A nil error means that it
// was to end.
func (s *supervisor) watchProcess(ctx context.Context, inst instance) error {
	spec := s.currentSpec()
	serving := s.activate(inst)
	watch := s.watch(ctx, serving)
	defer func() { watch() }()
	up := time.Now()
	misses := 0
	timer := time.NewTimer(spec.Restart.HealthInterval)
	defer timer.Stop()
	for {
		var failure error
		select {
		case <-ctx.Done():
			s.deactivate(Stopped, nil)
			s.end(serving, s.idle(serving), spec.Timeouts.Stop)
			return nil
		case <-serving.Done():
			failure = serving.Exit()
		case err := <-s.hung:
			failure = fmt.Errorf("%d calls in a row got no answer, the process is killed; the last: %w", spec.Restart.Misses, err)
		case <-timer.C:
			misses, failure = s.checkHealth(ctx, serving, spec, misses)
			s.breaker.worked(time.Since(up))
			timer.Reset(spec.Restart.HealthInterval)
		case o := <-s.reloads:
			next, err := s.reload(ctx, serving, o)
			if next == nil { // disabled
				s.deactivate(Disabled, nil)
				s.end(serving, s.idle(serving), spec.Timeouts.Stop)
				o.reply <- nil
				return nil
			}
			if next != serving {
				watch()
				watch = s.watch(ctx, next)
				serving, up, misses = next, time.Now(), 0
			}
			spec = s.currentSpec()
			s.breaker.policy = spec.Restart
			timer.Reset(spec.Restart.HealthInterval)
			o.reply <- err
		}
		if failure != nil {
			s.deactivate(Backoff, failure)
			serving.Kill()
			return failure
		}
	}
}

// checkHealth is one health check; it returns the misses so far, and a failure when they are too
// many.
func (s *supervisor) checkHealth(ctx context.Context, serving *activeProcess, spec Spec, misses int) (int, error) {
	warnings, err := serving.Health(ctx)
	var calm *unhealthyError
	var call *CallError
	if ctx.Err() == nil && (err == nil || errors.As(err, &calm)) {
		s.recordWarnings(warnings)
	}
	switch {
	case ctx.Err() != nil:
		return misses, nil //nolint:nilerr // the end of the supervisor is no failure of the plugin
	case err == nil:
		if err := s.isBroken(spec.Restart); err != nil {
			s.to(Degraded, err)
			return 0, nil
		}
		s.to(Healthy, nil)
		return 0, nil
	case errors.As(err, &calm),
		errors.As(err, &call) && !errors.Is(err, ErrNoAnswer) && !errors.Is(err, ErrUnavailable): // an error is an answer, too
		s.to(Degraded, err)
		return 0, nil
	}
	select {
	case <-serving.Done(): // the loop handles it, with a better reason
		return misses, nil
	default:
	}
	misses++
	if misses >= spec.Restart.Misses {
		return misses, fmt.Errorf("%d health checks in a row failed, the process is killed; the last: %w", misses, err)
	}
	s.to(Degraded, fmt.Errorf("health check %d of %d failed: %w", misses, spec.Restart.Misses, err))
	return misses, nil
}

// isBroken says which call of the driver panics again and again.
func (p *Plugin) isBroken(policy Restart) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls.problem(policy, time.Now())
}

// watch follows the driver's own events, if it has any, and returns the function that ends that.
func (s *supervisor) watch(ctx context.Context, serving *activeProcess) func() {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		s.notify("") // what was known of the former process may not hold for this one
		if serving.announces(protocol.CapabilityWatch) {
			s.follow(ctx, serving, func(ctx context.Context) error { return serving.Watch(ctx, s.notify) }, func() { s.notify("") })
		}
	})
	if serving.announces(protocol.CapabilityInstances) {
		following.Go(func() { s.followInstances(ctx, serving) })
	}
	return func() {
		cancel()
		following.Wait()
	}
}

// follow reads an event stream and opens it again when it breaks. Then events were lost.
func (s *supervisor) follow(ctx context.Context, serving *activeProcess, read func(context.Context) error, lost func()) {
	const least, most = time.Second, time.Minute
	for delay := least; ; delay = min(2*delay, most) {
		begun := time.Now()
		err := read(ctx)
		if time.Since(begun) > most {
			delay = least
		}
		select {
		case <-serving.Done():
			return
		default:
		}
		if ctx.Err() != nil {
			return
		}
		s.log.Warn().Err(err).Msg("The plugin's stream of events broke. Until it is back, changes are seen at the next periodic pass.")
		select {
		case <-time.After(delay/2 + s.jitter(delay/2)):
		case <-serving.Done():
			return
		case <-ctx.Done():
			return
		}
		lost()
	}
}
