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

// Search calls give with the candidates for a request until there are no more, the limit is
// reached, or give returns false. No two are the same. The error is an UnknownNameError or the
// context's.
//
// Cost: about 1 µs for each visited tree of 7 providers, plus the candidates returned. If the
// rarest condition of the request is rare, only the trees that meet it are visited, otherwise all
// of them.
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
	t := iteration{ctx: ctx, q: q, options: o, give: give}
	t.limits = limits{steps: o.Steps, stopped: t.stopped}
	if !q.never {
		t.run()
	}
	t.stats.Steps = o.Steps - t.limits.steps
	t.stats.Exhausted = t.limits.exhausted
	return t.stats, t.err
}

// iteration visits the anchors of one search.
type iteration struct {
	ctx     context.Context // it is one call of Search
	q       *query
	options Options
	give    func(*Candidate) bool

	limits limits
	seen   map[string]struct{} // candidates that several anchors can have
	stats  Stats
	done   bool // no more candidates are needed
	enough bool // as many candidates were returned as the client asks for
	trees  int  // number of anchors
	share  int  // after how many candidates the next search begins, unless it is in the first lap
	shared int  // after how many visits these were given
	err    error
}

// visited is an anchor that may have more candidates.
type visited struct {
	number int64
	calls  int // of next made there
}

// run visits the anchors. Depth first, each once. Breadth first, there is a round for each
// candidate that an anchor may have. The first rounds, which have many anchors, repeat the search
// of each anchor; later rounds keep the searches.
func (t *iteration) run() {
	trees := t.q.anchors()
	s := newSearch(t.q, &t.options, trees.n, &t.limits)
	var again []visited
	visits := 0
	t.trees, t.share = trees.n, primeBelow(t.options.Rotation.Window)
	t.anchors(trees, func(number int64) bool {
		visits++
		defer t.advanceStart(visits)
		if !t.fillSearch(s, number) {
			return !t.done
		}
		calls := t.giveNext(s)
		for t.options.DepthFirst && calls > 0 && !t.done {
			calls = t.giveNext(s)
		}
		if s.mayHaveMore() {
			again = append(again, visited{number, calls})
		}
		return !t.done
	})
	if t.options.DepthFirst {
		return
	}
	const manyAnchors, manyRounds = 64, 3
	for range manyRounds {
		if len(again) <= manyAnchors || t.done {
			break
		}
		left := again[:0]
		for _, v := range again {
			if t.done {
				break
			}
			// One more step now is cheaper than another visit without a result.
			if calls := t.resume(s, v); calls != 0 && !t.done && s.next() {
				left = append(left, visited{v.number, v.calls + calls})
			}
		}
		again = left
	}
	var open []*search
	for _, v := range again {
		if t.done {
			return
		}
		s := newSearch(t.q, &t.options, trees.n, &t.limits)
		if t.resume(s, v) != 0 && !s.done {
			open = append(open, s)
		}
	}
	for len(open) > 0 && !t.done {
		open = slices.DeleteFunc(open, func(s *search) bool { return t.done || t.giveNext(s) == 0 || s.done })
	}
}

// advanceStart computes, after each of the first visits to anchors, where the next search should
// begin.
func (t *iteration) advanceStart(visits int) {
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
	case !t.done && (window == 0 || given < window):
	case firstLap:
		t.stats.Passed, t.enough = visits, true
	default:
		t.stats.Passed, t.enough = max(t.stats.Passed, t.shared), true
	}
}

// resume brings a search to where it was at an anchor, and gives the next candidate.
func (t *iteration) resume(s *search, v visited) (calls int) {
	if !t.fillSearch(s, v.number) {
		return 0
	}
	for range v.calls {
		s.next()
	}
	return t.giveNext(s)
}

// fillSearch fills a search for an anchor. It returns false if the anchor cannot have a candidate.
func (t *iteration) fillSearch(s *search, number int64) bool {
	tree, ok := t.q.s.TreeAt(number)
	if !ok {
		return false
	}
	if t.stats.Trees&63 == 0 && t.stopped() {
		return false
	}
	if t.limits.steps <= 0 {
		t.limits.exhausted, t.done = true, true
		return false
	}
	t.stats.Trees++
	return s.fill(tree)
}

// stopped reports whether the context has ended.
func (t *iteration) stopped() bool {
	if err := t.ctx.Err(); err != nil {
		t.err, t.done = err, true
	}
	return t.done
}

// giveNext gives the next candidate of a search that was not given before. It returns the number of
// calls of next that it took, 0 if there is no candidate.
func (t *iteration) giveNext(s *search) (calls int) {
	for s.next() {
		calls++
		if t.repeated(s.shared()) {
			continue
		}
		t.stats.Candidates++
		if !t.give(s.candidate()) || t.stats.Candidates >= t.options.Limit {
			t.done = true
		}
		return calls
	}
	return 0
}

// repeated reports whether the candidate with the key was given already, and records it.
func (t *iteration) repeated(key []byte) bool {
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

// anchors visits the trees that can have candidates, and possibly others.
func (t *iteration) anchors(a anchors, visit func(number int64) bool) {
	if t.options.Seed != 0 {
		for _, i := range rand.New(rand.NewPCG(t.options.Seed, 0)).Perm(a.n) {
			if !visit(a.number(i)) {
				return
			}
		}
		return
	}
	g := t.options.Rotation.order(a.n)
	for range a.n {
		if !visit(a.number(g.next())) {
			return
		}
	}
}

// anchors are the trees to visit.
type anchors struct {
	n       int
	numbers []int64 // nil for all trees
}

func (a *anchors) number(i int) int64 {
	if a.numbers == nil {
		return int64(i)
	}
	return a.numbers[i]
}

func (q *query) anchors() anchors {
	numbers, all := q.rarest()
	if all {
		return anchors{n: int(q.s.TreeNumbers())}
	}
	return anchors{n: len(numbers), numbers: numbers}
}

// rarest returns the numbers of the trees that meet the rarest condition. all: no condition is rare
// enough, so all trees should be visited.
func (q *query) rarest() (numbers []int64, all bool) {
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

// anchorsOf returns the numbers of the trees of some providers, and of the trees they share with.
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
