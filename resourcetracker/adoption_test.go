// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// asNova26 makes the root of a shared scene what Nova 26 writes: without OWNER_NOVA, and with these
// traits of its driver.
func asNova26(traits ...string) func(*scene) {
	return func(s *scene) {
		shared(s)
		_, err := s.placement.tree.SetTraits(nodeUUID,
			append([]string{"COMPUTE_NODE", "CUSTOM_RACK_7", "COMPUTE_VOLUME_EXTEND"}, traits...))
		must(s, err)
	}
}

func TestAdoptedRootGetsNoOwnerNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, asNova26("HW_CPU_X86_AVX"), func(s *scene) {
			s.driver.edit = func(tree *providertree.Tree) {
				testproc.Try(tree.AddTraits(nodeUUID, "HW_CPU_X86_AVX")).Or(s.t)
			}
		})
		<-s.tracker.Ready()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s.writes() != 0 || s.said().HasTraits(nodeUUID, resourcetracker.TraitOwnerNova) {
			t.Errorf("%d writes: %v", s.writes(), s.tracker.Status().Nodes[0].Changes)
		}
	})
}

// TestAdoptedRootLosesDeniedTraits: Nova wrote a trait that the driver says the host does not have.
func TestAdoptedRootLosesDeniedTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const denied = "HW_CPU_X86_AVX512F"
	for name, tc := range map[string]struct {
		edit func(*scene, *providertree.Tree)
		want []string
	}{
		"the driver removes what it knows": {
			func(s *scene, tree *providertree.Tree) {
				testproc.Try(tree.RemoveTraits(nodeUUID, denied)).Or(s.t)
			},
			[]string{"COMPUTE_NODE", "COMPUTE_VOLUME_EXTEND", "CUSTOM_RACK_7"},
		},
		"the driver replaces all traits": {
			func(s *scene, tree *providertree.Tree) {
				testproc.Try(tree.SetTraits(nodeUUID, nil)).Or(s.t)
			},
			[]string{"COMPUTE_NODE", "COMPUTE_VOLUME_EXTEND", "CUSTOM_RACK_7", denied},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, asNova26(denied), func(s *scene) {
					s.driver.edit = func(tree *providertree.Tree) { tc.edit(s, tree) }
				})
				<-s.tracker.Ready()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				root, _ := s.said().Provider(nodeUUID)
				testproc.EqualList(t, root.Traits, tc.want, "traits %v")
				want := 1
				if root.HasTrait(denied) {
					want = 0
				}
				if s.writes() != want {
					t.Errorf("%d writes, want %d", s.writes(), want)
				}
			})
		})
	}
}

// TestWhatAnAdoptedNodeWasIsKept before the agent's first write: the tree, and what is changed of
// it by that write and any later one, over restarts and also if the record is lost. A node that the
// agent made, or that it took over from another driver, has none.
func TestWhatAnAdoptedNodeWasIsKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		prepare func(*scene)
		kept    bool
	}{
		"adopted":             {shared, true},
		"made":                {func(s *scene) { s.records = ownership.Open(s.t.TempDir()) }, false},
		"of another driver's": {func(s *scene) { shared(s); s.former() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, c.prepare, func(s *scene) { s.driver.vcpus = 9 })
				<-s.tracker.Ready()
				adopted := func(what string, changed ...string) *ownership.Adopted {
					t.Helper()
					got := testproc.Try(s.records.LoadAdopted(nodeUUID)).Or(s.t)
					if (got != nil) != c.kept {
						t.Fatalf("%s: %+v", what, got)
					}
					var symbols []string
					if got != nil {
						for _, item := range got.Changed {
							symbols = append(symbols, item.Symbol)
						}
						if root := got.Providers[0]; root.Inventories["VCPU"].Total != 8 || len(got.Providers) != 2 {
							t.Errorf("%s: %+v", what, got)
						}
					}
					if c.kept && !slices.Equal(symbols, changed) {
						t.Errorf("%s: changed is %q, want %q", what, symbols, changed)
					}
					return got
				}
				first := adopted("the first write", "VCPU")
				must(s, s.end())
				again := s.again(t)
				<-again.tracker.Ready()
				must(s, again.end())
				adopted("a restart", "VCPU")
				// an administrator's trait, that the driver now says the node does not have
				s.driver.set(func(d *fakeDriver) { d.capabilities = map[string]bool{"CUSTOM_RACK_7": false} })
				again = s.again(t)
				<-again.tracker.Ready()
				must(s, again.end())
				adopted("another change", "VCPU", "CUSTOM_RACK_7")
				must(s, s.records.Remove(nodeUUID))
				if first != nil {
					must(s, s.records.SaveAdopted(first))
				}
				again = s.again(t)
				<-again.tracker.Ready()
				must(s, again.end())
				if c.kept {
					adopted("the record is lost", "VCPU")
				}
			})
		})
	}
}

// former makes another driver the one that the node's record is of.
func (s *scene) former() {
	must(s, s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "other",
		Providers: map[string]ownership.Provider{
			nodeUUID: {Name: "cn1", Owner: ownership.Driver,
				Inventories: map[string]ownership.OwnedInventory{"VCPU": {Owner: ownership.Driver,
					Inventory: providertree.Inventory{Total: 8}}}},
		}}))
}
