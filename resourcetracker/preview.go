// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// PlanOptions say how far a dry run goes.
type PlanOptions struct {
	// Reshape lets the driver reshape, which takes the requests that gather its allocations;
	// otherwise a driver that needs a reshape is an error of the node.
	Reshape bool
}

// NodePlan is what a pass over one node would do now.
type NodePlan struct {
	Node string
	UUID string
	Plan reportclient.Plan
	// Reshape is what would move, nil if nothing has to. It is there beside an Err too, if that is
	// about its content.
	Reshape *Preview
	Err     error
}

// Preview is a reshape before and after, side by side.
type Preview struct {
	// Providers are those whose inventory or allocations change, in the order of the tree, those
	// that go last.
	Providers []ProviderPreview `json:"resource_providers"`
	// Consumers counts those that hold something in the tree, Moved those whose allocations move.
	Consumers int `json:"consumers"`
	Moved     int `json:"moved"`
	// Payload is the request to the reshaper; nil if there would be none.
	Payload *PayloadPreview `json:"payload,omitempty"`
	// Renames are the resource classes that get another name, by their former ones.
	Renames map[string]string `json:"class_renames,omitempty"`
	// OverCommitted are inventories that stay, and of which more is allocated than their capacity.
	// Placement before 14.0.0 (2025.2) refuses a reshape of consumers that hold some of these.
	OverCommitted []string `json:"over_committed,omitempty"`
}

// PayloadPreview says how large the request to the reshaper is.
type PayloadPreview struct {
	Providers int `json:"resource_providers"`
	Consumers int `json:"consumers"`
	// Bytes is the size of the reshape as the journal keeps it, before and after.
	Bytes int `json:"bytes"`
}

// ProviderPreview is one resource provider in a reshape.
type ProviderPreview struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Parent string `json:"parent_provider_uuid,omitempty"`
	// New and Removed say that the provider comes or goes.
	New     bool `json:"new,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Before and After count the consumers that hold something there.
	Before  int            `json:"consumers_before"`
	After   int            `json:"consumers_after"`
	Classes []ClassPreview `json:"resource_classes"`
}

// ClassPreview is one inventory of a provider in a reshape. Nil is an inventory that is not there.
type ClassPreview struct {
	Class  string      `json:"resource_class"`
	Before *StockCount `json:"before"`
	After  *StockCount `json:"after"`
}

// StockCount is how much there is of an inventory, and how much is allocated.
type StockCount struct {
	Total int64 `json:"total"`
	Used  int64 `json:"used"`
}

// Plan computes the next pass over each node without writing anything. It waits for a pass that is
// under way.
func (t *Tracker) Plan(ctx context.Context, opts PlanOptions) ([]NodePlan, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	defer t.end()
	nodes, held, err := t.availableNodes(ctx)
	if err != nil {
		return nil, err
	}
	out := []NodePlan{}
	for _, e := range held {
		out = append(out, NodePlan{Node: e.Node.Name, UUID: e.Node.UUID, Err: e})
	}
	for _, node := range nodes {
		p := NodePlan{Node: node.Name, UUID: node.UUID}
		ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
		var r draft
		r, p.Err = t.compute(ctx, node, t.stateOf(node), opts.Reshape)
		cancel()
		if p.Err == nil {
			p.Plan = t.plan(r)
		}
		if r.after != nil && r.desired != nil {
			p.Reshape = preview(r, p.Plan)
		}
		out = append(out, p)
	}
	return out, nil
}

// preview lays a reshape out.
func preview(r draft, plan reportclient.Plan) *Preview {
	out := &Preview{Providers: []ProviderPreview{}, Consumers: len(r.before), Renames: r.renames}
	for consumer, before := range r.before {
		if !before.Resources.Equal(r.after[consumer].Resources) {
			out.Moved++
		}
	}
	was, is := r.before.Usages(), r.after.Usages()
	order := r.desired.UUIDs()
	for _, uuid := range r.known.UUIDs() {
		if !r.desired.Exists(uuid) {
			order = append(order, uuid)
		}
	}
	for _, uuid := range order {
		out.OverCommitted = append(out.OverCommitted, r.overCommitted(uuid, was[uuid], is[uuid])...)
		if p := r.previewProvider(uuid, was[uuid], is[uuid]); len(p.Classes) > 0 || p.New || p.Removed {
			out.Providers = append(out.Providers, p)
		}
	}
	for _, op := range plan.Operations {
		if op.Reshape == nil {
			continue
		}
		size, err := json.Marshal(op.Reshape)
		if err == nil {
			out.Payload = &PayloadPreview{Providers: len(op.Reshape.Providers),
				Consumers: len(op.Reshape.Consumers), Bytes: len(size)}
		}
	}
	return out
}

// overCommitted lists the inventories of a provider that are over their capacity before and after.
func (r draft) overCommitted(uuid string, was, is providertree.Resources) (over []string) {
	for _, class := range slices.Sorted(maps.Keys(is)) {
		before, had := r.known.Inventory(uuid, class)
		after, has := r.desired.Inventory(uuid, class)
		if had && has && was[class] > before.Capacity() && is[class] > after.Capacity() {
			p, _ := r.desired.Provider(uuid)
			over = append(over, fmt.Sprintf("%s on %s: %d allocated, capacity %d",
				class, p.Name, is[class], after.Capacity()))
		}
	}
	return over
}

// previewProvider holds only the classes of which something changes.
func (r draft) previewProvider(uuid string, was, is providertree.Resources) ProviderPreview {
	before, had := r.known.Provider(uuid)
	after, has := r.desired.Provider(uuid)
	p := ProviderPreview{UUID: uuid, Name: after.Name,
		Parent: after.ParentUUID, New: !had, Removed: !has, Classes: []ClassPreview{}}
	if !has {
		p.Name, p.Parent = before.Name, before.ParentUUID
	}
	for _, c := range r.before {
		if len(c.Resources[uuid]) > 0 {
			p.Before++
		}
	}
	for _, c := range r.after {
		if len(c.Resources[uuid]) > 0 {
			p.After++
		}
	}
	classes := slices.Concat(unionKeys(before.Inventories, after.Inventories), unionKeys(was, is))
	slices.Sort(classes)
	for _, class := range slices.Compact(classes) {
		c := ClassPreview{Class: class}
		if inv, found := before.Inventories[class]; found || was[class] != 0 {
			c.Before = &StockCount{Total: inv.Total, Used: was[class]}
		}
		if inv, found := after.Inventories[class]; found || is[class] != 0 {
			c.After = &StockCount{Total: inv.Total, Used: is[class]}
		}
		if !before.Inventories[class].Equal(after.Inventories[class]) || was[class] != is[class] {
			p.Classes = append(p.Classes, c)
		}
	}
	return p
}
