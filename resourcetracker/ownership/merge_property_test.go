// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	propertyClasses = []string{"VCPU", "VGPU", "CUSTOM_A", "CUSTOM_B"}
	propertyTraits  = []string{"HW_A", "CUSTOM_T",
		"OWNER_NOVA", "COMPUTE_MANAGED_PCI_DEVICE", "COMPUTE_STATUS_DISABLED"}
	propertyAggregates = []string{uid("agg0"), uid("agg1")}
)

// drawWorld makes a node with a sharing provider beside it, and a record of any part of it.
func drawWorld(t *rapid.T) Input {
	known := &providertree.Tree{}
	var all []providertree.Provider
	add := func(key, parent string) {
		all = append(all, drawProvider(t, key, parent))
	}
	add("cn1", "")
	add("nfs", "")
	for n := range rapid.IntRange(0, 5).Draw(t, "children") {
		add(fmt.Sprintf("c%d", n), rapid.SampledFrom(all).Draw(t, "parent").UUID)
	}
	testproc.Check(t, known.Populate(all))
	in := Input{Root: root, Node: "cn1", Driver: "fake", Known: known, Reshape: rapid.Bool().Draw(t, "reshape")}
	if rapid.IntRange(0, 4).Draw(t, "record") > 0 {
		in.Record = drawRecord(t, known)
	}
	in.Base = Strip(known, in.Record)
	for _, owner := range []Owner{Agent, Operator} {
		layer := Layer{Owner: owner, Providers: map[string]LayerProvider{}}
		for _, p := range append(all, providertree.Provider{UUID: uid("nowhere")}) {
			if rapid.Bool().Draw(t, "in the layer") {
				says := LayerProvider{Traits: drawSome(t, propertyTraits)}
				if owner == Operator {
					says.Inventories = drawInventories(t)
				}
				layer.Providers[p.UUID] = says
			}
		}
		in.Layers = append(in.Layers, layer)
	}
	return in
}

func drawProvider(t *rapid.T, key, parent string) providertree.Provider {
	return providertree.Provider{
		UUID: uid(key), Name: key, ParentUUID: parent, Generation: 3,
		Inventories: drawInventories(t), Traits: drawSome(t, propertyTraits),
		Aggregates: drawSome(t, propertyAggregates),
	}
}

func drawInventories(t *rapid.T) providertree.Inventories {
	out := providertree.Inventories{}
	for _, class := range drawSome(t, propertyClasses) {
		out[class] = providertree.Inventory{Total: rapid.Int64Range(1, 2).Draw(t, "total")}
	}
	return out
}

func drawSome(t *rapid.T, all []string) []string {
	var out []string
	for _, s := range all {
		if rapid.IntRange(0, 2).Draw(t, s) == 0 {
			out = append(out, s)
		}
	}
	return out
}

func drawRecord(t *rapid.T, known *providertree.Tree) *Record {
	r := &Record{Root: root, Node: "cn1", Driver: "fake",
		Layout: rapid.IntRange(0, 3).Draw(t, "layout"), Providers: map[string]Provider{}}
	owner := func() Owner {
		return rapid.SampledFrom([]Owner{"", "", Driver, Operator, Agent, Former}).Draw(t, "owner")
	}
	for p := range known.All() {
		o := ours{owner: rapid.SampledFrom([]Owner{"", Driver}).Draw(t, "provider's"), inventories: map[string]Owner{},
			traits: map[string]Owner{}, aggregates: map[string]Owner{}}
		for class := range p.Inventories {
			o.inventories[class] = "" // drawn below, in order
		}
		for _, class := range sortedKeys(o.inventories) {
			o.inventories[class] = owner()
		}
		for _, trait := range p.Traits {
			o.traits[trait] = owner()
		}
		for _, aggregate := range p.Aggregates {
			o.aggregates[aggregate] = owner()
		}
		r.setProvider(p, o)
	}
	return r
}

// drawAnswer does anything to the items of a copy of base, removes providers and makes some; if it
// may place, it renames and moves them too and gives new ones names that others have.
func drawAnswer(t *rapid.T, base *providertree.Tree, place bool) *providertree.Tree {
	out := base.Clone()
	actions := rapid.IntRange(0, 12).Draw(t, "actions")
	for n := range actions {
		uuids := out.UUIDs()
		at := rapid.SampledFrom(uuids).Draw(t, "at")
		kinds := 6
		if place {
			kinds = 9
		}
		// What cannot be done is not done: errors are the tree's refusals.
		switch rapid.IntRange(0, kinds).Draw(t, "action") {
		case 0:
			_, _ = out.SetInventories(at, drawInventories(t))
		case 1:
			_, _ = out.SetInventory(at, rapid.SampledFrom(propertyClasses).Draw(t, "class"),
				providertree.Inventory{Total: 2})
		case 2:
			_, _ = out.RemoveInventory(at, rapid.SampledFrom(propertyClasses).Draw(t, "class"))
		case 3:
			_, _ = out.SetTraits(at, drawSome(t, propertyTraits))
		case 4:
			_, _ = out.SetAggregates(at, drawSome(t, propertyAggregates))
		case 5:
			if at != root {
				_, _ = out.Remove(at)
			}
		case 6:
			_ = out.AddChild(at, uid(fmt.Sprintf("new%d", n)), fmt.Sprintf("new%d", n))
		case 7:
			_, _ = out.Rename(at, rapid.SampledFrom([]string{"c0", "c1", "c2", "x", "y"}).Draw(t, "name"))
		case 8:
			if at != root {
				_, _ = out.Move(at, rapid.SampledFrom(uuids).Draw(t, "below"))
			}
		case 9:
			_ = out.AddChild(at, uid(fmt.Sprintf("new%d", n)),
				rapid.SampledFrom([]string{"c0", "c1", "c2", "x", "y"}).Draw(t, "name"))
		}
	}
	return out
}

// TestMergeAgainstModel compares a merge with the table of the package comment read item by item.
func TestMergeAgainstModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		in.Answer = drawAnswer(t, in.Base, false)
		out := testproc.Try(Merge(in)).Or(t)
		want := model{in}.facts()
		if diff := cmp.Diff(want, factsOf(out)); diff != "" {
			t.Fatalf("what is there, and whose it is (- model, + merge):\n%s\nknown:\n%sanswer:\n%srecord:\n%s",
				diff, lines(in.Known), lines(in.Answer), owners(in.Record.orEmpty()))
		}
	})
}

func (r *Record) orEmpty() *Record {
	if r == nil {
		return &Record{}
	}
	return r
}

// facts is every item by a name of its own, with its value and owner.
type facts map[string]string

func factsOf(r Result) facts {
	out := facts{}
	for p := range r.Tree.All() {
		rec := r.Record.provider(p.UUID)
		out["provider "+p.Name] = fmt.Sprintf("below %s, %s", p.ParentUUID, rec.Owner)
		for class, inv := range p.Inventories {
			out["inventory "+p.Name+" "+class] = fmt.Sprintf("%d, %s", inv.Total, rec.Inventories[class].Owner)
			if o := rec.Inventories[class]; o.Owner != "" && !o.Inventory.Equal(inv) {
				out["inventory "+p.Name+" "+class] += " wrongly recorded"
			}
		}
		for _, trait := range p.Traits {
			out["trait "+p.Name+" "+trait] = string(rec.Traits[trait])
		}
		for _, aggregate := range p.Aggregates {
			out["aggregate "+p.Name+" "+aggregate] = string(rec.Aggregates[aggregate])
		}
	}
	return out
}

// model asks for one item at a time, and knows nothing of how a merge goes about it.
type model struct{ in Input }

func (m model) facts() facts {
	out := facts{}
	var everyone []string
	for _, t := range []*providertree.Tree{m.in.Base, m.in.Answer} {
		everyone = append(everyone, t.UUIDs()...)
	}
	for _, uuid := range everyone {
		if !m.there(uuid) {
			continue
		}
		p := m.either(uuid)
		owner := m.in.Record.provider(uuid).Owner
		if uuid == root || !m.in.Base.Exists(uuid) {
			owner = Driver
		}
		out["provider "+p.Name] = fmt.Sprintf("below %s, %s", p.ParentUUID, owner)
		for _, class := range propertyClasses {
			if total, owner := m.inventory(uuid, class); total > 0 {
				out["inventory "+p.Name+" "+class] = fmt.Sprintf("%d, %s", total, owner)
			}
		}
		for _, trait := range propertyTraits {
			if owner, there := m.trait(uuid, trait); there {
				out["trait "+p.Name+" "+trait] = string(owner)
			}
		}
		for _, a := range propertyAggregates {
			has := func(t *providertree.Tree) bool {
				return t.InAggregates(uuid, a) && (!m.shared(uuid) || m.in.Base.InAggregates(uuid, a))
			}
			if owner, there := m.symbol(uuid, has, m.in.Record.provider(uuid).Aggregates[a]); there {
				out["aggregate "+p.Name+" "+a] = string(owner)
			}
		}
	}
	return out
}

func (m model) either(uuid string) providertree.Provider {
	if p, found := m.in.Base.Provider(uuid); found {
		return p
	}
	p, _ := m.in.Answer.Provider(uuid)
	return p
}

func (m model) mine(uuid string) bool {
	return uuid == root || m.in.Record.provider(uuid).Owner != "" || m.marked(uuid)
}

// shared: it is beside the node's tree, and not the driver's.
func (m model) shared(uuid string) bool {
	top, there := m.in.Base.RootOf(uuid)
	return there && top != root && m.in.Record.provider(uuid).Owner == ""
}

func (m model) marked(uuid string) bool {
	if top, _ := m.in.Base.RootOf(uuid); top != root || uuid == root {
		return false
	}
	rec := m.in.Record.provider(uuid)
	if m.in.Base.HasTraits(uuid, "COMPUTE_MANAGED_PCI_DEVICE") && rec.Traits["COMPUTE_MANAGED_PCI_DEVICE"] == "" {
		return true
	}
	_, named := m.in.Layers[1].Providers[uuid]
	return !named && m.in.Base.HasTraits(uuid, "OWNER_NOVA") && rec.Traits["OWNER_NOVA"] == ""
}

// there: the driver has it, or may not remove it, or something below it is there.
func (m model) there(uuid string) bool {
	if m.in.Answer.Exists(uuid) || !m.mine(uuid) {
		return true
	}
	return slices.ContainsFunc(m.in.Base.Children(uuid), m.there)
}

func (m model) inventory(uuid, class string) (int64, Owner) {
	was, before := m.in.Base.Inventory(uuid, class)
	now, after := m.in.Answer.Inventory(uuid, class)
	recorded := m.in.Record.provider(uuid).Inventories[class].Owner
	wanted, inLayer := m.in.Layers[1].Providers[uuid].Inventories[class]
	takenAway := !m.in.Answer.Exists(uuid)
	onRoot, _ := m.in.Base.RootOf(uuid)
	switch {
	case m.shared(uuid) && before && after && recorded == Driver:
		return was.Total, Driver
	case m.shared(uuid) && after: // as if the driver had said nothing
		if before && !inLayer {
			return was.Total, ""
		}
	case after && (!before || was != now || recorded == Driver):
		return now.Total, Driver
	case before && !after && takenAway && recorded != Driver && m.marked(uuid) &&
		m.in.Record.provider(uuid).Owner == "":
	case before && !after && !takenAway && m.in.Reshape && onRoot == root && m.mine(uuid):
	case before && !after && onRoot == root && m.grows(class) && (m.in.Reshape || !takenAway):
	case before && !after && recorded == Driver:
	case before && !inLayer:
		return was.Total, ""
	}
	if inLayer {
		return wanted.Total, Operator
	}
	return 0, ""
}

// grows: some provider of the node's tree has more of the class than before.
func (m model) grows(class string) bool {
	return slices.ContainsFunc(m.in.Answer.Subtree(root), func(uuid string) bool {
		now, has := m.in.Answer.Inventory(uuid, class)
		was, had := m.in.Base.Inventory(uuid, class)
		return has && (!had || now.Total > was.Total)
	})
}

func (m model) trait(uuid, trait string) (Owner, bool) {
	has := func(t *providertree.Tree) bool {
		return t.HasTraits(uuid, trait) && (!m.shared(uuid) || m.in.Base.HasTraits(uuid, trait))
	}
	owner, there := m.symbol(uuid, has, m.in.Record.provider(uuid).Traits[trait])
	if m.moved(uuid, trait) {
		owner, there = "", false
	}
	if there && (trait == "OWNER_NOVA" || trait == "COMPUTE_MANAGED_PCI_DEVICE") && m.either(uuid).ParentUUID != "" {
		return owner, there
	}
	for _, layer := range m.in.Layers {
		if owner == "" && slices.Contains(layer.Providers[uuid].Traits, trait) {
			return layer.Owner, true
		}
	}
	return owner, there
}

// moved: in a reshape the driver takes a trait off a provider of the node's tree, and another one
// there gets it. Marks stay where they are.
func (m model) moved(uuid, trait string) bool {
	top, _ := m.in.Base.RootOf(uuid)
	switch {
	case !m.in.Reshape, top != root, trait == "OWNER_NOVA", trait == "COMPUTE_MANAGED_PCI_DEVICE":
		return false
	case !m.in.Base.HasTraits(uuid, trait), !m.in.Answer.Exists(uuid), m.in.Answer.HasTraits(uuid, trait):
		return false
	}
	return slices.ContainsFunc(m.in.Answer.Subtree(root), func(other string) bool {
		return m.in.Answer.HasTraits(other, trait) && !m.in.Base.HasTraits(other, trait)
	})
}

// symbol is the driver's step for a trait or an aggregate.
func (m model) symbol(_ string, has func(*providertree.Tree) bool, recorded Owner) (Owner, bool) {
	before, after := has(m.in.Base), has(m.in.Answer)
	switch {
	case after && (!before || recorded == Driver):
		return Driver, true
	case before && recorded == Driver:
		return "", false
	}
	return "", before || after
}

// TestMergeKeepsItsPromises: whatever a driver does, also with names and parents.
func TestMergeKeepsItsPromises(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		in.Answer = drawAnswer(t, in.Base, true)
		knownBefore, answerBefore, recordBefore := lines(in.Known), lines(in.Answer), in.Record.Clone()
		out, err := Merge(in)
		if err != nil {
			if !in.Reshape {
				t.Fatal(err)
			}
			refused++
			return
		}
		if lines(in.Known) != knownBefore || lines(in.Answer) != answerBefore || !in.Record.Equal(recordBefore) {
			t.Fatal("the merge changed what it was given")
		}
		again, err := Merge(in)
		if err != nil || !cmp.Equal(out.Kept, again.Kept) || !cmp.Equal(out.Conflicts, again.Conflicts) ||
			!out.Tree.Equal(again.Tree) || !out.Record.Equal(again.Record) {
			t.Fatalf("the same input does not give the same result: %v", err)
		}
		m := model{in}
		for p := range in.Known.All() {
			now, stays := out.Tree.Provider(p.UUID)
			switch {
			case !m.mine(p.UUID) && (!stays || now.Name != p.Name || now.ParentUUID != p.ParentUUID):
				t.Fatalf("%s is another client's, and is gone, renamed or moved: %+v", p.Name, now)
			case !stays && in.Answer.Exists(p.UUID):
				t.Fatalf("%s is gone though the driver has it", p.Name)
			case !stays:
				continue
			}
			rec := in.Record.provider(p.UUID)
			for _, trait := range p.Traits {
				if rec.Traits[trait] == "" && !now.HasTrait(trait) && !m.moved(p.UUID, trait) {
					t.Fatalf("%s has lost %s, which is another client's", p.Name, trait)
				}
				layered := slices.ContainsFunc(in.Layers,
					func(l Layer) bool { return slices.Contains(l.Providers[p.UUID].Traits, trait) })
				if rec.Traits[trait] != "" && !in.Answer.HasTraits(p.UUID, trait) && !layered && now.HasTrait(trait) {
					t.Fatalf("%s has %s, which no owner has any more", p.Name, trait)
				}
			}
		}
		for p := range out.Tree.All() {
			if !in.Known.Exists(p.UUID) && !in.Answer.Exists(p.UUID) {
				t.Fatalf("%s comes from nowhere", p.Name)
			}
		}
		checkExact(t, out)
		atRest(t, in, out)
		afterACrash(t, in, out, drawLeaving(t, leaving(in, out)))
	})
	t.Logf("%d reshapes refused", refused)
}

// drawLeaving draws the traits whose removal was not written.
func drawLeaving(t *rapid.T, leave map[string][]string) map[string][]string {
	out := map[string][]string{}
	for _, uuid := range sortedKeys(leave) {
		out[uuid] = drawSome(t, leave[uuid])
	}
	return out
}

// checkExact checks that a record speaks of nothing that its tree does not have.
func checkExact(t rapid.TB, out Result) {
	t.Helper()
	for uuid, p := range out.Record.Providers {
		now, found := out.Tree.Provider(uuid)
		if !found || now.Name != p.Name || now.ParentUUID != p.Parent {
			t.Fatalf("the record has %s below %s, the tree has %+v", p.Name, p.Parent, now)
		}
	}
	if drift := out.Record.Drift(out.Tree); len(drift) > 0 {
		t.Fatalf("the record is not that of the tree: %q", drift)
	}
	testproc.Checkf(t, out.Record.validate(), "the record cannot be saved")
}
