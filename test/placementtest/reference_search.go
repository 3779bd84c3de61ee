// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// sharingTrait is on the providers whose inventory can be used by the trees that they share an
// aggregate with.
const sharingTrait = "MISC_SHARES_VIA_AGGREGATE"

// CandidateSet is a set of candidates by their CandidateKey.
type CandidateSet map[string]bool

// way is one way to serve a group.
type way struct {
	allocations []candidates.Allocation
	providers   []*ledger.Provider
}

// reference is what AllCandidates works on.
type reference struct {
	s *ledger.Snapshot
	r *candidates.Request
}

// AllCandidates returns all candidates there are, and fails as Search does. For each root, it tries
// each combination of each way to serve each group. Cost: exponential in the groups and classes of
// the request.
func AllCandidates(s *ledger.Snapshot, r *candidates.Request) (CandidateSet, error) {
	byRoot, err := CandidatesByRoot(s, r)
	all := CandidateSet{}
	for _, some := range byRoot {
		maps.Copy(all, some)
	}
	return all, err
}

// CandidatesByRoot is AllCandidates by the name of the root that a candidate is for. What sharing
// providers serve can be for several.
func CandidatesByRoot(s *ledger.Snapshot, r *candidates.Request) (map[string]CandidateSet, error) {
	ref := reference{s, r}
	roots, err := ref.roots()
	if err != nil || len(roots) == 0 {
		return nil, err
	}
	ways := make([][][]way, len(r.Groups)) // by group and root
	for i := range r.Groups {
		if err := ref.names(&r.Groups[i]); err != nil {
			return nil, err
		}
		served := false
		ways[i] = make([][]way, len(roots))
		for j, root := range roots {
			ways[i][j] = ref.ways(&r.Groups[i], root)
			served = served || len(ways[i][j]) > 0
		}
		if !served {
			return nil, nil
		}
	}
	found := map[string]CandidateSet{}
	for j, root := range roots {
		chosen := make([]way, len(r.Groups))
		var choose func(i int)
		choose = func(i int) {
			if i == len(r.Groups) {
				if allocations, ok := ref.combine(chosen); ok {
					groups := make([][]*ledger.Provider, len(chosen))
					for g := range chosen {
						groups[g] = chosen[g].providers
					}
					if found[root.Name] == nil {
						found[root.Name] = CandidateSet{}
					}
					found[root.Name][CandidateKey(r, allocations, groups)] = true
				}
				return
			}
			for _, w := range ways[i][j] {
				chosen[i] = w
				choose(i + 1)
			}
		}
		choose(0)
	}
	return found, nil
}

// roots returns the root providers that meet the request's conditions on roots.
func (ref reference) roots() ([]*ledger.Provider, error) {
	c := ref.r.Root
	for _, trait := range append(slices.Clone(c.Required), c.Forbidden...) {
		if _, ok := ref.s.Trait(trait); !ok {
			return nil, &candidates.UnknownNameError{Trait: trait, Root: true}
		}
	}
	var roots []*ledger.Provider
	for p := range ref.s.Providers() {
		if p.Parent != "" || hasAny(p.Traits, c.Forbidden) || !inAll(p, c.MemberOf) ||
			hasAny(p.Aggregates, c.NotMemberOf) {
			continue
		}
		if !slices.ContainsFunc(c.Required, func(trait string) bool { return !p.HasTrait(trait) }) {
			roots = append(roots, p)
		}
	}
	return roots, nil
}

// names checks that the names of a group exist. A group that asks for aggregates in which no
// provider is has no ways, and the names of its traits do not matter then.
func (ref reference) names(g *candidates.Group) error {
	for _, r := range g.Resources {
		if _, ok := ref.s.Class(r.Class); !ok {
			return &candidates.UnknownNameError{Class: r.Class, Suffix: g.Suffix}
		}
	}
	anyMember := false
	for p := range ref.s.Providers() {
		anyMember = anyMember || inAll(p, g.MemberOf)
	}
	if len(g.MemberOf) > 0 && !anyMember {
		return nil
	}
	for _, trait := range append(slices.Concat(g.Required...), g.Forbidden...) {
		if _, ok := ref.s.Trait(trait); !ok {
			return &candidates.UnknownNameError{Trait: trait, Suffix: g.Suffix}
		}
	}
	return nil
}

// ways are all ways to serve the group in a tree and from what is shared with it.
func (ref reference) ways(g *candidates.Group, root *ledger.Provider) []way {
	if g.Suffix == "" {
		return ref.waysOfSeveral(g, root)
	}
	if len(g.Resources) == 0 && len(g.Required) == 0 && len(g.MemberOf) == 0 && !ref.r.Resourceless {
		return nil
	}
	var ways []way
	for p := range ref.s.Providers() {
		if p.Root != root.UUID && !ref.sharesWith(p, root) {
			continue
		}
		if !ref.inTree(g, p) || hasAny(p.Traits, g.Forbidden) || !hasAll(p.Traits, g.Required) ||
			!inAll(p, g.MemberOf) || hasAny(p.Aggregates, g.NotMemberOf) {
			continue
		}
		w := way{providers: []*ledger.Provider{p}}
		for _, r := range g.Resources {
			if ref.fits(p, r) {
				w.allocations = append(w.allocations,
					candidates.Allocation{Provider: p, Class: r.Class, Amount: r.Amount})
			}
		}
		if len(w.allocations) == len(g.Resources) {
			ways = append(ways, w)
		}
	}
	return ways
}

// waysOfSeveral are the ways to serve the unsuffixed group: each class by any provider.
func (ref reference) waysOfSeveral(g *candidates.Group, root *ledger.Provider) []way {
	if len(g.Resources) == 0 {
		return ref.wayWithoutResources(g, root)
	}
	ways := []way{{}}
	for _, r := range g.Resources {
		var longer []way
		for p := range ref.s.Providers() {
			// What is shared serves another tree only when it is in the aggregates itself and no
			// tree is asked for.
			if p.Root != root.UUID && (!ref.sharesWith(p, root) || !inAll(p, g.MemberOf) || g.InTree != "") {
				continue
			}
			// The aggregates of the root are those of its whole tree.
			if !inAll(p, g.MemberOf) && !inAll(root, g.MemberOf) {
				continue
			}
			if hasAny(p.Aggregates, g.NotMemberOf) || hasAny(root.Aggregates, g.NotMemberOf) {
				continue
			}
			if !ref.inTree(g, p) || hasAny(p.Traits, g.Forbidden) || !ref.fits(p, r) {
				continue
			}
			for _, w := range ways {
				w.allocations = append(slices.Clone(w.allocations),
					candidates.Allocation{Provider: p, Class: r.Class, Amount: r.Amount})
				if !slices.Contains(w.providers, p) {
					w.providers = append(slices.Clone(w.providers), p)
				}
				longer = append(longer, w)
			}
		}
		ways = longer
	}
	// The traits that are required are those of all the providers together.
	return slices.DeleteFunc(ways, func(w way) bool {
		var together []string
		for _, p := range w.providers {
			together = append(together, p.Traits...)
		}
		return !hasAll(together, g.Required)
	})
}

// wayWithoutResources is the way to serve the unsuffixed group without resources: the first
// provider of the tree that meets all that is asked for.
func (ref reference) wayWithoutResources(g *candidates.Group, root *ledger.Provider) []way {
	tree, ok := ref.s.TreeAt(root.TreeNumber())
	if !ok || !ref.r.Resourceless {
		return nil
	}
	for _, p := range tree.Providers() {
		if ref.inTree(g, p) && hasAll(p.Traits, g.Required) && !hasAny(p.Traits, g.Forbidden) &&
			(inAll(p, g.MemberOf) || inAll(root, g.MemberOf)) &&
			!hasAny(append(slices.Clone(p.Aggregates), root.Aggregates...), g.NotMemberOf) {
			return []way{{providers: []*ledger.Provider{p}}}
		}
	}
	return nil
}

// sharesWith says whether the provider shares its inventory with the tree of the root.
func (ref reference) sharesWith(p, root *ledger.Provider) bool {
	if !p.HasTrait(sharingTrait) {
		return false
	}
	for q := range ref.s.Providers() {
		if q.Root == root.UUID && hasAny(q.Aggregates, p.Aggregates) {
			return true
		}
	}
	return false
}

// inTree says whether the provider is in the tree that the group asks for. Without the extension
// resourceless, a group without resources finds providers everywhere, but still asks for a tree
// that exists.
func (ref reference) inTree(g *candidates.Group, p *ledger.Provider) bool {
	if g.InTree == "" {
		return true
	}
	wanted, ok := ref.s.Provider(g.InTree)
	return ok && (len(g.Resources) == 0 && !ref.r.Resourceless || p.Root == wanted.Root)
}

// fits says whether the amount can be allocated of the provider in one piece.
func (ref reference) fits(p *ledger.Provider, r candidates.Resource) bool {
	inv, ok := p.Inventory(r.Class)
	return ok && r.Amount >= inv.MinUnit && r.Amount <= inv.MaxUnit && r.Amount%inv.StepSize == 0 &&
		ref.s.Used(p, r.Class)+r.Amount <= inv.Limits().Capacity
}

// combine puts the ways of all groups together and checks what they must keep to together.
func (ref reference) combine(chosen []way) ([]candidates.Allocation, bool) {
	if !ref.isolated(chosen) {
		return nil, false
	}
	for _, suffixes := range ref.r.SameSubtree {
		var providers []*ledger.Provider
		for i := range chosen {
			if slices.Contains(suffixes, ref.r.Groups[i].Suffix) {
				providers = append(providers, chosen[i].providers...)
			}
		}
		if !slices.ContainsFunc(providers, func(top *ledger.Provider) bool { return ref.above(top, providers) }) {
			return nil, false
		}
	}
	var sums []candidates.Allocation
	for _, w := range chosen {
		for _, a := range w.allocations {
			i := slices.IndexFunc(sums,
				func(b candidates.Allocation) bool { return b.Provider == a.Provider && b.Class == a.Class })
			if i < 0 {
				sums = append(sums, a)
			} else {
				sums[i].Amount += a.Amount
			}
		}
	}
	for i, a := range sums {
		inv, _ := a.Provider.Inventory(a.Class)
		if ref.s.Used(a.Provider, a.Class)+a.Amount > inv.Limits().Capacity || a.Amount > inv.MaxUnit {
			return nil, false
		}
		for _, b := range sums[:i] {
			if ref.r.Flat && a.Provider != b.Provider && a.Provider.Root == b.Provider.Root {
				return nil, false
			}
		}
	}
	return sums, true
}

// isolated says whether the providers of the groups are apart from each other where they must be.
func (ref reference) isolated(chosen []way) bool {
	for i := range chosen {
		for j := range chosen[:i] {
			if ref.isCondition(i) || ref.isCondition(j) {
				continue
			}
			a, b := ref.r.Groups[i].Suffix, ref.r.Groups[j].Suffix
			apart := ref.r.GroupPolicy == candidates.Isolate && a != "" && b != "" ||
				slices.Contains(ref.r.Isolate, a) || slices.Contains(ref.r.Isolate, b)
			shared := slices.ContainsFunc(chosen[i].providers,
				func(p *ledger.Provider) bool { return slices.Contains(chosen[j].providers, p) })
			if apart && shared {
				return false
			}
		}
	}
	return true
}

// isCondition says whether the group is the unsuffixed one without resources: a condition on the
// tree, that any provider meets, whatever else it serves.
func (ref reference) isCondition(i int) bool {
	return ref.r.Groups[i].Suffix == "" && len(ref.r.Groups[i].Resources) == 0
}

// above says whether all providers are top itself or below it.
func (ref reference) above(top *ledger.Provider, providers []*ledger.Provider) bool {
	for _, p := range providers {
		for p != nil && p != top {
			p, _ = ref.s.Provider(p.Parent)
		}
		if p == nil {
			return false
		}
	}
	return true
}

// hasAny says whether any of the names is there.
func hasAny(there, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(there, name) })
}

// hasAll says whether one name of each set is there.
func hasAll(there []string, sets [][]string) bool {
	return !slices.ContainsFunc(sets, func(set []string) bool { return !hasAny(there, set) })
}

// inAll says whether the provider itself is in one aggregate of each set.
func inAll(p *ledger.Provider, sets [][]string) bool { return hasAll(p.Aggregates, sets) }
