// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// onRoot is a driver's version that knows nothing of GPUs: VGPU is on the root. It leaves what it
// does not know.
func onRoot(tree *providertree.Tree, allocations providertree.Allocations) (providertree.Allocations, error) {
	_, err := tree.SetInventory(nodeUUID, "VGPU", providertree.Inventory{Total: 4})
	return allocations, err
}

// again starts another agent on the same state and Placement.
func (s *scene) again(t *testing.T) *scene {
	return start(t, func(n *scene) {
		n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
	})
}

// TestAnOlderDriverWithoutNumbersDoesNotDoubleTheInventory: the journal knows what a reshape took
// away. What comes back without a reshape, while it is where the reshape put it, would count twice.
func TestAnOlderDriverWithoutNumbersDoesNotDoubleTheInventory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) { s.records = ownership.Open(s.stateDir()) })
		<-s.tracker.Ready()
		must(s, s.end())
		newer := s.driver.answer
		writes := s.writes()

		s.driver.answer = onRoot
		old := s.again(t)
		<-old.tracker.Ready()
		time.Sleep(time.Hour)
		n := old.tracker.Status().Nodes[0]
		if n.Cause != resourcetracker.CauseDriverOlder ||
			!strings.Contains(n.Error, "VGPU on cn1, which was moved to VGPU on cn1_gpu") ||
			!strings.Contains(n.Hint, "reshape undo 1") {
			t.Errorf("the node of an older driver: got %+v, want it held with the hint to undo the reshape", n)
		}
		if s.writes() != writes {
			t.Errorf("%d writes", s.writes()-writes)
		}
		plans := testproc.Try(old.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})).Or(s.t)
		if len(plans) != 1 || plans[0].Err == nil {
			t.Errorf("the plan says %+v", plans)
		}

		// Taken back, it is the older driver's tree again, and nothing is counted twice.
		history := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
		must(s, old.tracker.Undo(t.Context(), history, 1))
		old.tracker.Refresh("undone")
		synctest.Wait()
		if n := old.tracker.Status().Nodes[0]; n.Error != "" {
			t.Errorf("after the undo: %+v", n)
		}
		s.checkLayout(oldLayout)
		must(s, old.end())

		// The newer one comes again, and moves it again: that it moved there once is no reason to
		// hold it.
		s.driver.answer = newer
		next := s.again(t)
		<-next.tracker.Ready()
		if n := next.tracker.Status().Nodes[0]; n.Error != "" {
			t.Errorf("the newer driver: %+v", n)
		}
		must(s, next.end())

		// A driver that moves it back with a reshape is no older one.
		s.driver.answer = func(tree *providertree.Tree,
			allocations providertree.Allocations) (providertree.Allocations, error) {
			if _, there := tree.Inventory(gpu, "VGPU"); !there {
				return allocations, nil
			}
			if allocations == nil {
				return nil, &plugins.ReshapeNeeded{Reason: "VGPU moves back"}
			}
			if _, err := tree.SetInventory(nodeUUID, "VGPU", providertree.Inventory{Total: 4}); err != nil {
				return nil, err
			}
			if _, err := tree.RemoveInventory(gpu, "VGPU"); err != nil {
				return nil, err
			}
			return plugins.MoveAll(allocations, plugins.Place{Provider: gpu, Class: "VGPU"},
				plugins.Place{Provider: nodeUUID, Class: "VGPU"}).Apply(allocations)
		}
		back := s.again(t)
		<-back.tracker.Ready()
		if n := back.tracker.Status().Nodes[0]; n.Error != "" {
			t.Errorf("the driver that moves it back: %+v", n)
		}
		s.checkLayout(oldLayout)
		s.driver.set(func(d *fakeDriver) { d.answer = onRoot })
		time.Sleep(time.Hour)
		if n := back.tracker.Status().Nodes[0]; n.Error != "" {
			t.Errorf("and a driver that only knows the root then: %+v", n)
		}
	})
}

// TestInventoryThatReallyWentBackIsNotCountedTwice: without guests a driver may put it back without
// a reshape, if it takes it away where the reshape put it.
func TestInventoryThatReallyWentBackIsNotCountedTwice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) { s.records = ownership.Open(s.stateDir()) })
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) { p.allocations = nil })
		s.driver.set(func(d *fakeDriver) {
			d.answer = func(tree *providertree.Tree,
				allocations providertree.Allocations) (providertree.Allocations, error) {
				if _, err := tree.RemoveInventory(gpu, "VGPU"); err != nil {
					return nil, err
				}
				return onRoot(tree, allocations)
			}
		})
		s.tracker.Refresh("a person asks")
		synctest.Wait()
		if n := s.tracker.Status().Nodes[0]; n.Error != "" {
			t.Errorf("the node: got %+v, want no error", n)
		}
		tree := s.said()
		if _, there := tree.Inventory(nodeUUID, "VGPU"); !there {
			t.Error("it is not back on the root")
		}
	})
}

// TestAReshapeAskedForAgain: right after it was made, that is a defect of the driver, and no
// restart helps. After a new configuration it is a reshape like any other.
func TestAReshapeAskedForAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus)
		<-s.tracker.Ready()
		s.driver.set(func(d *fakeDriver) {
			d.answer = func(*providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
				return nil, &plugins.ReshapeNeeded{Reason: "VGPU moves to the GPU"}
			}
		})
		for range 2 {
			time.Sleep(10 * time.Minute)
			n := s.tracker.Status().Nodes[0]
			if n.Cause != resourcetracker.CauseReshapeAgain || !strings.Contains(n.Error, "defect of the driver") ||
				strings.Contains(n.Hint, "restart") {
				t.Errorf("%s: %s; %s", n.Cause, n.Error, n.Hint)
			}
		}
		s.tracker.Reconfigured("a reload")
		synctest.Wait()
		if n := s.tracker.Status().Nodes[0]; n.Cause != resourcetracker.CauseReshapeLate ||
			!strings.Contains(n.Hint, "restart the agent") {
			t.Errorf("after a reload: %s: %s; %s", n.Cause, n.Error, n.Hint)
		}
	})
}

// TestADriverThatFlaps is reported, and no longer when it has stopped. See TestWhenAnItemFlaps for
// what flapping is.
func TestADriverThatFlaps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		refresh := func(times int, change int64) []string {
			for range times {
				s.driver.set(func(d *fakeDriver) { d.vcpus = change - d.vcpus })
				s.tracker.Refresh("the test")
				synctest.Wait()
			}
			return s.tracker.Status().Nodes[0].Flapping
		}
		// with the first pass
		if got := refresh(9, 17); len(got) != 1 || !strings.HasPrefix(got[0], "inventory VCPU of cn1: total ") {
			t.Errorf("reported: %q", got)
		}
		// passes that fail and write nothing do not count
		s.placement.set(func(p *fakePlacement) { p.readErr = reportclient.ErrUnavailable })
		if got := refresh(20, 17); len(got) != 1 {
			t.Errorf("after an outage: %q", got)
		}
		s.placement.set(func(p *fakePlacement) { p.readErr = nil })
		s.driver.set(func(d *fakeDriver) { d.vcpus = 8 })
		if got := refresh(20, 16); len(got) > 0 {
			t.Errorf("it is over, and still reported: %q", got)
		}
	})
}

// TestItemsThatOthersOverwrite: what another client changes again and again is restored, and in the
// status from the third time on, until it stays. The driver is not reported to flap.
func TestItemsThatOthersOverwrite(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		pass := func(overwritten bool) []string {
			if overwritten {
				s.placement.set(func(p *fakePlacement) {
					_, _ = p.tree.SetInventory(nodeUUID, "VCPU", providertree.Inventory{Total: 1})
				})
			}
			s.tracker.Refresh("the test")
			synctest.Wait()
			if inv, _ := s.said().Inventory(nodeUUID, "VCPU"); inv.Total != 8 {
				t.Errorf("not restored: %d", inv.Total)
			}
			return s.tracker.Status().Nodes[0].Overwritten
		}
		for n := range 5 {
			if got := pass(true); (len(got) == 1) != (n >= 2) {
				t.Errorf("restored %d times: %q", n+1, got)
			}
			pass(false)
		}
		testproc.EqualList(t, s.tracker.Status().Nodes[0].Flapping, nil, "flapping: %q")
		for range 64 {
			pass(false)
		}
		testproc.EqualList(t, s.tracker.Status().Nodes[0].Overwritten, nil, "it is over, and still reported: %q")
	})
}

// TestDriverLeavesSharingProvidersAlone: the drivers of two hosts see the same one, and would
// overwrite each other forever.
func TestDriverLeavesSharingProvidersAlone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const nfs = "11111111-0000-4000-8000-0000000000bb"
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) {
			s.placement.tree = &providertree.Tree{}
			must(s, s.placement.tree.Populate([]providertree.Provider{
				{UUID: nodeUUID, Name: "cn1", Generation: 1},
				{UUID: nfs, Name: "nfs", Generation: 1, Traits: []string{providertree.TraitSharesViaAggregate},
					Inventories: providertree.Inventories{"DISK_GB": {Total: 100}}},
			}))
			s.driver.edit = func(tree *providertree.Tree) {
				_, _ = tree.SetInventory(nfs, "DISK_GB", providertree.Inventory{Total: 200})
				_, _ = tree.AddTraits(nfs, "CUSTOM_FAST")
			}
		})
		<-s.tracker.Ready()
		n := s.tracker.Status().Nodes[0]
		if nfs, _ := s.said().Provider(nfs); nfs.Inventories["DISK_GB"].Total != 100 || nfs.HasTrait("CUSTOM_FAST") {
			t.Errorf("it was written to: %+v", nfs)
		}
		if n.State != resourcetracker.Reporting ||
			len(n.Kept) != 2 || !containsAll(n.Kept[0]+
			n.Kept[1], "changed the inventory DISK_GB of resource provider nfs", "added the trait CUSTOM_FAST") {
			t.Errorf("the node beside a sharing provider: got %+v, want it reported with two items kept", n)
		}
		writes := s.writes()
		time.Sleep(time.Hour)
		synctest.Wait()
		testproc.Equal(t, s.writes()-writes, 0, "%d writes in an hour")
	})
}

// TestWritingShowsHowFarItIs: while a pass writes, and no longer.
func TestWritingShowsHowFarItIs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) { s.placement.progress = make(chan struct{}) })
		synctest.Wait()
		n := s.tracker.Status().Nodes[0]
		if n.Writing == nil || n.Writing.Done != 1 || n.Writing.Operations < 2 {
			t.Errorf("while it writes: %+v", n.Writing)
		}
		close(s.placement.progress)
		<-s.tracker.Ready()
		if n := s.tracker.Status().Nodes[0]; n.Writing != nil {
			t.Errorf("afterwards: %+v", n.Writing)
		}
	})
}
