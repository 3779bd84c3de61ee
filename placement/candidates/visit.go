// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Search gives the candidates for a request, one after the other, until there are no more, the limit is reached, or give
// returns false. No two are the same. The error is an UnknownNameError, or that of the context.
//
// Cost: that of the anchors looked at, about 1 µs for a tree of 7 providers, and of the candidates given. The anchors are
// those that meet the rarest condition of the request where that is rare, else all, until the limit is reached.
func Search(ctx context.Context, s *ledger.Snapshot, r *Request, o Options, give func(*Candidate) bool) (Stats, error) {
	if o.Limit <= 0 {
		o.Limit = math.MaxInt
	}
	if o.Steps <= 0 {
		o.Steps = DefaultSteps
	}
	q, err := resolve(ctx, s, r, o.Steps)
	if err != nil {
		return Stats{}, err
	}
	t := tour{ctx: ctx, q: q, options: o, give: give}
	t.limits = limits{steps: o.Steps, stopped: t.stopped}
	if !q.never {
		t.run()
	}
	t.stats.Steps = o.Steps - t.limits.steps
	t.stats.Exhausted = t.limits.givenUp
	return t.stats, t.err
}

// tour goes through the anchors.
type tour struct {
	ctx     context.Context //nolint:containedctx // A tour is one call of Search.
	q       *query
	options Options
	give    func(*Candidate) bool

	limits limits
	seen   map[string]struct{} // candidates that several anchors can have
	stats  Stats
	over   bool // nothing more is wanted
	enough bool // as many candidates were given as the client asks for
	trees  int  // that may be visited
	share  int  // after how many candidates the next search begins, unless it is in the first lap
	shared int  // after how many visits these were given
	err    error
}

// visited is an anchor that may have more candidates.
type visited struct {
	number int64
	calls  int // of next that were made there
}

// run visits the anchors. Depth first, each once. Breadth first, there is a round for each candidate that an anchor may
// give. Searches are made anew in the first rounds, which have many anchors and are mostly all; those that stay are kept.
func (t *tour) run() {
	trees := t.q.anchors()
	s := newSearch(t.q, &t.options, trees.n, &t.limits)
	var again []visited
	visits := 0
	t.trees, t.share = trees.n, primeBelow(t.options.Rotation.Window)
	t.anchors(trees, func(number int64) bool {
		visits++
		defer t.pass(visits)
		if !t.arrive(s, number) {
			return !t.over
		}
		calls := t.take(s)
		for t.options.DepthFirst && calls > 0 && !t.over {
			calls = t.take(s)
		}
		if calls > 0 && s.mayHaveMore() {
			again = append(again, visited{number, calls})
		}
		return !t.over
	})
	if t.options.DepthFirst {
		return
	}
	const manyAnchors, manyRounds = 64, 3
	for round := 0; len(again) > manyAnchors && round < manyRounds && !t.over; round++ {
		left := again[:0]
		for _, v := range again {
			if t.over {
				break
			}
			// One look further now is cheaper than coming again for nothing.
			if calls := t.takeAgain(s, v); calls > 0 && !t.over && s.next() {
				left = append(left, visited{v.number, v.calls + calls})
			}
		}
		again = left
	}
	var open []*search
	for _, v := range again {
		if t.over {
			return
		}
		s := newSearch(t.q, &t.options, trees.n, &t.limits)
		if t.takeAgain(s, v) > 0 && !s.done {
			open = append(open, s)
		}
	}
	for len(open) > 0 && !t.over {
		open = slices.DeleteFunc(open, func(s *search) bool { return t.over || t.take(s) == 0 || s.done })
	}
}

// pass notes after each of the first visits to anchors where the next search should begin.
func (t *tour) pass(visits int) {
	given, window := t.stats.Candidates, t.options.Rotation.Window
	if given == 0 || t.enough {
		return
	}
	if t.stats.Passed == 0 {
		t.stats.Passed = visits
	}
	if t.shared == 0 && given >= t.share {
		t.shared = visits
	}
	switch firstLap := t.options.Rotation.At+uint64(visits) < uint64(t.trees); {
	case !t.over && (window == 0 || given < window):
	case firstLap:
		t.stats.Passed, t.enough = visits, true
	default:
		t.stats.Passed, t.enough = max(t.stats.Passed, t.shared), true
	}
}

// takeAgain takes a search to where it was at an anchor, and takes the next candidate.
func (t *tour) takeAgain(s *search, v visited) (calls int) {
	if !t.arrive(s, v.number) {
		return 0
	}
	for range v.calls {
		s.next()
	}
	return t.take(s)
}

// arrive fills a search for an anchor. It returns false when there is nothing to search for.
func (t *tour) arrive(s *search, number int64) bool {
	tree, ok := t.q.s.TreeAt(number)
	if !ok {
		return false
	}
	if t.stats.Trees&63 == 0 && t.stopped() {
		return false
	}
	if t.limits.steps <= 0 {
		t.limits.givenUp, t.over = true, true
		return false
	}
	t.stats.Trees++
	return s.fill(tree)
}

// stopped says whether the context has ended.
func (t *tour) stopped() bool {
	if err := t.ctx.Err(); err != nil {
		t.err, t.over = err, true
	}
	return t.over
}

// take gives the next candidate of a search that was not given before. It returns how often next was called for it, 0 when
// there is none.
func (t *tour) take(s *search) (calls int) {
	for s.next() {
		calls++
		if t.known(s.shared()) {
			continue
		}
		t.stats.Candidates++
		if !t.give(s.candidate()) || t.stats.Candidates >= t.options.Limit {
			t.over = true
		}
		return calls
	}
	t.over = t.over || t.limits.steps <= 0
	return 0
}

// known says whether the candidate with the key was given already, and remembers it.
func (t *tour) known(key []byte) bool {
	if key == nil {
		return false
	}
	if _, known := t.seen[string(key)]; known {
		return true
	}
	if t.seen == nil {
		t.seen = map[string]struct{}{}
	}
	t.seen[string(key)] = struct{}{}
	return false
}

// anchors visits the numbers of the trees that can have candidates, and maybe some others.
func (t *tour) anchors(a anchors, visit func(number int64) bool) {
	if t.options.Seed != 0 {
		for _, i := range rand.New(rand.NewPCG(t.options.Seed, 0)).Perm(a.n) {
			if !visit(a.number(i)) {
				return
			}
		}
		return
	}
	g := t.options.Rotation.ring(a.n)
	for range a.n {
		if !visit(a.number(g.next())) {
			return
		}
	}
}

// anchors are the trees to visit.
type anchors struct {
	n       int
	numbers []int64 // nil for all that there are
}

func (a *anchors) number(i int) int64 {
	if a.numbers == nil {
		return int64(i)
	}
	return a.numbers[i]
}

func (q *query) anchors() anchors {
	numbers, all := q.where()
	if all {
		return anchors{n: int(q.s.TreeNumbers())}
	}
	return anchors{n: len(numbers), numbers: numbers}
}

// where returns the numbers of the trees that the rarest condition leaves. all says that none is rare enough to be worth
// it, and that all trees should be visited.
func (q *query) where() (numbers []int64, all bool) {
	rarest, found := ledger.ProviderSet{}, false
	consider := func(set ledger.ProviderSet) {
		if !found || set.Len() < rarest.Len() {
			rarest, found = set, true
		}
	}
	for i := range q.groups {
		g := &q.groups[i]
		if g.inTree != anyTree {
			if !g.suffixed {
				return []int64{g.inTree}, false
			}
			t, _ := q.s.TreeAt(g.inTree)
			return q.anchorsOf(slices.Values(t.Providers())), false
		}
		for _, n := range g.needs {
			consider(q.s.WithClass(q.classes[n.class].name))
		}
		for _, lists := range [][][]ledger.ProviderSet{g.required, g.memberOf} {
			for _, sets := range lists {
				if len(sets) == 1 {
					consider(sets[0])
				}
			}
		}
	}
	for _, set := range q.rootRequired {
		consider(set)
	}
	for _, sets := range q.rootMemberOf {
		if len(sets) == 1 {
			consider(sets[0])
		}
	}
	if !found || rarest.Len() > q.s.TreeCount()/8 {
		return nil, true
	}
	return q.anchorsOf(rarest.All()), false
}

// anchorsOf returns the numbers of the trees of some providers, and of those that they share with.
func (q *query) anchorsOf(providers iter.Seq[*ledger.Provider]) []int64 {
	var numbers []int64
	for p := range providers {
		numbers = append(numbers, p.TreeNumber())
		if q.sharing.Len() == 0 || !q.sharing.Has(p) {
			continue
		}
		for _, aggregate := range p.Aggregates {
			for member := range q.s.InAggregate(aggregate).All() {
				numbers = append(numbers, member.TreeNumber())
			}
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
