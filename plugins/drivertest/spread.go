// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"slices"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// filled are consumers that fill what a reshape moves.
type filled struct {
	given providertree.Allocations
	// telling says that they do not all fit on one of the providers that it moves to.
	telling bool
}

// destination is a provider that inventory of a class moved to.
type destination struct{ capacity, min, max, step int64 }

// fill makes up consumers that fill the providers that a reshape moves inventory to, so that each
// provider has to take its part.
//
// Every provider has room for the same number of slots of each class, and no consumer has more of a
// class than a slot. So whoever puts one consumer after the other on any provider with enough room,
// all its classes together or each by itself, finds room for all.
func fill(base *baseline, r *reshaped) filled {
	to := map[string][]destination{} // by present class
	for _, at := range leaving(r, base.root) {
		class := r.renames.Present(at.Class)
		if to[class] == nil {
			to[class] = destinations(r.after, base.root, class)
		}
	}
	slots := int64(1) // on each provider
	for _, all := range to {
		for _, d := range all {
			slots = max(slots, (least(all)+d.max-1)/d.max)
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

func destinations(tree *providertree.Tree, root, class string) []destination {
	var out []destination
	for _, id := range tree.Subtree(root) {
		if inv, ok := tree.Inventory(id, class); ok {
			n := inv.Normalize()
			if d := (destination{n.Capacity(), n.MinUnit, n.MaxUnit, n.StepSize}); d.capacity > 0 {
				out = append(out, d)
			}
		}
	}
	return out
}

// least is the capacity of the smallest one.
func least(all []destination) int64 {
	return slices.MinFunc(all, func(a, b destination) int { return int(a.capacity - b.capacity) }).capacity
}

// add makes up the consumers of one class.
func (f *filled) add(base *baseline, r *reshaped, class string, to []destination, slots int64) {
	const most = 500
	slot, step, biggest := least(to)/slots, int64(1), int64(0)
	for _, d := range to {
		slot, step, biggest = min(slot, d.max), max(step, d.step), max(biggest, d.capacity)
	}
	slot -= slot % step
	for _, d := range to {
		if slot < d.min || slot < 1 || slot%d.step != 0 || step%d.step != 0 {
			return // no amount is allowed everywhere
		}
	}
	smaller := slot - step
	if smaller < 1 || slices.ContainsFunc(to, func(d destination) bool { return smaller < d.min }) {
		smaller = slot
	}
	size := func(i int64) int64 { // they differ, so that one cannot be taken for another
		if i%2 == 1 {
			return smaller
		}
		return slot
	}
	n := slots * int64(len(to))
	if sum := n / 2 * (slot + smaller); sum <= biggest { // providers of very different size
		n = 0
		for _, d := range to {
			n += d.capacity / slot
		}
	}
	free := map[string]int64{}
	sum := int64(0)
	for i := range min(n, most) {
		for _, at := range leaving(r, base.root) {
			inv, _ := r.before.Inventory(at.Provider, at.Class)
			was := inv.Limits()
			key := at.Provider + " " + at.Class
			if _, seen := free[key]; !seen {
				free[key] = was.Capacity
			}
			amount := size(i)
			if r.renames.Present(at.Class) != class || amount > free[key] || was.Units(amount) != providertree.RuleNone {
				continue
			}
			free[key] -= amount
			sum += amount
			f.consumer(i, at.Provider, at.Class, amount)
			break
		}
	}
	f.telling = f.telling || sum > biggest
}

func (f *filled) consumer(i int64, provider, class string, amount int64) {
	id := consumerName(100 + int(i))
	c, there := f.given[id]
	if !there {
		generation := int64(1)
		c = providertree.ConsumerAllocations{
			Resources: providertree.ProviderResources{}, Generation: &generation, ProjectID: "project", UserID: "user", ConsumerType: "INSTANCE",
		}
		f.given[id] = c
	}
	c.Resources.Add(provider, class, amount)
}

func checkSpread(ctx context.Context, b *bench) error {
	base, p, r, err := b.done(ctx)
	if err != nil {
		return err
	}
	full := fill(base, r)
	if !full.telling {
		return notApplicable("the reshape moves nothing that has several providers to go to")
	}
	sent := r.sent(base, full.given) + "; they fill what is to move, and all of them fit"
	reply, err := p.update(ctx, r.before, base.node, full.given)
	if f := protocol.FailureOf(err); err != nil && f.Kind == protocol.KindReshapeFailed && len(f.Offenders) > 0 {
		return notApplicable("the driver answers %s, which is no mistake: it does not know where these consumers are", said(err))
	}
	if err != nil {
		return found(sent, "%s", said(err))
	}
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return found(sent, "a tree that cannot be used: %v", err)
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return found(sent, "allocations that cannot be: %v", err)
	}
	wrong := append(crowded(after, back), homeless(after, back)...)
	return several(sent, append(wrong, totalChanges(full.given, back, reply.GetClassRenames())...))
}
