// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/compute-agent/compute-agent/internal/lib/pmap"
)

// consumerChange replaces a consumer. old is nil for a new one, now for a removed one, both for one
// that came and went. A record keeps its ID; a consumer without one has ID 0.
type consumerChange struct{ old, now *Consumer }

// putConsumers replaces consumers and updates the usage of their providers. Each
// provider is copied once.
func (d draft) putConsumers(changes []consumerChange) {
	moved := map[[2]int64]int64{} // by provider and class ID
	for _, c := range changes {
		if c.old != nil {
			for _, a := range c.old.Allocations {
				moved[[2]int64{a.provider, a.class}] -= a.Used
			}
		}
		if c.now != nil {
			for _, a := range c.now.Allocations {
				moved[[2]int64{a.provider, a.class}] += a.Used
			}
		}
		d.indexConsumer(c.old, c.now)
	}
	byProvider := map[int64][]usage{}
	for key, amount := range moved {
		if amount != 0 {
			byProvider[key[0]] = append(byProvider[key[0]], usage{key[1], amount})
		}
	}
	for id, amounts := range byProvider {
		// A provider that goes in the same lot takes its usage along.
		if p, ok := d.providers.Get(id); ok {
			d.replace(p.withUsage(amounts))
		}
	}
}

// replace puts a provider in place of the one with its ID, where nothing but
// generation, times or usage differ.
func (d draft) replace(p *Provider) {
	d.providers = d.providers.Set(d.owner, p.ID, p)
	d.replaceInTree(p)
}

// withUsage returns a copy of the provider with the amounts added.
func (p *Provider) withUsage(amounts []usage) *Provider {
	c := *p
	c.used = slices.Clone(p.used)
	for _, m := range amounts {
		at, ok := slices.BinarySearchFunc(c.used, m.class,
			func(u usage, class int64) int { return cmp.Compare(u.class, class) })
		if !ok {
			c.used = slices.Insert(c.used, at, m)
		} else if c.used[at].used += m.used; c.used[at].used == 0 {
			c.used = slices.Delete(c.used, at, at+1)
		}
	}
	return &c
}

// noConsumer is where there is no consumer with a record.
var noConsumer = new(Consumer)

func (d draft) indexConsumer(old, now *Consumer) {
	was, is := noConsumer, noConsumer
	if old != nil && old.ID != 0 {
		was = old
	}
	if now != nil && now.ID != 0 {
		is = now
	}
	switch {
	case now != nil && now != is: // in place: renameIn iterates
		d.orphans = d.orphans.Set(d.owner, now.UUID, now)
	case old != nil && old != was:
		d.orphans = d.orphans.Delete(d.owner, old.UUID)
	}
	d.indexOwner(was, is)
	d.rename(&d.consumerIDs, max(was.ID, is.ID), was.UUID, is.UUID)
	if is == noConsumer {
		d.consumers = d.consumers.Delete(d.owner, was.ID)
	} else {
		d.consumers = d.consumers.Set(d.owner, is.ID, is)
		d.next.consumer = max(d.next.consumer, is.ID+1)
	}
	for _, id := range heldProviders(was) {
		if !holdsOf(is, id) {
			d.link(&d.consumersOn, id, was.ID, false)
		}
	}
	for _, id := range heldProviders(is) {
		if !holdsOf(was, id) {
			d.link(&d.consumersOn, id, is.ID, true)
		}
	}
}

// heldProviders returns the IDs of the providers of a consumer's allocations.
func heldProviders(c *Consumer) []int64 {
	var out []int64
	for _, a := range c.Allocations {
		if len(out) == 0 || out[len(out)-1] != a.provider {
			out = append(out, a.provider)
		}
	}
	return out
}

func holdsOf(c *Consumer, provider int64) bool {
	_, ok := slices.BinarySearchFunc(c.Allocations, provider,
		func(a Allocation, id int64) int { return cmp.Compare(a.provider, id) })
	return ok
}

// put adds a name.
func (n *names) put(owner *pmap.Owner, id int64, name string) {
	n.ids = n.ids.Set(owner, name, id)
	n.byID = n.byID.Set(owner, id, name)
	if n.same == nil {
		return
	}
	key := n.same(name)
	if first, ok := n.first.Get(key); !ok || id < first {
		n.first = n.first.Set(owner, key, id)
	}
}

// putClass adds or replaces a class.
func (d draft) putClass(c *ResourceClass) {
	d.classes = d.classes.Set(d.owner, c.Name, c)
	d.classByID = d.classByID.Set(d.owner, c.ID, c)
	if !c.Standard() {
		d.next.class = max(d.next.class, c.ID+1)
	}
}

// dropClass removes a class. It keeps the name if another class has it by now: one that was deleted
// and created again.
func (d draft) dropClass(c *ResourceClass) {
	if named, ok := d.classes.Get(c.Name); ok && named.ID == c.ID {
		d.classes = d.classes.Delete(d.owner, c.Name)
	}
	d.classByID = d.classByID.Delete(d.owner, c.ID)
}

// putTrait adds or replaces a trait. Cost: the number of traits, since the list is copied.
func (d draft) putTrait(t *Trait) {
	d.traits = d.traits.Set(d.owner, t.Name, t)
	d.traitByID = d.traitByID.Set(d.owner, t.ID, t)
	at, ok := slices.BinarySearchFunc(d.traitList, t.ID, compareTrait)
	list := slices.Clone(d.traitList)
	if ok {
		list[at] = t
	} else {
		list = slices.Insert(list, at, t)
	}
	d.traitList = list
	d.next.trait = max(d.next.trait, t.ID+1)
}

// dropTrait removes a trait. It keeps the name if another trait has it by now: one that was deleted
// and created again.
func (d draft) dropTrait(t *Trait) {
	d.traitByID = d.traitByID.Delete(d.owner, t.ID)
	if at, ok := slices.BinarySearchFunc(d.traitList, t.ID, compareTrait); ok {
		d.traitList = slices.Delete(slices.Clone(d.traitList), at, at+1)
	}
	if named, ok := d.traits.Get(t.Name); ok && named.ID == t.ID {
		d.traits = d.traits.Delete(d.owner, t.Name)
	}
}

func compareTrait(t *Trait, id int64) int { return cmp.Compare(t.ID, id) }
