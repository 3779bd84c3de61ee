// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// leftWithoutReason lists allocations that left inventory of the node which stays as it is.
func leftWithoutReason(before, after *providertree.Tree, root string, given, back providertree.Allocations) []string {
	var out []string
	for _, id := range sortedKeys(given) {
		for _, provider := range before.Subtree(root) {
			p, _ := before.Provider(provider)
			for _, class := range given[id].Resources[provider].Classes() {
				was, is := given[id].Resources[provider][class], back[id].Resources[provider][class]
				inv, stays := after.Inventory(provider, class)
				if is < was && stays && !p.Inventories[class].MayLeave(inv, was) {
					out = append(out,
						fmt.Sprintf("consumer %s has %d %s on %s, had %d, and the inventory stays as it is",
							id, is, class, p.Name, was))
				}
			}
		}
	}
	return out
}

// checkReshapeGuests tries the reshape with the driver's own guests as consumers. If the suite may
// create instances, there are two more of them.
func checkReshapeGuests(ctx context.Context, b *Bench) error {
	base, p, r, err := b.reshape(ctx)
	if err != nil {
		return err
	}
	for i := range 2 {
		if _, _, m, err := b.newInstance(ctx); err == nil {
			spreadOut(base, r, m.spec, i)
			_, _ = p.spawn(ctx, m) // without an instance there may be other guests
		}
	}
	known, err := p.knownGuests(ctx, base.stored, base.node)
	if err != nil {
		return err
	}
	given := heldBefore(base, r, known)
	if len(given) == 0 {
		return notRun("the driver lists no guest with resources that the reshape moves; --instances " +
			"(Options.Instances) lets the suite create some")
	}
	sent := r.sent(base, given) + "; they are guests that the driver lists"
	reply, err := p.update(ctx, r.before, base.node, given)
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
	if known, err = p.knownGuests(ctx, trial.Stored(after), base.node); err != nil {
		return err
	}
	classes, own := map[string]bool{}, map[string]bool{}
	for _, has := range known {
		for class := range has.Totals() {
			classes[class] = true
		}
	}
	for _, id := range after.Subtree(base.root) {
		own[id] = true
	}
	var wrong []string
	for _, id := range sortedKeys(given) {
		has, listed := known[id]
		if !listed {
			continue
		}
		for _, m := range providertree.Misplaced(given[id].Resources, back[id].Resources, has,
			func(uuid string) bool { return own[uuid] }, classes) {
			at, _ := after.Provider(m.Provider)
			wrong = append(wrong, fmt.Sprintf("guest %s has %d %s allocated on %s, and Guests lists it with %d there",
				id, m.Holds, m.Class, at.Name, m.Has))
		}
	}
	return failLines(sent+", then Guests", wrong)
}

// spreadOut gives the i-th instance some of each class that the reshape moves, on the i-th of the
// places where the class goes.
func spreadOut(base *baseline, r *reshaped, spec *driverv1.InstanceSpec, i int) {
	has, err := protocol.ToResources(spec.GetAllocations())
	if err != nil {
		return
	}
	to := map[string][]plugins.Place{}
	for _, from := range placesLeft(base, r) {
		class := r.renames.Present(from.Class)
		if to[class] != nil {
			continue
		}
		for _, id := range base.stored.Subtree(base.root) {
			if inv, there := base.stored.Inventory(id, class); there && inv.Fits(0, smallest(inv.Limits())) == nil {
				to[class] = append(to[class], plugins.Place{Provider: id, Class: class})
			}
		}
	}
	for _, class := range sortedKeys(to) {
		at := to[class][i%len(to[class])]
		inv, _ := base.stored.Inventory(at.Provider, class)
		n := smallest(inv.Limits())
		for provider, amounts := range has.Clone() {
			n = max(n, amounts[class])
			has.Add(provider, class, -amounts[class])
		}
		has.Add(at.Provider, class, n)
	}
	spec.Allocations = protocol.FromResources(has)
}

// placesLeft returns the places of the former tree that have inventory which the driver's own tree
// has not.
func placesLeft(base *baseline, r *reshaped) []plugins.Place {
	var out []plugins.Place
	for _, id := range r.before.Subtree(base.root) {
		p, _ := r.before.Provider(id)
		for _, class := range sortedKeys(p.Inventories) {
			if _, stays := base.stored.Inventory(id, class); !stays {
				out = append(out, plugins.Place{Provider: id, Class: class})
			}
		}
	}
	return out
}

// knownGuests returns the guests of which the driver lists the resources that they have, by uuid.
func (p *proc) knownGuests(
	ctx context.Context, tree *providertree.Tree, node string,
) (map[string]providertree.ProviderResources, error) {
	guests, err := p.guests(ctx, tree, node)
	switch {
	case kind(err) == protocol.KindUnsupported || kind(err) == protocol.KindNotReady:
		return nil, notRun("the driver cannot list guests now (%s)", describe(err))
	case err != nil:
		return nil, failf(fmt.Sprintf("Guests of node %q", node), "%s", describe(err))
	}
	out := map[string]providertree.ProviderResources{}
	for _, g := range guests {
		if has, ok := knownResources(g); ok {
			out[g.GetUuid()] = has
		}
	}
	return out, nil
}

func knownResources(g *driverv1.Guest) (providertree.ProviderResources, bool) {
	if g.GetResources() == nil || g.GetRequested() {
		return nil, false
	}
	has, err := protocol.ToResources(g.GetResources().GetResources())
	return has, err == nil && len(has) > 0
}

// heldBefore returns what guests held before the reshape: what they have where the former tree has
// that, and the rest where the former tree has inventory that goes. Guests of which nothing moves,
// or that do not fit the former tree, are left out.
func heldBefore(
	base *baseline, r *reshaped, guests map[string]providertree.ProviderResources,
) providertree.Allocations {
	used := map[plugins.Place]int64{}
	fits := func(at plugins.Place, n int64) bool {
		inv, there := r.before.Inventory(at.Provider, at.Class)
		return there && inv.Fits(used[at], n) == nil
	}
	places := placesLeft(base, r)
	out := providertree.Allocations{}
	for _, id := range sortedKeys(guests) {
		held, moves, complete := providertree.ProviderResources{}, false, true
		for _, provider := range guests[id].Providers() {
			for _, class := range guests[id][provider].Classes() {
				n, at := guests[id][provider][class], plugins.Place{Provider: provider, Class: class}
				if !fits(at, n) {
					at = plugins.Place{}
					for _, place := range places {
						if r.renames.Present(place.Class) == class && fits(place, n) {
							at, moves = place, true
							break
						}
					}
				}
				complete = complete && at.Provider != ""
				held.Add(at.Provider, at.Class, n)
				used[at] += n
			}
		}
		if moves && complete {
			generation := int64(1)
			out[id] = providertree.ConsumerAllocations{Resources: held, Generation: &generation, ProjectID: "project",
				UserID: "user", ConsumerType: "INSTANCE"}
		}
	}
	return out
}
