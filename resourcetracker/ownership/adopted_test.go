// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// reported makes passes in which the driver answers so, one after the other, and returns what
// Placement has then, with the record and the snapshot. The snapshot goes through its file.
func reported(
	t *testing.T, known *providertree.Tree, layers []Layer, answers ...func(*providertree.Tree),
) (*providertree.Tree, *Record, *Adopted) {
	t.Helper()
	store := Open(t.TempDir())
	bare := tree(t, "cn1")
	answers[0](bare)
	record := Adopt(known, bare, root, "cn1", "fake", nil)
	adopted := NewAdopted(known, root)
	for _, answer := range answers {
		in := Input{Root: root, Node: "cn1", Driver: "fake", Known: known, Answer: Strip(known, record),
			Record: record, Layers: layers}
		answer(in.Answer)
		result := testproc.Try(Merge(in)).Or(t)
		adopted = adopted.WithChanges(known, result.Tree)
		testproc.Check(t, store.SaveAdopted(adopted))
		known, record = result.Tree, result.Record
	}
	loaded := testproc.Try(store.LoadAdopted(root)).Or(t)
	testproc.Samef(t, cmp.Diff(adopted.Changed, loaded.Changed), "the file has other changes")
	return known, record, loaded
}

func never(string) bool { return false }

// flatAnswer is what Nova's driver says of novaTree.
func flatAnswer(edit func(*providertree.Tree)) func(*providertree.Tree) {
	return func(tr *providertree.Tree) {
		set := func(uuid, class string, total int64) {
			if _, err := tr.SetInventory(uuid, class, providertree.Inventory{Total: total}); err != nil {
				panic(err)
			}
		}
		set(root, "VCPU", 16)
		set(root, "MEMORY_MB", 2048)
		for _, name := range []string{"cn1_pci_0000_84_00_0", "cn1_pci_0000_85_00_0"} {
			if p, found := tr.ProviderByName(name); found {
				set(p.UUID, "VGPU", 8)
			} else if err := tr.AddChild(root, uid("new-"+name), name); err == nil {
				set(uid("new-"+name), "VGPU", 8)
			}
		}
		if edit != nil {
			edit(tr)
		}
	}
}

func TestGiveBackRestoresTheTree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	must := func(_ any, err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	agent := []Layer{
		{Owner: Agent, Providers: entryFor("cn1", nil, "COMPUTE_NODE", "COMPUTE_NET_ATTACH_INTERFACE")},
		{Owner: Operator,
			Providers: entryFor("cn1", providertree.Inventories{"CUSTOM_SLOTS": {Total: 3}}, "CUSTOM_GOLD")},
	}
	for name, answers := range map[string][]func(*providertree.Tree){
		"other inventories, traits and aggregates": {flatAnswer(func(tr *providertree.Tree) {
			must(tr.AddTraits(root, "HW_CPU_X86_SSE", "HW_CPU_X86_AVX"))
			must(tr.AddAggregates(root, uid("rack")))
		}), flatAnswer(func(tr *providertree.Tree) {
			must(tr.RemoveTraits(root, "HW_CPU_X86_AVX"))
			must(tr.RemoveInventory(root, "DISK_GB"))
		})},
		"a GPU that went": {flatAnswer(nil), flatAnswer(func(tr *providertree.Tree) {
			if tr.Exists(uid("r1")) {
				must(tr.Remove(uid("r1")))
			}
		})},
		"cells, with the GPUs below": {flatAnswer(nil), flatAnswer(func(tr *providertree.Tree) {
			if tr.Exists(uid("r2")) {
				must(nil, tr.AddChild(root, uid("cell"), "cn1_numa_0"))
				must(tr.SetInventory(uid("cell"), "PCPU", providertree.Inventory{Total: 4}))
				must(tr.Move(uid("r2"), uid("cell")))
			}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			before := tree(t, novaTree)
			now, record, adopted := reported(t, before, agent, answers...)
			if changes := providertree.Diff(before, now); changes.Empty() {
				t.Fatal("the passes changed nothing")
			}
			// Other programs write meanwhile.
			testproc.Try(now.AddTraits(root, "CUSTOM_LATE")).Or(t)
			testproc.Try(now.Remove(uid("br_eth0"))).Or(t)
			want := before.Clone()
			must(want.AddTraits(root, "CUSTOM_LATE"))
			must(want.Remove(uid("br_eth0")))
			got, unknown, err := GiveBack(now, record, adopted, never)
			if err != nil || len(unknown) > 0 {
				t.Fatal(unknown, err)
			}
			if changes := providertree.Diff(want, got); !changes.Empty() {
				t.Errorf("it is not what it was: %v", changes)
			}
		})
	}
}

func TestGiveBackRefusesWhatHoldsOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	before := tree(t, novaTree)
	now, record, adopted := reported(t, before, nil, flatAnswer(func(tr *providertree.Tree) {
		if !tr.Exists(uid("cell")) {
			testproc.Check(t, tr.AddChild(root, uid("cell"), "cn1_numa_0"))
		}
	}))
	testproc.Check(t, now.AddChild(uid("cell"), uid("theirs"), "foreign"))
	_, _, err := GiveBack(now, record, adopted, never)
	if !errors.Is(err, ErrGiveBack) || !strings.Contains(err.Error(), "foreign") {
		t.Error(err)
	}
}

// TestGiveBackWithoutSnapshot: an earlier version adopted the node. What is certainly the agent's
// goes, the rest is listed.
func TestGiveBackWithoutSnapshot(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	made := testproc.Try(providertree.ChildUUID(root, "gpu0")).Or(t)
	const novas = "b0b7f3a7-2f44-4a0f-9d0e-2c4b84f4e3a1" // Nova's uuids are random
	before := tree(t, novaTree)
	testproc.Check(t, before.AddChild(root, novas, "cn1_pci_0000_86_00_0"))
	now, record, _ := reported(t, before, nil, flatAnswer(func(tr *providertree.Tree) {
		if _, found := tr.ProviderByName("cn1_pci_0000_86_00_0"); !found {
			testproc.Check(t, tr.AddChild(root, uid("other"), "cn1_pci_0000_86_00_0"))
		}
		if !tr.Exists(made) {
			testproc.Check(t, tr.AddChild(root, made, "cn1_gpu0"))
		}
		testproc.Try(tr.AddTraits(root, "HW_NEW", "CUSTOM_MINE_1")).Or(t)
	}))
	got, unknown, err := GiveBack(now, record, nil, func(trait string) bool { return trait == "CUSTOM_MINE_1" })
	testproc.Check(t, err)
	p, _ := got.Provider(root)
	if record.Providers[novas].Owner != Driver || !got.Exists(novas) {
		t.Error("the GPU that Nova made is gone, or was not the driver's")
	}
	if got.Exists(made) || p.HasTrait("CUSTOM_MINE_1") || !p.HasTrait("HW_NEW") || !p.HasTrait("CUSTOM_RACK_7") {
		t.Errorf("the provider is there: %v, traits %v", got.Exists(made), p.Traits)
	}
	const cn1 = " of resource provider cn1 ("
	want := []string{"the traits HW_NEW" + cn1 + root + ")",
		"the inventories of DISK_GB, MEMORY_MB, VCPU" + cn1 + root + ")"}
	testproc.Samef(t, cmp.Diff(want, unknown), "unknown (- want, + got)")
}

// TestAdoptedFollowsARenamedHost, and what is named after it, and nothing else.
func TestAdoptedFollowsARenamedHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := NewAdopted(tree(t, "cn1\n  cn1_gpu\n  cn10_gpu\n  x_cn1_gpu\n  gpu#cn1_\ncn2"), root)
	a.Rename("cn1", "new")
	var got []string
	for _, p := range a.Providers {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"new", "new_gpu", "cn10_gpu", "x_cn1_gpu", "gpu", "cn2"}, got); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
}

func TestAdoptedFileThatIsDamaged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := Open(t.TempDir())
	if a, err := store.LoadAdopted(root); a != nil || err != nil {
		t.Error(a, err)
	}
	testproc.Check(t, store.SaveAdopted(NewAdopted(tree(t, novaTree), root)))
	if records, err := store.List(); len(records) > 0 || err != nil {
		t.Errorf("the snapshot is taken for a record: %v, %v", records, err)
	}
	for content, want := range map[string]error{"{": ErrDamaged, `{"version": 99}`: ErrNewer,
		`{"version": 1, "root": "x"}`: ErrDamaged} {
		testproc.Check(t, os.WriteFile(store.AdoptedPath(root), []byte(content), 0o600))
		testproc.Try(store.LoadAdopted(root)).ErrorIs(t, want, "%s: %v", content)
	}
	testproc.Check(t, store.Remove(root))
	testproc.Try(os.Stat(store.AdoptedPath(root))).ErrorIs(t, os.ErrNotExist, "the snapshot outlives the node: %v")
}
