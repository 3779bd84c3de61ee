// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
)

// reloadRequest is a new configuration for a plugin.
type reloadRequest struct {
	spec  Spec
	reply chan error // buffered
}

// Reconfigure brings the plugin to a new configuration, and the process to a new executable if
// there is one. It is what SIGHUP does, also when nothing seems to have changed.
//
// If only the driver's own configuration may differ, the running process is configured again. If
// the executable, its arguments or environment changed, or the process does not answer to its new
// configuration, a second process is started and configured first, takes over the calls, and the
// old one ends when it has finished its own. An error means that the former process goes on, with
// the former configuration as far as its driver keeps to its word. A plugin that is down takes the
// new configuration in any case and is tried at once; an error says how that ended.
//
// Errors: a Spec that cannot be, [*plugins.ConfigError] from the driver, [*TakeoverError] around
// what went wrong with the start of the second process, and, for a plugin that is down,
// [*UnavailableError] around the same. If ctx ends before, the order may still be carried out.
func (p *Plugin) Reconfigure(ctx context.Context, spec Spec) error {
	spec, err := spec.complete(p.dir)
	if err != nil {
		return err
	}
	if spec.Name != p.Name() {
		return fmt.Errorf("driver %s cannot become %s: stop the one and start the other", p.Name(), spec.Name)
	}
	p.mu.Lock()
	r := p.run
	if r == nil { // nothing runs: it starts with this one
		p.spec, p.status.Path = spec, spec.Path
	}
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	o := reloadRequest{spec: spec, reply: make(chan error, 1)}
	select {
	case p.reloads <- o:
	case <-r.done:
		return p.gone()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.reply:
		return err
	case <-r.done:
		return p.gone()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Plugin) gone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unavailable()
}

// reload carries out a request while a process serves. It returns the process that serves
// afterwards: another one, the same, or nil if none is to.
func (s *supervisor) reload(ctx context.Context, serving *activeProcess, o reloadRequest) (*activeProcess, error) {
	if o.spec.Disabled {
		s.setSpec(o.spec)
		return nil, nil
	}
	if why := s.mustReplace(serving, o.spec); why != "" {
		next, err := s.replace(ctx, serving, o.spec, why)
		if err != nil {
			return serving, &TakeoverError{Path: o.spec.Path, Err: err}
		}
		return next, nil
	}
	err := serving.Configure(ctx, o.spec)
	_ = s.recordCall(ctx, serving, "Configure", err) // a miss, or an answer, like that of any other call
	switch {
	case err == nil:
		s.setSpec(o.spec)
		s.log.Info().Msg("The plugin is configured again.")
		s.notify("")
		if serving.announces(protocol.CapabilityInstances) {
			s.notifyInstance("", "")
		}
		return serving, nil
	case ctx.Err() != nil, !errors.Is(err, ErrNoAnswer) && !errors.Is(err, ErrUnavailable):
		return serving, err // the driver has spoken
	}
	s.log.Warn().Err(err).Msg("The plugin did not answer when it was given its new configuration. Another process is started with it, which takes over if it answers.")
	next, again := s.replace(ctx, serving, o.spec, "the former process did not answer when it was given its new configuration")
	if again != nil {
		return serving, fmt.Errorf("%w; nor could another process be started with the new configuration: %w", err, again)
	}
	return next, nil
}

// mustReplace says why a spec wants another process than the one that runs, or "".
func (s *supervisor) mustReplace(serving *activeProcess, spec Spec) string {
	if changed := s.currentSpec().otherProcess(spec); changed != "" {
		return "the configuration has another " + changed
	}
	if now, err := s.identify(spec.Path); err == nil && now != serving.Identity().File {
		return "the executable was changed"
	}
	return ""
}

// replace starts a process beside the one that serves and lets it take over. No call is refused
// meanwhile.
func (s *supervisor) replace(ctx context.Context, old *activeProcess, spec Spec, why string) (*activeProcess, error) {
	inst, err := s.launch(ctx, spec, s.log, func(State) {})
	if err != nil {
		return nil, err
	}
	s.started++
	s.replaced++
	patience := max(s.currentSpec().Timeouts.longest(), spec.Timeouts.longest()) // every call ends by itself within that
	s.setSpec(spec)
	oldPID := old.Identity().PID
	next := s.activate(inst)
	s.log.Info().Int("old_pid", oldPID).Int("pid", inst.Identity().PID).Str("version", inst.Identity().Version).Str("reason", why).
		Msg("Another process of the plugin takes over. The old one ends when it has finished its calls.")
	s.draining.Go(func() { s.drain(ctx, old, patience, spec.Timeouts.Stop) })
	return next, nil
}

// replyAfterAttempt answers a reload with the outcome of the next attempt to start.
func (s *supervisor) replyAfterAttempt(ctx context.Context, o reloadRequest) {
	s.mu.Lock()
	s.tried = false
	s.mu.Unlock()
	if o.spec.Disabled {
		o.reply <- nil
		return
	}
	s.draining.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, o.spec.startLimit())
		defer cancel()
		o.reply <- s.Ready(ctx)
	})
}

// startLimit is the longest that a start can take.
func (s Spec) startLimit() time.Duration {
	return s.Timeouts.Handshake + s.Timeouts.Info + s.Timeouts.Configure + 10*time.Second
}
