// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"math/rand/v2"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// actor is a provider that may play a part in the candidates of an anchor: one of the tree, or a sharing one of another.
type actor struct {
	p       *ledger.Provider
	id      int64
	tree    int64  // number of its own tree
	shape   *shape // of its own tree
	at, end int32  // its place in the pre-order of its own tree, and where its subtree ends
	foreign bool   // of another tree
	sharing bool
}

// above says whether a is b or an ancestor of b.
func (a *actor) above(b *actor) bool { return a.tree == b.tree && a.at <= b.at && b.at < a.end }

// fill prepares the search at an anchor: it lists the actors and, for each slot, those that could serve it. It returns
// false when the anchor cannot have a candidate.
// Cost: the inventories of the tree and of the sharing providers of its aggregates, times the slots and what they ask for.
func (s *search) fill(t *ledger.Tree) bool {
	q := s.q
	s.root = t.Root()
	if q.asksOfRoot() {
		s.limits.steps -= q.rootPrice / workPerStep
		if !q.rootMeets(s.root) {
			return false
		}
	}
	s.listActors(t)
	s.listRooms()
	s.limits.steps -= len(s.actors) * q.price / workPerStep
	s.options = s.options[:0]
	for i := range q.slots {
		sl := &q.slots[i]
		from := len(s.options)
		for a := range s.actors {
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

func (s *search) listActors(t *ledger.Tree) {
	q := s.q
	nodes, sh := t.Providers(), shapeOf(t)
	number := s.root.TreeNumber()
	anySharing := q.sharing.Len() > 0
	s.actors = s.actors[:0]
	for i, p := range nodes {
		id := sh.ids[i]
		s.actors = append(s.actors, actor{p: p, id: id, tree: number, shape: sh, at: int32(i), end: sh.ends[i], sharing: anySharing && q.sharing.HasID(id)})
	}
	if len(q.sharers) == 0 {
		return
	}
	for _, p := range nodes {
		for _, aggregate := range p.Aggregates {
			for _, sharer := range q.sharers[aggregate] {
				s.addForeign(sharer, number)
			}
		}
	}
}

// addForeign adds a sharing provider once, unless it is of the tree itself.
func (s *search) addForeign(p *ledger.Provider, number int64) {
	if p.TreeNumber() == number {
		return
	}
	for i := len(s.actors) - 1; i >= 0 && s.actors[i].foreign; i-- {
		if s.actors[i].p == p {
			return
		}
	}
	t, _ := s.q.s.TreeAt(p.TreeNumber())
	sh := shapeOf(t)
	at := slices.Index(t.Providers(), p)
	s.actors = append(s.actors, actor{
		p: p, id: p.ID, tree: p.TreeNumber(), shape: sh, at: int32(at), end: sh.ends[at], foreign: true, sharing: true,
	})
}

// listRooms notes how much of each class each actor can give at most, -1 where it has no inventory.
func (s *search) listRooms() {
	n := len(s.q.classes)
	s.room = grown(s.room, len(s.actors)*n)
	s.stocks = grown(s.stocks, len(s.actors)*n)
	for a := range s.actors {
		stocks := s.actors[a].shape.stocksOf(s.actors[a].at)
		row := s.room[a*n : (a+1)*n]
		next := 0 // Both the stocks and the classes are in order of their IDs.
		for c := range row {
			row[c] = -1
			for next < len(stocks) && stocks[next].class < s.q.classes[c].id {
				next++
			}
			if next < len(stocks) && stocks[next].class == s.q.classes[c].id {
				row[c], s.stocks[a*n+c] = stocks[next].left.Most(0), &stocks[next]
			}
		}
	}
}

// serves says whether an actor, on its own, could serve a slot.
func (s *search) serves(sl *slot, g *group, a int) bool {
	act := &s.actors[a]
	id := act.id
	at := a * len(s.q.classes)
	for _, n := range sl.needs {
		if s.room[at+n.class] < n.amount { // also where there is no inventory
			return false
		}
		if s.stocks[at+n.class].left.Broken(0, n.amount) != providertree.RuleNone {
			return false
		}
	}
	if inAny(id, g.forbidden) {
		return false
	}
	if g.suffixed {
		return (g.inTree == anyTree || g.inTree == act.tree) && inAll(id, g.required) && inAll(id, g.memberOf) && !inAny(id, g.notMemberOf)
	}
	// The unsuffixed group. The traits that it requires are those of all its providers together: see search.place.
	if g.inTree != anyTree && (act.foreign || g.inTree != act.tree) {
		return false
	}
	if len(g.memberOf) > 0 && !inAll(id, g.memberOf) && (act.foreign || !inAll(s.root.ID, g.memberOf)) {
		return false
	}
	return !inAny(id, g.notMemberOf) && !inAny(s.root.ID, g.notMemberOf)
}

// shuffle puts the options of each slot in an order that follows from the seed and the tree.
func (s *search) shuffle(id int64) {
	random := rand.New(rand.NewPCG(s.seed, uint64(id)))
	for i := range s.slots {
		options := s.optionsOf(i)
		random.Shuffle(len(options), func(a, b int) { options[a], options[b] = options[b], options[a] })
	}
}

// rotate begins the options of each slot at another one in each lap.
func (s *search) rotate() {
	for i := range s.slots {
		options := s.optionsOf(i)
		at := begins(s.lap, len(options))
		if at == 0 {
			continue
		}
		slices.Reverse(options[:at])
		slices.Reverse(options[at:])
		slices.Reverse(options)
	}
}

// grown returns s with n elements, whose values mean nothing.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
