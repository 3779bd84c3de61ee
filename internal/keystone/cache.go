// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// key identifies a token by its hash; the token itself is not kept.
type key struct {
	sum [sha256.Size]byte
	// expired says that the token was looked at as one that may have expired.
	expired bool
}

// cache remembers principals for a time. It holds a number of them at most, and forgets the one
// that was not asked for the longest. It is safe for concurrent use; its operations take constant
// time.
type cache struct {
	maxEntries int

	mu      sync.Mutex
	entries map[key]*list.Element
	order   *list.List // of *entry, the one that was asked for last at the front
}

type entry struct {
	key       key
	principal osapi.Principal
	until     time.Time
}

func newCache(maxEntries int) *cache {
	return &cache{maxEntries: maxEntries, entries: map[key]*list.Element{}, order: list.New()}
}

// get returns the principal that was put for a key, if it has not expired.
func (c *cache) get(k key, now time.Time) (osapi.Principal, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[k]
	if !ok {
		return osapi.Principal{}, false
	}
	e, _ := element.Value.(*entry)
	if !now.Before(e.until) {
		c.order.Remove(element)
		delete(c.entries, k)
		return osapi.Principal{}, false
	}
	c.order.MoveToFront(element)
	return e.principal, true
}

// put remembers a principal until a time.
func (c *cache) put(k key, who osapi.Principal, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[k]; ok {
		c.order.Remove(element)
	}
	c.entries[k] = c.order.PushFront(&entry{k, who, until})
	if c.order.Len() > c.maxEntries {
		oldest := c.order.Back()
		e, _ := oldest.Value.(*entry)
		c.order.Remove(oldest)
		delete(c.entries, e.key)
	}
}
