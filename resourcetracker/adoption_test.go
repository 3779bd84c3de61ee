// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// asNova26 makes the root of a shared scene what Nova 26 writes: without OWNER_NOVA, and with these
// traits of its driver.
func asNova26(traits ...string) func(*scene) {
	return func(s *scene) {
		shared(s)
		_, err := s.placement.tree.SetTraits(nodeUUID, append([]string{"COMPUTE_NODE", "CUSTOM_RACK_7", "COMPUTE_VOLUME_EXTEND"}, traits...))
		must(s, err)
	}
}

func TestAdoptedRootGetsNoOwnerNova(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, asNova26("HW_CPU_X86_AVX"), func(s *scene) {
			s.driver.edit = func(tree *providertree.Tree) {
				_, err := tree.AddTraits(nodeUUID, "HW_CPU_X86_AVX")
				must(s, err)
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
	const denied = "HW_CPU_X86_AVX512F"
	for name, tc := range map[string]struct {
		edit func(*scene, *providertree.Tree)
		want []string
	}{
		"the driver removes what it knows": {
			func(s *scene, tree *providertree.Tree) {
				_, err := tree.RemoveTraits(nodeUUID, denied)
				must(s, err)
			},
			[]string{"COMPUTE_NODE", "COMPUTE_VOLUME_EXTEND", "CUSTOM_RACK_7"},
		},
		"the driver replaces all traits": {
			func(s *scene, tree *providertree.Tree) {
				_, err := tree.SetTraits(nodeUUID, nil)
				must(s, err)
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
				if !slices.Equal(root.Traits, tc.want) {
					t.Errorf("traits %v, want %v", root.Traits, tc.want)
				}
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
