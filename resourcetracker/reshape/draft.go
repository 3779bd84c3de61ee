// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"maps"
	"reflect"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Draft is what a pass over one node works out of trees and allocations before anything is written.
type Draft struct {
	Node plugins.Node
	// Known is the tree in Placement, Base the tree that the driver is given, and Answer the one
	// that it returns. Desired is the answer with the items of other clients and of the agent.
	Known, Base, Answer, Desired *providertree.Tree
	// Before and After are the allocations around a reshape; nil in any other pass.
	Before, After providertree.Allocations
	Renames       plugins.ClassRenames
	// Given and Held are the tree and the allocations that the driver was given last, after layout
	// migrations that were checked one by one. Without migrations they are nil, and stand for Base
	// and Before.
	Given *providertree.Tree
	Held  providertree.Allocations
	// Guests are the guests that the driver lists for the desired tree of a reshape; nil if it does
	// not list guests.
	Guests []plugins.Guest
}

// Changed reports whether the driver, given allocations, changed them or the tree. Traits and
// aggregates do not count.
func (d Draft) Changed() bool {
	if d.Before == nil {
		return false
	}
	changes := providertree.Diff(d.Base, d.Answer)
	return len(changes.Added)+len(changes.Removed) > 0 || !reflect.DeepEqual(d.Before, d.After) ||
		slices.ContainsFunc(changes.Changed,
			func(c providertree.Change) bool { return c.Inventories() || c.Moved() || c.Renamed() })
}

// ownProviders returns the uuids of the providers of the node's tree, before and after. It leaves
// out a provider that is new in the tree although a consumer had allocations of it before: it
// belongs to another client, and the driver reuses its uuid.
func (d Draft) ownProviders() map[string]bool {
	own := map[string]bool{}
	for _, uuid := range d.Known.Subtree(d.Node.UUID) {
		own[uuid] = true
	}
	for _, uuid := range d.Desired.Subtree(d.Node.UUID) {
		if !d.Known.Exists(uuid) {
			own[uuid] = true
		}
	}
	for _, c := range d.Before {
		for uuid := range c.Resources {
			if !d.Known.Exists(uuid) {
				delete(own, uuid)
			}
		}
	}
	return own
}

// mayLeave reports whether there is a reason for an allocation to leave a place: between what
// Placement has and would have, or between what the driver was given and answered. The two differ
// in what others added to the node, and in what drains.
func (d Draft) mayLeave(provider, class string, amount int64) bool {
	known, base := d.Known, d.Base
	if d.Given != nil {
		known, base = d.Given, d.Given
	}
	was, had := known.Inventory(provider, class)
	is, has := d.Desired.Inventory(provider, class)
	if !had || !has || was.Reserved >= was.Total || was.MayLeave(is, amount) {
		return true
	}
	given, seen := base.Inventory(provider, class)
	answer, stays := d.Answer.Inventory(provider, class)
	return seen && (!stays || given.MayLeave(answer, amount))
}

// ComposeRenames joins the renames of one step after another.
func ComposeRenames(first, second plugins.ClassRenames) plugins.ClassRenames {
	if len(first) == 0 {
		return second
	}
	out := plugins.ClassRenames{}
	for from, to := range first {
		out[from] = second.Present(to)
	}
	for from, to := range second {
		if _, known := out[from]; !known {
			out[from] = to
		}
	}
	maps.DeleteFunc(out, func(from, to string) bool { return from == to })
	return out
}

func unionKeys[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
