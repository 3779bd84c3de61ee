// SPDX-License-Identifier: Apache-2.0

package pmap

import (
	"hash/maphash"
	"iter"
	mathbits "math/bits"
	"slices"
)

// hashSeed is random in each process, so that clients cannot prepare colliding names.
var hashSeed = maphash.MakeSeed()

// trieMaxShift is the first level without hash bits: entries there collide in all 64
// bits and are kept in a list.
const trieMaxShift = 65

// StringMap is a persistent map from strings. The zero StringMap is empty.
type StringMap[V any] struct {
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
	children []*mapNode[V]
}

type mapEntry[V any] struct {
	key string
	val V
}

// Len returns the number of keys.
func (m StringMap[V]) Len() int { return m.n }

// Get returns the value of key.
func (m StringMap[V]) Get(key string) (V, bool) {
	return m.get(key, maphash.String(hashSeed, key))
}

func (m StringMap[V]) get(key string, hash uint64) (v V, ok bool) {
	n := m.root
	for shift := uint(0); n != nil; shift += 5 {
		if shift == trieMaxShift {
			for i := range n.entries {
				if n.entries[i].key == key {
					return n.entries[i].val, true
				}
			}
			return v, false
		}
		bit := uint32(1) << (hash >> shift & trieMask)
		if n.dataBits&bit != 0 {
			e := &n.entries[triePlace(n.dataBits, bit)]
			if e.key == key {
				return e.val, true
			}
			return v, false
		}
		if n.kidBits&bit == 0 {
			return v, false
		}
		n = n.children[triePlace(n.kidBits, bit)]
	}
	return v, false
}

// triePlace is the number of bits in the map before bit.
func triePlace(set, bit uint32) int { return mathbits.OnesCount32(set & (bit - 1)) }

// Set returns the map with val for key. The owner can be nil.
func (m StringMap[V]) Set(owner *Owner, key string, val V) StringMap[V] {
	root, added := m.root.set(owner, key, maphash.String(hashSeed, key), val, 0)
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
	c.entries = sliceCopied(n.entries)
	c.children = append(make([]*mapNode[V], 0, len(n.children)), n.children...)
	return &c
}

func (n *mapNode[V]) set(owner *Owner, key string, hash uint64, val V, shift uint) (*mapNode[V], bool) {
	c := n.editable(owner)
	if shift == trieMaxShift {
		for i := range c.entries {
			if c.entries[i].key == key {
				c.entries[i].val = val
				return c, false
			}
		}
		c.entries = append(c.entries, mapEntry[V]{key, val})
		return c, true
	}
	bit := uint32(1) << (hash >> shift & trieMask)
	switch {
	case c.kidBits&bit != 0:
		at := triePlace(c.kidBits, bit)
		kid, added := c.children[at].set(owner, key, hash, val, shift+5)
		c.children[at] = kid
		return c, added
	case c.dataBits&bit == 0:
		c.entries = sliceInserted(c.entries, triePlace(c.dataBits, bit), mapEntry[V]{key, val}, true)
		c.dataBits |= bit
		return c, true
	}
	at := triePlace(c.dataBits, bit)
	if c.entries[at].key == key {
		c.entries[at].val = val
		return c, false
	}
	// Two keys have the digit: both move one level down.
	old := c.entries[at]
	kid, _ := (*mapNode[V])(nil).set(owner, old.key, maphash.String(hashSeed, old.key), old.val, shift+5)
	kid, _ = kid.set(owner, key, hash, val, shift+5)
	c.entries = sliceRemoved(c.entries, at, true)
	c.dataBits &^= bit
	c.children = sliceInserted(c.children, triePlace(c.kidBits, bit), kid, true)
	c.kidBits |= bit
	return c, true
}

// Delete returns the map without key. The owner can be nil.
func (m StringMap[V]) Delete(owner *Owner, key string) StringMap[V] {
	hash := maphash.String(hashSeed, key)
	if _, ok := m.get(key, hash); !ok {
		return m
	}
	m.root = m.root.delete(owner, key, hash, 0)
	m.n--
	return m
}

// delete removes an existing key; nil if the node becomes empty, as only a root can.
func (n *mapNode[V]) delete(owner *Owner, key string, hash uint64, shift uint) *mapNode[V] {
	c := n.editable(owner)
	if shift == trieMaxShift {
		// The parent has taken a single entry, so this is not the last one.
		c.entries = slices.DeleteFunc(c.entries, func(e mapEntry[V]) bool { return e.key == key })
		return c
	}
	bit := uint32(1) << (hash >> shift & trieMask)
	if c.dataBits&bit != 0 {
		c.entries = sliceRemoved(c.entries, triePlace(c.dataBits, bit), true)
		c.dataBits &^= bit
	} else {
		at := triePlace(c.kidBits, bit)
		kid := c.children[at].delete(owner, key, hash, shift+5)
		if len(kid.children) == 0 && len(kid.entries) == 1 {
			// A single entry moves up, so that the trie stays as low as possible.
			c.children = sliceRemoved(c.children, at, true)
			c.kidBits &^= bit
			c.entries = sliceInserted(c.entries, triePlace(c.dataBits, bit), kid.entries[0], true)
			c.dataBits |= bit
		} else {
			c.children[at] = kid
		}
	}
	if len(c.entries) == 0 && len(c.children) == 0 {
		return nil
	}
	return c
}

// All iterates in no particular order.
func (m StringMap[V]) All() iter.Seq2[string, V] {
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
	for _, kid := range n.children {
		if !kid.each(yield) {
			return false
		}
	}
	return true
}
