// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// AvailableNodes returns the compute nodes that the driver is responsible for.
//
// Errors: [driverclient.ErrUnavailable] at once while the plugin is down; otherwise a
// [*driverclient.CallError] around the driver's own error, [driverclient.ErrNoAnswer] or
// [driverclient.ErrBadReply].
func (p *Plugin) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	nodes, err := call(ctx, p, "AvailableNodes",
		func(s *activeProcess) ([]plugins.Node, error) { return s.AvailableNodes(ctx) })
	if err == nil {
		p.dropRemoved(nodes)
	}
	return nodes, err
}

// Warnings returns the driver's current warnings, for tools: the agent gets them with each health
// check ([Status]).
//
// Errors: as AvailableNodes.
func (p *Plugin) Warnings(ctx context.Context) ([]plugins.Warning, error) {
	return call(ctx, p, "Health", func(s *activeProcess) ([]plugins.Warning, error) { return s.Health(ctx) })
}

// ClassRenames returns the resource classes that the driver renamed in the last ReshapeStep, or
// UpdateProviderTree with allocations, by their former names. It makes a Plugin a
// [plugins.Renamer].
func (p *Plugin) ClassRenames() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.renames)
}

// LayoutVersion returns the version of the layout that the driver's UpdateProviderTree makes with
// its current configuration, at least 1. It makes no call: the driver reports it when it is
// configured.
//
// Errors: [plugins.ErrUnsupported] if its layouts have no versions; [driverclient.ErrUnavailable]
// while the plugin is down.
func (p *Plugin) LayoutVersion(context.Context) (int, error) {
	s, err := p.acquire()
	if err != nil {
		return 0, err
	}
	defer s.calls.Done()
	return s.LayoutVersion()
}

// Capabilities returns the capability traits of the last UpdateProviderTree of that node: traits of
// the node's root, and whether it has them. Nil: the driver does not report them, or was not called
// since the agent started; a driver that reports none has an empty map.
func (p *Plugin) Capabilities(node string) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.nodes[node].Capabilities)
}

// ProductNames returns the product names of the last UpdateProviderTree of that node, by the name
// of the resource provider. Nil: the driver does not report them, or was not called since the agent
// started.
func (p *Plugin) ProductNames(node string) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.nodes[node].ProductNames)
}

// Hypervisor returns the hypervisor of the last UpdateProviderTree of that node: zero if the driver
// does not report it, or does not know it. Not asked: it was not called since the agent started.
func (p *Plugin) Hypervisor(node string) (h plugins.Hypervisor, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	facts, asked := p.nodes[node]
	return facts.Hypervisor, asked
}

// Guests returns all guests of a node, running or not. tree is not changed. uuids are canonical and
// unique; the guests' resources are on providers of the tree.
//
// Errors: as UpdateProviderTree; [plugins.ErrUnsupported] if the driver cannot list guests;
// [plugins.ErrNotReady] if it cannot now. Without an error the list is complete.
func (p *Plugin) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	return call(ctx, p, "Guests "+node,
		func(s *activeProcess) ([]plugins.Guest, error) { return s.Guests(ctx, tree, node) })
}

// NodeDeleted reports whether a node that AvailableNodes no longer lists was removed for good: only
// true is proof.
//
// Errors: as AvailableNodes; [plugins.ErrUnsupported] if the driver cannot report it.
func (p *Plugin) NodeDeleted(ctx context.Context, node plugins.Node) (bool, error) {
	return call(ctx, p, "NodeDeleted "+node.Name,
		func(s *activeProcess) (bool, error) { return s.NodeDeleted(ctx, node) })
}

// dropRemoved drops the facts about nodes that are no longer listed.
func (p *Plugin) dropRemoved(nodes []plugins.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := make(map[string]driverclient.NodeFacts, len(nodes))
	for _, n := range nodes {
		if facts, found := p.nodes[n.Name]; found {
			kept[n.Name] = facts
		}
	}
	p.nodes = kept
}

// call makes a call that changes nothing. If its process ends before it responds, and another one
// has taken over meanwhile, the call is repeated once.
func call[T any](ctx context.Context, p *Plugin, call string, make func(*activeProcess) (T, error)) (T, error) {
	once := func() (T, error) {
		s, err := p.acquire()
		if err != nil {
			return *new(T), err
		}
		defer s.calls.Done()
		answer, err := make(s)
		if err := p.recordCall(ctx, s, call, err); err != nil {
			return *new(T), err
		}
		return answer, nil
	}
	answer, err := once()
	if replaced := (*ReplacedError)(nil); errors.As(err, &replaced) && ctx.Err() == nil {
		p.log.Info().Str("call", call).Err(err).Msg("The process was replaced during this call. The call is repeated.")
		return once()
	}
	return answer, err
}

// acquire returns the active process, which is not stopped until calls.Done.
func (p *Plugin) acquire() (*activeProcess, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == nil {
		return nil, p.unavailable()
	}
	p.active.calls.Add(1)
	return p.active, nil
}

// unavailable returns the error of a plugin that is down. p.mu is held.
func (p *Plugin) unavailable() error { return p.unavailableFor(p.cause) }

func (p *Plugin) unavailableFor(cause error) error {
	e := &UnavailableError{Driver: p.status.Name, State: p.status.State, Since: p.status.Since, Cause: cause}
	if e.State.serving() { // the supervisor has not noticed the end of the process yet
		e.State, e.Since = Backoff, time.Now()
		if p.active == nil {
			e.State = p.next
		}
	}
	return e
}

// recordCall records how a call ended, by its name and node. As many consecutive calls without a
// response as [Restart.Misses] end the process: it may be alive while the driver's code hangs. As
// many faults make the plugin degraded at the next health check: a new process would have them too.
func (p *Plugin) recordCall(ctx context.Context, s *activeProcess, call string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch abandoned := driverclient.CallerGaveUp(ctx, err); {
	case p.active != s, errors.As(err, new(*excusedError)): // replaced meanwhile
	case errors.Is(err, driverclient.ErrNoAnswer) && !abandoned:
		if p.calls.recordMissed(call) >= p.spec.Restart.Misses {
			p.calls = callRecords{}
			p.reportHung(err)
		}
	case !abandoned:
		p.calls.recordAnswer(call, err, time.Now())
	}
	return p.unavailableError(s, err)
}

// reportHung lets the supervisor kill the process. p.mu is held.
func (p *Plugin) reportHung(err error) {
	select {
	case p.hung <- err:
	default:
	}
}

// unavailableError returns the error of a call, which depends on whether its process was replaced.
// p.mu is held.
func (p *Plugin) unavailableError(s *activeProcess, err error) error {
	switch {
	case !errors.Is(err, driverclient.ErrUnavailable):
		return err
	case p.active != nil && p.active != s:
		return &ReplacedError{Driver: p.status.Name, Cause: err}
	}
	return p.unavailableFor(err)
}
