// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// reloadRequest is a new configuration for a plugin.
type reloadRequest struct {
	spec  Spec
	reply chan error // buffered
}

// Reconfigure applies a new configuration, and starts a new process if the executable changed.
// SIGHUP calls it also when nothing has changed.
//
// If only the driver's own configuration can differ, the running process is configured again. If
// the executable, its arguments or environment changed, or the process does not respond to its new
// configuration, a second process is started and configured first and takes over the calls; the old
// one ends when it has finished its own. After an error the old process continues, with the former
// configuration if its driver honours the contract. A plugin that is down gets the new
// configuration in any case and is started at once.
//
// Errors: an invalid Spec, [*plugins.ConfigError] from the driver, [*TakeoverError] if the second
// process failed to start, and, for a plugin that is down, [*UnavailableError] with the cause. If
// ctx ends first, the reload may still happen.
func (p *Plugin) Reconfigure(ctx context.Context, spec Spec) error {
	spec, err := spec.Complete(p.dir)
	if err != nil {
		return err
	}
	if spec.Name != p.Name() {
		return fmt.Errorf("driver %s cannot be renamed to %s: stop the one and start the other", p.Name(), spec.Name)
	}
	p.mu.Lock()
	r := p.run
	if r == nil { // not running: the next start uses this one
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
		return p.currentError()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.reply:
		return err
	case <-r.done:
		return p.currentError()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Plugin) currentError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unavailable()
}

// reload handles a request while a process serves calls. It returns the process that serves calls
// afterwards: another one, the same, or nil if the plugin is disabled.
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
	_ = s.recordCall(ctx, serving, "Configure", err)
	switch {
	case err == nil:
		s.setSpec(o.spec)
		s.log.Info().Msg("The plugin was configured again.")
		s.notify("")
		if serving.announces(protocol.CapabilityInstances) {
			s.notifyInstance("", "")
		}
		return serving, nil
	case ctx.Err() != nil, !errors.Is(err, driverclient.ErrNoAnswer) && !errors.Is(err, driverclient.ErrUnavailable):
		return serving, err // the driver's own error
	}
	s.log.Warn().Err(err).
		Msg("The plugin did not respond to its new configuration. A new process is started with it, which takes " +
			"over if it responds.")
	next, again := s.replace(ctx, serving, o.spec, "the old process did not respond to its new configuration")
	if again != nil {
		return serving, fmt.Errorf("%w; starting a new process with the new configuration failed too: %w", err, again)
	}
	return next, nil
}

// mustReplace returns why a spec needs a new process, or "".
func (s *supervisor) mustReplace(serving *activeProcess, spec Spec) string {
	if changed := s.currentSpec().otherProcess(spec); changed != "" {
		return "the configuration of " + changed + " changed"
	}
	if now, err := s.identify(spec.Path); err == nil && now != serving.Identity().File {
		return "the executable changed"
	}
	return ""
}

// replace starts a second process and lets it take over. No call is rejected meanwhile.
func (s *supervisor) replace(ctx context.Context, old *activeProcess, spec Spec, why string) (*activeProcess, error) {
	inst, err := s.launch(ctx, spec, s.log, func(State) {})
	if err != nil {
		return nil, err
	}
	s.started++
	s.replaced++
	timeout := max(s.currentSpec().Timeouts.Longest(), spec.Timeouts.Longest()) // of every call
	s.setSpec(spec)
	oldPID := old.Identity().PID
	next := s.activate(inst)
	s.log.Info().Int("old_pid", oldPID).Int("pid", inst.Identity().PID).
		Str("version", inst.Identity().Version).Str("reason", why).
		Msg("A new process of the plugin takes over. The old one ends when it has finished its calls.")
	s.draining.Go(func() { s.drain(ctx, old, timeout, spec.Timeouts.Stop) })
	return next, nil
}

// replyAfterAttempt replies to a reload with the result of the next attempt to start.
func (s *supervisor) replyAfterAttempt(ctx context.Context, o reloadRequest) {
	s.mu.Lock()
	s.attempted = false
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
