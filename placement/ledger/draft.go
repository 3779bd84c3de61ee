// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/internal/lib/pmap"
	"github.com/compute-agent/compute-agent/providertree"
)

// draft is a snapshot that is being built: a copy of another one, whose
// containers are changed in place under an owner of its own. Dropping a draft
// undoes its changes; a published draft is immutable.
//
// A draft maintains the indexes; Tx has the rules of Placement.
type draft struct {
	*Snapshot
	owner *pmap.Owner
}

func newDraft(base *Snapshot) draft {
	s := *base
	return draft{Snapshot: &s, owner: new(pmap.Owner)}
}

// providerChange replaces a provider. old is nil for a new one, now for a removed one.
type providerChange struct{ old, now *Provider }

// putProvider replaces a provider that keeps its position in its tree.
func (d draft) putProvider(old, now *Provider) {
	d.indexProvider(old, now)
	d.replaceInTree(now)
}

// indexProvider updates everything but the trees. Cost: the differences.
func (d draft) indexProvider(old, now *Provider) {
	var was, is Provider
	if old != nil {
		was = *old
	}
	if now != nil {
		is = *now
	}
	id := max(was.ID, is.ID)
	d.rename(&d.providerIDs, id, was.UUID, is.UUID)
	d.rename(&d.providerNames, id, was.Name, is.Name)
	d.indexSpaces(id, was.Name, is.Name)
	d.indexStrings(&d.withTrait, id, was.Traits, is.Traits, d.traitID)
	d.indexStrings(&d.inAggregate, id, was.Aggregates, is.Aggregates, d.aggregateID)
	for _, inv := range was.Inventories {
		if _, stays := inventoryOf(is.Inventories, inv.class); !stays {
			d.link(&d.withClass, inv.class, id, false)
		}
	}
	for _, inv := range is.Inventories {
		if _, had := inventoryOf(was.Inventories, inv.class); !had {
			d.link(&d.withClass, inv.class, id, true)
		}
	}
	if now == nil {
		d.providers = d.providers.Delete(d.owner, id)
		d.consumersOn = d.consumersOn.Delete(d.owner, id)
		return
	}
	d.providers = d.providers.Set(d.owner, id, now)
	d.next.provider = max(d.next.provider, id+1)
}

// rename replaces the name of an ID; "" is no name. The old name stays if another ID has it by now:
// in one delta, an object can be deleted and another one of that name created.
func (d draft) rename(index *pmap.StringMap[int64], id int64, was, is string) {
	if was == is {
		return
	}
	if named, ok := index.Get(was); ok && named == id {
		*index = index.Delete(d.owner, was)
	}
	if is != "" {
		*index = index.Set(d.owner, is, id)
	}
}

// indexSpaces replaces the name of a provider in the index of names with spaces at the end.
func (d draft) indexSpaces(id int64, was, is string) {
	if was == is {
		return
	}
	if begin := providertree.NameKey(was); begin != was {
		ids, _ := d.byTrimmedName.Get(begin)
		if ids = slices.DeleteFunc(slices.Clone(ids), func(other int64) bool { return other == id }); len(ids) > 0 {
			d.byTrimmedName = d.byTrimmedName.Set(d.owner, begin, ids)
		} else {
			d.byTrimmedName = d.byTrimmedName.Delete(d.owner, begin)
		}
	}
	if begin := providertree.NameKey(is); begin != is {
		ids, _ := d.byTrimmedName.Get(begin)
		ids = append(slices.Clone(ids), id)
		slices.Sort(ids)
		d.byTrimmedName = d.byTrimmedName.Set(d.owner, begin, ids)
	}
}

func (d draft) traitID(name string) int64 {
	t, _ := d.traits.Get(name)
	return t.ID
}

// traitOrder returns the indices of the sorted names in the order of their traits' IDs; nil if the
// names are in that order.
func (d draft) traitOrder(names []string) []int32 {
	ids := make([]int64, len(names))
	for i, name := range names {
		ids[i] = d.traitID(name)
	}
	if slices.IsSorted(ids) {
		return nil
	}
	order := make([]int32, len(names))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(ids[a], ids[b]) })
	return order
}

func (d draft) aggregateID(uuid string) int64 {
	id, _ := d.aggregates.ids.Get(uuid)
	return id
}

// indexStrings links and unlinks the differences between two sorted lists.
func (d draft) indexStrings(index *pmap.IntMap[pmap.IntSet], id int64, was, is []string, number func(string) int64) {
	removed, added := diffSorted(was, is)
	for _, name := range removed {
		d.link(index, number(name), id, false)
	}
	for _, name := range added {
		d.link(index, number(name), id, true)
	}
}

// link adds member to the set of key or removes it.
func (d draft) link(index *pmap.IntMap[pmap.IntSet], key, member int64, in bool) {
	set, _ := index.Get(key)
	if in {
		set = set.Add(member)
	} else {
		set = set.Remove(member)
	}
	if set.Len() == 0 {
		*index = index.Delete(d.owner, key)
		return
	}
	*index = index.Set(d.owner, key, set)
}

// replaceInTree replaces a changed provider in its tree. Cost: the tree's size,
// once for each tree of a draft.
func (d draft) replaceInTree(p *Provider) {
	t, _ := d.trees.Get(p.slot)
	if t.owner != d.owner {
		t = &Tree{owner: d.owner, nodes: slices.Clone(t.nodes)}
		d.trees = d.trees.Set(d.owner, p.slot, t)
	}
	for i, n := range t.nodes {
		if n.ID == p.ID {
			t.nodes[i] = p
			return
		}
	}
	panic(fmt.Sprintf("ledger: provider %s is not in its tree %d", p.UUID, p.slot))
}

// moveProviders applies changes that add, remove or move providers: it assigns
// each its tree and rebuilds those trees. It sets the slots of the changed
// providers, so they must not be shared yet. Cost: the sizes of these trees.
func (d draft) moveProviders(changes []providerChange) error {
	members := map[int64][]*Provider{} // of the changed trees, by number
	touch := func(slot int64) {
		if _, ok := members[slot]; !ok {
			members[slot] = nil
			if t, ok := d.trees.Get(slot); ok {
				members[slot] = slices.Clone(t.nodes)
			}
		}
	}
	for _, c := range changes {
		if c.old != nil {
			touch(c.old.slot)
			members[c.old.slot] = slices.DeleteFunc(members[c.old.slot],
				func(p *Provider) bool { return p.ID == c.old.ID })
		}
	}
	// Roots first: they determine the trees of the others.
	roots := map[string]int64{}
	for _, c := range changes {
		if c.now == nil || c.now.Parent != "" {
			continue
		}
		if c.old != nil && c.old.Parent == "" {
			c.now.slot = c.old.slot
		} else {
			c.now.slot = d.takeSlot()
		}
		roots[c.now.UUID] = c.now.slot
		touch(c.now.slot)
		members[c.now.slot] = append(members[c.now.slot], c.now)
	}
	for _, c := range changes {
		if c.now == nil || c.now.Parent == "" {
			continue
		}
		slot, ok := roots[c.now.Root]
		if !ok {
			root, found := d.Provider(c.now.Root)
			if !found || root.Parent != "" {
				return fmt.Errorf("resource provider %s: its root %s is not a root", c.now.UUID, c.now.Root)
			}
			slot = root.slot
		}
		c.now.slot = slot
		touch(slot)
		members[slot] = append(members[slot], c.now)
	}
	for _, c := range changes {
		d.indexProvider(c.old, c.now)
	}
	for slot, nodes := range members {
		if len(nodes) == 0 {
			d.trees = d.trees.Delete(d.owner, slot)
			d.freeSlots = &slotList{slot: slot, next: d.freeSlots}
			continue
		}
		ordered, err := preOrder(nodes)
		if err != nil {
			return err
		}
		d.trees = d.trees.Set(d.owner, slot, &Tree{owner: d.owner, nodes: ordered})
	}
	return nil
}

func (d draft) takeSlot() int64 {
	if d.freeSlots != nil {
		slot := d.freeSlots.slot
		d.freeSlots = d.freeSlots.next
		return slot
	}
	d.nextSlot++
	return d.nextSlot - 1
}

// preOrder sorts the members of one tree: parents before children, siblings
// by ID.
func preOrder(members []*Provider) ([]*Provider, error) {
	slices.SortFunc(members, compareProviders)
	children := byParent(members)
	roots := children[""]
	if len(roots) != 1 {
		return nil, fmt.Errorf("the tree of resource provider %s has %d roots", members[0].UUID, len(roots))
	}
	out := subtreeOf(roots[0], children)
	if len(out) != len(members) {
		return nil, fmt.Errorf("the tree of resource provider %s has members that are not below it", roots[0].UUID)
	}
	return out, nil
}

func compareProviders(a, b *Provider) int { return cmp.Compare(a.ID, b.ID) }

// byParent groups providers by the uuid of the parent, "" for roots, and keeps their order.
func byParent(providers []*Provider) map[string][]*Provider {
	children := make(map[string][]*Provider, len(providers))
	for _, p := range providers {
		children[p.Parent] = append(children[p.Parent], p)
	}
	return children
}

// subtreeOf returns a provider and all below it, in pre-order.
func subtreeOf(top *Provider, children map[string][]*Provider) []*Provider {
	var out []*Provider
	stack := []*Provider{top}
	for len(stack) > 0 {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		out = append(out, p)
		for _, kid := range slices.Backward(children[p.UUID]) {
			stack = append(stack, kid)
		}
	}
	return out
}

// diffSorted returns the strings that are only in a and only in b.
func diffSorted(a, b []string) (onlyA, onlyB []string) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			onlyA, a = append(onlyA, a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			onlyB, b = append(onlyB, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return onlyA, onlyB
}

func containsSorted(sorted []string, v string) bool {
	_, ok := slices.BinarySearch(sorted, v)
	return ok
}

// inventoryOf finds the inventory of a class.
func inventoryOf(inventories []Inventory, class int64) (Inventory, bool) {
	for _, inv := range inventories {
		if inv.class == class {
			return inv, true
		}
	}
	return Inventory{}, false
}
