// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"math/rand/v2"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// provider is a provider that the candidates of an anchor can use: one of its tree, or a sharing
// one of another tree.
type provider struct {
	p        *ledger.Provider
	id       int64
	tree     int64   // number of its own tree
	layout   *layout // of its own tree
	at, end  int32   // its place in the pre-order of its own tree, and where its subtree ends
	external bool    // of another tree
	sharing  bool
}

// above reports whether a is b or an ancestor of b.
func (p *provider) above(b *provider) bool { return p.tree == b.tree && p.at <= b.at && b.at < p.end }

// fill prepares the search at an anchor: it lists the providers and, for each slot, those that
// could serve it. It returns false if the anchor cannot have a candidate.
//
// Cost: the inventories of the tree and of the sharing providers of its aggregates, times the slots
// and their conditions.
func (s *search) fill(t *ledger.Tree) bool {
	q := s.q
	s.root = t.Root()
	s.limits.steps -= q.rootPrice / workPerStep
	if !q.rootMeets(s.root) {
		return false
	}
	s.listProviders(t)
	if !s.meetsCondition() {
		return false
	}
	s.listFree()
	s.limits.steps -= len(s.providers) * q.price / workPerStep
	s.options = s.options[:0]
	for i := range q.slots {
		sl := &q.slots[i]
		from := len(s.options)
		for a := range s.providers {
			if s.serves(sl, &q.groups[sl.group], a) {
				s.options = append(s.options, int32(a))
			}
		}
		if len(s.options) == from {
			return false
		}
		s.slots[i].from, s.slots[i].to = from, len(s.options)
	}
	switch {
	case s.seed != 0:
		s.shuffle(t.Root().ID)
	case s.lap != 0:
		s.rotate()
	}
	return s.prepare()
}

func (s *search) listProviders(t *ledger.Tree) {
	q := s.q
	nodes, l := t.Providers(), layoutOf(t)
	number := s.root.TreeNumber()
	anySharing := q.sharingProviders.Len() != 0
	s.providers = s.providers[:0]
	for i, p := range nodes {
		id := l.ids[i]
		s.providers = append(s.providers,
			provider{p: p, id: id, tree: number, layout: l, at: int32(i), end: l.ends[i],
				sharing: anySharing && q.sharingProviders.HasID(id)})
	}
	if len(q.sharingByAggregate) == 0 {
		return
	}
	for _, p := range nodes {
		for _, aggregate := range p.Aggregates {
			for _, sharer := range q.sharingByAggregate[aggregate] {
				s.addSharing(sharer, len(nodes))
			}
		}
	}
}

// addSharing adds a sharing provider once, behind those of the tree, unless it is one of these.
func (s *search) addSharing(p *ledger.Provider, own int) {
	if p.TreeNumber() == s.providers[0].tree ||
		slices.ContainsFunc(s.providers[own:], func(other provider) bool { return other.p == p }) {
		return
	}
	t, _ := s.q.s.TreeAt(p.TreeNumber())
	l := layoutOf(t)
	at := slices.Index(t.Providers(), p)
	s.providers = append(s.providers, provider{
		p: p, id: p.ID, tree: p.TreeNumber(), layout: l,
		at: int32(at), end: l.ends[at], external: true, sharing: true,
	})
}

// listFree computes the free amount of each class of each provider, -1 without an inventory.
func (s *search) listFree() {
	n := len(s.q.classes)
	s.free = resized(s.free, len(s.providers)*n)
	s.inventories = resized(s.inventories, len(s.providers)*n)
	for a := range s.providers {
		inventories := s.providers[a].layout.inventoriesOf(s.providers[a].at)
		row := s.free[a*n : (a+1)*n]
		next := 0 // Both the inventories and the classes are in order of their IDs.
		for c := range row {
			row[c] = -1
			for next < len(inventories) && inventories[next].class < s.q.classes[c].id {
				next++
			}
			if next < len(inventories) && inventories[next].class == s.q.classes[c].id {
				row[c], s.inventories[a*n+c] = inventories[next].left.Most(0), &inventories[next]
			}
		}
	}
}

// serves reports whether a provider, by itself, could serve a slot.
func (s *search) serves(sl *slot, g *group, a int) bool {
	p := &s.providers[a]
	id := p.id
	at := a * len(s.q.classes)
	for _, n := range sl.needs {
		if s.free[at+n.class] < n.amount { // also where there is no inventory
			return false
		}
		if s.inventories[at+n.class].left.Broken(0, n.amount) != providertree.RuleNone {
			return false
		}
	}
	if inAny(id, g.forbidden) {
		return false
	}
	if g.suffixed {
		return (g.inTree == anyTree || g.inTree == p.tree) && inAll(id, g.required) &&
			inAll(id, g.memberOf) && !inAny(id, g.notMemberOf)
	}
	// The unsuffixed group. Its providers have its required traits together: see search.place.
	if g.inTree != anyTree && (p.external || g.inTree != p.tree) {
		return false
	}
	if !inAll(id, g.memberOf) && (p.external || !inAll(s.root.ID, g.memberOf)) {
		return false
	}
	return !inAny(id, g.notMemberOf) && !inAny(s.root.ID, g.notMemberOf)
}

// meetsCondition finds the first provider of the tree that meets the conditions of the unsuffixed
// group without resources. It reports whether there is one, or no such group.
func (s *search) meetsCondition() bool {
	if s.q.condition == none {
		return true
	}
	g := &s.q.groups[s.q.condition]
	for a := range s.providers {
		if p := &s.providers[a]; !p.external && s.serves(&slot{}, g, a) && inAll(p.id, g.required) {
			s.conditionProvider = p.p
			return true
		}
	}
	return false
}

// shuffle orders the options of each slot by the seed and the tree.
func (s *search) shuffle(id int64) {
	random := rand.New(rand.NewPCG(s.seed, uint64(id)))
	for i := range s.slots {
		options := s.optionsOf(i)
		random.Shuffle(len(options), func(a, b int) { options[a], options[b] = options[b], options[a] })
	}
}

// rotate begins with another option of each slot in each lap.
func (s *search) rotate() {
	for i := range s.slots {
		options := s.optionsOf(i)
		at := firstOption(s.lap, len(options))
		if at == 0 {
			continue
		}
		slices.Reverse(options[:at])
		slices.Reverse(options[at:])
		slices.Reverse(options)
	}
}

// resized returns s with n elements of any value.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
