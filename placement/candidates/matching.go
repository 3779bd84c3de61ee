// SPDX-License-Identifier: Apache-2.0

package candidates

// matching looks ahead: it asks whether the slots that are left could be served by the room that is left. What it turns
// down is impossible. What it lets pass is possible in each of two simpler worlds, each of which has only one of the rules:
// that providers have so much room of one class, where all amounts of a class are the same; and that isolated slots have
// a provider each. Requests for equal devices live in these worlds, and are never walked in vain.
type matching struct {
	left  []int   // slots that are to be served
	held  []int32 // for each of left, the actor that serves it in this world
	load  []int32 // by actor: how many of left it serves
	bound []int32 // by actor: how many it can serve
	seen  []bool  // by actor, during one augmentation
}

// possible says whether the slots from the level on can be served.
// Cost: slots × options for each class and slot at most; only searches that have met a dead end ask.
func (m *matching) possible(s *search, level int) bool {
	for c := range s.q.classes {
		if !m.roomFor(s, level, c) {
			return false
		}
	}
	m.left = m.left[:0]
	for _, slot := range s.order[level:] {
		if s.q.slots[slot].apart() {
			m.left = append(m.left, int(slot))
		}
	}
	if len(m.left) == 0 {
		return true
	}
	m.bound = grown(m.bound, len(s.actors))
	for a := range m.bound {
		m.bound[a] = 1
	}
	return m.complete(s)
}

// roomFor says whether there is room of one class for the slots that need it.
func (m *matching) roomFor(s *search, level, class int) bool {
	m.left = m.left[:0]
	var amount, sum int64
	equal := true
	for _, slot := range s.order[level:] {
		for _, n := range s.q.slots[slot].needs {
			if n.class == class {
				m.left = append(m.left, int(slot))
				equal = equal && (amount == 0 || amount == n.amount)
				amount = n.amount
				sum += n.amount
			}
		}
	}
	if len(m.left) == 0 {
		return true
	}
	classes := len(s.q.classes)
	if equal {
		m.bound = grown(m.bound, len(s.actors))
		for a := range m.bound {
			m.bound[a] = int32(min(max(s.room[a*classes+class], 0)/amount, int64(len(m.left))))
		}
		return m.complete(s)
	}
	// Amounts that differ: at least the sum must be there, on the providers that one of the slots could have.
	m.seen = grown(m.seen, len(s.actors))
	clear(m.seen)
	for _, slot := range m.left {
		for _, a := range s.optionsOf(slot) {
			if !m.seen[a] {
				m.seen[a] = true
				sum -= max(s.room[int(a)*classes+class], 0)
			}
		}
	}
	return sum <= 0
}

// complete says whether each of the slots that are left can have an actor, within the bounds.
func (m *matching) complete(s *search) bool {
	m.held = grown(m.held, len(m.left))
	m.load = grown(m.load, len(s.actors))
	m.seen = grown(m.seen, len(s.actors))
	clear(m.load)
	for i := range m.held {
		m.held[i] = -1
	}
	for i := range m.left {
		clear(m.seen)
		if !m.augment(s, i) {
			return false
		}
	}
	return true
}

// augment finds an actor for number i of the slots that are left, moving others when it must.
func (m *matching) augment(s *search, i int) bool {
	sl := &s.q.slots[m.left[i]]
	for _, a := range s.optionsOf(m.left[i]) {
		if m.seen[a] || !s.allows(sl, a) {
			continue
		}
		m.seen[a] = true
		if m.load[a] < m.bound[a] {
			m.load[a]++
			m.held[i] = a
			return true
		}
		for j, b := range m.held {
			if b == a && m.augment(s, j) {
				m.held[i] = a
				return true
			}
		}
	}
	return false
}
