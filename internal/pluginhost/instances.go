// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

var (
	_ plugins.InstanceManager = (*Plugin)(nil)
	_ plugins.SpawnChecker    = (*Plugin)(nil)
	_ plugins.ConsoleLogger   = (*Plugin)(nil)
	_ plugins.ConsoleOpener   = (*Plugin)(nil)
)

// instanceCalls tracks a plugin's calls for its instances.
type instanceCalls struct {
	notifying sync.Mutex        // held while Spec.InstanceChanged runs
	locks     protocol.KeyLocks // by uuid, for all processes

	mu sync.Mutex // also of the management of every process
	// open has the processes with an unanswered call for an instance, by uuid: they may still work
	// on it.
	open map[string]*activeProcess
}

// management tracks the calls of one process for its instances; instanceCalls.mu is held.
type management struct {
	underWay int
	missed   int       // consecutive calls without a response; concurrent ones count once
	lastMiss time.Time // of the last one
}

// Instances returns all instances of a node. uuids are canonical and unique.
//
// Errors: as [Plugin.AvailableNodes]; [plugins.ErrUnsupported] if the driver does not manage
// instances, [plugins.ErrNotReady] if it cannot list them now; [driverclient.ErrBadRequest].
func (p *Plugin) Instances(ctx context.Context, node string) ([]plugins.Instance, error) {
	return call(ctx, p, "Instances "+node, func(s *activeProcess) ([]plugins.Instance, error) {
		instances, err := s.Instances(ctx, node)
		// does not count: the driver works on one of them
		if errors.Is(err, driverclient.ErrNoAnswer) && p.managing.busy(s) {
			err = &excusedError{err}
		}
		return instances, err
	})
}

// Spawn lets the driver create an instance and start it; see [plugins.InstanceManager] for the
// contract. tree is not changed. Calls for one instance wait for each other, also while one process
// of the plugin replaces another; calls for different ones, and all other calls, do not.
//
// Errors: [driverclient.ErrUnavailable] at once while the plugin is down,
// [driverclient.ErrBadRequest], [plugins.ErrUnsupported], [plugins.ErrNotReady], and the driver's
// own [*plugins.InstanceFault] mean that nothing was begun, or nothing is left of it. All others,
// such as [driverclient.ErrNoAnswer], [driverclient.ErrBadReply], or [driverclient.ErrUnavailable]
// because the process ended meanwhile, are also [ErrOutcomeUnknown].
func (p *Plugin) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	return manageOn(ctx, p, "Spawn", spec.UUID,
		func(s *activeProcess) (plugins.Instance, error) { return s.Spawn(ctx, node, spec, tree) })
}

// CheckSpawn asks the driver whether it could create an instance; see [plugins.SpawnChecker] for
// the contract. It waits for other calls for the instance, as Spawn does. Errors: as Spawn, and
// [plugins.ErrUnsupported] also if the driver cannot check that.
func (p *Plugin) CheckSpawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	_, err := manageOn(ctx, p, "CheckSpawn", spec.UUID, func(s *activeProcess) (struct{}, error) {
		return struct{}{}, s.CheckSpawn(ctx, node, spec, tree)
	})
	return err
}

// Restore lets the driver create an instance again over its disks; see [plugins.InstanceRestorer]
// for the contract. It waits for other calls for the instance, as Spawn does. Errors: as Spawn, and
// [plugins.ErrUnsupported] also if the driver cannot do that.
func (p *Plugin) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	return manageOn(ctx, p, "Restore", spec.UUID,
		func(s *activeProcess) (plugins.Instance, error) { return s.Restore(ctx, node, spec, tree) })
}

// Destroy lets the driver stop an instance and remove all that it created for it. Errors: as Spawn.
func (p *Plugin) Destroy(ctx context.Context, node, uuid string) error {
	_, err := manageOn(ctx, p, "Destroy", uuid,
		func(s *activeProcess) (struct{}, error) { return struct{}{}, s.Destroy(ctx, node, uuid) })
	return err
}

// SetPower lets the driver start or stop an instance. Errors: as Spawn;
// [plugins.ErrInstanceNotFound].
func (p *Plugin) SetPower(
	ctx context.Context, node, uuid string, to plugins.PowerState, hard bool,
) (plugins.Instance, error) {
	return manageOn(ctx, p, "SetPower", uuid, func(s *activeProcess) (plugins.Instance, error) {
		return s.SetPower(ctx, node, uuid, to, hard)
	})
}

// ConsoleLog returns the end of what an instance wrote to its console; see [plugins.ConsoleLogger]
// for the contract. It waits for no other call. Errors: as [Plugin.Instances];
// [plugins.ErrInstanceNotFound]; a [*plugins.InstanceFault].
func (p *Plugin) ConsoleLog(ctx context.Context, node, uuid string, maxBytes int) ([]byte, error) {
	return call(ctx, p, "ConsoleLog "+uuid,
		func(s *activeProcess) ([]byte, error) { return s.ConsoleLog(ctx, node, uuid, maxBytes) })
}

// OpenConsole opens the serial console of an instance; see [plugins.ConsoleOpener] for the
// contract. It ends with the process of the plugin ([driverclient.ErrUnavailable]), which does not
// wait for it when it is stopped or replaced. Errors: as [Plugin.ConsoleLog].
func (p *Plugin) OpenConsole(ctx context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	return call(ctx, p, "OpenConsole "+uuid,
		func(s *activeProcess) (io.ReadWriteCloser, error) { return s.OpenConsole(ctx, node, uuid) })
}

// manageOn makes a call that can change an instance, when all earlier ones for it have ended.
func manageOn[T any](
	ctx context.Context, p *Plugin, call, id string, make func(*activeProcess) (T, error),
) (result T, err error) {
	uuid, err := providertree.CanonicalUUID(id)
	if err != nil {
		return result, &driverclient.CallError{Driver: p.Name(), Call: call,
			Err: fmt.Errorf("%w: instance: %w", driverclient.ErrBadRequest, err)}
	}
	if err := p.checkServing(); err != nil {
		return result, err
	}
	unlock, err := p.managing.locks.Lock(ctx, uuid)
	if err != nil {
		return result, p.notBegun(call, uuid, err)
	}
	defer unlock()
	s, err := p.acquireFor(ctx, call, uuid)
	if err != nil {
		return result, err
	}
	defer s.calls.Done()
	begun := time.Now()
	p.managing.begin(s)
	answer, err := make(s)
	unanswered := err != nil && (errors.Is(err, driverclient.ErrNoAnswer) ||
		errors.Is(err, driverclient.ErrUnavailable) || ctx.Err() != nil)
	missed := p.managing.end(s, uuid, begun, unanswered,
		!driverclient.CallerGaveUp(ctx, err) && driverclient.ReachedLimit(err, begun))
	err = p.recordInstanceCall(s, missed, err)
	switch {
	case err == nil:
		return answer, nil
	case nothingBegun(call, err):
		return result, err
	}
	return result, &outcomeUnknownError{err}
}

// acquireFor is acquire for a call for an instance: if a replaced process may still work on it, it
// waits for the end of that process, at most as long as the longest call.
func (p *Plugin) acquireFor(ctx context.Context, call, uuid string) (*activeProcess, error) {
	for {
		s, err := p.acquire()
		if err != nil {
			return nil, err
		}
		former := p.managing.openElsewhere(uuid, s)
		if former == nil {
			return s, nil
		}
		s.calls.Done()
		select {
		case <-former.Done():
		case <-ctx.Done():
			return nil, p.notBegun(call, uuid, context.Cause(ctx))
		}
	}
}

// checkServing returns an error if the plugin is down.
func (p *Plugin) checkServing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == nil {
		return p.unavailable()
	}
	return nil
}

func (p *Plugin) notBegun(call, uuid string, cause error) error {
	return &driverclient.CallError{Driver: p.Name(), Call: call, Err: &notBegunError{uuid: uuid, cause: cause}}
}

// recordInstanceCall records how a call for an instance ended. These are counted separately: other
// calls may be answered while these hang, and vice versa.
func (p *Plugin) recordInstanceCall(s *activeProcess, missed int, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == s && missed >= p.spec.Restart.Misses {
		p.managing.resetMissed(s)
		p.reportHung(err)
	}
	return p.unavailableError(s, err)
}

// notifyInstance reports that an instance may have changed.
func (p *Plugin) notifyInstance(node, uuid string) {
	p.managing.notifying.Lock()
	defer p.managing.notifying.Unlock()
	if changed := p.currentSpec().InstanceChanged; changed != nil {
		changed(node, uuid)
	}
}

// followInstances follows the driver's instance events, if it has any.
func (s *supervisor) followInstances(ctx context.Context, serving *activeProcess) {
	s.notifyInstance("", "") // events of the former process may be lost
	if serving.announces(protocol.CapabilityInstanceEvents) {
		s.follow(ctx, serving, func(ctx context.Context) error { return serving.WatchInstances(ctx, s.notifyInstance) },
			func() { s.notifyInstance("", "") })
	}
}

// Abilities returns which of [plugins.Abilities] the plugin's last process announced: none before
// the first, and none if it does not manage instances.
func (p *Plugin) Abilities() []string {
	announced := p.Status().Capabilities
	if !slices.Contains(announced, protocol.CapabilityInstances) {
		return nil
	}
	return slices.DeleteFunc(plugins.Abilities(), func(ability string) bool {
		return !slices.Contains(announced, strings.ReplaceAll(ability, "-", "_"))
	})
}

// announces reports whether a process has a capability.
func (a *activeProcess) announces(capability string) bool {
	return slices.Contains(a.Identity().Capabilities, capability)
}

// begin records the begin of a call for an instance.
func (c *instanceCalls) begin(s *activeProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.management.underWay++
}

// end records the end of a call: unanswered, if the process may still work on it; timedOut, if it
// reached its limit. It returns how many consecutive calls timed out. Concurrent ones count once,
// and any response resets the count: a driver that is slow with some instances is not killed.
func (c *instanceCalls) end(s *activeProcess, uuid string, begun time.Time, unanswered, timedOut bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.open, func(_ string, of *activeProcess) bool { return of.ended() })
	delete(c.open, uuid)
	if unanswered && !s.ended() {
		if c.open == nil {
			c.open = map[string]*activeProcess{}
		}
		c.open[uuid] = s
	}
	m := &s.management
	m.underWay--
	switch {
	case timedOut && !begun.Before(m.lastMiss):
		m.missed++
		m.lastMiss = time.Now()
		return m.missed
	case !unanswered:
		m.missed = 0
	}
	return 0
}

func (c *instanceCalls) resetMissed(s *activeProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.management.missed = 0
}

// busy reports whether the process works on an instance.
func (c *instanceCalls) busy(s *activeProcess) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.management.underWay > 0
}

// openElsewhere returns another process that may still work on an instance, or nil.
func (c *instanceCalls) openElsewhere(uuid string, s *activeProcess) *activeProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.open[uuid]; other != nil && other != s && !other.ended() {
		return other
	}
	return nil
}

// ended reports whether the process has ended.
func (a *activeProcess) ended() bool {
	select {
	case <-a.Done():
		return true
	default:
		return false
	}
}

// nothingBegun reports whether an error means that nothing was changed. InstanceNotFound means that
// for SetPower and Depart only: Spawn can miss an incomplete instance of its own, and Destroy
// succeeds without one.
func nothingBegun(call string, err error) bool {
	for _, kind := range []error{driverclient.ErrBadRequest, plugins.ErrNotReady, plugins.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	if (call == "SetPower" || call == "Depart") && errors.Is(err, plugins.ErrInstanceNotFound) {
		return true
	}
	var fault *plugins.InstanceFault
	return errors.As(err, &fault)
}

// outcomeUnknownError is an error after which the call's effect is unknown.
type outcomeUnknownError struct{ err error }

func (e *outcomeUnknownError) Error() string {
	return e.err.Error() + " (" + ErrOutcomeUnknown.Error() + ")"
}

// Unwrap returns both.
func (e *outcomeUnknownError) Unwrap() []error { return []error{e.err, ErrOutcomeUnknown} }

// notBegunError says that a call was not made, because an earlier one for the same instance has not
// ended.
type notBegunError struct {
	uuid  string
	cause error
}

func (e *notBegunError) Error() string {
	return fmt.Sprintf("an earlier call for instance %s has not ended, so nothing was begun: %v", e.uuid, e.cause)
}

// Unwrap returns why the wait ended.
func (e *notBegunError) Unwrap() error { return e.cause }

var _ plugins.InstanceMover = (*Plugin)(nil)

// Depart lets the driver shut down an instance that is to be moved. Errors: as SetPower.
func (p *Plugin) Depart(ctx context.Context, node, uuid string) (string, error) {
	return manageOn(ctx, p, "Depart", uuid, func(s *activeProcess) (string, error) { return s.Depart(ctx, node, uuid) })
}

// ReadFile reads a file of an instance that departed. It does not wait for other calls for the
// instance, nor they for it.
//
// Errors: as AvailableNodes; [plugins.ErrInstanceNotFound], [*plugins.InstanceFault]; those of
// each.
func (p *Plugin) ReadFile(ctx context.Context, node, uuid, name string, offset int64, each plugins.ChunkFunc) error {
	s, err := p.acquire()
	if err != nil {
		return err
	}
	defer s.calls.Done()
	err = s.ReadFile(ctx, node, uuid, name, offset, each)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unavailableError(s, err)
}

// Arrive lets the driver create an instance that comes from another host, and leave it off. Errors:
// as Spawn.
func (p *Plugin) Arrive(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	return manageOn(ctx, p, "Arrive", spec.UUID,
		func(s *activeProcess) (plugins.Instance, error) { return s.Arrive(ctx, node, spec, tree, from) })
}

// Leave lets the driver remove an instance, but nothing of what the same one on another host uses.
// Errors: as Destroy.
func (p *Plugin) Leave(ctx context.Context, node, uuid string) error {
	_, err := manageOn(ctx, p, "Leave", uuid,
		func(s *activeProcess) (struct{}, error) { return struct{}{}, s.Leave(ctx, node, uuid) })
	return err
}
