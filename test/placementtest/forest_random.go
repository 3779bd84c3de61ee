// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/candidates"
)

// What random forests and requests are made of.
var (
	forestClasses    = []string{"VCPU", "MEMORY_MB", "SRIOV_NET_VF"}
	forestTraits     = []string{"HW_CPU_X86_AVX", "HW_CPU_X86_VMX", "HW_NIC_SRIOV"}
	forestAggregates = []string{"aggA", "aggB", "aggC"}
	suffixes         = []string{"1", "2", "3"} // Of all versions.
)

// UnknownName is the name of a trait and of a class that do not exist.
const UnknownName = "CUSTOM_NOWHERE"

// maxProviders is how large random forests are. AllCandidates must stay quick.
const maxProviders = 10

// Forests draws forests of one to four trees with up to four levels, in which providers of any
// level may be sharing ones.
func Forests() *rapid.Generator[Forest] {
	return rapid.Custom(func(t *rapid.T) Forest {
		var f Forest
		n := rapid.IntRange(1, maxProviders/2).Draw(t, "providers")
		if chance(t, 3, 4, "more providers") {
			n += rapid.IntRange(1, maxProviders/2).Draw(t, "more")
		}
		// A forest without sharing, or nesting, is a case of its own in Placement.
		sharing := chance(t, 1, 2, "sharing")
		nested := chance(t, 4, 5, "nested")
		roots := 0
		depth := make([]int, n)
		for i := range n {
			p := Provider{Name: fmt.Sprint("p", i)}
			switch {
			case i == 0, !nested, roots < 4 && chance(t, 1, 3, "root"):
				roots++
			default:
				parent := rapid.IntRange(0, i-1).Draw(t, "parent")
				for depth[parent] == 3 {
					parent = slices.IndexFunc(f, func(q Provider) bool { return q.Name == f[parent].Parent })
				}
				p.Parent, depth[i] = f[parent].Name, depth[parent]+1
			}
			p.Traits = subset(t, forestTraits, 1, 3, "traits")
			if sharing && chance(t, 1, 4, "shares") {
				p.Traits = append(p.Traits, sharingTrait)
			}
			p.Aggregates = subset(t, forestAggregates, 1, 3, "aggregates")
			for _, class := range subset(t, forestClasses, 2, 3, "classes") {
				p.Inventories = append(p.Inventories, drawForestInventory(t, class))
			}
			f = append(f, p)
		}
		return f
	})
}

// chance is true in some of so many cases; false is the simplest.
func chance(t *rapid.T, in, of int, label string) bool {
	// Small numbers come more often than others, so they are spread first; zero stays zero.
	spread := rapid.Uint64().Draw(t, label) * 0x9e3779b97f4a7c15 >> 32
	return spread%uint64(of) >= uint64(of-in)
}

// subset draws a subset in which each element is with a chance of in out of "of".
func subset(t *rapid.T, all []string, in, of int, label string) []string {
	var some []string
	for _, e := range all {
		if chance(t, in, of, label) {
			some = append(some, e)
		}
	}
	return some
}

// drawForestInventory draws an inventory of which a few units are free.
func drawForestInventory(t *rapid.T, class string) Inventory {
	i := Inventory{Class: class, Total: rapid.Int64Range(1, 8).Draw(t, "total")}
	if !chance(t, 1, 3, "odd") {
		return i
	}
	i.Reserved = rapid.Int64Range(0, min(3, i.Total)).Draw(t, "reserved")
	i.MinUnit = rapid.Int64Range(1, 2).Draw(t, "min_unit")
	i.MaxUnit = rapid.Int64Range(1, 4).Draw(t, "max_unit")
	i.StepSize = rapid.Int64Range(1, 2).Draw(t, "step_size")
	i.Ratio = rapid.SampledFrom([]float64{1, 0.5, 1.5, 2, 0}).Draw(t, "ratio")
	i.Used = rapid.Int64Range(0, 4).Draw(t, "used")
	return i
}

// CandidateRequests draws requests of one to four groups, most of which can be served by one of the
// Forests. With extensions they may ask for what Placement does not know.
func CandidateRequests(extensions bool) *rapid.Generator[*candidates.Request] {
	return rapid.Custom(func(t *rapid.T) *candidates.Request {
		r := &candidates.Request{}
		chosen := subset(t, suffixes, 1, 2, "suffixes")
		if len(chosen) == 0 || chance(t, 1, 2, "unsuffixed") {
			chosen = append([]string{""}, chosen...)
		}
		if chance(t, 1, 4, "order") {
			slices.Reverse(chosen)
		}
		for _, suffix := range chosen {
			r.Groups = append(r.Groups, drawGroup(t, suffix))
		}
		chosen = slices.DeleteFunc(chosen, func(suffix string) bool { return suffix == "" })
		if len(chosen) > 0 && chance(t, 1, 3, "same subtree") {
			for range rapid.IntRange(1, 2).Draw(t, "same subtrees") {
				if set := subset(t, chosen, 1, 2, "together"); len(set) > 0 {
					r.SameSubtree = append(r.SameSubtree, set)
				}
			}
		}
		drawWithoutResources(t, r)
		if chance(t, 1, 3, "policy") {
			r.GroupPolicy = candidates.Isolate
		}
		if chance(t, 1, 5, "root") {
			r.Root.Required = subset(t, forestTraits, 1, 4, "root required")
			r.Root.Forbidden = subset(t, without(forestTraits, r.Root.Required), 1, 4, "root forbidden")
			if chance(t, 1, 60, "unknown root trait") {
				r.Root.Required = append(r.Root.Required, UnknownName)
			}
		}
		r.Flat = chance(t, 1, 6, "flat")
		if !extensions {
			return r
		}
		if r.Resourceless = chance(t, 1, 3, "resourceless"); r.Resourceless {
			drawConditions(t, r)
		}
		if len(chosen) > 0 && chance(t, 1, 3, "isolate some") {
			r.Isolate = subset(t, chosen, 1, 2, "isolate")
		}
		if chance(t, 1, 6, "root aggregates") {
			r.Root.MemberOf = sets(t, aggregateUUIDs(), "root member_of")
			r.Root.NotMemberOf = subset(t, aggregateUUIDs(), 1, 4, "root not member_of")
		}
		return r
	})
}

func aggregateUUIDs() []string { return UUIDs(forestAggregates) }

// without is all but some: the API refuses a trait that both must and must not be there.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(some, name) })
}

// sets draws up to two sets of one or two names.
func sets(t *rapid.T, names []string, label string) [][]string {
	var list [][]string
	for range rapid.IntRange(0, 2).Draw(t, label+" sets") {
		list = append(list, rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 2, rapid.ID).Draw(t, label))
	}
	return list
}

func drawGroup(t *rapid.T, suffix string) candidates.Group {
	g := candidates.Group{Suffix: suffix}
	asked := []string{rapid.SampledFrom(forestClasses).Draw(t, "class")}
	if chance(t, 1, 3, "two classes") {
		if other := rapid.SampledFrom(forestClasses).Draw(t, "class"); other != asked[0] {
			asked = append(asked, other)
		}
	}
	for _, class := range asked {
		amount := int64(1)
		if chance(t, 1, 3, "more") {
			amount = rapid.Int64Range(2, 4).Draw(t, "amount")
		}
		g.Resources = append(g.Resources, candidates.Resource{Class: class, Amount: amount})
	}
	if chance(t, 1, 90, "unknown class") {
		g.Resources = append(g.Resources, candidates.Resource{Class: UnknownName, Amount: 1})
	}
	if chance(t, 1, 4, "conditions on traits") {
		g.Required = sets(t, forestTraits, "required")
		g.Forbidden = subset(t, without(forestTraits, slices.Concat(g.Required...)), 1, 3, "forbidden")
	}
	if chance(t, 1, 60, "unknown trait") {
		g.Required = append(g.Required, []string{UnknownName})
	}
	if chance(t, 1, 4, "conditions on aggregates") {
		// One aggregate more than there is.
		some := append(aggregateUUIDs(), UUID("aggX"))
		g.MemberOf = sets(t, some, "member_of")
		g.NotMemberOf = subset(t, some, 1, 4, "not member_of")
	}
	if chance(t, 1, 10, "in tree") {
		// The forest may have no such provider.
		g.InTree = UUID(fmt.Sprint("p", rapid.IntRange(0, maxProviders/2).Draw(t, "tree")))
	}
	return g
}

// drawWithoutResources takes the resources of some groups of same_subtree sets away.
func drawWithoutResources(t *rapid.T, r *candidates.Request) {
	left := len(r.Groups)
	for i := range r.Groups {
		g := &r.Groups[i]
		together := slices.ContainsFunc(r.SameSubtree,
			func(set []string) bool { return slices.Contains(set, g.Suffix) })
		if together && left > 1 && chance(t, 1, 2, "resourceless") {
			g.Resources = nil
			left--
			if len(g.Required)+len(g.Forbidden)+len(g.MemberOf)+len(g.NotMemberOf) == 0 && g.InTree == "" {
				g.Required = [][]string{{rapid.SampledFrom(forestTraits).Draw(t, "only trait")}}
			}
		}
	}
}

// drawConditions takes away what the groups without resources need to find anything in Placement,
// and the resources of the unsuffixed group.
func drawConditions(t *rapid.T, r *candidates.Request) {
	left := 0
	for i := range r.Groups {
		if len(r.Groups[i].Resources) > 0 {
			left++
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		switch {
		case g.Suffix == "" && left > 1 && chance(t, 1, 2, "only conditions"):
			g.Resources = nil
			left--
		case len(g.Resources) > 0 || !chance(t, 1, 2, "only to avoid"):
			continue
		default:
			g.Required, g.MemberOf = nil, nil
		}
		if len(g.Required)+len(g.Forbidden)+len(g.MemberOf)+len(g.NotMemberOf) > 0 || g.InTree != "" {
			continue
		}
		if chance(t, 1, 2, "only a tree") {
			g.InTree = UUID(fmt.Sprint("p", rapid.IntRange(0, maxProviders/2).Draw(t, "tree")))
		} else {
			g.Forbidden = []string{rapid.SampledFrom(forestTraits).Draw(t, "only to avoid")}
		}
	}
}
