// SPDX-License-Identifier: Apache-2.0

package pmap

import "iter"

// IntMap is a persistent map from non-negative numbers, kept in their order.
// Adjacent numbers share nodes; gaps cost nothing. The zero
// IntMap is empty.
type IntMap[V any] struct {
	root   *intNode[V]
	n      int
	levels uint // of nodes above the leaves
}

// intNode is an inner node (children) or a leaf (vals), packed by the bits of present.
type intNode[V any] struct {
	owner    *Owner
	present  uint32
	children []*intNode[V]
	vals     []V
}

// Len returns the number of keys.
func (m IntMap[V]) Len() int { return m.n }

// fits reports whether the key is in the range that the trie's height covers.
func (m IntMap[V]) fits(key int64) bool {
	return key >= 0 && uint64(key)>>((m.levels+1)*trieBits) == 0
}

// Get returns the value of key.
func (m IntMap[V]) Get(key int64) (v V, ok bool) {
	if m.root == nil || !m.fits(key) {
		return v, false
	}
	n := m.root
	for shift := m.levels * trieBits; ; shift -= trieBits {
		bit := uint32(1) << (uint64(key) >> shift & trieMask)
		if n.present&bit == 0 {
			return v, false
		}
		if shift == 0 {
			return n.vals[triePlace(n.present, bit)], true
		}
		n = n.children[triePlace(n.present, bit)]
	}
}

// Set returns the map with val for key, which must not be negative. The owner can be nil.
func (m IntMap[V]) Set(owner *Owner, key int64, val V) IntMap[V] {
	if key < 0 {
		panic("pmap: a negative key")
	}
	if m.root == nil {
		m.levels = 0
		for !m.fits(key) {
			m.levels++
		}
	}
	for !m.fits(key) {
		m.root = &intNode[V]{owner: owner, present: 1, children: []*intNode[V]{m.root}}
		m.levels++
	}
	root, added := m.root.set(owner, uint64(key), val, m.levels*trieBits)
	m.root = root
	if added {
		m.n++
	}
	return m
}

func (n *intNode[V]) editable(owner *Owner) *intNode[V] {
	if n == nil {
		return &intNode[V]{owner: owner}
	}
	if owner != nil && n.owner == owner {
		return n
	}
	c := &intNode[V]{owner: owner, present: n.present}
	if n.children != nil {
		c.children = sliceCopied(n.children)
	} else {
		c.vals = sliceCopied(n.vals)
	}
	return c
}

func (n *intNode[V]) set(owner *Owner, key uint64, val V, shift uint) (*intNode[V], bool) {
	c := n.editable(owner)
	bit := uint32(1) << (key >> shift & trieMask)
	at := triePlace(c.present, bit)
	there := c.present&bit != 0
	c.present |= bit
	if shift == 0 {
		if there {
			c.vals[at] = val
		} else {
			c.vals = sliceInserted(c.vals, at, val, true)
		}
		return c, !there
	}
	var kid *intNode[V]
	if there {
		kid = c.children[at]
	}
	kid, added := kid.set(owner, key, val, shift-trieBits)
	if there {
		c.children[at] = kid
	} else {
		c.children = sliceInserted(c.children, at, kid, true)
	}
	return c, added
}

// Delete returns the map without key. The owner can be nil.
func (m IntMap[V]) Delete(owner *Owner, key int64) IntMap[V] {
	if _, ok := m.Get(key); !ok {
		return m
	}
	m.root = m.root.delete(owner, uint64(key), m.levels*trieBits)
	m.n--
	return m
}

func (n *intNode[V]) delete(owner *Owner, key uint64, shift uint) *intNode[V] {
	c := n.editable(owner)
	bit := uint32(1) << (key >> shift & trieMask)
	at := triePlace(c.present, bit)
	if shift == 0 {
		c.vals = sliceRemoved(c.vals, at, true)
		c.present &^= bit
	} else if kid := c.children[at].delete(owner, key, shift-trieBits); kid != nil {
		c.children[at] = kid
	} else {
		c.children = sliceRemoved(c.children, at, true)
		c.present &^= bit
	}
	if c.present == 0 {
		return nil
	}
	return c
}

// All iterates in order of the keys.
func (m IntMap[V]) All() iter.Seq2[int64, V] {
	return func(yield func(int64, V) bool) { m.root.each(0, m.levels*trieBits, yield) }
}

func (n *intNode[V]) each(prefix uint64, shift uint, yield func(int64, V) bool) bool {
	if n == nil {
		return true
	}
	at := 0
	for digit := range uint64(trieWidth) {
		if n.present&(1<<digit) == 0 {
			continue
		}
		key := prefix | digit<<shift
		if shift == 0 {
			if !yield(int64(key), n.vals[at]) {
				return false
			}
		} else if !n.children[at].each(key, shift-trieBits, yield) {
			return false
		}
		at++
	}
	return true
}
