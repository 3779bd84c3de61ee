// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// reachTime is how long Status waits for Placement to accept a connection.
const reachTime = 2 * time.Second

// Status implements [control.Agent]. It opens a connection to Placement: the last pass may be an
// interval ago, and what is up now is what the caller wants to know.
func (a *Agent) Status(ctx context.Context) health.Status {
	s := a.statusWithUsage()
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if err := a.placement.Probe(ctx); err != nil {
		s = s.Unreachable(err)
	}
	return s
}

// statusWithUsage is currentStatus with the resource usage of the drivers' processes, which is read
// from /proc.
func (a *Agent) statusWithUsage() health.Status {
	s := a.currentStatus()
	var pids []int
	for _, d := range s.Drivers {
		if d.Plugin.PID != 0 {
			pids = append(pids, d.Plugin.PID)
		}
	}
	if len(pids) == 0 {
		return s
	}
	usage, err := pluginhost.Measure(pids...)
	if err != nil {
		a.log.Warn().Err(err).Msg("Cannot read the resource usage of the drivers' processes.")
	}
	for i := range s.Drivers {
		if u, ok := usage[s.Drivers[i].Plugin.PID]; ok {
			s.Drivers[i].Plugin.Usage = &u
		}
	}
	return s
}

// Configuration implements [control.Agent].
func (a *Agent) Configuration() control.Configuration {
	cfg := a.settings.current()
	if a.opts.Configuration == nil {
		return control.Configuration{PID: os.Getpid(), File: cfg.File()}
	}
	return a.opts.Configuration(cfg)
}

// collectStatus collects the status without conditions.
func (a *Agent) collectStatus() health.Status {
	cfg := a.settings.current()
	requests, writes := a.placement.Requests()
	s := health.Status{
		Version: version.Number(), PID: os.Getpid(), Host: cfg.Agent.Host, Started: a.started,
		Reloaded: a.settings.lastReload(), ConfigFiles: cfg.Files(),
		Placement: health.Placement{URL: a.placement.Endpoint(), Bundled: a.opts.Bundled, Requests: requests,
			Writes: writes, SeveralAgents: a.run.placement.SeveralAgents()},
		Drivers: []health.Driver{}, Disabled: a.disabledReasons(), Cell: a.cellView(), Identity: a.identityView(),
	}
	for _, d := range a.drivers.active() {
		view := d.view()
		view.MissingSince = a.absence.missing(d.name)
		if grace := unavailableGrace(cfg, d.name); grace > 0 && !view.MissingSince.IsZero() {
			view.DisablesAt = view.MissingSince.Add(grace)
		}
		s.Drivers = append(s.Drivers, view)
	}
	return s
}

func (a active) view() health.Driver {
	p := a.plugin.Status()
	return health.Driver{Name: a.name, Report: a.tracker.Status(), Warnings: p.Warnings, Plugin: health.NewPlugin(p)}
}

// treeTimeout limits how long `compute-agent tree` waits for Placement.
const treeTimeout = 30 * time.Second

// Tree implements [control.Agent]. It reads each tree and its usage from Placement, with one GET
// for each provider with inventory, concurrently with passes. If that fails, it returns the cached
// tree. The consumers cost nothing more for those that are guests, and a GET for each other one.
func (a *Agent) Tree(ctx context.Context, o control.TreeOptions) (control.Tree, error) {
	out := control.Tree{Nodes: []control.NodeTree{}}
	var guests *guestIndex
	if o.Servers {
		index := a.indexGuests(ctx)
		guests = &index
	}
	for _, d := range a.drivers.active() {
		status := d.tracker.Status()
		for _, n := range status.Nodes {
			out.Nodes = append(out.Nodes, a.nodeTree(ctx, d, n, guests))
		}
		if len(status.Nodes) == 0 && status.Error != "" {
			out.Nodes = append(out.Nodes,
				control.NodeTree{Node: "driver " + d.name, Driver: d.name, Error: status.Error})
		}
	}
	return out, nil
}

// nodeTree reads the tree of a node, with its consumers if guests are given.
func (a *Agent) nodeTree(
	ctx context.Context, d active, n resourcetracker.NodeStatus, guests *guestIndex,
) control.NodeTree {
	out := control.NodeTree{Node: n.Name, UUID: n.UUID, Driver: d.name}
	ctx, cancel := context.WithTimeout(ctx, treeTimeout)
	defer cancel()
	tree, err := a.placement.TreeOf(ctx, n.UUID)
	switch {
	case err == nil:
		out.ReadAt = time.Now()
	case errors.Is(err, reportclient.ErrNotFound):
		out.Error = "Placement does not have this node"
		if n.Error != "" {
			out.Error += ": " + n.Error
		}
		return out
	default:
		if tree, out.ReadAt = a.placement.Known(n.UUID); tree == nil {
			out.Error = err.Error()
			return out
		}
		out.Stale = err.Error()
	}
	out.Providers = []control.Provider{}
	names := d.plugin.ProductNames(n.Name)
	for _, uuid := range tree.Subtree(n.UUID) {
		p, _ := tree.Provider(uuid)
		if p.Generation == providertree.NoGeneration { // in a cached tree: not created yet
			out.Error = "Placement does not have this node yet"
			break
		}
		var used providertree.Resources
		var consumers []control.Consumer
		if out.Stale == "" && len(p.Inventories) > 0 {
			if guests != nil {
				consumers, used, err = a.consumersOf(ctx, n.Name, uuid, *guests)
			} else {
				used, err = a.placement.Usages(ctx, uuid)
			}
			if err != nil {
				out.Stale = err.Error()
			}
		}
		view := providerView(p, used)
		view.Consumers = consumers
		view.ProductName = names[p.Name]
		out.Providers = append(out.Providers, view)
	}
	if guests != nil && out.Stale == "" {
		out.GuestsError = guests.failed[n.Name]
		out.WithoutAllocations = guests.withoutAllocations(n.Name, out.Providers)
		addTypes(ctx, a.placement, out.Providers)
	}
	return out
}

func providerView(p providertree.Provider, used providertree.Resources) control.Provider {
	out := control.Provider{
		UUID: p.UUID, Name: p.Name, Parent: p.ParentUUID,
		Generation: p.Generation, Traits: p.Traits, Aggregates: p.Aggregates, Inventories: []control.Inventory{},
	}
	for class, i := range p.Inventories {
		view := control.Inventory{Class: class, Inventory: i, Capacity: i.Capacity()}
		if view.AllocationRatio == reportclient.ZeroRatio {
			view.AllocationRatio = 0
		}
		if used != nil {
			n := used[class]
			view.Used = &n
		}
		out.Inventories = append(out.Inventories, view)
	}
	slices.SortFunc(out.Inventories, func(a, b control.Inventory) int { return strings.Compare(a.Class, b.Class) })
	return out
}

// Plan implements [control.Agent].
func (a *Agent) Plan(ctx context.Context, opts resourcetracker.PlanOptions) (control.Plan, error) {
	out := control.Plan{Nodes: []control.NodePlan{}}
	for _, d := range a.drivers.active() {
		out.Nodes = append(out.Nodes, planDriver(ctx, d.name, d.tracker, opts)...)
	}
	return out, nil
}

// planDriver plans the next passes of one driver.
func planDriver(
	ctx context.Context, name string, tracker *resourcetracker.Tracker, opts resourcetracker.PlanOptions,
) []control.NodePlan {
	plans, err := tracker.Plan(ctx, opts)
	if err != nil {
		return []control.NodePlan{cannotPlan(name, err)}
	}
	out := make([]control.NodePlan, 0, len(plans))
	for _, p := range plans {
		view := control.NodePlan{
			Node: p.Node, UUID: p.UUID, Driver: name, Reshape: p.Reshape,
			Operations: append([]reportclient.Operation{}, p.Plan.Operations...),
			Warnings:   unknownNames(p.Plan.Operations),
		}
		var refused *reshape.Error
		var claimed *resourcetracker.ClaimedError
		switch {
		case errors.As(p.Err, &refused):
			refuse(&view, refused)
		case errors.As(p.Err, &claimed):
			refuseClaim(&view, claimed)
		case p.Err != nil:
			view.Error = p.Err.Error()
		}
		out = append(out, view)
	}
	return out
}

// unknownNames returns warnings about class and trait names in a plan.
func unknownNames(ops []reportclient.Operation) []string {
	var classes, traits []string
	for _, op := range ops {
		classes, traits = slices.AppendSeq(classes, maps.Keys(op.Inventories)), append(traits, op.Traits...)
		if op.Reshape != nil {
			for _, p := range op.Reshape.Providers {
				classes = slices.AppendSeq(classes, maps.Keys(p.After))
			}
		}
	}
	return UnknownStandardNames(classes, traits)
}

// refuse marks a node's reshape as refused.
func refuse(n *control.NodePlan, refused *reshape.Error) {
	n.Error, n.Hint, n.Refused, n.Violations, n.ViolationGroups = refused.Summary(), refused.Hint, true,
		refused.List(), refused.ViolationGroups()
}

// refuseClaim marks a node as refused because it belongs to another driver.
func refuseClaim(n *control.NodePlan, claimed *resourcetracker.ClaimedError) {
	n.Operations, n.Reshape = []reportclient.Operation{}, nil
	n.Error, n.Hint, n.Refused = claimed.Error(), claimed.Hint(), true
}

// cannotPlan is the plan of a driver whose nodes are unknown.
func cannotPlan(driver string, err error) control.NodePlan {
	return control.NodePlan{Node: "driver " + driver,
		Driver: driver, Operations: []reportclient.Operation{}, Error: err.Error()}
}
