// SPDX-License-Identifier: Apache-2.0

package pmap

import (
	"hash/maphash"
	"iter"
	mathbits "math/bits"
)

// seed is random in each process, so that clients cannot prepare colliding names.
var seed = maphash.MakeSeed()

// maxShift is the first level without hash bits: entries there collide in all 64
// bits and are kept in a list.
const maxShift = 65

// Map is a persistent map from strings. The zero Map is empty.
type Map[V any] struct {
	root *mapNode[V]
	n    int
}

// mapNode has packed entries and packed children; the bit maps say for which of
// the 32 hash digits there is one.
type mapNode[V any] struct {
	owner    *Owner
	dataBits uint32
	kidBits  uint32
	entries  []mapEntry[V]
	kids     []*mapNode[V]
}

type mapEntry[V any] struct {
	key string
	val V
}

// Len returns the number of keys.
func (m Map[V]) Len() int { return m.n }

// Get returns the value of key.
func (m Map[V]) Get(key string) (V, bool) {
	return m.get(key, maphash.String(seed, key))
}

func (m Map[V]) get(key string, hash uint64) (v V, ok bool) {
	n := m.root
	for shift := uint(0); n != nil; shift += 5 {
		if shift >= maxShift {
			for i := range n.entries {
				if n.entries[i].key == key {
					return n.entries[i].val, true
				}
			}
			return v, false
		}
		bit := uint32(1) << (hash >> shift & mask)
		if n.dataBits&bit != 0 {
			e := &n.entries[place(n.dataBits, bit)]
			if e.key == key {
				return e.val, true
			}
			return v, false
		}
		if n.kidBits&bit == 0 {
			return v, false
		}
		n = n.kids[place(n.kidBits, bit)]
	}
	return v, false
}

// place is the number of bits in the map before bit.
func place(set, bit uint32) int { return mathbits.OnesCount32(set & (bit - 1)) }

// Set returns the map with val for key. The owner can be nil.
func (m Map[V]) Set(owner *Owner, key string, val V) Map[V] {
	root, added := m.root.set(owner, key, maphash.String(seed, key), val, 0)
	if added {
		m.n++
	}
	m.root = root
	return m
}

// editable returns the node itself if owner created it, otherwise a copy.
func (n *mapNode[V]) editable(owner *Owner) *mapNode[V] {
	if n == nil {
		return &mapNode[V]{owner: owner}
	}
	if owner != nil && n.owner == owner {
		return n
	}
	c := *n
	c.owner = owner
	c.entries = append(make([]mapEntry[V], 0, len(n.entries)+1), n.entries...)
	c.kids = append(make([]*mapNode[V], 0, len(n.kids)), n.kids...)
	return &c
}

func (n *mapNode[V]) set(owner *Owner, key string, hash uint64, val V, shift uint) (*mapNode[V], bool) {
	c := n.editable(owner)
	if shift >= maxShift {
		for i := range c.entries {
			if c.entries[i].key == key {
				c.entries[i].val = val
				return c, false
			}
		}
		c.entries = append(c.entries, mapEntry[V]{key, val})
		return c, true
	}
	bit := uint32(1) << (hash >> shift & mask)
	switch {
	case c.kidBits&bit != 0:
		at := place(c.kidBits, bit)
		kid, added := c.kids[at].set(owner, key, hash, val, shift+5)
		c.kids[at] = kid
		return c, added
	case c.dataBits&bit == 0:
		c.entries = inserted(c.entries, place(c.dataBits, bit), mapEntry[V]{key, val}, true)
		c.dataBits |= bit
		return c, true
	}
	at := place(c.dataBits, bit)
	if c.entries[at].key == key {
		c.entries[at].val = val
		return c, false
	}
	// Two keys have the digit: both move one level down.
	old := c.entries[at]
	kid, _ := (*mapNode[V])(nil).set(owner, old.key, maphash.String(seed, old.key), old.val, shift+5)
	kid, _ = kid.set(owner, key, hash, val, shift+5)
	c.entries = removed(c.entries, at, true)
	c.dataBits &^= bit
	c.kids = inserted(c.kids, place(c.kidBits, bit), kid, true)
	c.kidBits |= bit
	return c, true
}

// Delete returns the map without key.
func (m Map[V]) Delete(owner *Owner, key string) Map[V] {
	hash := maphash.String(seed, key)
	if _, ok := m.get(key, hash); !ok {
		return m
	}
	m.root = m.root.delete(owner, key, hash, 0)
	m.n--
	return m
}

// delete removes an existing key; nil if the node becomes empty.
func (n *mapNode[V]) delete(owner *Owner, key string, hash uint64, shift uint) *mapNode[V] {
	c := n.editable(owner)
	if shift >= maxShift {
		for i := range c.entries {
			if c.entries[i].key == key {
				c.entries = removed(c.entries, i, true)
				break
			}
		}
		if len(c.entries) == 0 {
			return nil
		}
		return c
	}
	bit := uint32(1) << (hash >> shift & mask)
	if c.dataBits&bit != 0 {
		c.entries = removed(c.entries, place(c.dataBits, bit), true)
		c.dataBits &^= bit
	} else {
		at := place(c.kidBits, bit)
		kid := c.kids[at].delete(owner, key, hash, shift+5)
		switch {
		case kid == nil:
			c.kids = removed(c.kids, at, true)
			c.kidBits &^= bit
		case len(kid.kids) == 0 && len(kid.entries) == 1:
			// A single entry moves up, so that the trie stays as low as possible.
			c.kids = removed(c.kids, at, true)
			c.kidBits &^= bit
			c.entries = inserted(c.entries, place(c.dataBits, bit), kid.entries[0], true)
			c.dataBits |= bit
		default:
			c.kids[at] = kid
		}
	}
	if len(c.entries) == 0 && len(c.kids) == 0 {
		return nil
	}
	return c
}

// All iterates in no particular order.
func (m Map[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { m.root.each(yield) }
}

func (n *mapNode[V]) each(yield func(string, V) bool) bool {
	if n == nil {
		return true
	}
	for i := range n.entries {
		if !yield(n.entries[i].key, n.entries[i].val) {
			return false
		}
	}
	for _, kid := range n.kids {
		if !kid.each(yield) {
			return false
		}
	}
	return true
}
