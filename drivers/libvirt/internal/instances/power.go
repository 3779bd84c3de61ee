// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
)

// SetPower brings an instance to a state, as [plugins.InstanceManager] says.
func (m *Manager) SetPower(
	ctx context.Context, node, uuid string, to plugins.PowerState, hard bool,
) (plugins.Instance, error) {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return plugins.Instance{}, err
	}
	is, err := j.setPower(ctx, to, hard)
	if err == nil && to == plugins.PowerShutdown {
		m.power.release(uuid)
	}
	if err != nil || to == plugins.PowerShutdown {
		m.power.reconcileLater(ctx)
	}
	return is, j.agentError(err)
}

func (j *job) setPower(ctx context.Context, to plugins.PowerState, hard bool) (plugins.Instance, error) {
	g, err := j.findManaged(ctx)
	if err != nil {
		return plugins.Instance{}, err
	}
	switch {
	case to == plugins.PowerRunning:
		err = j.switchOn(ctx, g)
	case to != plugins.PowerShutdown:
		err = j.fault("it cannot change to power state %s", to)
	case !g.active():
	case hard:
		err = j.switchOff(ctx)
	default:
		err = j.shutDown(ctx, g)
	}
	if err != nil {
		return plugins.Instance{}, err
	}
	if j.begun {
		if g, err = j.findManaged(ctx); err != nil {
			return plugins.Instance{}, err
		}
	}
	return g.instance(), nil
}

// findManaged finds the instance. Errors: [*plugins.InstanceNotFound]; a fault if the driver did
// not create its domain.
func (j *job) findManaged(ctx context.Context) (guest, error) {
	g, err := j.find(ctx)
	switch {
	case err != nil:
		return guest{}, err
	case g.exists && !g.managed():
		return guest{}, j.unmanaged()
	case !g.exists, g.parsed.Mark.Node != j.node:
		return guest{}, &plugins.InstanceNotFound{UUID: j.uuid}
	}
	return g, nil
}

func (j *job) switchOn(ctx context.Context, g guest) error {
	switch {
	case g.State == hypervisor.Paused && !g.starting():
		err := j.callQuick(ctx, "resuming its domain", func(c hypervisor.Conn) error { return c.ResumeDomain(j.uuid) })
		return j.ignoreIfReached(ctx, err, "the hypervisor could not resume it",
			func(g guest) bool { return powerState(g.Domain) == plugins.PowerRunning })
	case g.State == hypervisor.PMSuspended:
		return j.fault("it suspended itself: wake it from outside, or switch it off first")
	case g.State == hypervisor.Crashed: // kept as it crashed
		if err := j.switchOff(ctx); err != nil {
			return err
		}
	case g.active() && !g.starting():
		return nil
	}
	err := j.start(ctx, g)
	var back *failure
	if errors.As(err, &back) {
		j.warn(back, "Could not start an instance.")
		return back.fault(j.uuid)
	}
	return err
}

// switchOff ends it at once.
func (j *job) switchOff(ctx context.Context) error {
	err := j.callSlow(ctx, "switching off its domain", endLimit,
		func(c hypervisor.Conn) error { return c.DestroyDomain(j.uuid) })
	return j.ignoreIfReached(ctx, err, "the hypervisor could not switch it off",
		func(g guest) bool { return !g.active() })
}

// ignoreIfReached ignores the error of a change if the instance is in the desired state.
func (j *job) ignoreIfReached(ctx context.Context, err error, reason string, is func(guest) bool) error {
	if !isFinal(ctx, err) {
		return err
	}
	g, missing := j.findManaged(ctx)
	switch {
	case missing != nil:
		return missing
	case is(g):
		return nil
	}
	j.log.Warn().Err(err).Msg("Could not change the power state of an instance.")
	return (&failure{reason: reason, err: err}).fault(j.uuid)
}

// shutDown asks the guest to shut down, repeatedly (a booting guest does not listen), and switches
// it off after the timeout.
func (j *job) shutDown(ctx context.Context, g guest) error {
	if g.State == hypervisor.Paused || g.State == hypervisor.PMSuspended || g.State == hypervisor.Crashed {
		return j.switchOff(ctx) // no guest can be asked
	}
	const settle = 50 * time.Millisecond
	watcher := j.manager.eventLog.Watch(settle, 0)
	defer watcher.Close()
	end := time.Now().Add(j.setup.shutdown)
	var asked time.Time
	for time.Now().Before(end) {
		if time.Since(asked) >= j.setup.pollEvery {
			asked = time.Now()
			err := j.callQuick(ctx, "asking its guest to shut down",
				func(c hypervisor.Conn) error { return c.ShutdownDomain(j.uuid) })
			if err != nil && !isFinal(ctx, err) {
				return err
			}
			// A guest that cannot be asked is switched off in the end, and one that is off already
			// is found so.
		}
		if err := waitForEvent(ctx, watcher, min(time.Until(end), j.setup.pollEvery)); err != nil {
			return err
		}
		now, err := j.findManaged(ctx)
		if err != nil || !now.active() {
			return err
		}
	}
	j.log.Info().Stringer("after", j.setup.shutdown).
		Msg("An instance did not shut down when asked to. Switching it off.")
	return j.switchOff(ctx)
}

// waitForEvent ends with an event of any domain, or after a time.
func waitForEvent(ctx context.Context, w *hypervisor.Watcher, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, _ = w.Next(limited)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("waiting for a guest to shut down: %w", err)
	}
	return nil
}
