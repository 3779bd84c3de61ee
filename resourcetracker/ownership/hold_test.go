// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// life is a node from pass to pass, with its record on disk in between.
type life struct {
	t      rapid.TB
	known  *providertree.Tree
	record *Record
}

// pass makes Placement say what a driver makes of the tree that it is given.
func (l *life) pass(used providertree.ProviderResources, drive func(base *providertree.Tree)) []Draining {
	l.t.Helper()
	answer := Strip(l.known, l.record)
	drive(answer)
	out, err := Merge(Input{Root: root, Node: "cn1", Driver: "fake", Known: l.known, Answer: answer, Record: l.record})
	testproc.Check(l.t, err)
	desired, draining, err := Drain(l.known, out.Tree, used, nil)
	testproc.Check(l.t, err)
	l.write(desired, out.Record.Exact(l.record, desired).Hold(Strip(l.known, l.record), desired, draining))
	return draining
}

// write keeps the union, writes, and keeps the record.
func (l *life) write(desired *providertree.Tree, next *Record) {
	l.t.Helper()
	between := l.onDisk(l.record.Union(next))
	for name, crashed := range map[string]*providertree.Tree{"before": l.known, "after": desired} {
		want := Strip(crashed, next)
		if crashed == l.known {
			want = Strip(crashed, l.record)
		}
		if got := Strip(crashed, between); !got.Equal(want) {
			l.t.Fatalf("after a crash %s the writes the driver is given another tree (- want, + got):\n%s",
				name, cmp.Diff(lines(want), lines(got)))
		}
	}
	l.known, l.record = desired, l.onDisk(next)
	if drift := l.record.Drift(l.known); drift != nil {
		l.t.Fatalf("the record is not that of the tree: %q", drift)
	}
}

func (l *life) onDisk(r *Record) *Record {
	l.t.Helper()
	content := testproc.Try(encode(r)).Or(l.t)
	got, err := decode(content)
	if err != nil || !got.Equal(r) {
		l.t.Fatalf("%v, from a record that lost something: %s", err, content)
	}
	return got
}

// keeper is a driver that has a GPU, sometimes, and keeps what an operator reserves of it.
func keeper(t rapid.TB, total int64) func(*providertree.Tree) {
	return func(tree *providertree.Tree) {
		gpu := uid("gpu0")
		switch {
		case total == 0 && tree.Exists(gpu):
			testproc.Try(tree.Remove(gpu)).Or(t)
		case total > 0:
			inv, found := tree.Inventory(gpu, "VGPU")
			if !tree.Exists(gpu) {
				testproc.Check(t, tree.AddChild(root, gpu, "gpu0"))
			}
			if inv.Total = total; !found {
				inv.AllocationRatio = 1
			}
			inv.Reserved = min(inv.Reserved, total)
			testproc.Try(tree.SetInventory(gpu, "VGPU", inv)).Or(t)
		}
	}
}

// TestADeviceThatComesBackIsAsItWas, though it was closed while it was gone, and again when it is
// in use no more.
func TestADeviceThatComesBackIsAsItWas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		before string
		used   int64
		closed string
		total  int64
		back   string
	}{
		"one":                               {"VGPU=1", 1, "VGPU=1,reserved=1", 1, "VGPU=1"},
		"one of many is used":               {"VGPU=8,ratio=2", 1, "VGPU=1,reserved=1,ratio=2", 8, "VGPU=8,ratio=2"},
		"an operator reserves some":         {"VGPU=8,reserved=3", 5, "VGPU=5,reserved=5", 8, "VGPU=8,reserved=3"},
		"an operator reserves the only":     {"VGPU=1,reserved=1", 1, "VGPU=1,reserved=1", 1, "VGPU=1,reserved=1"},
		"an operator reserves all":          {"VGPU=8,reserved=8", 2, "VGPU=2,reserved=2", 8, "VGPU=8,reserved=8"},
		"it is smaller now":                 {"VGPU=8,reserved=3", 2, "VGPU=2,reserved=2", 4, "VGPU=4,reserved=3"},
		"it is smaller than what is in use": {"VGPU=8", 5, "VGPU=5,reserved=5", 4, "VGPU=5"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{t: t, known: tree(t, "cn1 VCPU=8\n  gpu0 "+c.before+" CUSTOM_BY_HAND")}
			l.record = owned(t, l.known, "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver")
			used := providertree.ProviderResources{uid("gpu0"): {"VGPU": c.used}}
			for range 3 {
				l.pass(used, keeper(t, 0))
				sameTree(t, tree(t, "cn1 VCPU=8\n  gpu0 "+c.closed+" CUSTOM_BY_HAND"), l.known)
			}
			for range 2 {
				l.pass(used, keeper(t, c.total))
				sameTree(t, tree(t, "cn1 VCPU=8\n  gpu0 "+c.back+" CUSTOM_BY_HAND"), l.known)
			}
			if owned := l.record.Providers[uid("gpu0")].Inventories["VGPU"]; owned.BeforeDrain != nil {
				t.Errorf("it is still remembered how it was: %+v", owned.BeforeDrain)
			}
		})
	}
}

// TestWhatIsUsedLessWhileItIsGone is remembered as it was at first.
func TestWhatIsUsedLessWhileItIsGone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := &life{t: t, known: tree(t, "cn1 VCPU=8\n  gpu0 VGPU=8,reserved=1")}
	l.record = owned(t, l.known, "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver")
	for i, closed := range []string{"VGPU=3,reserved=3", "VGPU=2,reserved=2", "VGPU=1,reserved=1"} {
		l.pass(providertree.ProviderResources{uid("gpu0"): {"VGPU": int64(3 - i)}}, keeper(t, 0))
		sameTree(t, tree(t, "cn1 VCPU=8\n  gpu0 "+closed), l.known)
	}
	l.pass(nil, keeper(t, 8))
	sameTree(t, tree(t, "cn1 VCPU=8\n  gpu0 VGPU=8,reserved=1"), l.known)
}

// TestWhatIsUsedMoreWhileItIsGone, by a move that was under way, until the closed one looks like
// the one before, which an operator had reserved.
func TestWhatIsUsedMoreWhileItIsGone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := &life{t: t, known: tree(t, "cn1 VCPU=8\n  gpu0 VGPU=2,reserved=2")}
	l.record = owned(t, l.known, "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver")
	for _, used := range []int64{1, 2, 1} {
		l.pass(providertree.ProviderResources{uid("gpu0"): {"VGPU": used}}, keeper(t, 0))
		inv, _ := l.known.Inventory(uid("gpu0"), "VGPU")
		if inv.Total != used || inv.Reserved != used {
			t.Errorf("%+v while %d are used", inv, used)
		}
	}
	l.pass(nil, keeper(t, 2))
	sameTree(t, tree(t, "cn1 VCPU=8\n  gpu0 VGPU=2,reserved=2"), l.known)
}

// TestNovasDeviceThatIsGoneAtFirstSight: the agent takes over from Nova while a device is
// unavailable, so that no record has it.
func TestNovasDeviceThatIsGoneAtFirstSight(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := &life{t: t, known: tree(t, "cn1 VCPU=8\n  gpu0 VGPU=1 OWNER_NOVA")}
	l.record = owned(t, l.known, "cn1 driver VCPU:driver")
	used := providertree.ProviderResources{uid("gpu0"): {"VGPU": 1}}
	for range 2 {
		l.pass(used, keeper(t, 0))
		sameTree(t, tree(t, "cn1 VCPU=8\n  gpu0 VGPU=1,reserved=1 OWNER_NOVA"), l.known)
		if got, want := owners(l.record), "cn1 driver VCPU:driver\ngpu0 VGPU:driver"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	gone := *l
	l.pass(used, keeper(t, 1))
	sameTree(t, tree(t, "cn1 VCPU=8\n  gpu0 VGPU=1 OWNER_NOVA"), l.known)
	gone.pass(nil, keeper(t, 0))
	sameTree(t, tree(t, "cn1 VCPU=8"), gone.known)
}

// TestAnotherClientsChangeOfAClosedInventoryStays: the former inventory is not restored over it.
func TestAnotherClientsChangeOfAClosedInventoryStays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := &life{t: t, known: tree(t, "cn1 VCPU=8\n  gpu0 VGPU=8")}
	l.record = owned(t, l.known, "cn1 driver VCPU:driver\ngpu0 driver VGPU:driver")
	l.pass(providertree.ProviderResources{uid("gpu0"): {"VGPU": 2}}, keeper(t, 0))
	for _, edited := range []string{"VGPU=2,reserved=1", "VGPU=2,reserved=2,ratio=3", "VGPU=8"} {
		known := tree(t, "cn1 VCPU=8\n  gpu0 "+edited)
		sameTree(t, known, Strip(known, l.record))
	}
}

func TestHoldRemembersWhatTheAgentCloses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		known, desired, record string
		draining               Draining
		want                   *providertree.Inventory
	}{
		"a class that goes": {"cn1 VGPU=4",
			"cn1 VGPU=2,reserved=2", "cn1 driver VGPU:driver", Draining{Provider: root, Class: "VGPU", Total: 2,
				Gone: true}, &providertree.Inventory{Total: 4}},
		"a total that shrinks": {"cn1 VGPU=4",
			"cn1 VGPU=2", "cn1 driver VGPU:driver", Draining{Provider: root, Class: "VGPU", Total: 2}, nil},
		"what the operator has said": {"cn1 VGPU=4", "cn1 VGPU=2,reserved=2",
			"cn1 driver VGPU:operator", Draining{Provider: root, Class: "VGPU", Total: 2, Gone: true}, nil},
		"what stays open for now": {"cn1 VGPU=4", "cn1 VGPU=4",
			"cn1 driver VGPU:driver", Draining{Provider: root, Class: "VGPU", Total: 2, Gone: true}, nil},
		"what was closed already": {"cn1 VGPU=2,reserved=2", "cn1 VGPU=2,reserved=2",
			"cn1 driver VGPU:driver", Draining{Provider: root, Class: "VGPU", Total: 2, Gone: true}, nil},
		"a provider with nothing": {"cn1 VGPU=4",
			"cn1 VGPU=4", "cn1 driver VGPU:driver", Draining{Provider: root, Gone: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			known, desired := tree(t, c.known), tree(t, c.desired)
			record := owned(t, desired, c.record)
			before := record.Clone()
			out := record.Hold(known, desired, []Draining{c.draining})
			got := out.Providers[root].Inventories["VGPU"].BeforeDrain
			if (got == nil) != (c.want == nil) || got != nil && !got.Equal(*c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if !record.Equal(before) || (out == record) != (c.want == nil) {
				t.Error("the record itself was changed, or copied for nothing")
			}
		})
	}
}

func TestAnotherDriverInheritsWhatIsHeldOfItsOwn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VGPU=2,reserved=2 FPGA=1,reserved=1")
	former := owned(t, known, "cn1 driver VGPU:driver FPGA:driver")
	for class, total := range map[string]int64{"VGPU": 4, "FPGA": 3} {
		former.Providers[root].Inventories[class] = OwnedInventory{Owner: Driver,
			Inventory:   former.Providers[root].Inventories[class].Inventory,
			BeforeDrain: &providertree.Inventory{Total: total}}
	}
	got := owned(t, known, "cn1 driver VGPU:driver").Inherit(former, known, tree(t, "cn1 VGPU=4"))
	if held := got.Providers[root].Inventories["VGPU"].BeforeDrain; held == nil || held.Total != 4 {
		t.Errorf("what is held of VGPU: got %+v, want 4", held)
	}
	if owned := got.Providers[root].Inventories["FPGA"]; owned.Owner != Former || owned.BeforeDrain != nil {
		t.Errorf("what the new driver does not have is %+v", owned)
	}
}

// TestAMissingDeviceLeavesNoTrace: whatever is used of it while it is unavailable, when it is back
// all is as if it had stayed.
func TestAMissingDeviceLeavesNoTrace(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 8).Draw(t, "total")
		inv := providertree.Inventory{Total: total, Reserved: rapid.Int64Range(0, total).Draw(t, "reserved"),
			AllocationRatio: rapid.Float64Range(0.5, 4).Draw(t, "ratio")}
		known := &providertree.Tree{}
		testproc.Check(t, known.Populate([]providertree.Provider{
			{UUID: root, Name: "cn1", Generation: 1},
			{UUID: uid("gpu0"), Name: "gpu0", ParentUUID: root, Generation: 1,
				Inventories: providertree.Inventories{"VGPU": inv}},
		}))
		l := &life{t: t, known: known,
			record: &Record{Root: root, Node: "cn1", Driver: "fake", Providers: map[string]Provider{
				uid("gpu0"): {Name: "gpu0", Parent: root,
					Owner: Driver, Inventories: map[string]OwnedInventory{"VGPU": {Owner: Driver, Inventory: inv}}},
			}}}
		there := l.known
		for range rapid.IntRange(1, 6).Draw(t, "passes") {
			used := providertree.ProviderResources{uid("gpu0"): {"VGPU": rapid.Int64Range(1, total).Draw(t, "used")}}
			now := total * int64(rapid.IntRange(0, 1).Draw(t, "is there"))
			l.pass(used, keeper(t, now))
			if now > 0 && !l.known.Equal(there) {
				t.Fatalf("(- as it was, + now):\n%s", cmp.Diff(lines(there), lines(l.known)))
			}
		}
	})
}
