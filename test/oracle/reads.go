// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"strings"
)

// reads are the kinds of reads besides the candidates.
var reads = []choice{
	{30, (*generator).listProviders}, {5, (*generator).showProvider}, {18, (*generator).showPart},
	{5, (*generator).showInventory},
	{10, (*generator).readTraits}, {6, (*generator).readClasses}, {8, (*generator).showAllocations},
	{12, (*generator).totalUsages},
	{3, (*generator).oddCall}, {1, (*generator).versions},
}

func (g *generator) versions() Step { return at("GET versions", "GET", "/", g.version(0)) }

func (g *generator) showProvider() Step {
	return at("GET provider", "GET", "/resource_providers/"+g.provider(), g.version(0))
}

// showPart reads what is below a provider, with other methods now and then.
func (g *generator) showPart() Step {
	part := pick(g, []string{"inventories", "usages", "aggregates", "traits", "allocations"})
	st := at("GET "+part+" of provider", "GET", "/resource_providers/"+g.provider()+"/"+part,
		g.version(pick(g, []int{0, 1, 6})))
	if g.rare(18) {
		st.Kind, st.Method = "odd method", pick(g, []string{"POST", "PATCH", "DELETE", "HEAD", "OPTIONS"})
	}
	return st
}

func (g *generator) showInventory() Step {
	return at("GET inventory", "GET", "/resource_providers/"+g.provider()+"/inventories/"+g.class(), g.version(0))
}

func (g *generator) showAllocations() Step {
	return at("GET allocations", "GET", fmt.Sprintf("/allocations/{{c%d}}", g.IntN(consumerMax)), g.version(0))
}

func (g *generator) readTraits() Step {
	v := g.version(6)
	if g.chance(30) {
		return at("GET trait", "GET", "/traits/"+g.trait(), v)
	}
	st := at("GET traits", "GET", "/traits", v)
	if g.chance(80) {
		st.Query = append(st.Query, Param{Name: "name", Value: pick(g, []string{
			"startswith:CUSTOM_", "startswith:CUSTOM_T", "startswith:HW_CPU_X86_AVX5", "startswith:zz", "startswith:",
			"in:" + g.trait() + "," + g.trait(), "in:" + g.trait(), "in:", "in:,", g.trait(),
			"in:" + g.trait() + ",", "other:X", ":"})})
	}
	if g.chance(60) {
		st.Query = append(st.Query,
			Param{Name: "associated",
				Value: pick(g, []string{"true", "false", "True", "FALSE", "", "maybe", "1", "true"})})
	}
	if g.rare(12) {
		st.Query = append(st.Query, Param{Name: "zz", Value: "1"})
	}
	return st
}

func (g *generator) readClasses() Step {
	v := g.version(2)
	if g.chance(50) {
		return at("GET class", "GET", "/resource_classes/"+g.class(), v)
	}
	return at("GET classes", "GET", "/resource_classes", v)
}

func (g *generator) totalUsages() Step {
	v := g.version(9)
	st := at("GET usages", "GET", "/usages", v)
	add := func(percent int, name string, values ...string) {
		if g.chance(percent) {
			st.Query = append(st.Query, Param{Name: name, Value: pick(g, values)})
		}
	}
	add(94, "project_id", "p1", "p1", "p2", "p2", "zz", "")
	add(40, "user_id", "u1", "u2", "u1", "zz", "")
	types := 15
	if v >= 38 {
		types = 55
	}
	add(types, "consumer_type", "INSTANCE", "MIGRATION", "all", "unknown", "OTHER", "bad type", "")
	add(3, "zz", "1")
	add(3, "project_id", "p2")
	return st
}

// amount is of a class in a filter.
func (g *generator) amount() string {
	if g.rare(12) {
		return pick(g, []string{"0", "x", "", "-1", " 3", "1_0", "+2", "1.0", "99999999999999999999", "1:2"})
	}
	return pick(g, []string{"1", "1", "1", "1", "1", "1", "2", "2", "2", "3", "4", "6"})
}

// askFor is the value of a resources parameter.
func (g *generator) askFor(n int) string {
	from := classNames
	if has := g.gives[g.focused()]; len(has) > 0 && g.chance(85) {
		from = has
	}
	var parts []string
	for _, name := range some(g, from, n) {
		parts = append(parts, name+":"+g.amount())
	}
	if g.rare(6) {
		parts = append(parts, pick(g, []string{"", "VCPU", ":", "NOPE:1", "CUSTOM_N:1", "VCPU:1", "SRIOV_NET_VF:1"}))
	}
	return strings.Join(parts, ",")
}

// focused picks a provider of the tree that the query is about, or now and then another.
func (g *generator) focused() string {
	uuid := pick(g, g.providers)
	for range 20 {
		if g.focus == "" || g.tree[uuid] == g.focus && len(g.gives[uuid]) > 0 || g.chance(3) {
			break
		}
		uuid = pick(g, g.providers)
	}
	return uuid
}

// requiredTraits is the value of a required parameter at a version.
func (g *generator) requiredTraits(v int) string {
	prefix := ""
	if v >= 39 && g.chance(35) || g.rare(3) {
		prefix = "in:"
	}
	var parts []string
	for range pick(g, []int{1, 1, 1, 1, 1, 2, 3}) {
		t := g.trait()
		if (v >= 22 || g.rare(5)) && prefix == "" && g.chance(35) || g.rare(3) {
			t = pick(g, []string{"!", "!", "!", "!!"}) + t
		}
		parts = append(parts, t)
	}
	if g.rare(6) {
		parts = append(parts, pick(g, []string{"", "!", " ", " CUSTOM_T"}))
	}
	return prefix + strings.Join(parts, ",")
}

// memberOf is the value of a member_of parameter at a version.
func (g *generator) memberOf(v int) string {
	value := ""
	if v >= 32 && g.chance(35) || g.rare(3) {
		value = "!"
	}
	list := some(g, aggregates, pick(g, []int{1, 1, 2, 2, 3}))
	if len(list) > 1 || g.chance(20) {
		if !g.rare(8) {
			value += "in:"
		}
	}
	if g.rare(9) {
		list = append(list,
			pick(g, []string{"", "x", nowhere, strings.ToUpper(aggregates[0]),
				"!" + aggregates[0], "in:" + aggregates[0]}))
	}
	return value + strings.Join(list, ",")
}

func (g *generator) listProviders() Step {
	st := at("GET providers", "GET", "/resource_providers", g.version(0))
	v := st.minor()
	known := []string{"name", "uuid"}
	for _, f := range []struct {
		since int
		name  string
	}{{3, "member_of"}, {3, "member_of"}, {4, "resources"},
		{4, "resources"}, {14, "in_tree"}, {18, "required"}, {18, "required"}} {
		if v >= f.since || g.rare(8) {
			known = append(known, f.name)
		}
	}
	for range pick(g, []int{0, 1, 1, 1, 2, 2, 3}) {
		p := Param{Name: pick(g, known)}
		switch p.Name {
		case "name":
			p.Value = pick(g, []string{g.name(), g.name(), ""})
		case "uuid", "in_tree":
			p.Value = g.provider()
		case "member_of":
			p.Value = g.memberOf(v)
		case "resources":
			p.Value = g.askFor(1 + g.IntN(2))
		case "required":
			p.Value = g.requiredTraits(v)
		}
		st.Query = append(st.Query, p)
	}
	if g.rare(9) {
		st.Query = append(st.Query,
			pick(g, []Param{{Name: "zz", Value: "1"},
				{Raw: true, Value: "name"}, {Raw: true, Value: "&"}, {Raw: true, Value: "="},
				{Raw: true, Value: "name=%ff"}, {Raw: true, Value: "NAME=a"}, {Raw: true, Value: "resources"}}))
	}
	return st
}

// oddCall requests a missing path, or uses a method that the path lacks.
func (g *generator) oddCall() Step {
	path := pick(g, []string{"/", "/resource_providers", "/resource_classes", "/traits", "/allocations", "/usages",
		"/reshaper", "/allocation_candidates",
		"/nowhere", "/resource_providers/", "/traits/",
		"/resource_classes/VCPU", "/traits/CUSTOM_T", "/allocations/{{c0}}",
		"/resource_providers/" + g.providers[0], "/resource_providers/" + g.providers[0] + "/inventories/VCPU",
		"/resource_providers/" + g.providers[0] + "/nothing"})
	return at("odd call", pick(g, []string{"GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "FOO"}), path,
		g.version(0))
}
