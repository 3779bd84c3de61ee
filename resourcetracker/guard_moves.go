// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// checkLeaving finds what leaves a place that keeps its inventory. It would be free there and given
// out again, while the guest still uses it.
func (g *reshapeGuard) checkLeaving(consumer string, before, after providertree.ConsumerAllocations) {
	if g.given != nil {
		before = g.held[consumer]
	}
	for _, provider := range before.Resources.Providers() {
		if !g.own[provider] {
			continue
		}
		for _, class := range before.Resources[provider].Classes() {
			was, is := before.Resources[provider][class], after.Resources[provider][class]
			if is < was && !g.mayLeave(provider, class, was) {
				g.addDefect(consumer, provider, class,
					"it holds %d there and would hold %d, but the inventory stays as it is: "+
						"allocations leave only what the reshape removes or shrinks", was, is)
			}
		}
	}
}

// mayLeave reports whether there is a reason for an allocation to leave a place: between what
// Placement has and would have, or between what the driver was given and answered. The two differ
// in what others added to the node, and in what drains.
func (d draft) mayLeave(provider, class string, amount int64) bool {
	known, base := d.known, d.base
	if d.given != nil {
		known, base = d.given, d.given
	}
	was, had := known.Inventory(provider, class)
	is, has := d.desired.Inventory(provider, class)
	if !had || !has || was.Reserved >= was.Total || was.MayLeave(is, amount) {
		return true
	}
	given, seen := base.Inventory(provider, class)
	answer, stays := d.answer.Inventory(provider, class)
	return seen && (!stays || given.MayLeave(answer, amount))
}

// checkGuests compares what the reshape moves of each guest with where the driver lists it.
func (g *reshapeGuard) checkGuests() {
	classes := map[string]bool{} // of which the driver lists something
	known := slices.DeleteFunc(slices.Clone(g.guests),
		func(guest plugins.Guest) bool { return guest.Resources == nil || guest.Requested })
	for _, guest := range known {
		for _, amounts := range guest.Resources {
			for class := range amounts {
				classes[class] = true
			}
		}
	}
	slices.SortFunc(known, func(a, b plugins.Guest) int { return cmp.Compare(a.UUID, b.UUID) })
	for _, guest := range known {
		before, after := g.before[guest.UUID], g.after[guest.UUID]
		if before.Resources == nil || after.Resources == nil {
			continue // it holds nothing here, or that it is lost is a violation already
		}
		own := func(provider string) bool { return g.own[provider] }
		for _, m := range providertree.Misplaced(before.Resources, after.Resources, guest.Resources, own, classes) {
			g.addDefect(guest.UUID, m.Provider, m.Class,
				"it would hold %d there, but the driver lists the guest with %d", m.Holds, m.Has)
		}
	}
}

// listGuests asks the driver where its guests are in the tree that a reshape would make, so that
// what it moves can be compared with that before it is written. A driver that cannot list them now
// is asked again with the next pass; with one that never can, there is nothing to compare.
//
// Cost: a call of the driver, if allocations change.
func (t *Tracker) listGuests(ctx context.Context, d draft) ([]plugins.Guest, error) {
	lister, ok := t.config.Driver.(plugins.GuestLister)
	if !ok || reflect.DeepEqual(d.before, d.after) {
		return nil, nil
	}
	guests, err := lister.Guests(ctx, d.desired.Clone(), d.node.Name)
	switch {
	case errors.Is(err, plugins.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, &passError{step: "asking the driver for its guests, to compare the reshape with them", err: err}
	}
	return guests, nil
}
