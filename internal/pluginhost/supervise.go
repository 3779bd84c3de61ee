// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// supervisor is the state of one run of a plugin. Only its goroutine uses it.
type supervisor struct {
	*Plugin
	breaker  breaker
	draining sync.WaitGroup // replaced processes that finish their calls
	started  int            // processes
	replaced int            // processes
	forced   context.Context
}

// supervise keeps the process running until ctx ends. It returns when the plugin has no process
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
	s.setState(Stopped, nil)
}

// runOnce runs one process, from the check of its executable to its end, and waits until the next
// attempt.
func (s *supervisor) runOnce(ctx context.Context) {
	spec := s.currentSpec()
	s.breaker.policy = spec.Restart
	if spec.Disabled {
		s.setState(Disabled, nil)
		s.pause(ctx, nil)
		return
	}
	s.setState(Discovered, nil)
	tried, _ := s.identify(spec.Path) // before the attempt: what replaces it meanwhile is another file
	inst, err := s.launch(ctx, spec, s.log, func(state State) { s.setState(state, nil) })
	if err == nil {
		s.started++
		err = s.watchProcess(ctx, inst)
	}
	if ctx.Err() != nil || err == nil { // it is stopped, or disabled by a reload
		return
	}
	if state := permanentState(err); state != "" {
		if state == NotInstalled { // no process has failed
			s.breaker.reset()
		}
		s.transition(state, err, 0)
		s.awaitOtherFile(ctx, spec, tried, state, err)
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

// permanentState is the state after a failure that a restart of the same file would repeat, "" for
// others.
func permanentState(err error) State {
	switch {
	case errors.Is(err, ErrIncompatible):
		return Incompatible
	case errors.Is(err, launch.ErrUntrusted), errors.Is(err, ErrNotExecutable):
		return Refused
	case errors.Is(err, launch.ErrNotInstalled):
		return NotInstalled
	}
	return ""
}

// pause waits for a timer (nil: forever), a reload or the end. It reports whether there was a
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

// awaitOtherFile waits for an executable other than the one that was tried, a reload or the end. A
// file that is not trusted is also tried again when it passes the checks or fails a different one,
// because the problem can be a directory above it.
func (s *supervisor) awaitOtherFile(ctx context.Context, spec Spec, tried launch.ID, state State, why error) {
	interval := spec.Restart.BackoffMax
	if state == NotInstalled { // an update may be installing it
		interval, tried = spec.Restart.BackoffBase, launch.ID{}
	}
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
		if errors.Is(why, launch.ErrUntrusted) {
			if err := s.verify(spec); err == nil || err.Error() != why.Error() {
				return
			}
		}
	}
}

// watchProcess monitors a process until it ends, fails, or is stopped. The error is nil if it is
// stopped.
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
			failure = fmt.Errorf("%d consecutive calls got no response, the process is killed; the last: %w",
				spec.Restart.Misses, err)
		case <-timer.C:
			misses, failure = s.checkHealth(ctx, serving, spec, misses)
			s.breaker.noteUptime(time.Since(up))
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

// checkHealth makes one health check; it returns the misses so far, and a failure when they are too
// many.
func (s *supervisor) checkHealth(ctx context.Context, serving *activeProcess, spec Spec, misses int) (int, error) {
	warnings, err := serving.Health(ctx)
	var unhealthy *driverclient.UnhealthyError
	var call *driverclient.CallError
	if ctx.Err() == nil && (err == nil || errors.As(err, &unhealthy)) {
		s.recordWarnings(warnings)
	}
	switch {
	case ctx.Err() != nil:
		return misses, nil //nolint:nilerr // the end of the supervisor is not a failure of the plugin
	case err == nil:
		if err := s.repeatedFault(spec.Restart); err != nil {
			s.setState(Degraded, err)
			return 0, nil
		}
		s.setState(Healthy, nil)
		return 0, nil
	case errors.As(err, &unhealthy),
		// an error is a response, too
		errors.As(err, &call) && !errors.Is(err, driverclient.ErrNoAnswer) &&
			!errors.Is(err, driverclient.ErrUnavailable):
		s.setState(Degraded, err)
		return 0, nil
	}
	if errors.Is(err, driverclient.ErrUnavailable) && endsWithin(serving, spec.Timeouts.Health) != nil {
		return misses, nil //nolint:nilerr // the loop reports its exit
	}
	misses++
	if misses >= spec.Restart.Misses {
		return misses, fmt.Errorf("%d consecutive health checks failed, the process is killed; the last: %w",
			misses, err)
	}
	s.setState(Degraded, fmt.Errorf("health check %d of %d failed: %w", misses, spec.Restart.Misses, err))
	return misses, nil
}

// repeatedFault returns an error that names a call of the driver that panics repeatedly.
func (p *Plugin) repeatedFault(policy Restart) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls.problem(policy, time.Now())
}

// watch follows the driver's events, if it has any, and returns the function that ends that.
func (s *supervisor) watch(ctx context.Context, serving *activeProcess) func() {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		s.notify("") // the new process may report other trees
		if serving.announces(protocol.CapabilityWatch) {
			s.follow(ctx, serving, func(ctx context.Context) error { return serving.Watch(ctx, s.notify) },
				func() { s.notify("") })
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

// follow reads an event stream and opens it again when it breaks, which loses events.
func (s *supervisor) follow(
	ctx context.Context, serving *activeProcess, read func(context.Context) error, lost func(),
) {
	backoff := wait.Backoff{Min: time.Second, Max: time.Minute}
	for failures := 1; ; failures++ {
		begun := time.Now()
		err := read(ctx)
		if time.Since(begun) > backoff.Max {
			failures = 1
		}
		select {
		case <-serving.Done():
			return
		default:
		}
		if ctx.Err() != nil || serving.stopping.Load() {
			return
		}
		s.log.Warn().Err(err).
			Msg("The plugin's event stream broke. Until it is restored, changes are noticed at the next periodic pass.")
		delay := backoff.Longest(failures)
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
