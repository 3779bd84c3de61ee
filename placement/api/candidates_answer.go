// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Bounds of the memory of answers of GET /allocation_candidates, in bytes.
const (
	maxAnswer  = 128 << 20 // one: the search ends when it is reached. 50,000 trees of 7 providers take that much
	maxAnswers = 512 << 20 // all answers in progress: beyond, 503
	// chunk is the memory in which an answer is built. It is left when less than chunkRest is free:
	// more than a usual candidate takes.
	chunk     = 64 << 10
	chunkRest = 4 << 10
)

// candidateAnswers are the answers of GET /allocation_candidates: their total memory, and what is
// kept for reuse until the garbage collector needs it. The zero candidateAnswers is ready.
type candidateAnswers struct {
	bytes  atomic.Int64
	unused sync.Pool // of *candidatesAnswer
	chunks sync.Pool // of *[chunk]byte
}

// candidatesAnswer is an answer of GET /allocation_candidates that is being built: the allocation
// requests, and the providers for the summaries after them.
type candidatesAnswer struct {
	all *candidateAnswers
	s   *ledger.Snapshot
	v   wire.Version
	cq  *candidates.URLQuery

	full            [][]byte // chunks, the answer so far
	b               []byte   // and the chunk after them
	countedCapacity int      // capacity of b when it was counted
	countedBytes    int64    // memory of the chunks, as counted in all.bytes
	size            int      // of the answer: full chunks, and summaries that are written from where they are

	limit int   // number of candidates to return
	count int   // number of candidates so far
	large bool  // maxAnswer is reached
	err   error // why the answer cannot be made

	trees []uint64 // bit set of the trees in the summaries, by number
	// From 1.29 on: the summaries of these trees.
	summaries [][]byte
	// Before: the providers in the summaries, each at least once. They are the providers of all
	// candidates in these trees, including those beyond the limit, so the search continues if a
	// tree has several providers.
	used   []*ledger.Provider
	nested bool // one of the trees has several providers

	parts [][]byte // all of it
}

// acquire returns an empty answer for up to limit candidates. It must be given to release after it
// is sent.
func (c *candidateAnswers) acquire(
	s *ledger.Snapshot, v wire.Version, cq *candidates.URLQuery, limit int,
) *candidatesAnswer {
	a, ok := c.unused.Get().(*candidatesAnswer)
	if !ok {
		a = &candidatesAnswer{}
	}
	a.all, a.s, a.v, a.cq, a.limit = c, s, v, cq, limit
	words := int((s.TreeNumbers() + 63) / 64)
	a.trees = slices.Grow(a.trees[:0], words)[:words]
	clear(a.trees)
	a.startChunk()
	a.b = append(a.b, `{"allocation_requests":[`...)
	return a
}

// release keeps an answer for reuse.
func (c *candidateAnswers) release(a *candidatesAnswer) {
	c.bytes.Add(-a.countedBytes)
	for _, b := range append(a.full, a.b) {
		if cap(b) == chunk { // others grew for a large candidate
			c.chunks.Put((*[chunk]byte)(b[:chunk]))
		}
	}
	clear(a.full) // a kept answer must not keep a snapshot alive
	clear(a.summaries)
	clear(a.used)
	clear(a.parts)
	*a = candidatesAnswer{full: a.full[:0], trees: a.trees,
		summaries: a.summaries[:0], used: a.used[:0], parts: a.parts[:0]}
	c.unused.Put(a)
}

// startChunkIfFull begins a chunk when little is left of the one before.
func (a *candidatesAnswer) startChunkIfFull() {
	if len(a.b) > chunk-chunkRest {
		a.countMemory()
		a.startChunk()
	}
}

// startChunk begins a chunk.
func (a *candidatesAnswer) startChunk() {
	if a.b != nil {
		a.full = append(a.full, a.b)
		a.size += len(a.b)
	}
	c, ok := a.all.chunks.Get().(*[chunk]byte)
	if !ok {
		c = new([chunk]byte)
	}
	a.b, a.countedCapacity = c[:0], 0
	a.countMemory()
}

// countMemory counts the memory of b. It returns false if all answers together take too much.
func (a *candidatesAnswer) countMemory() bool {
	grown := int64(cap(a.b) - a.countedCapacity)
	if grown == 0 {
		return a.err == nil
	}
	a.countedCapacity = cap(a.b)
	a.countedBytes += grown
	if a.all.bytes.Add(grown) > maxAnswers {
		a.err = osapi.Unavailable(
			"The answers under way take up all the memory that this server has for them. Send the request again in " +
				"a moment, or with a limit.")
	}
	return a.err == nil
}

// add appends one candidate; false: no more are needed.
func (a *candidatesAnswer) add(c *candidates.Candidate) bool {
	if a.err != nil {
		return false
	}
	given := a.count < a.limit
	if given {
		if a.count > 0 {
			a.b = append(a.b, ',')
		}
		a.b = appendRequest(a.b, a.v, a.cq.Groups, c)
		a.count++
		a.startChunkIfFull()
	}
	for i := range c.Allocations {
		p := c.Allocations[i].Provider
		if i > 0 && p == c.Allocations[i-1].Provider {
			continue
		}
		if given {
			a.addTree(p.TreeNumber())
		}
		if a.cq.Flat && a.has(p.TreeNumber()) {
			a.used = append(a.used, p)
		}
	}
	if len(a.b)+a.size > maxAnswer {
		a.large = true
		return false
	}
	return a.countMemory() && (a.count < a.limit || a.cq.Flat && a.nested)
}

// has reports whether the tree is in the summaries.
func (a *candidatesAnswer) has(number int64) bool { return a.trees[number/64]&(1<<(number%64)) != 0 }

// addTree adds a tree to the summaries, once.
func (a *candidatesAnswer) addTree(number int64) {
	if a.has(number) {
		return
	}
	a.trees[number/64] |= 1 << (number % 64)
	tree, ok := a.s.TreeAt(number)
	if !ok {
		return
	}
	if a.cq.Flat {
		a.nested = a.nested || len(tree.Providers()) > 1
		return
	}
	summaries, _ := tree.Derive(ledger.DerivedSummaries, summarizeTree).([]byte)
	a.summaries = append(a.summaries, summaries)
	a.size += len(summaries)
}

// body is the answer with all added candidates, in parts. Summaries that do not fit into the last
// chunk are parts as they are stored.
func (a *candidatesAnswer) body() (parts [][]byte, err error) {
	a.b = append(a.b, `],"provider_summaries":{`...)
	if a.cq.Flat {
		a.appendUsed()
	}
	rest := a.summaries
	if len(rest) > 0 {
		rest[0] = rest[0][len(","):]
	}
	for len(rest) > 0 && len(a.b)+len(rest[0]) <= cap(a.b) {
		a.b = append(a.b, rest[0]...)
		rest = rest[1:]
	}
	a.parts = append(append(append(append(a.parts, a.full...), a.b), rest...), closing)
	return a.parts, a.err
}

// closing ends the summaries and the answer.
var closing = []byte("}}")

// appendUsed appends the summaries in the form before 1.29.
func (a *candidatesAnswer) appendUsed() {
	var classes map[string]bool
	if !a.v.Has(wire.AllSummaryClasses) {
		classes = map[string]bool{}
		for i := range a.cq.Groups {
			for _, r := range a.cq.Groups[i].Resources {
				classes[r.Class] = true
			}
		}
	}
	slices.SortFunc(a.used, func(p, q *ledger.Provider) int { return cmp.Compare(p.ID, q.ID) })
	for i, p := range a.used {
		if i > 0 && p == a.used[i-1] {
			continue
		}
		if i > 0 {
			a.b = append(a.b, ',')
		}
		a.b = appendSummary(a.b, p, a.v, classes)
		a.startChunkIfFull()
	}
}

// summarizeTree returns the summaries of all providers of a tree in the form from 1.29 on, each
// after a comma.
func summarizeTree(t *ledger.Tree) any {
	var b []byte
	for _, p := range t.Providers() {
		b = append(b, ',')
		b = appendSummary(b, p, wire.Version(wire.NestedCandidates), nil)
	}
	return slices.Clip(b)
}

// appendCapacity appends the capacity of an inventory. With a large ratio it can exceed an int64.
func appendCapacity(b []byte, inv *ledger.Inventory) []byte {
	c := inv.Limits().Capacity
	exact := float64(inv.Total-inv.Reserved) * inv.AllocationRatio
	if math.Abs(exact) < 1<<63 || math.IsNaN(exact) || math.IsInf(exact, 0) {
		return strconv.AppendInt(b, c, 10)
	}
	whole, _ := big.NewFloat(exact).Int(nil)
	return whole.Append(b, 10)
}

// appendSummary appends one member of provider_summaries, with the given classes; nil for all.
func appendSummary(b []byte, p *ledger.Provider, v wire.Version, classes map[string]bool) []byte {
	b = jsonkit.AppendString(b, p.UUID)
	b = append(b, `:{"resources":{`...)
	for i := range p.Inventories {
		inv := &p.Inventories[i]
		if classes != nil && !classes[inv.Class] {
			continue
		}
		b = jsonkit.AppendString(jsonkit.AppendComma(b), inv.Class)
		b = append(b, `:{"capacity":`...)
		b = appendCapacity(b, inv)
		b = append(b, `,"used":`...)
		b = strconv.AppendInt(b, p.Used(inv.ClassID()), 10)
		b = append(b, '}')
	}
	b = append(b, '}')
	if v.Has(wire.CandidatesRequired) {
		b = append(b, `,"traits":`...)
		b = jsonkit.AppendStrings(b, p.TraitsByID())
	}
	if v.Has(wire.NestedCandidates) {
		b = append(b, `,"parent_provider_uuid":`...)
		if p.Parent == "" {
			b = append(b, "null"...)
		} else {
			b = jsonkit.AppendString(b, p.Parent)
		}
		b = append(b, `,"root_provider_uuid":`...)
		b = jsonkit.AppendString(b, p.Root)
	}
	return append(b, '}')
}
