// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// wide is a number of hosts with devices of one unit each. The first taken devices of each host are
// used.
func wide(hosts, devices, taken int) placementtest.Forest {
	var f placementtest.Forest
	for h := range hosts {
		host := fmt.Sprint("h", h)
		f = append(f, placementtest.Provider{Name: host, Inventories: has("VCPU", 64)})
		for d := range devices {
			p := placementtest.Provider{Name: fmt.Sprintf("%s_d%d", host, d), Parent: host, Inventories: has(fpga, 1)}
			if d < taken {
				p.Inventories[0].Used = 1
			}
			f = append(f, p)
		}
	}
	return f
}

// devices are groups that ask for one device each.
func devices(n int) []candidates.Group {
	var groups []candidates.Group
	for i := range n {
		groups = append(groups, asks(fmt.Sprint("_D", i), fpga, 1))
	}
	return groups
}

// numa is a host of eight NUMA nodes of four processors, with eight devices each.
func numa() placementtest.Forest {
	f := placementtest.Forest{{Name: "h"}}
	for n := range 8 {
		node := fmt.Sprint("n", n)
		f = append(f, placementtest.Provider{Name: node, Parent: "h", Inventories: has("VCPU", 4)})
		for d := range 8 {
			f = append(f,
				placementtest.Provider{Name: fmt.Sprintf("%s_d%d", node, d), Parent: node, Inventories: has(fpga, 1)})
		}
	}
	return f
}

// TestWideTrees: how much is tried for requests that have more combinations than can be tried:
// hosts with many equal devices, asked for as many, or for more than there are. The steps are
// counted, so that they do not become more unnoticed.
func TestWideTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	marked := func(f placementtest.Forest, class string, names ...string) placementtest.Forest {
		for i := range f {
			for _, name := range names {
				if f[i].Name == name {
					f[i].Traits = append(f[i].Traits, "CUSTOM_MARK")
					if class != "" {
						f[i].Inventories = has(class, 1)
					}
				}
			}
		}
		return f
	}
	// Each of three groups asks for one of the two devices that are marked, after many that take
	// any device.
	hall := devices(21)
	for i := 18; i < 21; i++ {
		hall[i] = requiring(hall[i], "CUSTOM_MARK")
	}
	twoClasses := func(n int) []candidates.Group {
		groups := devices(n)
		for i := range groups {
			groups[i].Resources = append(groups[i].Resources, candidates.Resource{Class: "VGPU", Amount: 1})
		}
		return groups
	}
	// Every device has the one class and every other one has both.
	both := wide(2, 20, 0)
	for i := range both {
		if both[i].Parent != "" && i%2 == 0 {
			both[i].Inventories = append(both[i].Inventories, placementtest.Inventory{Class: "VGPU", Total: 1})
		}
	}
	// Devices and processors of the same NUMA node, as often as fits: four in each of the eight.
	perNode := func(n int) candidates.Request {
		var r candidates.Request
		for i := range n {
			r.Groups = append(r.Groups, asks(fmt.Sprint("_C", i), "VCPU", 2), asks(fmt.Sprint("_D", i), fpga, 1))
			r.SameSubtree = append(r.SameSubtree, []string{fmt.Sprint("_C", i), fmt.Sprint("_D", i)})
		}
		return r
	}
	mixed := devices(20)
	for i := range mixed {
		mixed[i].Resources[0].Amount = int64(1 + i%2)
	}
	large := wide(2, 10, 0)
	for i := range large {
		if large[i].Parent != "" {
			large[i].Inventories[0].Total = 3
		}
	}
	// 21 times two units, where 20 devices have two units each, and something small.
	pigeons := append(devices(22), asks("_VCPU", "VCPU", 1))
	for i := range 21 {
		pigeons[i].Resources[0].Amount = 2
	}
	holes := wide(2, 20, 0)
	for i := range holes {
		if holes[i].Parent != "" {
			holes[i].Inventories[0].Total = 3
		}
	}
	// Five times a processor set and a device of the same NUMA node, where four of the eight nodes
	// have devices.
	half := numa()
	for i := range half {
		if half[i].Parent != "" && half[i].Parent >= "n4" {
			half[i].Inventories = nil
		}
	}
	pairs := func(n int) candidates.Request {
		r := perNode(n)
		for i := range r.Groups {
			if r.Groups[i].Resources[0].Class == "VCPU" {
				r.Groups[i].Resources[0].Amount = 4
			}
		}
		return r
	}
	// Ten devices with twice two of one class and once two of the other, alternating.
	uneven := wide(1, 10, 0)
	for i := 1; i < len(uneven); i++ {
		uneven[i].Inventories = append(has(fpga, int64(2+2*(i%2))), has("VGPU", int64(4-2*(i%2)))...)
	}
	pairsOf := func(n int) []candidates.Group {
		groups := twoClasses(n)
		for i := range groups {
			groups[i].Resources[0].Amount, groups[i].Resources[1].Amount = 2, 2
		}
		return groups
	}
	// Nine units of each of ten devices of four are taken by threes, and what is left is enough for
	// each amount, but not for their sum.
	fours := wide(1, 10, 0)
	for i := 1; i < len(fours); i++ {
		fours[i].Inventories = has(fpga, 4)
	}
	threesAndOnes := func(ones int) []candidates.Group {
		groups := append(devices(10+ones), asks("_VCPU", "VCPU", 1))
		for i := range 10 {
			groups[i].Resources[0].Amount = 3
		}
		return groups
	}
	// Three devices are filled by ten amounts, which do not fit where each is put into the first
	// device that takes it, the large ones first.
	sixties := wide(1, 3, 0)
	for i := 1; i < len(sixties); i++ {
		sixties[i].Inventories = has(fpga, 60)
	}
	exact := append(devices(10), asks("_VCPU", "VCPU", 1))
	for i, amount := range []int64{44, 24, 24, 22, 21, 17, 8, 8, 6, 6} {
		exact[i].Resources[0].Amount = amount
	}
	for _, e := range []struct {
		name  string
		f     placementtest.Forest
		r     candidates.Request
		want  int // candidates of 1000
		steps int // at most
	}{
		{"21 of 21 devices", wide(2, 21, 0), candidates.Request{Groups: devices(21)}, 1000, 45_000},
		{"21 of 21 devices, isolated", wide(2, 21, 0),
			candidates.Request{Groups: devices(21), GroupPolicy: candidates.Isolate}, 1000, 45_000},
		{"21 of 21 devices, each isolated", wide(2, 21, 0),
			candidates.Request{Groups: devices(21), Isolate: suffixesOf(devices(21))}, 1000, 45_000},
		{"21 of 20 free devices", wide(2, 21, 1), candidates.Request{Groups: devices(21)}, 0, 5_000},
		{"21 of 20 free devices of 100 hosts", wide(100, 21, 1), candidates.Request{Groups: devices(21)}, 0, 250_000},
		{"21 of 20 free devices, isolated", wide(2, 21, 1),
			candidates.Request{Groups: devices(21), GroupPolicy: candidates.Isolate}, 0, 5_000},
		{"3 of 2 marked devices, asked for last", marked(wide(2, 30, 0), "", "h0_d5", "h0_d9", "h1_d3", "h1_d4"),
			candidates.Request{Groups: hall}, 0, 600},
		{"3 of 2 marked devices, isolated", marked(wide(2, 30, 0), "", "h0_d5", "h0_d9", "h1_d3", "h1_d4"),
			candidates.Request{Groups: hall, GroupPolicy: candidates.Isolate}, 0, 600},
		{"10 of 10 with both classes", both, candidates.Request{Groups: twoClasses(10)}, 1000, 20_000},
		{"11 of 10 with both classes", both, candidates.Request{Groups: twoClasses(11)}, 0, 900},
		{"two classes apart, one too few", both,
			candidates.Request{Groups: append(devices(11),
				requiring(candidates.Group{Suffix: "_G",
					Resources: []candidates.Resource{{Class: "VGPU", Amount: 2}}}))}, 0, 200},
		{"1 device and processor of a NUMA node", numa(), perNode(1), 64, 1_000},
		{"8 times devices and processors of a NUMA node", numa(), perNode(8), 1000, 15_000},
		{"16 times devices and processors of a NUMA node", numa(), perNode(16), 1000, 15_000},
		{"17 times devices and processors of a NUMA node", numa(), perNode(17), 0, 4_000},
		{"amounts of 1 and 2 on devices of 3", large, candidates.Request{Groups: mixed}, 1000, 25_000},
		{"21 times two units of 20 devices of three", holes, candidates.Request{Groups: pigeons}, 0, 5_000},
		{"20 times two units of 20 devices of three",
			holes, candidates.Request{Groups: append(pigeons[1:21:21], pigeons[22])}, 1000, 60_000},
		{"11 times both classes where ten fit", uneven, candidates.Request{Groups: pairsOf(11)}, 0, 500},
		{"10 times both classes where ten fit", uneven, candidates.Request{Groups: pairsOf(10)}, 1000, 20_000},
		{"10 times three and 11 times one of 10 devices of four", fours,
			candidates.Request{Groups: threesAndOnes(11)}, 0, 5_000},
		{"10 times three and 10 times one of 10 devices of four", fours,
			candidates.Request{Groups: threesAndOnes(10)}, 1000, 40_000},
		{"what fits exactly, but not the large ones first", sixties, candidates.Request{Groups: exact}, 6, 600},
		{"4 processor sets and devices of 4 NUMA nodes", half, pairs(4), 1000, 60_000},
		{"5 processor sets and devices of 4 NUMA nodes", half, pairs(5), 0, 9_000},
	} {
		t.Run(e.name, func(t *testing.T) {
			s := plant(t, ground(t), e.f)
			for _, o := range []candidates.Options{{}, {DepthFirst: true}, {Seed: 3}} {
				o.Limit = 1000
				keys, stats, err := find(t, s, &e.r, o)
				if err != nil || len(keys) != e.want || stats.Exhausted {
					t.Errorf("%+v: %d candidates, want %d; %+v, %v", o, len(keys), e.want, stats, err)
				}
				if stats.Steps > e.steps {
					t.Errorf("%+v: %d steps, want at most %d", o, stats.Steps, e.steps)
				}
				distinct := placementtest.CandidateSet{}
				for _, key := range keys {
					distinct[key] = true
				}
				if len(distinct) != len(keys) {
					t.Errorf("%+v: %d of %d candidates are distinct", o, len(distinct), len(keys))
				}
			}
		})
	}
}

func suffixesOf(groups []candidates.Group) []string {
	var list []string
	for _, g := range groups {
		list = append(list, g.Suffix)
	}
	return list
}

// TestOrder: depth first gives the candidates of one tree after the other; breadth first takes one
// of each tree in each round.
func TestOrder(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := plant(t, ground(t), wide(3, 2, 0))
	r := &candidates.Request{Groups: devices(1)}
	for _, e := range []struct {
		o    candidates.Options
		want []string
	}{
		{candidates.Options{}, []string{"h0", "h1", "h2", "h0", "h1", "h2"}},
		{candidates.Options{DepthFirst: true}, []string{"h0", "h0", "h1", "h1", "h2", "h2"}},
	} {
		var roots []string
		testproc.Try(candidates.Search(ctx, s, r, e.o, func(c *candidates.Candidate) bool {
			roots = append(roots, c.Root.Name)
			return true
		})).Or(t)
		testproc.Samef(t, cmp.Diff(e.want, roots), "%+v", e.o)
	}
}

// TestOrderOfGroups: of equal groups, the first takes the first provider.
func TestOrderOfGroups(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	keys, _, err := find(t, plant(t, ground(t), wide(1, 3, 0)), &candidates.Request{Groups: devices(3)},
		candidates.Options{Limit: 1})
	if diff := cmp.Diff([]string{"h0_d0:FPGA=1 h0_d1:FPGA=1 h0_d2:FPGA=1 | _D0=h0_d0 _D1=h0_d1 _D2=h0_d2"},
		keys); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestStops: a search ends when the caller wants no more, when its steps are used up, and with its
// context.
func TestStops(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := plant(t, ground(t), wide(2, 21, 0))
	r := &candidates.Request{Groups: devices(21)}
	given := 0
	stats, err := candidates.Search(ctx, s, r, candidates.Options{},
		func(*candidates.Candidate) bool { given++; return given < 3 })
	if err != nil || given != 3 || stats.Candidates != 3 || stats.Exhausted {
		t.Errorf("given %d, %+v, %v; want 3", given, stats, err)
	}
	stats, err = candidates.Search(ctx, s, r, candidates.Options{Steps: 500},
		func(*candidates.Candidate) bool { return true })
	if err != nil || !stats.Exhausted || stats.Steps > 500 || stats.Candidates == 0 {
		t.Errorf("%+v, %v; want some candidates and that the steps were used up", stats, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err = candidates.Search(cancelled, s, r, candidates.Options{},
		func(*candidates.Candidate) bool { cancel(); return true })
	if err == nil {
		t.Error("a search whose context has ended returns no error")
	}
	// A second group with an unknown name has the first one searched for alone.
	unknown := append(devices(1), requiring(asks("_X", fpga, 1), "CUSTOM_NONE"))
	_, err = candidates.Search(cancelled, s, &candidates.Request{Groups: unknown}, candidates.Options{},
		func(*candidates.Candidate) bool { return true })
	testproc.ErrorIs(t, err, context.Canceled, "an unknown name in a search whose context has ended: %v")
}
