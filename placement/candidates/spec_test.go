// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The names of the specifications' figures that are theirs alone.
const (
	fpga    = "FPGA"
	vf      = "SRIOV_NET_VF"
	nicRoot = "CUSTOM_NIC_ROOT"
	net1    = "CUSTOM_NET1"
	net2    = "CUSTOM_NET2"
	shares  = "MISC_SHARES_VIA_AGGREGATE"
)

func has(class string, total int64) []placementtest.Inventory {
	return []placementtest.Inventory{{Class: class, Total: total}}
}

func asks(suffix, class string, amount int64) candidates.Group {
	g := candidates.Group{Suffix: suffix}
	if class != "" {
		g.Resources = []candidates.Resource{{Class: class, Amount: amount}}
	}
	return g
}

func requiring(g candidates.Group, traits ...string) candidates.Group {
	for _, trait := range traits {
		g.Required = append(g.Required, []string{trait})
	}
	return g
}

// example is a request to a figure and what comes of it, of the reference and of Search.
type example struct {
	name string
	r    candidates.Request
	want []string
}

func tryExamples(t *testing.T, f placementtest.Forest, examples []example) {
	t.Helper()
	s := plant(t, ground(t), f)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			all := testproc.Try(placementtest.AllCandidates(s, &e.r)).Or(t)
			if diff := cmp.Diff(sorted(e.want), append([]string{}, all.Keys()...)); diff != "" {
				t.Errorf("the reference finds something else (-want +got):\n%s", diff)
			}
			checkAgainstReference(t, s, &e.r, 42, 2)
		})
	}
}

// TestForbiddenAggregates is the worked example of the specification "Support filtering by
// forbidden aggregate membership": an aggregate of a root spans its tree for the unsuffixed group,
// and not for suffixed ones.
func TestForbiddenAggregates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	// Each has the same, so that the candidates show who is excluded.
	disk := has("DISK_GB", 100)
	f := placementtest.Forest{
		{Name: "cn1", Inventories: disk, Aggregates: []string{"aggA"}},
		{Name: "numa1_1", Parent: "cn1", Inventories: disk, Aggregates: []string{"aggC"}},
		{Name: "numa1_2", Parent: "cn1", Inventories: disk},
		{Name: "cn2", Inventories: disk, Aggregates: []string{"aggB"}},
		{Name: "numa2_1", Parent: "cn2", Inventories: disk},
		{Name: "numa2_2", Parent: "cn2", Inventories: disk},
		{Name: "ss1", Inventories: disk, Traits: []string{shares}, Aggregates: []string{"aggB"}},
		{Name: "ss2", Inventories: disk, Traits: []string{shares}, Aggregates: []string{"aggC"}},
	}
	request := func(suffix string, memberOf, not []string) candidates.Request {
		g := asks(suffix, "DISK_GB", 1)
		if memberOf != nil {
			g.MemberOf = [][]string{placementtest.UUIDs(memberOf)}
		}
		g.NotMemberOf = placementtest.UUIDs(not)
		return candidates.Request{Groups: []candidates.Group{g}}
	}
	served := func(suffix string, names ...string) []string {
		var keys []string
		for _, name := range names {
			keys = append(keys, name+":DISK_GB=1 | "+suffix+"="+name)
		}
		return keys
	}
	tryExamples(t, f, []example{
		{"nothing is excluded", request("", nil, nil),
			served("", "cn1", "numa1_1", "numa1_2", "cn2", "numa2_1", "numa2_2", "ss1", "ss2")},
		{"!aggA excludes cn1 and its tree", request("", nil, []string{"aggA"}),
			served("", "cn2", "numa2_1", "numa2_2", "ss1", "ss2")},
		{"!aggB excludes cn2, its tree and ss1", request("", nil, []string{"aggB"}),
			served("", "cn1", "numa1_1", "numa1_2", "ss2")},
		{"!aggC excludes numa1_1 and ss2", request("", nil, []string{"aggC"}),
			served("", "cn1", "numa1_2", "cn2", "numa2_1", "numa2_2", "ss1")},
		{"!in:aggA,aggB is both", request("", nil, []string{"aggA", "aggB"}), served("", "ss2")},
		{"suffixed, !aggA excludes cn1", request("1", nil, []string{"aggA"}),
			served("1", "numa1_1", "numa1_2", "cn2", "numa2_1", "numa2_2", "ss1", "ss2")},
		{"suffixed, !aggB excludes cn2 and ss1", request("1", nil, []string{"aggB"}),
			served("1", "cn1", "numa1_1", "numa1_2", "numa2_1", "numa2_2", "ss2")},
		{"suffixed, !aggC excludes numa1_1 and ss2", request("1", nil, []string{"aggC"}),
			served("1", "cn1", "numa1_2", "cn2", "numa2_1", "numa2_2", "ss1")},
		{"in:aggA,aggB but not aggB", request("", []string{"aggA", "aggB"}, []string{"aggB"}),
			served("", "cn1", "numa1_1", "numa1_2")},
		{"in aggA and not in aggA is no error", request("", []string{"aggA"}, []string{"aggA"}), nil},
		{"aggB spans the tree", request("", []string{"aggB"}, nil), served("", "cn2", "numa2_1", "numa2_2", "ss1")},
		{"suffixed, aggB spans nothing", request("1", []string{"aggB"}, nil), served("1", "cn2", "ss1")},
	})
}

// TestSameSubtree is the first worked example of "Getting On The Nested Magic Train 1": processors,
// memory and an FPGA of the same NUMA node.
func TestSameSubtree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	numa := func(name string, used int64) placementtest.Provider {
		return placementtest.Provider{Name: name, Parent: "cn", Inventories: []placementtest.Inventory{
			{Class: "VCPU", Total: 4, Used: used}, {Class: "MEMORY_MB", Total: 2048}}}
	}
	f := placementtest.Forest{
		{Name: "cn"}, numa("numa0", 2), numa("numa1", 0),
		{Name: "fpga0_0", Parent: "numa0", Inventories: has(fpga, 1)},
		{Name: "fpga1_0", Parent: "numa1", Inventories: has(fpga, 1)},
		{Name: "fpga1_1", Parent: "numa1", Inventories: has(fpga, 1)},
	}
	compute := candidates.Group{Suffix: "_COMPUTE",
		Resources: []candidates.Resource{{Class: "VCPU", Amount: 2}, {Class: "MEMORY_MB", Amount: 512}}}
	groups := []candidates.Group{compute, asks("_ACCEL", fpga, 1)}
	key := func(numa, fpga string) string {
		return fpga + ":FPGA=1 " + numa + ":MEMORY_MB=512 " + numa + ":VCPU=2 | _ACCEL=" + fpga + " _COMPUTE=" + numa
	}
	together := []string{key("numa0", "fpga0_0"), key("numa1", "fpga1_0"), key("numa1", "fpga1_1")}
	tryExamples(t, f, []example{
		{"of the same NUMA node", candidates.Request{Groups: groups, SameSubtree: [][]string{{"_COMPUTE", "_ACCEL"}}},
			together},
		{"of any", candidates.Request{Groups: groups}, append([]string{
			key("numa0", "fpga1_0"), key("numa0", "fpga1_1"), key("numa1", "fpga0_0")}, together...)},
		{"a set of one says nothing", candidates.Request{Groups: groups[1:], SameSubtree: [][]string{{"_ACCEL"}}},
			[]string{
				"fpga0_0:FPGA=1 | _ACCEL=fpga0_0", "fpga1_0:FPGA=1 | _ACCEL=fpga1_0",
				"fpga1_1:FPGA=1 | _ACCEL=fpga1_1"}},
	})
}

// TestSubtreesAreIndependent: same_subtree may be repeated, and each set of groups has a subtree of
// its own: functions below two NICs, or both below the same one where the sets share a group.
func TestSubtreesAreIndependent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	groups := []candidates.Group{
		requiring(asks("_VIF_NET1", vf, 1), net1), requiring(asks("_VIF_NET2", vf, 1), net2),
		requiring(asks("_NIC1", "", 0), nicRoot), requiring(asks("_NIC2", "", 0), nicRoot),
	}
	key := func(a, b, nic1, nic2 string) string {
		list := []string{a + ":SRIOV_NET_VF=1", b + ":SRIOV_NET_VF=1"}
		slices.Sort(list)
		return list[0] + " " + list[1] + " | _NIC1=" + nic1 + nic2 + " _VIF_NET1=" + a + " _VIF_NET2=" + b
	}
	tryExamples(t, nics(), []example{
		{"two sets with nothing in common",
			candidates.Request{Groups: groups, SameSubtree: [][]string{{"_VIF_NET1", "_NIC1"}, {"_VIF_NET2", "_NIC2"}}},
			[]string{
				key("pf1_1", "pf1_2", "nic1", " _NIC2=nic1"), key("pf1_1", "pf2_2", "nic1", " _NIC2=nic2"),
				key("pf2_1", "pf1_2", "nic2", " _NIC2=nic1"), key("pf2_1", "pf2_2", "nic2", " _NIC2=nic2")}},
		{"two sets with a group in common",
			candidates.Request{Groups: groups[:3],
				SameSubtree: [][]string{{"_VIF_NET1", "_NIC1"}, {"_VIF_NET2", "_NIC1"}}}, []string{
				key("pf1_1", "pf1_2", "nic1", ""), key("pf2_1", "pf2_2", "nic2", "")}},
	})
}

// TestTraitsDoNotFlowDown: a provider does not have the traits of its parent, required or
// forbidden, with a suffix or without.
func TestTraitsDoNotFlowDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const multiAttach = "COMPUTE_VOLUME_MULTI_ATTACH"
	f := placementtest.Forest{
		{Name: "cn", Inventories: has("VCPU", 4), Traits: []string{multiAttach}},
		{Name: "pgpu", Parent: "cn", Inventories: has("VGPU", 4)},
	}
	request := func(g candidates.Group) candidates.Request {
		return candidates.Request{Groups: []candidates.Group{g}}
	}
	avoiding := func(g candidates.Group) candidates.Group {
		g.Forbidden = []string{multiAttach}
		return g
	}
	tryExamples(t, f, []example{
		{"the root has it", request(requiring(asks("", "VCPU", 1), multiAttach)), []string{"cn:VCPU=1 | =cn"}},
		{"its child has not", request(requiring(asks("", "VGPU", 1), multiAttach)), nil},
		{"with a suffix", request(requiring(asks("_G", "VGPU", 1), multiAttach)), nil},
		{"so it may be forbidden", request(avoiding(asks("", "VGPU", 1))), []string{"pgpu:VGPU=1 | =pgpu"}},
		{"with a suffix, too", request(avoiding(asks("_G", "VGPU", 1))), []string{"pgpu:VGPU=1 | _G=pgpu"}},
	})
}

// TestSameSubtreeAndSharing: a provider of another tree is not below the root of this one.
func TestSameSubtreeAndSharing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := placementtest.Forest{
		{Name: "cn", Inventories: has("VCPU", 4), Aggregates: []string{"aggA"}},
		{Name: "ss", Inventories: has("VCPU", 4), Traits: []string{shares}, Aggregates: []string{"aggA"}},
	}
	tryExamples(t, f, []example{{"two groups",
		candidates.Request{Groups: []candidates.Group{asks("_A", "VCPU", 1), asks("_B", "VCPU", 1)},
			SameSubtree: [][]string{{"_A", "_B"}}}, []string{
			"cn:VCPU=2 | _A=cn _B=cn", "ss:VCPU=2 | _A=ss _B=ss"}}})
}

// nics is a compute node with two NICs of two physical functions each.
func nics() placementtest.Forest {
	pf := func(name, nic, net string, total int64) placementtest.Provider {
		return placementtest.Provider{Name: name, Parent: nic, Inventories: has(vf, total), Traits: []string{net}}
	}
	return placementtest.Forest{
		{Name: "cn"},
		{Name: "nic1", Parent: "cn", Traits: []string{nicRoot}}, pf("pf1_1", "nic1", net1, 4),
		pf("pf1_2", "nic1", net2, 4),
		{Name: "nic2", Parent: "cn", Traits: []string{nicRoot}}, pf("pf2_1", "nic2", net1, 2),
		pf("pf2_2", "nic2", net2, 2),
	}
}

// TestWithoutResources is the second: two functions of the same NIC, one on each network, where the
// NIC itself is found by a group that asks for no resources.
func TestWithoutResources(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	groups := []candidates.Group{
		requiring(asks("_VIF_NET1", vf, 1), net1), requiring(asks("_VIF_NET2", vf, 1), net2),
		requiring(asks("_NIC_AFFINITY", "", 0), nicRoot),
	}
	key := func(a, b, nic string) string {
		return a + ":SRIOV_NET_VF=1 " + b + ":SRIOV_NET_VF=1 | _NIC_AFFINITY=" + nic +
			" _VIF_NET1=" + a + " _VIF_NET2=" + b
	}
	same := []string{"_VIF_NET1", "_VIF_NET2", "_NIC_AFFINITY"}
	avoiding := asks("_NIC_AFFINITY", "", 0)
	avoiding.Forbidden = []string{net1, net2}
	elsewhere := groups[2]
	elsewhere.InTree = placementtest.UUID("other")
	nowhere := groups[2]
	nowhere.InTree = placementtest.UUID("nobody")
	request := func(nic candidates.Group) candidates.Request {
		return candidates.Request{Groups: []candidates.Group{groups[0], groups[1], nic}, SameSubtree: [][]string{same}}
	}
	want := []string{key("pf1_1", "pf1_2", "nic1"), key("pf2_1", "pf2_2", "nic2")}
	tryExamples(t, append(nics(), placementtest.Provider{Name: "other"}), []example{
		{"two functions of the same NIC", request(groups[2]), want},
		{"of whatever NIC", candidates.Request{Groups: groups[:2]}, []string{
			"pf1_1:SRIOV_NET_VF=1 pf1_2:SRIOV_NET_VF=1 | _VIF_NET1=pf1_1 _VIF_NET2=pf1_2",
			"pf1_1:SRIOV_NET_VF=1 pf2_2:SRIOV_NET_VF=1 | _VIF_NET1=pf1_1 _VIF_NET2=pf2_2",
			"pf1_2:SRIOV_NET_VF=1 pf2_1:SRIOV_NET_VF=1 | _VIF_NET1=pf2_1 _VIF_NET2=pf1_2",
			"pf2_1:SRIOV_NET_VF=1 pf2_2:SRIOV_NET_VF=1 | _VIF_NET1=pf2_1 _VIF_NET2=pf2_2"}},
		{"what only avoids finds nothing", request(avoiding), nil},
		{"in_tree is not looked at", request(elsewhere), want},
		{"but must exist", request(nowhere), nil},
	})
}

// TestResourceless is the same with the extension resourceless: what only avoids is served by any
// provider that has none of it, in_tree is heeded, and the group without a suffix is a condition on
// the tree.
func TestResourceless(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := append(nics(), placementtest.Provider{Name: "other", Traits: []string{nicRoot}, Aggregates: []string{"aggA"}})
	f[0].Aggregates = []string{"aggB"}
	vifs := []candidates.Group{requiring(asks("_VIF_NET1", vf, 1), net1), requiring(asks("_VIF_NET2", vf, 1), net2)}
	related := func(change func(*candidates.Group)) candidates.Request {
		nic := asks("_NIC_AFFINITY", "", 0)
		change(&nic)
		return candidates.Request{Resourceless: true, Groups: append(slices.Clone(vifs), nic),
			SameSubtree: [][]string{{"_VIF_NET1", "_VIF_NET2", "_NIC_AFFINITY"}}}
	}
	whole := func(change func(*candidates.Group)) candidates.Request {
		g := asks("", "", 0)
		change(&g)
		return candidates.Request{Resourceless: true, Groups: append([]candidates.Group{g}, vifs...)}
	}
	policy := func(r candidates.Request, p candidates.GroupPolicy, isolate ...string) candidates.Request {
		r.GroupPolicy, r.Isolate = p, isolate
		return r
	}
	same := []string{
		"pf1_1:SRIOV_NET_VF=1 pf1_2:SRIOV_NET_VF=1 | _NIC_AFFINITY=nic1 _VIF_NET1=pf1_1 _VIF_NET2=pf1_2",
		"pf2_1:SRIOV_NET_VF=1 pf2_2:SRIOV_NET_VF=1 | _NIC_AFFINITY=nic2 _VIF_NET1=pf2_1 _VIF_NET2=pf2_2",
	}
	// The node is above all.
	any := append([]string{
		"pf1_1:SRIOV_NET_VF=1 pf1_2:SRIOV_NET_VF=1 | _NIC_AFFINITY=cn _VIF_NET1=pf1_1 _VIF_NET2=pf1_2",
		"pf1_1:SRIOV_NET_VF=1 pf2_2:SRIOV_NET_VF=1 | _NIC_AFFINITY=cn _VIF_NET1=pf1_1 _VIF_NET2=pf2_2",
		"pf1_2:SRIOV_NET_VF=1 pf2_1:SRIOV_NET_VF=1 | _NIC_AFFINITY=cn _VIF_NET1=pf2_1 _VIF_NET2=pf1_2",
		"pf2_1:SRIOV_NET_VF=1 pf2_2:SRIOV_NET_VF=1 | _NIC_AFFINITY=cn _VIF_NET1=pf2_1 _VIF_NET2=pf2_2",
	}, same...)
	met := func(by string) []string {
		return []string{
			"pf1_1:SRIOV_NET_VF=1 pf1_2:SRIOV_NET_VF=1 | =" + by + " _VIF_NET1=pf1_1 _VIF_NET2=pf1_2",
			"pf1_1:SRIOV_NET_VF=1 pf2_2:SRIOV_NET_VF=1 | =" + by + " _VIF_NET1=pf1_1 _VIF_NET2=pf2_2",
			"pf1_2:SRIOV_NET_VF=1 pf2_1:SRIOV_NET_VF=1 | =" + by + " _VIF_NET1=pf2_1 _VIF_NET2=pf1_2",
			"pf2_1:SRIOV_NET_VF=1 pf2_2:SRIOV_NET_VF=1 | =" + by + " _VIF_NET1=pf2_1 _VIF_NET2=pf2_2",
		}
	}
	tryExamples(t, f, []example{
		{"what only avoids", related(func(g *candidates.Group) { g.Forbidden = []string{net1, net2} }), any},
		{"what only avoids an aggregate",
			related(func(g *candidates.Group) { g.NotMemberOf = placementtest.UUIDs([]string{"aggB"}) }), same},
		{"what only has in_tree", related(func(g *candidates.Group) { g.InTree = placementtest.UUID("pf2_2") }), any},
		{"in_tree is heeded",
			related(func(g *candidates.Group) { *g = requiring(*g, nicRoot); g.InTree = placementtest.UUID("other") }),
			nil},
		{"in the tree", related(
			func(g *candidates.Group) { *g = requiring(*g, nicRoot); g.InTree = placementtest.UUID("cn") }), same},
		{"in_tree must exist", related(func(g *candidates.Group) { g.InTree = placementtest.UUID("nobody") }), nil},
		{"isolated", policy(related(func(g *candidates.Group) { g.Forbidden = []string{nicRoot, net1} }),
			candidates.Isolate), any[:4]},
		{"any provider of the tree has it",
			whole(func(g *candidates.Group) { *g = requiring(*g, nicRoot) }), met("nic1")},
		{"none has both", whole(func(g *candidates.Group) { *g = requiring(*g, nicRoot, net1) }), nil},
		{"any provider of the tree lacks it",
			whole(func(g *candidates.Group) { g.Forbidden = []string{nicRoot} }), met("cn")},
		{"it may serve another group, too",
			policy(whole(func(g *candidates.Group) { *g = requiring(*g, net1) }), candidates.Isolate), met("pf1_1")},
		{"whatever is isolated", policy(whole(func(g *candidates.Group) { *g = requiring(*g, net1) }),
			candidates.None, "_VIF_NET1"), met("pf1_1")},
		{"the aggregates of the root are those of the tree", whole(func(g *candidates.Group) {
			*g = requiring(*g, net2)
			g.MemberOf = [][]string{placementtest.UUIDs([]string{"aggB"})}
		}), met("pf1_2")},
		{"also to avoid", whole(func(g *candidates.Group) { g.NotMemberOf = placementtest.UUIDs([]string{"aggB"}) }),
			nil},
		{"of that tree", whole(func(g *candidates.Group) { g.InTree = placementtest.UUID("pf1_1") }), met("cn")},
		{"of another tree", whole(func(g *candidates.Group) { g.InTree = placementtest.UUID("other") }), nil},
	})
}

// TestGroupPolicyAndSameSubtree: isolation keeps the functions of the same NIC apart.
func TestGroupPolicyAndSameSubtree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	one := nics()[:4]
	groups := []candidates.Group{asks("_VIF1", vf, 1),
		asks("_VIF2", vf, 1), requiring(asks("_NIC_AFFINITY", "", 0), nicRoot)}
	same := [][]string{{"_VIF1", "_VIF2", "_NIC_AFFINITY"}}
	request := func(policy candidates.GroupPolicy, isolate ...string) candidates.Request {
		return candidates.Request{Groups: groups, SameSubtree: same, GroupPolicy: policy, Isolate: isolate}
	}
	// The specification counts what is allocated; which of the groups has which function is shown
	// as well.
	apart := []string{
		"pf1_1:SRIOV_NET_VF=1 pf1_2:SRIOV_NET_VF=1 | _NIC_AFFINITY=nic1 _VIF1=pf1_1 _VIF2=pf1_2",
		"pf1_1:SRIOV_NET_VF=1 pf1_2:SRIOV_NET_VF=1 | _NIC_AFFINITY=nic1 _VIF1=pf1_2 _VIF2=pf1_1",
	}
	all := append([]string{
		"pf1_1:SRIOV_NET_VF=2 | _NIC_AFFINITY=nic1 _VIF1=pf1_1 _VIF2=pf1_1",
		"pf1_2:SRIOV_NET_VF=2 | _NIC_AFFINITY=nic1 _VIF1=pf1_2 _VIF2=pf1_2",
	}, apart...)
	tryExamples(t, one, []example{
		{"isolate: different functions", request(candidates.Isolate), apart},
		{"none: the same function too", request(candidates.None), all},
		{"isolate=_VIF1 is enough for two", request(candidates.None, "_VIF1"), apart},
		{"isolate=_NIC_AFFINITY says nothing of the functions", request(candidates.None, "_NIC_AFFINITY"), all},
	})
}

// TestIsolate: the providers of a group that is named serve no other group, with resources or
// without.
func TestIsolate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := placementtest.Forest{
		{Name: "cn", Inventories: has("VCPU", 8), Traits: []string{nicRoot}},
		{Name: "numa", Parent: "cn", Inventories: has("VCPU", 8), Traits: []string{nicRoot}},
	}
	groups := func(g ...candidates.Group) []candidates.Group { return g }
	placeholder := requiring(asks("_P", "", 0), nicRoot)
	tryExamples(t, f, []example{
		{"from the unsuffixed group", candidates.Request{Groups: groups(asks("", "VCPU", 1), asks("_A", "VCPU", 2)),
			Isolate: []string{"_A"}}, []string{
			"cn:VCPU=1 numa:VCPU=2 | =cn _A=numa", "cn:VCPU=2 numa:VCPU=1 | =numa _A=cn"}},
		{"group_policy=isolate leaves the unsuffixed group alone", candidates.Request{
			Groups: groups(asks("", "VCPU", 1), asks("_A", "VCPU", 2)), GroupPolicy: candidates.Isolate}, []string{
			"cn:VCPU=1 numa:VCPU=2 | =cn _A=numa", "cn:VCPU=2 numa:VCPU=1 | =numa _A=cn", "cn:VCPU=3 | =cn _A=cn",
			"numa:VCPU=3 | =numa _A=numa"}},
		{"without resources", candidates.Request{
			Groups: groups(asks("_A", "VCPU", 1), placeholder), SameSubtree: [][]string{{"_A", "_P"}},
			Isolate: []string{"_P"}}, []string{
			"cn:VCPU=1 | _A=cn _P=numa", "numa:VCPU=1 | _A=numa _P=cn"}},
		{"without resources, by policy", candidates.Request{
			Groups: groups(asks("_A", "VCPU", 1), placeholder), SameSubtree: [][]string{{"_A", "_P"}},
			GroupPolicy: candidates.Isolate}, []string{
			"cn:VCPU=1 | _A=cn _P=numa", "numa:VCPU=1 | _A=numa _P=cn"}},
		{"without resources, not isolated", candidates.Request{
			Groups: groups(asks("_A", "VCPU", 1), placeholder), SameSubtree: [][]string{{"_A", "_P"}}}, []string{
			"cn:VCPU=1 | _A=cn _P=numa", "numa:VCPU=1 | _A=numa _P=cn", "cn:VCPU=1 | _A=cn _P=cn",
			"numa:VCPU=1 | _A=numa _P=numa"}},
		{"without resources, which are of one provider before 1.29", candidates.Request{
			Groups:      groups(placeholder, asks("_A", "VCPU", 5)),
			SameSubtree: [][]string{{"_A", "_P"}}, Flat: true}, []string{
			"cn:VCPU=5 | _A=cn _P=numa", "numa:VCPU=5 | _A=numa _P=cn", "cn:VCPU=5 | _A=cn _P=cn",
			"numa:VCPU=5 | _A=numa _P=numa"}},
	})
}

// TestRootConditions: root_required and root_member_of look at the root, whichever provider serves,
// and at nothing else.
func TestRootConditions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const multiAttach, windows = "COMPUTE_VOLUME_MULTI_ATTACH", "CUSTOM_WINDOWS_LICENSED"
	host := func(name string, traits, aggregates []string) placementtest.Forest {
		return placementtest.Forest{
			{Name: name, Traits: traits, Aggregates: aggregates},
			// Its own qualities are not those of the root.
			{Name: name + "_numa", Parent: name, Inventories: has("VCPU", 4), Traits: []string{windows},
				Aggregates: []string{"az3"}},
		}
	}
	f := append(host("cn1", []string{multiAttach}, []string{"az1"}),
		host("cn2", []string{multiAttach, windows}, []string{"az2"})...)
	f = append(f, host("cn3", nil, []string{"az1", "az2"})...)
	request := func(c candidates.RootConditions) candidates.Request {
		return candidates.Request{Groups: []candidates.Group{asks("", "VCPU", 1)}, Root: c}
	}
	served := func(names ...string) []string {
		var keys []string
		for _, name := range names {
			keys = append(keys, name+"_numa:VCPU=1 | ="+name+"_numa")
		}
		return keys
	}
	az := func(names ...string) []string { return placementtest.UUIDs(names) }
	tryExamples(t, f, []example{
		{"required", request(candidates.RootConditions{Required: []string{multiAttach}}), served("cn1", "cn2")},
		{"forbidden", request(candidates.RootConditions{Forbidden: []string{windows}}), served("cn1", "cn3")},
		{"both", request(candidates.RootConditions{Required: []string{multiAttach}, Forbidden: []string{windows}}),
			served("cn1")},
		{"member of", request(candidates.RootConditions{MemberOf: [][]string{az("az1")}}), served("cn1", "cn3")},
		{"member of any", request(candidates.RootConditions{MemberOf: [][]string{az("az1", "az2")}}),
			served("cn1", "cn2", "cn3")},
		{"member of both", request(candidates.RootConditions{MemberOf: [][]string{az("az1"), az("az2")}}),
			served("cn3")},
		{"not a member", request(candidates.RootConditions{NotMemberOf: az("az1")}), served("cn2")},
		{"what children are in does not count",
			request(candidates.RootConditions{MemberOf: [][]string{az("az3")}}), nil},
	})
}
