// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestProviderYAMLOnNeutronsChildHasNoConflictWithItself: the driver does not write that provider
// again, so what the operator added to it is there in each pass.
func TestProviderYAMLOnNeutronsChildHasNoConflictWithItself(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8\n  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5")
	record := owned(t, known, "cn1 driver VCPU:driver")
	operator := Layer{Owner: Operator,
		Providers: entryFor("br_eth0", providertree.Inventories{"CUSTOM_N": {Total: 2}}, "CUSTOM_X")}
	want := tree(t, "cn1 VCPU=8\n  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5 CUSTOM_N=2 CUSTOM_X")
	for pass := range 5 {
		out, err := Merge(Input{Root: root, Node: "cn1", Driver: "fake", Known: known, Answer: Strip(known, record),
			Record: record, Layers: []Layer{operator}})
		testproc.Check(t, err)
		sameTree(t, want, out.Tree)
		if len(out.Conflicts)+len(out.Kept) > 0 {
			t.Fatalf("pass %d: %v, %v", pass, out.Conflicts, out.Kept)
		}
		known, record = out.Tree, out.Record
	}
	out, err := Merge(Input{Root: root, Node: "cn1",
		Driver: "fake", Known: known, Answer: Strip(known, record), Record: record})
	testproc.Check(t, err)
	sameTree(t, tree(t, "cn1 VCPU=8\n  br_eth0 NET_BW_EGR_KILOBIT_PER_SEC=5"), out.Tree)
}

func TestMergeRefusesWhatIsNoAnswerAboutTheNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8")
	for name, in := range map[string]Input{
		"no answer":                  {Root: root, Known: known},
		"nothing known":              {Root: root, Answer: known},
		"an answer without the root": {Root: root, Known: known, Answer: &providertree.Tree{}},
		"a record of another node":   {Root: root, Known: known, Answer: known, Record: &Record{Root: uid("cn2")}},
		"a layer with an empty class": {Root: root, Known: known, Answer: known,
			Layers: []Layer{{Owner: Operator, Providers: entryFor("cn1", providertree.Inventories{"CUSTOM_A": {}})}}},
		"a layer with an invalid name": {Root: root, Known: known, Answer: known,
			Layers: []Layer{{Owner: Agent, Providers: entryFor("cn1", nil, "lower case")}}},
		"a reshape to a provider that cannot be made": {
			Root: root, Known: tree(t, "cn1 VCPU=8\n  a#1"), Answer: tree(t, "cn1 VCPU=8\n  a#2 !"), Reshape: true,
		},
	} {
		testproc.Try(Merge(in)).ErrorIs(t, ErrMerge, "%s: %v", name)
	}
}

// TestFormerRecordHasTheTraitsThatMove as the driver's, also if there is none yet.
func TestFormerRecordHasTheTraitsThatMove(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known, answer := tree(t, "cn1 VCPU=8 HW_A HW_B\n  gpu0 VGPU=1"), tree(t, "cn1 VCPU=8 HW_B\n  gpu0 VGPU=1 HW_A")
	for record, want := range map[*Record]string{
		nil: "cn1 HW_A:driver",
		owned(t, known, "cn1 driver VCPU:driver HW_B:agent\ngpu0 driver VGPU:driver"): "cn1 driver VCPU:driver " +
			"HW_A:driver HW_B:agent\ngpu0 driver VGPU:driver",
	} {
		out, err := Merge(Input{Root: root, Node: "cn1", Driver: "fake", Known: known, Base: known, Answer: answer,
			Record: record, Reshape: true})
		testproc.Check(t, err)
		if got := owners(out.Former); got != want || out.Former.Root != root || out.Former.Driver != "fake" {
			t.Errorf("%+v: %s, want %s", out.Former, got, want)
		}
	}
}

func TestMergeHandsOnNamedResourcesAndGenerations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, "cn1 VCPU=8\n  pmem CUSTOM_PMEM=2\n  theirs")
	answer := known.Clone()
	must(t, answer.SetGeneration(root, 99)) // a driver has no say in it
	units := map[string][]providertree.Resource{"CUSTOM_PMEM": {{Identifier: "ns0"}, {Identifier: "ns1"}}}
	testproc.Try(answer.SetResources(uid("pmem"), units)).Or(t)
	testproc.Try(answer.Remove(uid("theirs"))).Or(t)
	testproc.Check(t, answer.AddChild(root, uid("new"), "new"))
	out := testproc.Try(Merge(Input{Root: root, Node: "cn1", Known: known, Answer: answer, Created: true})).Or(t)
	p, _ := out.Tree.Provider(uid("pmem"))
	testproc.Same(t, cmp.Diff(units, p.Resources))
	for name, generation := range map[string]int64{"cn1": 1, "pmem": 1, "theirs": 1, "new": providertree.NoGeneration} {
		if p, _ := out.Tree.ProviderByName(name); p.Generation != generation {
			t.Errorf("%s has generation %d, want %d", name, p.Generation, generation)
		}
	}
	if !out.Record.Created {
		t.Error("the record does not say that the root was made")
	}
}
