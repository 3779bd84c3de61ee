// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestUnionIsEverythingThatIsOursByEither(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	old := owned(t, tree(t, "cn1 VCPU=8 VGPU=4 HW_A @a\n  gpu0 VGPU=1\n  br_eth0 CUSTOM_X\n  nic\n  pf"),
		"cn1 driver VCPU:driver VGPU:driver HW_A:agent @a:driver\ngpu0 driver VGPU:driver\nbr_eth0 "+
			"CUSTOM_X:operator\nnic driver\npf former-driver")
	newer := owned(t, tree(t, "cn1 VCPU=16 CUSTOM_B=1 HW_A HW_B\n  gpu1 VGPU=1\n  br_eth0\n  nic CUSTOM_Y\n  pf"),
		"cn1 driver VCPU:driver CUSTOM_B:operator HW_A:driver HW_B:driver\ngpu1 driver VGPU:driver\nnic "+
			"CUSTOM_Y:operator\npf driver")
	old.Created, old.Layout, newer.Layout = true, 2, 3
	before, beforeNewer := old.Clone(), newer.Clone()
	u := old.Union(newer)
	want := "cn1 driver CUSTOM_B:operator VCPU:driver VGPU:driver @" + uid("a") +
		":driver HW_A:driver HW_B:driver\ngpu0 driver VGPU:driver\ngpu1 driver VGPU:driver\nnic driver " +
		"CUSTOM_Y:operator\npf driver\nbr_eth0 CUSTOM_X:operator"
	testproc.Samef(t, cmp.Diff(trim(want), owners(u)), "(- want, + got)")
	if !u.Created || u.Layout != 2 || !u.Pending {
		t.Errorf("created %v, layout %d, pending %v", u.Created, u.Layout, u.Pending)
	}
	testproc.Equal(t, u.Providers[root].Inventories["VCPU"].Inventory.Total, 16, "the value is %d")
	u.Providers[root].Traits["HW_C"] = Driver
	u.Providers[uid("br_eth0")].Traits["CUSTOM_Y"] = Driver
	if !old.Equal(before) || !newer.Equal(beforeNewer) {
		t.Error("the union is connected with what it was made of")
	}
	if drift := u.Drift(&providertree.Tree{}); drift != nil {
		t.Errorf("a pending record has drift: %q", drift)
	}
}

func TestUnionWithNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := owned(t, tree(t, "cn1 VCPU=8"), "cn1 driver VCPU:driver")
	var none *Record
	if got := none.Union(nil); got != nil {
		t.Error(got)
	}
	for name, got := range map[string]*Record{"none and a record": none.Union(r), "a record and none": r.Union(nil),
		"twice the same": r.Union(r.Clone())} {
		if !got.Equal(r) || got == r {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestEqualSeesEveryField(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	make := func() *Record {
		r := owned(t, tree(t, "cn1 VCPU=8,ratio=1.5 HW_A @a\n  gpu0 VGPU=1"),
			"cn1 driver VCPU:driver HW_A:agent @a:driver\ngpu0 driver")
		r.Layout = 1
		return r
	}
	if !make().Equal(make()) || !make().Clone().Equal(make()) {
		t.Fatal("the same is not equal")
	}
	edit := func(change func(p *Provider)) func(*Record) {
		return func(r *Record) {
			p := r.Providers[root]
			change(&p)
			r.Providers[root] = p
		}
	}
	for name, change := range map[string]func(*Record){
		"root": func(r *Record) { r.Root = uid("x") }, "node": func(r *Record) { r.Node = "x" },
		"driver":  func(r *Record) { r.Driver = "x" },
		"created": func(r *Record) { r.Created = true }, "pending": func(r *Record) { r.Pending = true },
		"layout":          func(r *Record) { r.Layout = 2 },
		"a provider less": func(r *Record) { delete(r.Providers, uid("gpu0")) },
		"name":            edit(func(p *Provider) { p.Name = "x" }),
		"parent":          edit(func(p *Provider) { p.Parent = uid("x") }),
		"owner":           edit(func(p *Provider) { p.Owner = "" }),
		"inventory's": edit(func(p *Provider) {
			p.Inventories["VCPU"] = OwnedInventory{Owner: Operator, Inventory: p.Inventories["VCPU"].Inventory}
		}),
		"value": edit(func(p *Provider) {
			p.Inventories["VCPU"] = OwnedInventory{Owner: Driver, Inventory: providertree.Inventory{Total: 9}}
		}),
		"what was held": edit(func(p *Provider) {
			s := p.Inventories["VCPU"]
			s.BeforeDrain = &providertree.Inventory{Total: 9}
			p.Inventories["VCPU"] = s
		}),
		"trait's":           edit(func(p *Provider) { p.Traits["HW_A"] = Driver }),
		"an aggregate more": edit(func(p *Provider) { p.Aggregates[uid("b")] = Driver }),
	} {
		r := make()
		change(r)
		if r.Equal(make()) || make().Equal(r) {
			t.Errorf("%s: a difference is not seen", name)
		}
	}
	var none *Record
	if !none.Equal(nil) || none.Equal(make()) || make().Equal(nil) || none.Clone() != nil {
		t.Error("no record is like a record")
	}
	near := make()
	near.Providers[root].Inventories["VCPU"] = OwnedInventory{Owner: Driver,
		Inventory: providertree.Inventory{Total: 8, AllocationRatio: 1.5000001}}
	if !near.Equal(make()) {
		t.Error("ratios are compared more exactly than Placement keeps them")
	}
}

func TestClaimMakesATraitOursSoThatItCanGo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8 COMPUTE_STATUS_DISABLED\n  br_eth0 CUSTOM_X")
	record := owned(t, known, "cn1 driver VCPU:driver")
	before := record.Clone()
	claimed := record.Claim(known, Agent, root, "COMPUTE_STATUS_DISABLED", "NOT_THERE").
		Claim(known, Agent, uid("br_eth0"), "NOT_THERE").
		Claim(known, Agent, uid("nobody"), "CUSTOM_X")
	testproc.Same(t, cmp.Diff("cn1 driver VCPU:driver COMPUTE_STATUS_DISABLED:agent", owners(claimed)))
	if !record.Equal(before) {
		t.Error("the record itself was changed")
	}
	out, err := Merge(Input{Root: root, Node: "cn1", Known: known, Answer: Strip(known, claimed), Record: claimed})
	testproc.Check(t, err)
	sameTree(t, tree(t, "cn1 VCPU=8\n  br_eth0 CUSTOM_X"), out.Tree)
}

func TestStripTakesTheLayersOffAndNothingElse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8 CUSTOM_A=1 CUSTOM_B=1 COMPUTE_NODE CUSTOM_T CUSTOM_RACK HW_A @a @b\n  br_eth0 "+
		"BW=5 CUSTOM_T")
	record := owned(t, known,
		"cn1 driver VCPU:driver CUSTOM_A:operator COMPUTE_NODE:agent CUSTOM_T:operator HW_A:driver @a:operator "+
			"@b:driver\nbr_eth0 CUSTOM_T:operator")
	record.Providers[uid("gone")] = Provider{Name: "gone", Traits: map[string]Owner{"CUSTOM_T": Operator}}
	before := lines(known)
	sameTree(t, tree(t, "cn1 VCPU=8 CUSTOM_B=1 CUSTOM_RACK HW_A @b\n  br_eth0 BW=5"), Strip(known, record))
	sameTree(t, known, Strip(known, nil))
	if lines(known) != before {
		t.Error("known was changed")
	}
}

// TestStripShowsWhatOthersPutOnAFormerDriversProvider, of whatever kind it is.
func TestStripShowsWhatOthersPutOnAFormerDriversProvider(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, items := range []string{"", "CUSTOM_A=1", "HW_A", "@a", "CUSTOM_A=1 HW_A", "CUSTOM_A=1 @a",
		"HW_A @a", "CUSTOM_A=1 HW_A @a"} {
		known := tree(t, "cn1 VCPU=8\n  gpu0 VGPU=1 "+items)
		want := known.Clone()
		testproc.Try(want.RemoveInventory(uid("gpu0"), "VGPU")).Or(t)
		if items == "" {
			want = tree(t, "cn1 VCPU=8")
		}
		sameTree(t, want,
			Strip(known, owned(t, known, "cn1 driver VCPU:driver\ngpu0 former-driver VGPU:former-driver")))
	}
}

func TestDriftListsWhatAnotherClientChanged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	applied := tree(t, "cn1 VCPU=8 CUSTOM_A=1 HW_A HW_B @a @b\n  gpu0 VGPU=1\n  gpu1 VGPU=1\n  gpu2 VGPU=1\n "+
		" br_eth0 CUSTOM_X")
	record := owned(t, applied,
		"cn1 driver VCPU:driver CUSTOM_A:operator HW_A:agent HW_B:driver @a:driver @b:driver\ngpu0 driver "+
			"VGPU:driver\ngpu1 driver\ngpu2 driver\nbr_eth0 CUSTOM_X:operator")
	if drift := record.Drift(applied); drift != nil {
		t.Errorf("nothing changed: %q", drift)
	}
	now := tree(t, `
cn1 VCPU=8,reserved=2,ratio=4 HW_B CUSTOM_RACK @b @c
  gpu0 VGPU=1
    gpu1 VGPU=1
  renamed#gpu2 VGPU=1
  theirs#br_eth0 CUSTOM_X
  new VGPU=1`)
	testproc.Try(now.Remove(uid("gpu0"))).Or(t)
	want := []string{
		"Resource provider cn1 (" + root + ") was removed from the aggregate " + uid("a") + ".",
		"Resource provider cn1 (" + root + "): the inventory of CUSTOM_A was removed.",
		"Resource provider cn1 (" + root +
			"): the inventory of VCPU was changed: reserved from 0 to 2, allocation_ratio from 1 to 4.",
		"Resource provider cn1 (" + root + "): the trait HW_A was removed.",
		"Resource provider gpu0 (" + uid("gpu0") + ") was removed.",
		"Resource provider gpu1 (" + uid("gpu1") + ") was removed.",
		"Resource provider gpu2 (" + uid("gpu2") + ") was renamed to renamed.",
	}
	testproc.Samef(t, cmp.Diff(want, record.Drift(now)), "(- want, + got)")
	testproc.Try(applied.Move(uid("gpu1"), uid("gpu0"))).Or(t)
	want = []string{"Resource provider gpu1 (" + uid("gpu1") + ") was moved from below " +
		root + " to below " + uid("gpu0") + "."}
	testproc.Samef(t, cmp.Diff(want, record.Drift(applied)), "(- want, + got)")
	lost := &providertree.Tree{}
	testproc.Check(t, lost.AddRoot(root, "cn1"))
	want = []string{"Resource provider cn1 (" + root + ") was removed, with all its descendants."}
	testproc.Samef(t, cmp.Diff(want, record.Drift(lost)), "(- want, + got)")
	if drift := Adopt(lost, nil, root, "cn1", "fake", nil).Drift(lost); drift != nil {
		t.Errorf("a new node: %q", drift)
	}
	var none *Record
	if drift := none.Drift(applied); drift != nil {
		t.Errorf("without a record: %q", drift)
	}
}

// TestUnionSurvivesACrash: wherever between the two trees the writes end, nothing of ours is
// attributed to another client: the next pass comes to the same tree.
func TestUnionSurvivesACrash(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		in.Reshape, in.Layers = false, nil
		in.Record = drawRecord(t, in.Known)
		in.Base = Strip(in.Known, in.Record)
		in.Answer = drawAnswer(t, in.Base, false)
		out := testproc.Try(Merge(in)).Or(t)
		// Some items are written, some are not; providers are made, and none is deleted yet.
		half := out.Tree.Clone()
		for p := range in.Known.All() {
			if !half.Exists(p.UUID) {
				testproc.Check(t, half.AddChild(root, p.UUID, p.Name))
			}
			for _, class := range sortedKeys(p.Inventories) {
				if rapid.Bool().Draw(t, "not written") {
					testproc.Try(half.SetInventory(p.UUID, class, p.Inventories[class])).Or(t)
				}
			}
			if rapid.Bool().Draw(t, "not written") {
				testproc.Try(half.SetTraits(p.UUID, p.Traits)).Or(t)
			}
		}
		again := in
		again.Known, again.Record, again.Base, again.Answer = half, in.Record.Union(out.Record), nil, out.Tree
		final := testproc.Try(Merge(again)).Or(t)
		for p := range half.All() {
			if p.ParentUUID == root && !out.Tree.Exists(p.UUID) && final.Tree.Exists(p.UUID) &&
				in.Record.provider(p.UUID).Owner == Driver {
				t.Fatalf("%s was to be deleted, and is taken for another client's:\n%s", p.Name, owners(again.Record))
			}
		}
		for p := range final.Tree.All() {
			rec := in.Record.provider(p.UUID)
			for _, trait := range p.Traits {
				if rec.Traits[trait] != "" && !out.Tree.HasTraits(p.UUID, trait) {
					t.Fatalf("%s was to go from %s, and stays", trait, p.Name)
				}
			}
			for class := range p.Inventories {
				if _, wanted := out.Tree.Inventory(p.UUID, class); rec.Inventories[class].Owner != "" && !wanted {
					t.Fatalf("%s was to go from %s, and stays", class, p.Name)
				}
			}
		}
	})
}
