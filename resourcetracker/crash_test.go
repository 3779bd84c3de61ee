// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

const child2 = "11111111-0000-4000-8000-0000000000cc"

// TestAnAgentThatEndsAmidItsWrites leaves nothing behind that the next one takes for somebody else's, and takes nothing of somebody else's
// for its own: what both say in the end is what one says that was let finish.
func TestAnAgentThatEndsAmidItsWrites(t *testing.T) {
	type outcome struct {
		Tree   []providertree.Provider
		Record *ownership.Record
		Writes int
	}
	// story has the driver make children, and then take one away, rename the other, and change traits and classes; the agent ends
	// after so many writes.
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
				if err := errors.Join(err1, err2, err3); err != nil {
					t.Error(err)
				}
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
				if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
					t.Error(err)
				}
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
			record, err := s.records.Load(nodeUUID)
			must(s, err)
			out = outcome{slices.Collect(s.said().All()), record, s.writes()}
		})
		return out
	}
	want := story(t, 0, false)
	for n := range 2 * want.Writes {
		n, late := n/2+1, n%2 == 1 // the write is done, or it is not
		got := story(t, n, late)
		if d := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Writes" }, cmp.Ignore())); d != "" {
			t.Errorf("after an end amid write %d, done %v (-whole +interrupted):\n%s", n, late, d)
		}
	}
	if want.Writes < 8 || want.Record.Pending {
		t.Errorf("%+v", want)
	}
}
