// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// search is the search at one anchor: a walk through the tree of all assignments of options to
// slots, which pauses after each candidate. It can be filled again for another anchor, and reuses
// its memory.
type search struct {
	q      *query
	seed   uint64 // of the order of options; 0: lap decides
	lap    uint64 // of the rotation
	limits *limits

	root              *ledger.Provider
	conditionProvider *ledger.Provider // that meets the conditions of query.condition
	providers         []provider
	options           []int32 // providers, slot after slot
	slots             []slotState

	// By provider and class: the free amount, from which slots take, -1 for none; and its
	// inventory.
	free        []int64
	inventories []*inventory

	// The walk. Slots are served level by level: those with few options first, and among these the
	// large ones, which are harder to fit in.
	order     []int32 // level to slot
	level     int
	started   bool
	done      bool
	lookAhead bool // look ahead at each step, after a dead end
	stale     int  // steps since the last candidate

	parts []part // by provider

	// Traits of the unsuffixed group, one bit for each required set.
	words   int
	traits  []uint64 // by provider: the sets it meets
	covered []uint64 // by level: the sets that the slots above meet together
	coming  []uint64 // by level: the sets that the slots from there on could meet

	matching matching
	out      output
}

// limits bound the searches of one request.
type limits struct {
	steps     int         // that may still be taken
	since     int         // steps since the last call of stopped
	stopped   func() bool // called now and then: has the context ended?
	canceled  bool        // what stopped returned
	exhausted bool        // a search ended early because it used up its steps
}

const (
	// stride is the number of steps between calls of limits.stopped.
	stride = 1 << 16
	// maxStale is the number of steps without a candidate after which a search at one anchor ends.
	maxStale = 2_000_000
)

// step takes one step. It returns false if none are left.
func (s *search) step() bool {
	s.spend(1)
	return !s.exhausted()
}

// spendWork spends the steps for additional work, in options.
func (s *search) spendWork(work int) { s.spend(work / workPerStep) }

func (s *search) spend(steps int) {
	s.stale += steps
	s.limits.steps -= steps
	s.limits.since += steps
}

// exhausted reports whether no more steps may be taken: none are left, or the context has ended.
func (s *search) exhausted() bool {
	if s.limits.steps <= 0 || s.stale > maxStale {
		s.limits.exhausted = true
		return true
	}
	if s.limits.since >= stride {
		s.limits.since = 0
		s.limits.canceled = s.limits.stopped()
	}
	return s.limits.canceled
}

// slotState is the state of the walk at one slot.
type slotState struct {
	from, to       int   // its options
	next           int   // the option to try next, from zero
	provider       int32 // that serves it, or none
	foundCandidate bool  // a candidate was found since the slot was last entered
}

// none is the provider of a slot that is not served, and the index of a group that is not there.
const none = -1

// part counts the slots that a provider serves in the current assignment.
type part struct {
	slots, isolated int16
	exclusive       bool
}

func newSearch(q *query, o *Options, trees int, l *limits) *search {
	return &search{q: q, seed: o.Seed, lap: o.Rotation.At / uint64(max(trees, 1)), limits: l,
		slots: make([]slotState, len(q.slots)), order: make([]int32, len(q.slots)), words: (q.collective + 63) / 64}
}

func (s *search) optionsOf(slot int) []int32 { return s.options[s.slots[slot].from:s.slots[slot].to] }

// prepare resets the walk to its beginning. It returns false if there is no candidate.
func (s *search) prepare() bool {
	s.started, s.done, s.lookAhead = false, false, false
	s.level, s.stale = 0, 0
	s.parts = resized(s.parts, len(s.providers))
	clear(s.parts)
	for i := range s.order {
		// Insertion sort: there are few slots, and most are in order already.
		at := i
		for n := s.slots[i].to - s.slots[i].from; at > 0; at-- {
			before := s.order[at-1]
			if m := s.slots[before].to - s.slots[before].from; m < n || m == n &&
				s.q.slots[before].largest >= s.q.slots[i].largest {
				break
			}
			s.order[at] = s.order[at-1]
		}
		s.order[at] = int32(i)
		s.slots[i].provider, s.slots[i].next, s.slots[i].foundCandidate = none, 0, false
	}
	return s.words == 0 || s.prepareTraits()
}

// prepareTraits computes which of the required sets each provider meets, and which ones the slots
// from each level on could meet. It returns false if that is not all of them.
func (s *search) prepareTraits() bool {
	w := s.words
	s.traits = resized(s.traits, len(s.providers)*w)
	clear(s.traits)
	var required [][]ledger.ProviderSet
	for i := range s.q.groups {
		if !s.q.groups[i].suffixed {
			required = s.q.groups[i].required
		}
	}
	levels := len(s.order)
	s.covered = resized(s.covered, (levels+1)*w)
	s.coming = resized(s.coming, (levels+1)*w)
	clear(s.covered)
	clear(s.coming)
	for level := levels - 1; level >= 0; level-- {
		slot := int(s.order[level])
		copy(s.coming[level*w:(level+1)*w], s.coming[(level+1)*w:(level+2)*w])
		if s.q.groups[s.q.slots[slot].group].suffixed {
			continue
		}
		for _, a := range s.optionsOf(slot) {
			for i, sets := range required {
				if inAny(s.providers[a].id, sets) {
					s.traits[int(a)*w+i/64] |= 1 << (i % 64)
				}
			}
			for i := range w {
				s.coming[level*w+i] |= s.traits[int(a)*w+i]
			}
		}
	}
	return s.coverable(0)
}

// coverable reports whether the slots above the level and those from it on can have all required
// traits together.
func (s *search) coverable(level int) bool {
	for i := range s.words {
		all := ^uint64(0) >> max(64*(i+1)-s.q.collective, 0)
		if (s.covered[level*s.words+i]|s.coming[level*s.words+i])&all != all {
			return false
		}
	}
	return true
}

// next walks to the next complete assignment. It returns false if there is none, or if the limits
// are reached.
func (s *search) next() bool {
	if s.done {
		return false
	}
	last := len(s.order) - 1
	if s.started {
		s.level = last
		s.undo(last)
	}
	s.started = true
	for {
		slot := int(s.order[s.level])
		if s.advance(slot) {
			if s.level == last {
				for i := range s.slots {
					s.slots[i].foundCandidate = true
				}
				s.stale = 0
				return true
			}
			s.level++
			below := &s.slots[s.order[s.level]]
			below.next, below.foundCandidate = 0, false
			continue
		}
		if s.done {
			return false
		}
		if !s.slots[slot].foundCandidate && !s.lookAhead {
			s.lookAhead = true
			if !s.backtrack() {
				return false
			}
			continue
		}
		if s.level == 0 {
			s.done = true
			return false
		}
		s.level--
		s.undo(s.level)
	}
}

// advance assigns the slot of the current level its next possible option. It ends the search if the
// limits are reached.
func (s *search) advance(slot int) bool {
	st := &s.slots[slot]
	for options := s.options[st.from:st.to]; st.next < len(options); {
		a := options[st.next]
		st.next++
		if !s.step() {
			s.done = true
			return false
		}
		if !s.place(slot, a) {
			continue
		}
		if s.lookAhead && !s.matching.possible(s, s.level+1) {
			s.undo(s.level)
			continue
		}
		return true
	}
	return false
}

// backtrack returns to the deepest level from which a candidate is possible, after a dead end.
func (s *search) backtrack() bool {
	for !s.matching.possible(s, s.level) {
		if s.level == 0 || s.exhausted() {
			s.done = true
			return false
		}
		s.level--
		s.undo(s.level)
	}
	return true
}

// permits reports whether a provider can have the slot in addition to the current assignment.
func (s *search) permits(slot int, a int32) bool {
	sl := &s.q.slots[slot]
	return s.allows(sl, a) && (!s.q.flat || s.staysFlat(sl, a)) &&
		(len(sl.subtree) == 0 || s.staysInSubtree(sl, slot, a))
}

// place assigns the slot of the current level to a provider, if all rules allow it.
func (s *search) place(slot int, a int32) bool {
	sl := &s.q.slots[slot]
	if !s.permits(slot, a) {
		return false
	}
	if w := s.words; w != 0 {
		now := s.covered[(s.level+1)*w : (s.level+2)*w]
		copy(now, s.covered[s.level*w:(s.level+1)*w])
		if !s.q.groups[sl.group].suffixed {
			for i := range now {
				now[i] |= s.traits[int(a)*w+i]
			}
		}
		if !s.coverable(s.level + 1) {
			return false
		}
	}
	row := s.free[int(a)*len(s.q.classes):]
	for _, n := range sl.needs {
		row[n.class] -= n.amount
	}
	p := &s.parts[a]
	p.slots++
	if sl.isolated {
		p.isolated++
	}
	p.exclusive = p.exclusive || sl.exclusive
	s.slots[slot].provider = a
	return true
}

// undo takes back the assignment of a level.
func (s *search) undo(level int) {
	slot := s.order[level]
	sl, st := &s.q.slots[slot], &s.slots[slot]
	row := s.free[int(st.provider)*len(s.q.classes):]
	for _, n := range sl.needs {
		row[n.class] += n.amount
	}
	p := &s.parts[st.provider]
	p.slots--
	if sl.isolated {
		p.isolated--
	}
	p.exclusive = p.exclusive && !sl.exclusive
	st.provider = none
}

// allows reports whether a provider has the capacity for the slot, and may have it in addition to
// its other slots.
func (s *search) allows(sl *slot, a int32) bool {
	p := s.parts[a]
	if p.exclusive || sl.exclusive && p.slots > 0 || sl.isolated && p.isolated > 0 {
		return false
	}
	row := s.free[int(a)*len(s.q.classes):]
	for _, n := range sl.needs {
		if row[n.class] < n.amount {
			return false
		}
	}
	return true
}

// staysFlat reports whether no two providers of one tree would serve resources.
func (s *search) staysFlat(sl *slot, a int32) bool {
	if len(sl.needs) == 0 {
		return true
	}
	s.spendWork(len(s.slots) / comparedPerOption)
	for i := range s.slots {
		if b := s.slots[i].provider; b != none && b != a &&
			s.providers[b].tree == s.providers[a].tree && len(s.q.slots[i].needs) > 0 {
			return false
		}
	}
	return true
}

// staysInSubtree reports whether, for each same_subtree set of the slot, one of the providers of
// its slots is an ancestor of all others, or one that is not assigned yet could be.
func (s *search) staysInSubtree(sl *slot, slot int, a int32) bool {
	for _, set := range sl.subtree {
		if !s.subtreeAllows(s.q.subtree[set], slot, a) {
			return false
		}
	}
	return true
}

func (s *search) subtreeAllows(set []int, slot int, a int32) bool {
	looked := 0
	defer func() { s.spendWork(looked / comparedPerOption) }()
	aboveAll := func(top int32) bool {
		looked++
		if !s.providers[top].above(&s.providers[a]) {
			return false
		}
		for _, i := range set {
			looked++
			if b := s.slots[i].provider; b != none && i != slot && !s.providers[top].above(&s.providers[b]) {
				return false
			}
		}
		return true
	}
	if aboveAll(a) {
		return true
	}
	for _, i := range set {
		if b := s.slots[i].provider; i != slot && b != none && aboveAll(b) {
			return true
		}
	}
	for _, i := range set {
		if i == slot || s.slots[i].provider != none {
			continue
		}
		for _, b := range s.optionsOf(i) {
			if aboveAll(b) {
				return true
			}
		}
	}
	return false
}

// mayHaveMore reports whether there can be another candidate after the first.
func (s *search) mayHaveMore() bool {
	return !s.done && len(s.options) > len(s.slots)
}
