// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const child2 = "11111111-0000-4000-8000-0000000000cc"

// TestAnAgentThatEndsAmidItsWrites leaves nothing behind that the next one takes for another
// client's, and takes nothing of another client's for its own: what both say in the end is what one
// says that was let finish.
func TestAnAgentThatEndsAmidItsWrites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type outcome struct {
		Tree   []providertree.Provider
		Record *ownership.Record
		Writes int
	}
	// story has the driver make children, and then take one away, rename the other, and change
	// traits and classes; the agent ends after so many writes.
	story := func(t *testing.T, writes int, late bool) (out outcome) {
		synctest.Test(t, func(t *testing.T) {
			first := func(tree *providertree.Tree) {
				if !tree.Exists(gpu) {
					_ = tree.AddChild(nodeUUID, gpu, "cn1_gpu")
					_ = tree.AddChild(nodeUUID, child2, "cn1_other")
				}
				_, err1 := tree.SetInventory(gpu, "VGPU", providertree.Inventory{Total: 8})
				_, err2 := tree.SetInventory(child2, "CUSTOM_A", providertree.Inventory{Total: 1})
				_, err3 := tree.AddTraits(nodeUUID, "CUSTOM_FIRST")
				testproc.NoError(t, errors.Join(err1, err2, err3))
			}
			then := func(tree *providertree.Tree) {
				if tree.Exists(gpu) {
					_, _ = tree.Remove(gpu)
				}
				if !tree.Exists(child2) {
					_ = tree.AddChild(nodeUUID, child2, "cn1_other")
				}
				_, err1 := tree.Rename(child2, "cn1_gpu")
				_, err2 := tree.SetInventories(child2, providertree.Inventories{"CUSTOM_B": {Total: 2}})
				_, err3 := tree.RemoveTraits(nodeUUID, "CUSTOM_FIRST")
				_, err4 := tree.AddTraits(nodeUUID, "CUSTOM_THEN")
				_, err5 := tree.AddTraits(child2, "CUSTOM_THEN")
				testproc.NoError(t, errors.Join(err1, err2, err3, err4, err5))
			}
			disabled := func(plugins.Node) (string, bool) { return "maintenance", true }
			s := start(t, shared, func(s *scene) {
				s.driver.edit, s.disabled = first, disabled
				s.placement.failAfter, s.placement.failLate = writes, late
			})
			<-s.tracker.Ready()
			must(s, s.end())
			for range 2 {
				s.driver.edit = then
				last := start(t, func(n *scene) { n.placement, n.driver, n.records = s.placement, s.driver, s.records })
				<-last.tracker.Ready()
				must(s, last.end())
				s.placement.failAfter = 0
			}
			time.Sleep(time.Minute)
			record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
			out = outcome{slices.Collect(s.said().All()), record, s.writes()}
		})
		return out
	}
	want := story(t, 0, false)
	for n := range 2 * want.Writes {
		n, late := n/2+1, n%2 == 1 // the write is done, or it is not
		got := story(t, n, late)
		if d := cmp.Diff(want, got,
			cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Writes" }, cmp.Ignore())); d != "" {
			t.Errorf("after an end amid write %d, done %v (-whole +interrupted):\n%s", n, late, d)
		}
	}
	if want.Writes < 8 || want.Record.Pending {
		t.Errorf("the pass that is not interrupted: got %+v, want 8 writes or more, and a record that is not pending",
			want)
	}
}

// TestATraitThatMovesInAReshapeIsOnOneProvider: another client has put it on the root, and the
// driver has it on the child now. Traits are written before the reshape and not with it; wherever
// the pass breaks off, one after it, that may be no reshape any more, takes away what is left.
func TestATraitThatMovesInAReshapeIsOnOneProvider(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const moves, stays = "HW_CPU_X86_AMD_SEV", "CUSTOM_RACK_7"
	story := func(t *testing.T, writes int, late, restart, keep bool) (total int) {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, vgpus, func(s *scene) {
				testproc.Try(s.placement.tree.AddTraits(nodeUUID, moves, stays)).Or(s.t)
				s.driver.answer = func(tree *providertree.Tree,
					allocations providertree.Allocations) (providertree.Allocations, error) {
					after, err := moveVGPUs(tree, allocations)
					if err != nil {
						return nil, err
					}
					_, err1 := tree.AddTraits(gpu, moves)
					_, err2 := tree.RemoveTraits(nodeUUID, moves)
					return after, errors.Join(err1, err2)
				}
				if keep {
					s.records = ownership.Open(t.TempDir())
				}
				s.placement.failAfter, s.placement.failLate = writes, late
			})
			<-s.tracker.Ready()
			if restart {
				must(s, s.end())
				s = start(t, func(n *scene) {
					n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
				})
				<-s.tracker.Ready()
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			s.checkLayout(newLayout)
			if tree := s.said(); tree.HasTraits(nodeUUID, moves) || !tree.HasTraits(nodeUUID, stays) ||
				!tree.HasTraits(gpu, moves) || tree.HasTraits(gpu, stays) {
				t.Errorf("after an end amid write %d, done %v, restarted %v: %+v",
					writes, late, restart, slices.Collect(tree.All()))
			}
			for _, kept := range s.tracker.Status().Nodes[0].Kept {
				if strings.Contains(kept, moves) {
					t.Errorf("after an end amid write %d, done %v, restarted %v: %s", writes, late, restart, kept)
				}
			}
			if keep {
				record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
				if root := record.Providers[nodeUUID]; record.Pending || root.Traits[moves] != "" ||
					root.Traits[stays] != "" || record.Providers[gpu].Traits[moves] != ownership.Driver {
					t.Errorf("after an end amid write %d, done %v, restarted %v, recorded: %+v",
						writes, late, restart, record)
				}
			}
			total = s.writes()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if s.writes() != total {
				t.Errorf("%d writes more at rest", s.writes()-total)
			}
		})
		return total
	}
	total := story(t, 0, false, false, true)
	if total < 4 {
		t.Fatalf("%d writes: a child, two providers' traits and the reshape", total)
	}
	for n := range 2 * total {
		for _, restart := range []bool{false, true} {
			story(t, n/2+1, n%2 == 1, restart, true)
		}
		// without a state directory it knows as long as it runs
		story(t, n/2+1, n%2 == 1, false, false)
	}
}
