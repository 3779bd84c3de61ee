// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// sharingTrait marks providers that share what they have with the trees of their aggregates.
const sharingTrait = "MISC_SHARES_VIA_AGGREGATE"

// query is a request in the terms of one snapshot.
type query struct {
	s       *ledger.Snapshot
	classes []class // of the request, in order of their IDs
	groups  []group
	slots   []slot
	kinds   [][]need // the distinct needs of slots of several classes
	subtree [][]int  // for each same_subtree, its slots

	rootRequired, rootForbidden []ledger.ProviderSet
	rootMemberOf                [][]ledger.ProviderSet
	rootNotMemberOf             []ledger.ProviderSet

	flat         bool
	resourceless bool // Request.Resourceless
	// condition is the index of the unsuffixed group if it has no resources; none otherwise. It has
	// no slots.
	condition int
	// never: no provider can serve the request.
	never bool

	// price is the cost of checking one provider for all slots, rootPrice that of one root, in
	// options.
	price, rootPrice int

	// collective is how many sets of traits the providers of the unsuffixed group must have
	// together.
	collective int

	sharingProviders ledger.ProviderSet // all sharing providers
	// sharingByAggregate are the sharing providers that can serve a part of the request, by
	// aggregate.
	sharingByAggregate map[string][]*ledger.Provider
}

// class is a requested class. Within a query it is an index of query.classes.
type class struct {
	id   int64
	name string
}

// need is an amount of a class.
type need struct {
	class  int
	amount int64
}

// group is a request group.
type group struct {
	suffixed    bool
	needs       []need // in order of their classes
	required    [][]ledger.ProviderSet
	forbidden   []ledger.ProviderSet
	memberOf    [][]ledger.ProviderSet
	notMemberOf []ledger.ProviderSet
	inTree      int64 // number of a tree, anyTree or noTree
}

const (
	anyTree = -1 // no tree is asked for
	noTree  = -2 // what is asked for does not exist
)

// slot is the part of a request that one provider must serve: a whole suffixed group, or one class
// of the unsuffixed one.
type slot struct {
	group   int
	needs   []need
	largest int64 // of the amounts of needs
	kind    int   // the index of needs in query.kinds, -1 for needs of one class or none
	subtree []int // the same_subtree sets that it is in
	// Isolated slots have a provider each; an exclusive slot shares its provider with no other
	// slot.
	isolated, exclusive bool
}

// unshared reports whether the slot shares no provider with other slots of its kind.
func (s *slot) unshared() bool { return s.isolated || s.exclusive }

// need returns how much of a class the slot needs.
func (s *slot) need(class int) int64 {
	for _, n := range s.needs {
		if n.class == class {
			return n.amount
		}
	}
	return 0
}

// resolve turns a request into a query, in at most that many steps. The error is an
// UnknownNameError or the context's.
func resolve(ctx context.Context, s *ledger.Snapshot, r *Request, steps int) (*query, error) {
	q := &query{s: s, flat: r.Flat, resourceless: r.Resourceless, condition: none,
		sharingProviders: s.WithTrait(sharingTrait)}
	if err := q.resolveRoot(&r.Root); err != nil {
		return nil, err
	}
	q.collectClasses(r)
	for i := range r.Groups {
		g, err := q.resolveGroup(&r.Groups[i])
		var unknown *UnknownNameError
		if errors.As(err, &unknown) {
			// The name is an error only if the search gets that far.
			ok, err := evaluates(ctx, s, r, i, steps)
			if err != nil {
				return nil, err
			}
			if ok {
				return nil, unknown
			}
			q.never = true
			return q, nil
		}
		q.groups = append(q.groups, g)
	}
	q.makeSlots(r)
	q.setPrices()
	q.findSharing()
	return q, nil
}

// evaluates reports whether Placement would evaluate group number i: whether a root meets the
// conditions, and each group before has a candidate by itself. It is true if the steps do not
// suffice to decide: the name is unknown.
func evaluates(ctx context.Context, s *ledger.Snapshot, r *Request, i, steps int) (bool, error) {
	if root := (&Request{Root: r.Root}); !anyRoot(s, root) {
		return false, nil
	}
	for _, g := range r.Groups[:i] {
		if g.Suffix == "" && len(g.Resources) == 0 {
			if ok, err := anyTreeMeets(ctx, s, r, g, steps); !ok || err != nil {
				return false, err
			}
			continue
		}
		single := &Request{Groups: []Group{g}, Root: r.Root, Resourceless: r.Resourceless}
		stats, err := Search(ctx, s, single, Options{Limit: 1, Steps: steps}, func(*Candidate) bool { return false })
		if err != nil || stats.Candidates == 0 && !stats.Exhausted {
			return false, err
		}
		if steps -= stats.Steps + stats.Trees*workPerStep; steps <= 0 {
			return true, nil
		}
	}
	// Within the group, Placement checks classes, then aggregates, then traits.
	g := &r.Groups[i]
	for _, res := range g.Resources {
		if _, ok := s.Class(res.Class); !ok {
			return true, nil
		}
	}
	if len(g.MemberOf) == 0 {
		return true, nil
	}
	sets := setsOf(g.MemberOf, s.InAggregate)
	for _, first := range sets[0] {
		for p := range first.All() {
			if inAll(p.ID, sets) {
				return true, nil
			}
		}
	}
	return false, nil
}

// anyRoot reports whether any root meets the conditions on roots.
func anyRoot(s *ledger.Snapshot, r *Request) bool {
	q := &query{s: s}
	if q.resolveRoot(&r.Root) != nil {
		return false
	}
	if !q.hasRootConditions() {
		return true
	}
	for t := range s.Trees() {
		if q.rootMeets(t.Root()) {
			return true
		}
	}
	return false
}

// anyTreeMeets reports whether any tree meets the conditions on roots, and those of an unsuffixed
// group without resources.
func anyTreeMeets(ctx context.Context, s *ledger.Snapshot, r *Request, g Group, steps int) (bool, error) {
	q, err := resolve(ctx, s, &Request{Groups: []Group{g}, Root: r.Root, Resourceless: true}, steps)
	if err != nil {
		return false, err
	}
	at := &search{q: q, limits: &limits{steps: steps}}
	for t := range s.Trees() {
		if at.root = t.Root(); !q.rootMeets(at.root) {
			continue
		}
		if at.listProviders(t); at.meetsCondition() {
			return true, nil
		}
	}
	return false, nil
}

func (q *query) resolveRoot(c *RootConditions) (err error) {
	unknown := func(name string) error { return &UnknownNameError{Trait: name, Root: true} }
	if q.rootRequired, err = q.traitSets(c.Required, unknown); err != nil {
		return err
	}
	if q.rootForbidden, err = q.traitSets(c.Forbidden, unknown); err != nil {
		return err
	}
	q.rootMemberOf = setsOf(c.MemberOf, q.s.InAggregate)
	for _, a := range c.NotMemberOf {
		q.rootNotMemberOf = append(q.rootNotMemberOf, q.s.InAggregate(a))
	}
	return nil
}

func (q *query) traitSets(names []string, unknown func(string) error) ([]ledger.ProviderSet, error) {
	if len(names) == 0 {
		return nil, nil
	}
	sets := make([]ledger.ProviderSet, 0, len(names))
	for _, name := range names {
		if _, ok := q.s.Trait(name); !ok {
			return nil, unknown(name)
		}
		sets = append(sets, q.s.WithTrait(name))
	}
	return sets, nil
}

func setsOf(names [][]string, find func(string) ledger.ProviderSet) [][]ledger.ProviderSet {
	if len(names) == 0 {
		return nil
	}
	all := make([][]ledger.ProviderSet, 0, len(names))
	for _, any := range names {
		sets := make([]ledger.ProviderSet, 0, len(any))
		for _, name := range any {
			sets = append(sets, find(name))
		}
		all = append(all, sets)
	}
	return all
}

// collectClasses numbers the known classes of the request.
func (q *query) collectClasses(r *Request) {
	for i := range r.Groups {
		for _, res := range r.Groups[i].Resources {
			if c, ok := q.s.Class(res.Class); ok && !slices.Contains(q.classes, class{c.ID, c.Name}) {
				q.classes = append(q.classes, class{c.ID, c.Name})
			}
		}
	}
	slices.SortFunc(q.classes, func(a, b class) int { return cmp.Compare(a.id, b.id) })
}

// class returns the index of a class in q.classes, -1 if the request does not have it.
func (q *query) class(id int64) int {
	for i := range q.classes {
		if q.classes[i].id == id {
			return i
		}
	}
	return -1
}

func (q *query) resolveGroup(g *Group) (out group, err error) {
	out = group{suffixed: g.Suffix != "", inTree: anyTree}
	for _, res := range g.Resources {
		c, ok := q.s.Class(res.Class)
		if !ok {
			return out, &UnknownNameError{Class: res.Class, Suffix: g.Suffix}
		}
		out.needs = append(out.needs, need{q.class(c.ID), res.Amount})
	}
	slices.SortFunc(out.needs, func(a, b need) int { return cmp.Compare(a.class, b.class) })
	unknown := func(name string) error { return &UnknownNameError{Trait: name, Suffix: g.Suffix} }
	for _, any := range g.Required {
		sets, err := q.traitSets(any, unknown)
		if err != nil {
			return out, err
		}
		out.required = append(out.required, sets)
	}
	if out.forbidden, err = q.traitSets(g.Forbidden, unknown); err != nil {
		return out, err
	}
	out.memberOf = setsOf(g.MemberOf, q.s.InAggregate)
	for _, a := range g.NotMemberOf {
		out.notMemberOf = append(out.notMemberOf, q.s.InAggregate(a))
	}
	if g.InTree != "" {
		p, ok := q.s.Provider(g.InTree)
		if !ok {
			q.never, out.inTree = true, noTree
			return out, nil
		}
		out.inTree = p.TreeNumber()
	}
	if len(out.needs) == 0 && !q.resourceless {
		// As in Placement: see the package documentation.
		out.inTree = anyTree
		q.never = q.never || len(out.required) == 0 && len(out.memberOf) == 0
	}
	return out, nil
}

func (q *query) makeSlots(r *Request) {
	bySuffix := make(map[string]int, len(r.Groups)) // slots of suffixed groups
	for i := range q.groups {
		g := &q.groups[i]
		if g.suffixed {
			suffix := r.Groups[i].Suffix
			bySuffix[suffix] = len(q.slots)
			q.slots = append(q.slots, slot{
				group: i, needs: g.needs,
				isolated:  r.GroupPolicy == Isolate,
				exclusive: slices.Contains(r.Isolate, suffix),
			})
			continue
		}
		if len(g.needs) == 0 {
			q.condition = i
			continue
		}
		q.collective = len(g.required)
		for n := range g.needs {
			q.slots = append(q.slots, slot{group: i, needs: g.needs[n : n+1]})
		}
	}
	for i := range q.slots {
		q.slots[i].kind = q.kindOf(q.slots[i].needs)
		for _, n := range q.slots[i].needs {
			q.slots[i].largest = max(q.slots[i].largest, n.amount)
		}
	}
	for _, suffixes := range r.SameSubtree {
		var set []int
		for _, suffix := range suffixes {
			if i, ok := bySuffix[suffix]; ok {
				set = append(set, i)
				q.slots[i].subtree = append(q.slots[i].subtree, len(q.subtree))
			}
		}
		q.subtree = append(q.subtree, set)
	}
	q.never = q.never || len(q.slots) == 0
}

// setPrices computes the cost of checking a provider and a root: a query can have thousands of
// traits and aggregates.
func (q *query) setPrices() {
	for i := range q.slots {
		g := &q.groups[q.slots[i].group]
		q.price += g.cost()
	}
	if q.condition != none {
		q.price += q.groups[q.condition].cost()
	}
	q.rootPrice = len(q.rootRequired) + len(q.rootForbidden) + len(q.rootNotMemberOf) + countSets(q.rootMemberOf)
}

// cost is the work of checking a provider for a slot of the group, in steps of the search.
func (g *group) cost() int {
	return 1 + (len(g.forbidden)+len(g.notMemberOf)+countSets(g.required)+countSets(g.memberOf))/workPerStep
}

func countSets(all [][]ledger.ProviderSet) (n int) {
	for _, sets := range all {
		n += len(sets)
	}
	return n
}

func (q *query) kindOf(needs []need) int {
	if len(needs) < 2 {
		return -1
	}
	at := slices.IndexFunc(q.kinds, func(other []need) bool { return slices.Equal(other, needs) })
	if at < 0 {
		at = len(q.kinds)
		q.kinds = append(q.kinds, needs)
	}
	return at
}

// findSharing lists the sharing providers that can serve a slot in trees other than their own.
func (q *query) findSharing() {
	if q.sharingProviders.Len() == 0 {
		return
	}
	resourceless := slices.ContainsFunc(q.slots, func(s slot) bool { return len(s.needs) == 0 })
	q.sharingByAggregate = map[string][]*ledger.Provider{}
	for p := range q.sharingProviders.All() {
		gives := resourceless
		for i := range p.Inventories {
			gives = gives || q.class(p.Inventories[i].ClassID()) >= 0
		}
		if !gives {
			continue
		}
		for _, a := range p.Aggregates {
			q.sharingByAggregate[a] = append(q.sharingByAggregate[a], p)
		}
	}
}

// inAny reports whether the provider with the ID is in one of the sets.
func inAny(id int64, sets []ledger.ProviderSet) bool {
	for i := range sets {
		if sets[i].HasID(id) {
			return true
		}
	}
	return false
}

// inAll reports whether the provider with the ID is in at least one set of each list.
func inAll(id int64, all [][]ledger.ProviderSet) bool {
	for _, sets := range all {
		if !inAny(id, sets) {
			return false
		}
	}
	return true
}

// hasRootConditions reports whether there are conditions on roots.
func (q *query) hasRootConditions() bool {
	return len(q.rootRequired) > 0 || len(q.rootForbidden) > 0 || len(q.rootMemberOf) > 0 || len(q.rootNotMemberOf) > 0
}

// rootMeets reports whether the root of a tree meets the conditions on roots.
func (q *query) rootMeets(root *ledger.Provider) bool {
	for i := range q.rootRequired {
		if !q.rootRequired[i].Has(root) {
			return false
		}
	}
	return !inAny(root.ID, q.rootForbidden) && inAll(root.ID, q.rootMemberOf) && !inAny(root.ID, q.rootNotMemberOf)
}
