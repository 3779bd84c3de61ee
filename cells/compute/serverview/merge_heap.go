// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"container/heap"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// merge puts rows into the result until there are enough, or until those of a source run out that
// has more: then it gives the sources to ask before it can go on, or none if those are asked. It
// goes on without sources that have not answered yet. Each row costs O(log cells).
func (sm *serverMerge) merge() []*cellSource {
	if sm.rewind || sm.emitted == nil {
		sm.restart()
	}
	if slices.ContainsFunc(sm.sources, (*cellSource).blocks) {
		return nil
	}
	h := sm.heap()
	for len(h.of) > 0 && len(sm.merged) < sm.query.Limit {
		s := h.of[0]
		row := &s.rows[s.next] // large
		s.next++
		if _, twice := sm.emitted[row.Server.UUID]; !twice {
			sm.emitted[row.Server.UUID] = struct{}{}
			sm.merged = append(sm.merged, *row)
		}
		switch {
		case s.next < len(s.rows):
			heap.Fix(h, 0)
		case !s.more:
			heap.Pop(h)
		case len(sm.merged) < sm.query.Limit:
			return sm.sourcesToFetch()
		}
	}
	return nil
}

// restart begins at the beginning: for the first time, or again without the rows of a source that
// went down.
func (sm *serverMerge) restart() {
	have := 0
	for _, s := range sm.sources {
		s.next = 0
		have += len(s.rows)
	}
	have = min(have, sm.query.Limit)
	sm.rewind, sm.merged, sm.emitted = false, make([]cellwire.Row, 0, have), make(map[string]struct{}, have)
}

// sourcesToFetch are the sources to ask when one has run out: that one, and with it those that soon
// will, so that they are not waited for one after another.
func (sm *serverMerge) sourcesToFetch() []*cellSource {
	missing := sm.query.Limit - len(sm.merged)
	var short []*cellSource
	for _, s := range sm.sources {
		if left := len(s.rows) - s.next; s.more && !s.asked && (left == 0 || left <= sm.batch/4 && left < missing) {
			short = append(short, s)
		}
	}
	return short
}

// blocks reports whether nothing can be merged before a source has answered, because its next row
// may be any.
func (s *cellSource) blocks() bool { return s.asked && s.seen != nil && s.next == len(s.rows) }

// heap has the sources with rows to be merged, the one with the first row first.
func (sm *serverMerge) heap() *sourceHeap {
	h := &sourceHeap{order: sm.order}
	for _, s := range sm.sources {
		if s.next < len(s.rows) {
			h.of = append(h.of, s)
		}
	}
	heap.Init(h)
	return h
}

// sourceHeap is a heap by the next row, and among equal rows by the order of the cells.
type sourceHeap struct {
	order keyOrder
	of    []*cellSource
}

func (h *sourceHeap) Len() int { return len(h.of) }

func (h *sourceHeap) Less(i, j int) bool {
	a, b := h.of[i], h.of[j]
	if c := h.order.compare(a.rows[a.next].Key, b.rows[b.next].Key); c != 0 {
		return c < 0
	}
	return a.index < b.index
}

func (h *sourceHeap) Swap(i, j int) { h.of[i], h.of[j] = h.of[j], h.of[i] }

// Push is needed for heap.Interface.
func (h *sourceHeap) Push(x any) { h.of = append(h.of, x.(*cellSource)) }

// Pop is needed for heap.Interface.
func (h *sourceHeap) Pop() any {
	last := h.of[len(h.of)-1]
	h.of = h.of[:len(h.of)-1]
	return last
}
