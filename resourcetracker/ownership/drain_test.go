// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestDrain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		known, desired string
		used           providertree.ProviderResources // by key of the provider
		may            func(provider, class string) bool
		want           string
		told           []string
	}{
		"what is not used goes": {
			known: "cn1 VCPU=8 VGPU=4\n  gpu0 VGPU=4", desired: "cn1 VCPU=2",
			used: providertree.ProviderResources{"cn1": {"VCPU": 1}},
			want: "cn1 VCPU=2",
		},
		"a class that is used stays, reserved, as large as its usage": {
			known: "cn1 VCPU=8 VGPU=4,reserved=1,ratio=2", desired: "cn1 VCPU=8",
			used: providertree.ProviderResources{"cn1": {"VGPU": 3}},
			want: "cn1 VCPU=8 VGPU=3,reserved=3,ratio=2",
			told: []string{"The inventory of VGPU of resource provider cn1 (" + root +
				") is kept, fully reserved, until the 3 allocated are free."},
		},
		"a device that is allocated stays with its traits and parents, and with nothing else": {
			known: `
cn1 VCPU=8
  numa0 VCPU=4 HW_NUMA_ROOT @a
    pf CUSTOM_A=2 CUSTOM_B=2 HW_X COMPUTE_MANAGED_PCI_DEVICE @b
      vf CUSTOM_VF=1`,
			desired: "cn1 VCPU=8",
			used:    providertree.ProviderResources{"pf": {"CUSTOM_A": 1}},
			want: `
cn1 VCPU=8
  numa0 HW_NUMA_ROOT @a
    pf CUSTOM_A=1,reserved=1 HW_X COMPUTE_MANAGED_PCI_DEVICE @b`,
			told: []string{
				"The inventory of CUSTOM_A of resource provider pf (" + uid("pf") +
					") is kept, fully reserved, until the 1 allocated are free.",
				"Resource provider numa0 (" + uid("numa0") + ") is kept until its descendants have drained.",
			},
		},
		"an allocated child keeps its allocated parent, once": {
			known: "cn1 VCPU=8\n  pf CUSTOM_A=2\n    vf CUSTOM_VF=1", desired: "cn1 VCPU=8",
			used: providertree.ProviderResources{"pf": {"CUSTOM_A": 2}, "vf": {"CUSTOM_VF": 1}},
			want: "cn1 VCPU=8\n  pf CUSTOM_A=2,reserved=2\n    vf CUSTOM_VF=1,reserved=1",
			told: []string{
				"The inventory of CUSTOM_A of resource provider pf (" + uid("pf") +
					") is kept, fully reserved, until the 2 allocated are free.",
				"The inventory of CUSTOM_VF of resource provider vf (" + uid("vf") +
					") is kept, fully reserved, until the 1 allocated are free.",
			},
		},
		"a total that shrinks below its usage stops there": {
			known: "cn1 VCPU=16", desired: "cn1 VCPU=4",
			used: providertree.ProviderResources{"cn1": {"VCPU": 10}},
			want: "cn1 VCPU=10",
			told: []string{"The inventory of VCPU of resource provider cn1 (" + root +
				") is kept at a total of 10 while 10 are allocated."},
		},
		"what is reserved, and the ratio, count": {
			known: "cn1 VCPU=16,ratio=4", desired: "cn1 VCPU=4,reserved=2,ratio=4",
			used: providertree.ProviderResources{"cn1": {"VCPU": 30}},
			want: "cn1 VCPU=10,reserved=2,ratio=4", // (10-2)*4 = 32, (9-2)*4 = 28
			told: []string{"The inventory of VCPU of resource provider cn1 (" + root +
				") is kept at a total of 10 while 30 are allocated."},
		},
		"enough left by the ratio: it shrinks": {
			known: "cn1 VCPU=16,ratio=4", desired: "cn1 VCPU=8,ratio=4",
			used: providertree.ProviderResources{"cn1": {"VCPU": 32}},
			want: "cn1 VCPU=8,ratio=4",
		},
		"never more than it was, though over-committed": {
			known: "cn1 VCPU=8", desired: "cn1 VCPU=4",
			used: providertree.ProviderResources{"cn1": {"VCPU": 100}},
			want: "cn1 VCPU=8",
			told: []string{"The inventory of VCPU of resource provider cn1 (" + root +
				") is kept at a total of 8 while 100 are allocated."},
		},
		"a smaller ratio or a larger reserve is what an operator sets, not a thing that is gone": {
			known: "cn1 VCPU=8,ratio=4", desired: "cn1 VCPU=8,reserved=4,ratio=1",
			used: providertree.ProviderResources{"cn1": {"VCPU": 20}},
			want: "cn1 VCPU=8,reserved=4,ratio=1",
		},
		"what may not be treated goes": {
			known: "cn1 VCPU=8 VGPU=4 CUSTOM_A=1", desired: "cn1 VCPU=8",
			used: providertree.ProviderResources{"cn1": {"VGPU": 3, "CUSTOM_A": 1}},
			may:  func(provider, class string) bool { return provider == root && class == "CUSTOM_A" },
			want: "cn1 VCPU=8 CUSTOM_A=1,reserved=1",
			told: []string{"The inventory of CUSTOM_A of resource provider cn1 (" + root +
				") is kept, fully reserved, until the 1 allocated are free."},
		},
		"a new provider waits for the name of one that stays, with what is new below it; what was moved there stays " +
			"where it was": {
			known:   "cn1 VCPU=8\n  gpu0#old VGPU=1\n  vf0 CUSTOM_VF=1",
			desired: "cn1 VCPU=8\n  gpu0#new VGPU=1 !\n    slice VGPU=1 !\n    vf0 CUSTOM_VF=1",
			used:    providertree.ProviderResources{"old": {"VGPU": 1}},
			want:    "cn1 VCPU=8\n  gpu0#old VGPU=1,reserved=1\n  vf0 CUSTOM_VF=1",
			told: []string{"The inventory of VGPU of resource provider gpu0 (" + uid("old") +
				") is kept, fully reserved, until the 1 allocated are free. " +
				"Until then " + uid("new") + " cannot have its name."},
		},
		"what Placement does not have yet has no usage": {
			known: "cn1 ! VCPU=8", desired: "cn1 ! VCPU=4",
			used: providertree.ProviderResources{"cn1": {"VCPU": 8}},
			want: "cn1 VCPU=4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			known, desired := tree(t, c.known), tree(t, c.desired)
			usages := providertree.ProviderResources{}
			for key, amounts := range c.used {
				usages[uid(key)] = amounts
			}
			shown := lines(desired)
			got, draining, err := Drain(known, desired, usages, c.may)
			testproc.Check(t, err)
			sameTree(t, tree(t, c.want), got)
			var said []string
			for _, d := range draining {
				said = append(said, d.String())
			}
			testproc.Samef(t, cmp.Diff(c.told, said), "(- want, + got)")
			if lines(desired) != shown {
				t.Error("desired was changed")
			}
			if len(draining) == 0 && got != desired {
				t.Error("nothing was held back, and the tree was copied")
			}
		})
	}
}

func TestShrinkingNamesTheProvidersWhoseUsageCounts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8 VGPU=2\n  gone VGPU=1\n  empty HW_A\n  same CUSTOM_A=1\n  smaller CUSTOM_A=2\n "+
		" grown CUSTOM_A=1\n  ratio CUSTOM_A=1,ratio=2\n  unborn ! CUSTOM_A=1")
	desired := tree(t, "cn1 VCPU=8\n  same CUSTOM_A=1\n  smaller CUSTOM_A=1\n  grown CUSTOM_A=9\n  ratio "+
		"CUSTOM_A=1,ratio=1")
	testproc.Same(t, cmp.Diff([]string{root, uid("gone"), uid("smaller")}, Shrinking(known, desired)))
	if got := Shrinking(known, known); got != nil {
		t.Errorf("nothing shrinks: %v", got)
	}
}

// TestDrainInventoryIsOursUntilItGoes follows a device that is taken out while it is allocated,
// through the passes until it is free.
func TestDrainInventoryIsOursUntilItGoes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8 VGPU=4 CUSTOM_RACK\n  gpu0 VGPU=2 CUSTOM_BY_HAND")
	record := owned(t, known, "cn1 driver VCPU:driver VGPU:driver\ngpu0 driver VGPU:driver")
	// always the same, as a driver gives it that makes all again
	answer := tree(t, "cn1 VCPU=4 CUSTOM_RACK")
	for pass, c := range []struct {
		root, gpu map[string]int64
		want      string
	}{
		{map[string]int64{"VCPU": 6, "VGPU": 3}, map[string]int64{"VGPU": 2},
			"cn1 VCPU=6 VGPU=3,reserved=3 CUSTOM_RACK\n  gpu0 VGPU=2,reserved=2 CUSTOM_BY_HAND"},
		{map[string]int64{"VCPU": 6, "VGPU": 3}, map[string]int64{"VGPU": 2},
			"cn1 VCPU=6 VGPU=3,reserved=3 CUSTOM_RACK\n  gpu0 VGPU=2,reserved=2 CUSTOM_BY_HAND"},
		{map[string]int64{"VCPU": 5, "VGPU": 1}, map[string]int64{}, "cn1 VCPU=5 VGPU=1,reserved=1 CUSTOM_RACK"},
		{nil, nil, "cn1 VCPU=4 CUSTOM_RACK"},
	} {
		out, err := Merge(Input{Root: root, Node: "cn1", Driver: "fake", Known: known, Answer: answer, Record: record})
		testproc.Check(t, err)
		desired, _, err := Drain(known, out.Tree, providertree.ProviderResources{root: c.root, uid("gpu0"): c.gpu}, nil)
		testproc.Check(t, err)
		if !t.Run(fmt.Sprintf("pass %d", pass), func(t *testing.T) { sameTree(t, tree(t, c.want), desired) }) {
			return
		}
		known, record = desired, out.Record.Exact(record, desired)
		if drift := record.Drift(known); drift != nil {
			t.Errorf("pass %d: the record is not that of the tree: %q", pass, drift)
		}
	}
	testproc.Equal(t, owners(record), "cn1 driver VCPU:driver", "owners: %v")
}

// TestEnoughIsTheLeastTotal compares with counting.
func TestEnoughIsTheLeastTotal(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		inv := providertree.Inventory{Total: rapid.Int64Range(1, 40).Draw(t, "total"),
			AllocationRatio: rapid.Float64Range(0.1, 20).Draw(t, "ratio")}
		inv.Reserved = rapid.Int64Range(0, inv.Total).Draw(t, "reserved")
		most, used := rapid.Int64Range(inv.Total, 80).Draw(t, "most"), rapid.Int64Range(0, 300).Draw(t, "used")
		want := inv
		for want.Total < most && want.Capacity() < used {
			want.Total++
		}
		testproc.Equal(t, leastTotal(inv, most, used), want.Total, "the least total: %d")
	})
	if got := leastTotal(providertree.Inventory{Total: 1, AllocationRatio: 1e-9}, providertree.MaxUnit,
		math.MaxInt64); got != providertree.MaxUnit {
		t.Errorf("the least total for all that is used: got %d, want the maximum", got)
	}
}

// TestDrainKeepsItsPromises: nothing that is used goes or lacks room, nothing that is not used is
// kept, and it is at rest.
func TestDrainKeepsItsPromises(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		known, desired := in.Known, drawAnswer(t, in.Known, true)
		usages := providertree.ProviderResources{}
		for p := range known.All() {
			usages[p.UUID] = map[string]int64{}
			for _, class := range sortedKeys(p.Inventories) {
				usages[p.UUID][class] = rapid.Int64Range(0, 3).Draw(t, "used")
			}
		}
		got, draining, err := Drain(known, desired, usages, nil)
		testproc.Check(t, err)
		holds := map[string]bool{}
		for p := range known.All() {
			for class, was := range p.Inventories {
				used := usages[p.UUID][class]
				wanted, isWanted := desired.Inventory(p.UUID, class)
				now, stays := got.Inventory(p.UUID, class)
				switch {
				case used > 0 && !stays:
					t.Fatalf("%d %s of %s are used, and it is gone", used, class, p.Name)
				case !isWanted && stays && (used == 0 || now.Total != used || now.Reserved != used):
					t.Fatalf("%s of %s is held wrongly: %+v for %d", class, p.Name, now, used)
				case isWanted && wanted.Total < was.Total && now.Capacity() < min(used, was.Total):
					t.Fatalf("%s of %s has too little capacity: %+v for %d", class, p.Name, now, used)
				}
				if stays {
					for at := p.UUID; at != ""; {
						holds[at] = true
						above, _ := got.Provider(at)
						at = above.ParentUUID
					}
				}
			}
		}
		for p := range got.All() {
			if !desired.Exists(p.UUID) && !holds[p.UUID] {
				t.Fatalf("%s is kept for nothing", p.Name)
			}
		}
		waiting := slices.ContainsFunc(draining, func(r Draining) bool { return r.Waits != "" })
		for p := range desired.All() {
			if !got.Exists(p.UUID) && (known.Exists(p.UUID) || !waiting) {
				t.Fatalf("%s is lost", p.Name)
			}
		}
		again, _, err := Drain(got, desired, usages, nil)
		if err != nil || !again.Equal(got) {
			t.Fatalf("the second time it changes: %v\n%s", err, cmp.Diff(lines(got), lines(again)))
		}
		free, _, err := Drain(got, desired, providertree.ProviderResources{}, nil)
		if err != nil || !free.Equal(desired) {
			t.Fatalf("when all is free it is not what is desired: %v", err)
		}
	})
}
