// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"strconv"
	"strings"
)

// candidates is a query of GET /allocation_candidates: up to five groups, and what there is at the
// version.
func (g *generator) candidates() Step {
	v := g.version(10)
	if g.chance(45) {
		v = g.version(29)
	}
	st := at("GET candidates", "GET", "/allocation_candidates", v)
	g.focus = g.tree[pick(g, g.providers)]
	defer func() { g.focus = "" }()
	suffixes := g.suffixes(v)
	groups := suffixes
	if len(suffixes) == 0 || g.chance(65) {
		groups = append([]string{""}, suffixes...)
	}
	for _, suffix := range groups {
		g.group(&st, suffix, v)
	}
	var bare []string
	for _, suffix := range st.suffixes() {
		if _, has := st.get("resources" + suffix); !has {
			bare = append(bare, suffix)
		}
	}
	if len(bare) > 0 && v >= 36 && !g.rare(30) {
		st.Query = append(st.Query,
			Param{Name: "same_subtree", Value: strings.Join(append(bare, some(g, st.suffixes(), g.IntN(3))...), ",")})
	}
	add := func(since, percent int, name string, value func() string) {
		if v >= since && g.chance(percent) || g.rare(2) {
			st.Query = append(st.Query, Param{Name: name, Value: value()})
		}
	}
	policy := func() string {
		if g.rare(6) {
			return pick(g, []string{"", "NONE", "both"})
		}
		if g.chance(g.p.Isolate) {
			return "isolate"
		}
		return "none"
	}
	if len(suffixes) > 1 {
		add(25, 97, "group_policy", policy)
	} else {
		add(25, 12, "group_policy", policy)
	}
	add(16, 22, "limit", func() string {
		if g.rare(18) {
			return pick(g, []string{"0", "-1", "x", "", "01", "1.5", " 1"})
		}
		return strconv.Itoa(1 + g.IntN(8))
	})
	add(35, 14, "root_required", func() string {
		if g.rare(9) {
			return "in:" + g.trait()
		}
		return g.requiredTraits(22)
	})
	if real := st.suffixes(); len(real) > 0 {
		subtree := func() string {
			list := some(g, real, 1+g.IntN(len(real)))
			if g.rare(12) {
				list = append(list, pick(g, []string{"", "_unknown", " ", " " + real[0], real[0]}))
			}
			return strings.Join(list, ",")
		}
		add(36, 40, "same_subtree", subtree)
		add(36, 12, "same_subtree", subtree)
	}
	if g.rare(12) {
		g.spoilQuery(&st)
	}
	if g.chance(50) {
		g.Shuffle(len(st.Query), func(i, k int) { st.Query[i], st.Query[k] = st.Query[k], st.Query[i] })
	}
	g.headers(&st)
	return st
}

// suffixes names the groups with a suffix, in the way of the version.
func (g *generator) suffixes(v int) []string {
	if v < 25 && !g.rare(3) {
		return nil
	}
	names := []string{"1", "2", "3", "10", "7"}
	if v >= 33 && g.chance(60) {
		names = []string{"_A", "-b", "1", "_NIC_0", "x9", strings.Repeat("Z", 64)}
	}
	if g.rare(3) {
		names = []string{"0", "01", "_", strings.Repeat("z", 65), "é", "a.b"}
	}
	return some(g, names, pick(g, []int{0, 1, 1, 2, 2, 3, g.p.Groups, g.p.Groups}))
}

// group adds the parameters of one group.
func (g *generator) group(st *Step, suffix string, v int) {
	add := func(since, percent int, name string, value func() string) {
		if v >= since && g.chance(percent) || g.rare(2) {
			st.Query = append(st.Query, Param{Name: name + suffix, Value: value()})
		}
	}
	any := func(n int) func() string { return func() string { return g.askFor(1 + g.IntN(n)) } }
	required := func() string { return g.requiredTraits(v) }
	member := func() string { return g.memberOf(v) }
	resources := 97
	if suffix == "" {
		add(10, resources, "resources", any(3))
	} else {
		if v >= 36 {
			resources = 84
		}
		add(10, resources, "resources", any(2))
	}
	add(17, 22, "required", required)
	add(39, 5, "required", required)
	add(21, 15, "member_of", member)
	add(24, 5, "member_of", member)
	add(31, 7, "in_tree", func() string {
		if g.chance(60) {
			return g.focused()
		}
		return g.provider()
	})
}

// spoilQuery makes one thing invalid in a query.
func (g *generator) spoilQuery(st *Step) {
	if len(st.Query) == 0 {
		return
	}
	i := g.IntN(len(st.Query))
	switch g.IntN(6) {
	case 0:
		st.Query[i].Value = ""
	case 1:
		st.Query = append(st.Query, st.Query[i])
	case 2:
		st.Query[i].Value = pick(g, []string{",", "!", "in:", "!in:", ":", "VCPU:0", "VCPU", "in:!CUSTOM_T", "  "})
	case 3:
		st.Query = append(st.Query,
			Param{Name: pick(g, []string{"zz", "resources_", "required é", "limit1", "group_policy1"}),
				Value: "VCPU:1"})
	case 4:
		st.Query = slices.Delete(st.Query, i, i+1)
	case 5:
		st.Query[i] = Param{Raw: true,
			Value: pick(g, []string{"resources", "=", "resources=%ff", "limit", "required", "%zz=1", "resources1"})}
	}
}
