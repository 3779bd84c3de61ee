// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const consumers = 3

// consumerName returns the uuid of a made-up consumer.
func consumerName(i int) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, "drivertest consumer ", i)).String()
}

// allocate makes up a few consumers that each have a little of every inventory in the node's tree
// with enough capacity. The first has more than the others of classes that have enough on every
// provider of the driver's tree, so that it cannot be confused with them.
func allocate(tree, own *providertree.Tree, root string) providertree.Allocations {
	plenty := plentyOf(own)
	out := providertree.Allocations{}
	for i := range consumers {
		generation := int64(i + 2)
		c := providertree.ConsumerAllocations{
			Resources: providertree.ProviderResources{}, Generation: &generation,
			ProjectID: fmt.Sprintf("project-%d", i),
			UserID:    fmt.Sprintf("user-%d", i), ConsumerType: []string{"INSTANCE", "MIGRATION", ""}[i],
		}
		for _, id := range tree.Subtree(root) {
			p, _ := tree.Provider(id)
			for _, class := range sortedKeys(p.Inventories) {
				if n, ok := share(p.Inventories[class], i, plenty[class]); ok {
					c.Resources.Add(id, class, n)
				}
			}
		}
		if len(c.Resources) > 0 {
			out[consumerName(i)] = c
		}
	}
	return out
}

// share returns what the i-th consumer gets of an inventory: the smallest valid amount, if there is
// enough for each, and twice that for the first if there is plenty.
func share(inv providertree.Inventory, i int, plenty bool) (int64, bool) {
	l := inv.Limits()
	unit := smallest(l)
	if i == 0 && plenty && enoughForAll(l) {
		return 2 * unit, true
	}
	return unit, unit <= l.MaxUnit && int64(i+1)*unit <= l.Capacity
}

// plentyOf returns the classes of which every inventory has enough for all consumers.
func plentyOf(tree *providertree.Tree) map[string]bool {
	out := map[string]bool{}
	for p := range tree.All() {
		for class, inv := range p.Inventories {
			enough, seen := out[class]
			out[class] = (enough || !seen) && enoughForAll(inv.Limits())
		}
	}
	return out
}

// enoughForAll reports whether each consumer can have the smallest amount, and one of them twice
// that.
func enoughForAll(l providertree.Limits) bool {
	return 2*smallest(l) <= l.MaxUnit && (consumers+1)*smallest(l) <= l.Capacity
}

// smallest returns the smallest valid amount of an inventory.
func smallest(l providertree.Limits) int64 { return roundUp(l.MinUnit, l.StepSize) }

func roundUp(amount, step int64) int64 { return (amount + step - 1) / step * step }

// allocationChanges describes how allocations differ, a line each.
func allocationChanges(before, after providertree.Allocations) []string {
	var out []string
	for _, id := range sortedKeys(before) {
		was := before[id]
		is, ok := after[id]
		if !ok {
			out = append(out, "consumer "+id+" is missing")
			continue
		}
		out = append(out, ownerChanges(id, was, is)...)
		for _, provider := range union(was.Resources, is.Resources) {
			for _, class := range union(was.Resources[provider], is.Resources[provider]) {
				if a, b := was.Resources[provider][class], is.Resources[provider][class]; a != b {
					out = append(out, fmt.Sprintf("consumer %s has %d %s on %s, had %d", id, b, class, provider, a))
				}
			}
		}
	}
	return append(out, addedConsumers(before, after)...)
}

func addedConsumers(before, after providertree.Allocations) []string {
	var out []string
	for _, id := range sortedKeys(after) {
		if _, ok := before[id]; !ok {
			out = append(out, "consumer "+id+" was not in the request")
		}
	}
	return out
}

func ownerChanges(id string, was, is providertree.ConsumerAllocations) []string {
	var out []string
	for _, f := range []struct{ what, was, is string }{
		{"generation", generation(was), generation(is)},
		{"project", was.ProjectID, is.ProjectID}, {"user", was.UserID, is.UserID},
		{"type", was.ConsumerType, is.ConsumerType},
	} {
		if f.was != f.is {
			out = append(out, fmt.Sprintf("consumer %s has the %s %q, had %q", id, f.what, f.is, f.was))
		}
	}
	return out
}

func generation(c providertree.ConsumerAllocations) string {
	if c.Generation == nil {
		return "none"
	}
	return fmt.Sprint(*c.Generation)
}

func union[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return sortedKeys(all)
}

// totalChanges compares the total amounts of each consumer, by class under its current name.
func totalChanges(before, after providertree.Allocations, renames plugins.ClassRenames) []string {
	var out []string
	for _, id := range sortedKeys(before) {
		is, ok := after[id]
		if !ok {
			continue // reported by another check
		}
		was, now := renames.Totals(before[id].Totals()), is.Totals()
		for _, class := range union(was, now) {
			if was[class] != now[class] {
				out = append(out, fmt.Sprintf("consumer %s has %d %s in total, had %d",
					id, now[class], class, was[class]))
			}
		}
	}
	return out
}

// withoutInventory lists allocations on providers that have no inventory of the class.
func withoutInventory(tree *providertree.Tree, allocations providertree.Allocations) []string {
	var out []string
	for _, id := range sortedKeys(allocations) {
		for _, provider := range sortedKeys(allocations[id].Resources) {
			if len(allocations[id].Resources[provider]) == 0 {
				out = append(out, fmt.Sprintf("consumer %s lists provider %s without any resources", id, provider))
			}
			for _, class := range sortedKeys(allocations[id].Resources[provider]) {
				if _, ok := tree.Inventory(provider, class); !ok {
					out = append(out,
						fmt.Sprintf("consumer %s has %s on %s, which has no inventory of it", id, class, provider))
				}
			}
		}
	}
	return out
}

// overCapacity lists allocations above an inventory's capacity or in invalid amounts.
func overCapacity(tree *providertree.Tree, allocations providertree.Allocations) []string {
	var out []string
	for _, id := range sortedKeys(allocations) {
		for _, provider := range allocations[id].Resources.Providers() {
			for _, class := range allocations[id].Resources[provider].Classes() {
				n := allocations[id].Resources[provider][class]
				inv, ok := tree.Inventory(provider, class)
				if l := inv.Limits(); ok && l.BrokenUnit(n) != providertree.RuleNone {
					out = append(out, fmt.Sprintf("consumer %s has %d %s on %s: min_unit %d, max_unit %d, step_size %d",
						id, n, class, provider, l.MinUnit, l.MaxUnit, l.StepSize))
				}
			}
		}
	}
	used := allocations.Usages()
	for _, provider := range used.Providers() {
		for _, class := range used[provider].Classes() {
			if inv, ok := tree.Inventory(provider, class); ok && used[provider][class] > inv.Capacity() {
				out = append(out, fmt.Sprintf("%d %s are allocated on %s, which has %d",
					used[provider][class], class, provider, inv.Capacity()))
			}
		}
	}
	return out
}
