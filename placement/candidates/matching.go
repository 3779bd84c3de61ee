// SPDX-License-Identifier: Apache-2.0

package candidates

import "slices"

// matching looks ahead: it decides whether the remaining slots could be served by the remaining
// capacity. What it rejects is impossible. What it accepts is possible in each of several relaxed
// problems, which have one rule each: the capacity of one class, the capacity for one kind of slot,
// and that isolated slots have a provider each. In all of them a slot has only the options that are
// compatible with the current assignment. For requests for equal devices the check is exact.
type matching struct {
	level int
	// choices are the remaining options of the slots from the level on: those of the slot of level
	// l begin at from[l-level].
	choices []int32
	from    []int

	amounts []int64 // distinct amounts of one class

	left  []int   // levels to serve
	held  []int32 // for each of left, the provider that serves it in the relaxed problem
	load  []int32 // by provider: how many of left it serves
	bound []int32 // by provider: how many it can serve
	seen  []bool  // by provider, during one augmentation
	work  int     // options checked
}

// workPerStep is how many checked options, providers or conditions count as a step of the search.
const workPerStep = 8

// comparedPerOption is how many compared pairs of providers, for same_subtree and before 1.29,
// count as an option.
const comparedPerOption = 8

// possible reports whether the slots from the level on can be served. It takes steps.
//
// Cost: slots × options for each relaxed problem, and as much again for each slot that has to move
// for another.
func (m *matching) possible(s *search, level int) bool {
	m.work = 0
	ok := m.match(s, level)
	s.spendWork(m.work)
	return ok
}

func (m *matching) match(s *search, level int) bool {
	if !m.choose(s, level) {
		return false
	}
	for c := range s.q.classes {
		if !m.fitsClass(s, c) {
			return false
		}
	}
	for kind := range s.q.kinds {
		if !m.fitsKind(s, kind) {
			return false
		}
	}
	m.collect(s, (*slot).unshared)
	for a := range m.bounds(s) {
		m.bound[a] = 1
	}
	return m.complete()
}

// choose lists the remaining options of the slots. It returns false if a slot has none, or if no
// steps are left.
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
		if len(m.choices) == m.from[len(m.from)-1] || s.exhausted() {
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

// collect sets left to the levels of the selected slots.
func (m *matching) collect(s *search, which func(*slot) bool) {
	m.left = m.left[:0]
	for i, slot := range s.order[m.level:] {
		if which(&s.q.slots[slot]) {
			m.left = append(m.left, m.level+i)
		}
	}
}

func (m *matching) bounds(s *search) []int32 {
	m.bound = resized(m.bound, len(s.providers))
	return m.bound
}

// fitsClass reports whether the slots that need a class can have it. The providers that are options
// must have the sum; and for each amount, the slots that need at least that much must each find
// that much.
func (m *matching) fitsClass(s *search, class int) bool {
	classes := len(s.q.classes)
	var sum int64
	m.amounts = m.amounts[:0]
	m.collect(s, func(sl *slot) bool {
		n := sl.need(class)
		if n == 0 {
			return false
		}
		sum += n
		if !slices.Contains(m.amounts, n) {
			m.amounts = append(m.amounts, n)
		}
		return true
	})
	if len(m.left) < 2 {
		return true
	}
	if len(m.amounts) != 1 {
		m.seen = resized(m.seen, len(s.providers))
		clear(m.seen)
		for _, level := range m.left {
			for _, a := range m.choicesOf(level) {
				if !m.seen[a] {
					m.seen[a] = true
					sum -= max(s.free[int(a)*classes+class], 0)
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
			m.bound[a] = int32(min(max(s.free[a*classes+class], 0)/amount, int64(len(m.left))))
		}
		if len(m.left) != 1 && !m.complete() {
			return false
		}
	}
	return true
}

// fitsKind reports whether there is capacity for the slots of one kind, which all need the same.
func (m *matching) fitsKind(s *search, kind int) bool {
	m.collect(s, func(sl *slot) bool { return sl.kind == kind })
	if len(m.left) < 2 {
		return true
	}
	classes := len(s.q.classes)
	for a := range m.bounds(s) {
		m.bound[a] = int32(len(m.left))
		for _, n := range s.q.kinds[kind] {
			m.bound[a] = int32(min(max(s.free[a*classes+n.class], 0)/n.amount, int64(m.bound[a])))
		}
	}
	return m.complete()
}

// complete reports whether each of the slots in left can have a provider, within the bounds.
func (m *matching) complete() bool {
	m.held = resized(m.held, len(m.left))
	m.load = resized(m.load, len(m.bound))
	m.seen = resized(m.seen, len(m.bound))
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

// augment finds a provider for slot i of left, moving others if it must.
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
