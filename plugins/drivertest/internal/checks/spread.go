// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"cmp"
	"context"
	"slices"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// filled is a set of consumers that fill what a reshape moves.
type filled struct {
	given providertree.Allocations
	// decisive: they do not all fit on one of the providers that it moves to.
	decisive bool
}

// fill makes up consumers that fill the providers that a reshape moves inventory to, so that each
// provider must take its part.
//
// Every provider has capacity for the same number of slots of each class, and no consumer has more
// of a class than a slot. So a driver that puts one consumer after the other on any provider with
// enough capacity, all its classes together or each by itself, can place all.
func fill(base *baseline, r *reshaped) filled {
	to := map[string][]providertree.Limits{} // by present class
	for _, at := range placesReduced(r, base.root) {
		class := r.renames.Present(at.Class)
		if to[class] == nil {
			to[class] = destinations(r.after, base.root, class)
		}
	}
	slots := int64(1) // on each provider
	for _, all := range to {
		for _, d := range all {
			slots = max(slots, (leastCapacity(all)+d.MaxUnit-1)/d.MaxUnit)
		}
	}
	out := filled{given: providertree.Allocations{}}
	for _, class := range sortedKeys(to) {
		if len(to[class]) > 1 {
			out.add(base, r, class, to[class], slots)
		}
	}
	return out
}

// destinations returns the limits of the inventories of a class that are not empty.
func destinations(tree *providertree.Tree, root, class string) []providertree.Limits {
	var out []providertree.Limits
	for _, id := range tree.Subtree(root) {
		inv, ok := tree.Inventory(id, class)
		if l := inv.Limits(); ok && l.Capacity > 0 {
			out = append(out, l)
		}
	}
	return out
}

// leastCapacity returns the smallest of the capacities.
func leastCapacity(all []providertree.Limits) int64 {
	return slices.MinFunc(all, func(a, b providertree.Limits) int { return cmp.Compare(a.Capacity, b.Capacity) }).
		Capacity
}

// add makes up the consumers of one class.
func (f *filled) add(base *baseline, r *reshaped, class string, to []providertree.Limits, slots int64) {
	const most = 500
	slot, step, biggest := leastCapacity(to)/slots, int64(1), int64(0)
	for _, d := range to {
		slot, step, biggest = min(slot, d.MaxUnit), max(step, d.StepSize), max(biggest, d.Capacity)
	}
	slot -= slot % step
	for _, d := range to {
		if d.BrokenUnit(slot) != providertree.RuleNone || step%d.StepSize != 0 {
			return // no amount is valid everywhere
		}
	}
	smaller := slot - step
	if smaller < 1 || slices.ContainsFunc(to, func(d providertree.Limits) bool { return smaller < d.MinUnit }) {
		smaller = slot
	}
	size := func(i int64) int64 { // sizes differ, so that consumers cannot be confused
		if i%2 == 1 {
			return smaller
		}
		return slot
	}
	n := slots * int64(len(to))
	if sum := n / 2 * (slot + smaller); sum <= biggest { // providers of very different size
		n = 0
		for _, d := range to {
			n += d.Capacity / slot
		}
	}
	free := map[string]int64{}
	sum := int64(0)
	for i := range min(n, most) {
		for _, at := range placesReduced(r, base.root) {
			inv, _ := r.before.Inventory(at.Provider, at.Class)
			was := inv.Limits()
			key := at.Provider + " " + at.Class
			if _, seen := free[key]; !seen {
				free[key] = was.Capacity
			}
			amount := size(i)
			if r.renames.Present(at.Class) != class ||
				amount > free[key] || was.BrokenUnit(amount) != providertree.RuleNone {
				continue
			}
			free[key] -= amount
			sum += amount
			f.consumer(i, at.Provider, at.Class, amount)
			break
		}
	}
	f.decisive = f.decisive || sum > biggest
}

func (f *filled) consumer(i int64, provider, class string, amount int64) {
	id := consumerName(100 + int(i))
	c, there := f.given[id]
	if !there {
		generation := int64(1)
		c = providertree.ConsumerAllocations{
			Resources:  providertree.ProviderResources{},
			Generation: &generation, ProjectID: "project", UserID: "user", ConsumerType: "INSTANCE",
		}
		f.given[id] = c
	}
	c.Resources.Add(provider, class, amount)
}

func checkSpread(ctx context.Context, b *Bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	full := fill(base, r)
	if !full.decisive {
		return notRun("the reshape moves no class to several providers")
	}
	sent := r.sent(base, full.given) + "; they fill what must move, and all of them fit"
	reply, err := p.update(ctx, r.before, base.node, full.given)
	if f := protocol.FailureOf(err); err != nil && f.Kind == protocol.KindReshapeFailed && len(f.Violations) > 0 {
		return notRun("the driver moves no consumers that the suite made up: %s", describe(err))
	}
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return failf(sent, "an invalid tree: %v", err)
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return failf(sent, "invalid allocations: %v", err)
	}
	wrong := append(overCapacity(after, back), withoutInventory(after, back)...)
	return failLines(sent, append(wrong, totalChanges(full.given, back, reply.GetClassRenames())...))
}
