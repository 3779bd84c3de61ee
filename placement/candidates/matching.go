// SPDX-License-Identifier: Apache-2.0

package candidates

import "slices"

// matching looks ahead: it asks whether the slots that are left could be served by the room that is left. What it turns
// down is impossible. What it lets pass is possible in each of some simpler worlds, which have only one of the rules each:
// that providers have so much room of one class, or for one kind of slot, and that isolated slots have a provider each. In
// all of them a slot has only those options that go together with the choices made so far. Requests for equal devices live
// in these worlds, and are never walked in vain.
type matching struct {
	level int
	// choices are the options that the slots from the level on still have: those of the slot of level l begin at from[l-level].
	choices []int32
	from    []int

	amounts []int64 // of one class, that differ

	left  []int   // levels that are to be served
	held  []int32 // for each of left, the actor that serves it in this world
	load  []int32 // by actor: how many of left it serves
	bound []int32 // by actor: how many it can serve
	seen  []bool  // by actor, during one augmentation
	work  int     // options looked at
}

// workPerStep is how many options, providers or conditions that are looked at count as a step of the search.
const workPerStep = 8

// comparedPerOption is how many pairs of providers that are compared, for same_subtree and before 1.29, count as an option.
const comparedPerOption = 8

// possible says whether the slots from the level on can be served. It is paid for with steps.
// Cost: slots × options for each world, and as much again for each slot that has to move for another.
func (m *matching) possible(s *search, level int) bool {
	m.work = 0
	ok := m.look(s, level)
	s.pay(m.work)
	return ok
}

func (m *matching) look(s *search, level int) bool {
	if !m.choose(s, level) {
		return false
	}
	for c := range s.q.classes {
		if !m.roomFor(s, c) {
			return false
		}
	}
	for kind := range s.q.kinds {
		if !m.roomForKind(s, kind) {
			return false
		}
	}
	m.collect(s, (*slot).apart)
	for a := range m.bounds(s) {
		m.bound[a] = 1
	}
	return m.complete()
}

// choose lists what the slots can still choose from. It returns false when one has nothing, or when no more steps may be taken.
func (m *matching) choose(s *search, level int) bool {
	m.level = level
	m.choices, m.from = m.choices[:0], append(m.from[:0], 0)
	for _, slot := range s.order[level:] {
		options := s.optionsOf(int(slot))
		m.work += len(options)
		for _, a := range options {
			if s.permits(int(slot), a) {
				m.choices = append(m.choices, a)
			}
		}
		if len(m.choices) == m.from[len(m.from)-1] || s.spent() {
			return false
		}
		m.from = append(m.from, len(m.choices))
	}
	return true
}

// choicesOf returns the options of the slot of a level.
func (m *matching) choicesOf(level int) []int32 {
	return m.choices[m.from[level-m.level]:m.from[level-m.level+1]]
}

// collect puts the levels of some of the slots into left.
func (m *matching) collect(s *search, which func(*slot) bool) {
	m.left = m.left[:0]
	for i, slot := range s.order[m.level:] {
		if which(&s.q.slots[slot]) {
			m.left = append(m.left, m.level+i)
		}
	}
}

func (m *matching) bounds(s *search) []int32 {
	m.bound = grown(m.bound, len(s.actors))
	return m.bound
}

// roomFor says whether there is room of one class for the slots that need it. At least the sum must be there, on the
// providers that one of the slots could have; and of each amount, those that need as much or more must find as much each.
func (m *matching) roomFor(s *search, class int) bool {
	classes := len(s.q.classes)
	var sum int64
	m.amounts = m.amounts[:0]
	m.collect(s, func(sl *slot) bool {
		n := sl.need(class)
		if n > 0 {
			sum += n
			if !slices.Contains(m.amounts, n) {
				m.amounts = append(m.amounts, n)
			}
		}
		return n > 0
	})
	if len(m.left) < 2 {
		return true
	}
	if len(m.amounts) > 1 {
		m.seen = grown(m.seen, len(s.actors))
		clear(m.seen)
		for _, level := range m.left {
			for _, a := range m.choicesOf(level) {
				if !m.seen[a] {
					m.seen[a] = true
					sum -= max(s.room[int(a)*classes+class], 0)
				}
			}
		}
		if sum > 0 {
			return false
		}
	}
	for _, amount := range m.amounts {
		m.collect(s, func(sl *slot) bool { return sl.need(class) >= amount })
		for a := range m.bounds(s) {
			m.bound[a] = int32(min(max(s.room[a*classes+class], 0)/amount, int64(len(m.left))))
		}
		if len(m.left) > 1 && !m.complete() {
			return false
		}
	}
	return true
}

// roomForKind says whether there is room for the slots of one kind, which all need the same.
func (m *matching) roomForKind(s *search, kind int) bool {
	m.collect(s, func(sl *slot) bool { return sl.kind == kind })
	if len(m.left) < 2 {
		return true
	}
	classes := len(s.q.classes)
	for a := range m.bounds(s) {
		m.bound[a] = int32(len(m.left))
		for _, n := range s.q.kinds[kind] {
			m.bound[a] = int32(min(max(s.room[a*classes+n.class], 0)/n.amount, int64(m.bound[a])))
		}
	}
	return m.complete()
}

// complete says whether each of the slots that are left can have an actor, within the bounds.
func (m *matching) complete() bool {
	m.held = grown(m.held, len(m.left))
	m.load = grown(m.load, len(m.bound))
	m.seen = grown(m.seen, len(m.bound))
	clear(m.load)
	for i := range m.held {
		m.held[i] = -1
	}
	for i := range m.left {
		clear(m.seen)
		if !m.augment(i) {
			return false
		}
	}
	return true
}

// augment finds an actor for number i of the slots that are left, moving others when it must.
func (m *matching) augment(i int) bool {
	choices := m.choicesOf(m.left[i])
	m.work += len(choices)
	for _, a := range choices {
		if !m.seen[a] && m.load[a] < m.bound[a] {
			m.load[a]++
			m.held[i] = a
			return true
		}
	}
	for _, a := range choices {
		if m.seen[a] {
			continue
		}
		m.seen[a] = true
		m.work += len(m.held)
		for j, b := range m.held {
			if b == a && m.augment(j) {
				m.held[i] = a
				return true
			}
		}
	}
	return false
}
