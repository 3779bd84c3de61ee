// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// TestChattyDriverDoesNotDefeatTheBackoff: while Placement is down, a driver that tells of a change
// ten times a second does not make the agent ask Placement ten times a second.
func TestChattyDriverDoesNotDefeatTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) { s.placement.readErr = reportclient.ErrUnavailable })
		<-s.tracker.Ready()
		for range 600 { // a minute
			s.tracker.Changed("the driver sees a change")
			time.Sleep(100 * time.Millisecond)
		}
		s.placement.mu.Lock()
		reads := s.placement.reads
		s.placement.mu.Unlock()
		if reads > 60 { // one a second would be generous: the back-off begins with that and doubles
			t.Errorf("%d tries within a minute of an outage", reads)
		}
	})
}

// TestDrainIsBounded: a dry run that hangs in the driver does not keep the tracker from ending.
func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		asked := make(chan struct{})
		s.driver.set(func(d *fakeDriver) {
			d.block = func(ctx context.Context) {
				select {
				case <-asked:
				default:
					close(asked)
				}
				<-ctx.Done()
			}
		})
		planned := make(chan struct{})
		go func() {
			defer close(planned)
			_, _ = s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})
		}()
		<-asked
		s.tracker.Refresh("a pass that waits for the dry run")
		synctest.Wait()
		begin := time.Now()
		_ = s.end()
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("the tracker took %v to end, ten seconds are allowed", took)
		}
		<-planned // at its own deadline
	})
}

// TestAnotherCauseIsLogged: a pass that fails for another reason than before is logged, however
// often it has failed.
func TestAnotherCauseIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) { s.placement.readErr = reportclient.ErrUnavailable })
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) { p.readErr = reportclient.ErrRefused })
		time.Sleep(10 * time.Second) // a few tries
		synctest.Wait()
		if s.logged("rejects the credentials") == 0 {
			t.Errorf("after %d failures the log does not say that the credentials are refused", s.tracker.Status().Failures)
		}
	})
}

// TestWritesBeforeAConflictAreReported: the log and the status list what a pass wrote before a
// conflict.
func TestWritesBeforeAConflictAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) {
			s.placement.tree = &providertree.Tree{}
			if err := s.placement.tree.Populate([]providertree.Provider{{UUID: nodeUUID, Name: "cn1", Generation: 1}}); err != nil {
				t.Fatal(err)
			}
			s.placement.onApply = func() { // the inventory is taken, the traits meet a conflict
				s.placement.onApply = nil
				if _, err := s.placement.tree.SetInventory(nodeUUID, "VCPU", providertree.Inventory{Total: 8}); err != nil {
					t.Fatal(err)
				}
				s.placement.applyErr = []error{&reportclient.ApplyError{Done: 1, Failed: []*reportclient.OperationError{{
					Operation: reportclient.Operation{Kind: reportclient.SetTraits, UUID: nodeUUID, Provider: "cn1"}, Provider: "cn1", Err: reportclient.ErrConflict,
				}}}}
			}
		})
		<-s.tracker.Ready()
		if s.logged("Set the inventory of cn1") == 0 {
			t.Error("the log does not say that the inventory was written")
		}
		if n := s.tracker.Status().Nodes[0].Writes; n != 2 {
			t.Errorf("the status counts %d writes, Placement took 2", n)
		}
	})
}

// TestTrackerThatHasNotBegunIsNotDead: the watchdog must not take a tracker that waits for its
// plugin's first start for one that hangs.
func TestTrackerThatHasNotBegunIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := resourcetracker.New(resourcetracker.Config{Name: "fake"})
		time.Sleep(time.Minute)
		if age := time.Since(tracker.Beat()); age > 30*time.Second {
			t.Errorf("a tracker that is not running yet looks dead for %v", age)
		}
	})
}

// TestManyChangesAreOnePassASecond: the functions of a card that appear one after another are one
// change to Placement.
func TestManyChangesAreOnePassASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		before := s.calls()
		for range 1000 { // ten seconds
			s.tracker.Changed("the driver sees a change")
			time.Sleep(10 * time.Millisecond)
		}
		if passes := s.calls() - before; passes < 9 || passes > 11 {
			t.Errorf("%d passes in ten seconds of changes", passes)
		}
		s.driver.set(func(d *fakeDriver) { d.vcpus = 9 })
		s.tracker.Changed("the driver sees a change")
		time.Sleep(1500 * time.Millisecond)
		if inv, _ := s.said().Inventory(nodeUUID, "VCPU"); inv.Total != 9 {
			t.Error("a change is not told within a second")
		}
	})
}
