// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Shrinking returns the uuids of the providers that have less in desired than in known: a resource
// class is missing or has a smaller total, or the whole provider is missing. [Drain] needs their
// usages. The order is that of known.
//
// Cost: O(size of the trees).
func Shrinking(known, desired *providertree.Tree) []string {
	var out []string
	for p := range known.All() {
		if p.Generation == providertree.NoGeneration {
			continue // Placement does not have it
		}
		for class, inv := range p.Inventories {
			if now, found := desired.Inventory(p.UUID, class); !found || now.Total < inv.Total {
				out = append(out, p.UUID)
				break
			}
		}
	}
	return out
}

// Draining is an inventory or provider that is to be removed, or to shrink, and stays until it is
// free.
type Draining struct {
	// Provider is the uuid, Name the name of the resource provider.
	Provider, Name string
	// Class is "" for a provider that stays only because another is below it.
	Class string
	// Used is what is allocated, Total what is written to Placement instead.
	Used, Total int64
	// Gone says that the whole class or provider is to be removed. Otherwise only its total
	// shrinks.
	Gone bool
	// Waits is the provider that cannot be created or renamed before this provider's name is free;
	// "" if there is none.
	Waits string
}

// String is a sentence for messages.
func (d Draining) String() string {
	where := fmt.Sprintf("resource provider %s (%s)", d.Name, d.Provider)
	var out string
	switch {
	case d.Class == "":
		out = fmt.Sprintf("Resource provider %s (%s) is kept until its descendants have drained.", d.Name, d.Provider)
	case d.Gone:
		out = fmt.Sprintf("The inventory of %s of %s is kept, fully reserved, until the %d allocated are free.",
			d.Class, where, d.Used)
	default:
		out = fmt.Sprintf("The inventory of %s of %s is kept at a total of %d while %d are allocated.",
			d.Class, where, d.Total, d.Used)
	}
	if d.Waits != "" {
		out += " Until then " + d.Waits + " cannot have its name."
	}
	return out
}

// Drain returns the desired tree with everything put back that known has and that cannot be removed
// yet, because it is allocated. It also returns a list of what it put back.
//
//   - A removed resource class with allocations stays, on a provider that is removed or not. Its
//     total becomes the allocated amount, and all of it is reserved, so that nothing more can be
//     allocated.
//   - A removed provider with such classes stays with these, its traits and aggregates, and so do
//     all its ancestors. An ancestor that is removed too has only its name, traits and aggregates.
//     A new provider of the same name is left out for now, with everything below it.
//   - A total that shrinks below what the allocated amount needs, by ratio and reserved, is raised
//     to that, but not above its former value.
//
// usages has the allocated amounts by provider and class, of the providers that [Shrinking]
// returns; a missing amount is 0. may selects the classes that are put back (nil: all). Neither
// tree is changed. If nothing is put back, desired itself is returned. The record of the result is
// that of [Record.Exact] and then [Record.Hold].
//
// Cost: O(size of the trees), no I/O; see BenchmarkDrain.
func Drain(
	known, desired *providertree.Tree, usages providertree.ProviderResources, may func(provider, class string) bool,
) (*providertree.Tree, []Draining, error) {
	r := &draining{known: known, desired: desired,
		usages: usages, mayDrain: may, held: map[string]providertree.Inventories{}}
	for p := range known.All() {
		if p.Generation != providertree.NoGeneration {
			r.keepUsed(p)
		}
	}
	if len(r.draining) == 0 {
		return desired, nil, nil
	}
	tree, err := r.tree()
	if err != nil {
		return nil, nil, fmt.Errorf("keeping what is still allocated: %w", err)
	}
	return tree, r.draining, nil
}

type draining struct {
	known, desired *providertree.Tree
	usages         providertree.ProviderResources
	mayDrain       func(provider, class string) bool

	held map[string]providertree.Inventories // what is written instead, by provider
	// held providers that desired does not have, in the order of known
	gone     []string
	draining []Draining
}

// keepUsed finds what of one provider must stay.
func (d *draining) keepUsed(p providertree.Provider) {
	used := d.usages[p.UUID]
	for _, class := range sortedKeys(p.Inventories) {
		was := p.Inventories[class]
		now, stays := d.desired.Inventory(p.UUID, class)
		if stays && now.Total >= was.Total || d.mayDrain != nil && !d.mayDrain(p.UUID, class) {
			continue
		}
		n := used[class]
		var instead providertree.Inventory
		switch {
		case n <= 0:
			continue
		case !stays:
			instead = drainedInventory(was, n)
		case now.Capacity() >= n:
			continue
		default:
			instead = now
			instead.Total = leastTotal(now, was.Total, n)
		}
		if d.held[p.UUID] == nil {
			d.held[p.UUID] = providertree.Inventories{}
			if !d.desired.Exists(p.UUID) {
				d.gone = append(d.gone, p.UUID)
			}
		}
		d.held[p.UUID][class] = instead
		d.draining = append(d.draining,
			Draining{Provider: p.UUID, Name: p.Name, Class: class, Used: n, Total: instead.Total, Gone: !stays})
	}
}

// leastTotal returns the least total, up to maxTotal, at which an inventory has capacity for what
// is used.
func leastTotal(inv providertree.Inventory, maxTotal, used int64) int64 {
	// capacity grows with the total: 31 steps, and none of the rounding of a division
	low, high := inv.Total, maxTotal
	for low < high {
		inv.Total = low + (high-low)/2
		if inv.Capacity() >= used {
			high = inv.Total
		} else {
			low = inv.Total + 1
		}
	}
	return low
}

// tree puts what is held into desired.
func (d *draining) tree() (*providertree.Tree, error) {
	if len(d.gone) == 0 {
		tree := d.desired.Clone()
		return tree, d.setInventories(tree)
	}
	former := make(map[string]providertree.Provider, d.known.Len())
	for p := range d.known.All() {
		former[p.UUID] = p
	}
	s := newResolver(d.desired.Len()+len(d.gone), func(uuid string) (string, string, bool) {
		p, found := former[uuid]
		return p.Name, p.ParentUUID, found
	})
	wanted := make(map[string]providertree.Provider, d.desired.Len())
	for p := range d.desired.All() {
		wanted[p.UUID] = p
		s.add(p.UUID, p.Name, p.ParentUUID)
	}
	for _, uuid := range d.gone {
		p := former[uuid]
		s.add(uuid, p.Name, p.ParentUUID)
	}
	s.resolve()
	for _, uuid := range s.back {
		p := former[uuid]
		d.draining = append(d.draining, Draining{Provider: uuid, Name: p.Name, Gone: true})
	}
	d.noteWaiting(s)
	all := make([]providertree.Provider, 0, len(s.places))
	for _, uuid := range s.order {
		at := s.places[uuid]
		if at == nil {
			continue
		}
		p, found := wanted[uuid]
		if !found {
			p = former[uuid]
			p.Inventories = nil
		}
		p.Name, p.ParentUUID = at.name, at.parent
		all = append(all, p)
	}
	tree := &providertree.Tree{}
	if err := tree.Populate(all); err != nil {
		return nil, err
	}
	return tree, d.setInventories(tree)
}

// setInventories sets the inventories that are held. Providers that wait hold nothing.
func (d *draining) setInventories(tree *providertree.Tree) error {
	var errs []error
	for uuid, inventories := range d.held {
		for class, inv := range inventories {
			_, err := tree.SetInventory(uuid, class, inv)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// noteWaiting tells of each provider that stays what cannot have its name meanwhile.
func (d *draining) noteWaiting(s *resolver) {
	waits := map[string]string{}
	for _, y := range slices.Concat(s.waiting, s.renamed) {
		if y.holder != "" {
			waits[y.holder] = y.uuid
		}
	}
	for i := range d.draining {
		d.draining[i].Waits = waits[d.draining[i].Provider]
	}
}

// drainedInventory is what is written for an inventory that is removed while n of it are allocated:
// its total is n and all of it is reserved, so no client can allocate more.
func drainedInventory(inv providertree.Inventory, n int64) providertree.Inventory {
	inv.Total = min(n, providertree.MaxUnit)
	inv.Reserved = inv.Total
	return inv
}

// isHeld reports whether an inventory is one that was closed, as it was made from what it was
// before. Where another client changed it since, it is not.
func isHeld(before *providertree.Inventory, now providertree.Inventory) bool {
	return before != nil && !before.Equal(now) && drainedInventory(*before, now.Total).Equal(now)
}

// Hold returns the record of a tree in which [Drain] has closed inventories, with these as they
// were before. [Strip] shows them to the driver like that, so that a device which comes back looks
// to the driver as if it had never been missing. A closed inventory becomes the driver's, also if
// another client created it, because it was changed for the driver. An inventory of the operator's
// or the agent's stays theirs. base is the tree that the driver was given, desired the tree of the
// record. Inventories that are not closed there are not recorded.
//
// Cost: O(draining), and a copy of the record if there is something to note.
func (r *Record) Hold(base, desired *providertree.Tree, draining []Draining) *Record {
	out := r
	for _, d := range draining {
		was, there := base.Inventory(d.Provider, d.Class)
		now, stays := desired.Inventory(d.Provider, d.Class)
		owned := out.provider(d.Provider).Inventories[d.Class]
		if !d.Gone || !there || !stays || !isHeld(&was, now) || owned.BeforeDrain != nil || owned.Owner.layered() {
			continue
		}
		if out == r {
			copied := *r
			copied.Providers = maps.Clone(r.Providers)
			out = &copied
		}
		at, _ := desired.Provider(d.Provider)
		p := out.provider(d.Provider).clone()
		p.Name, p.Parent = at.Name, at.ParentUUID
		put(&p.Inventories, d.Class, OwnedInventory{Owner: Driver, Inventory: now, BeforeDrain: &was})
		put(&out.Providers, d.Provider, p)
	}
	return out
}
