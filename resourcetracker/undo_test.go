// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestUndoClaimsNothing of what others have on a provider that the reshape touched.
func TestUndoClaimsNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			s.records = ownership.Open(s.stateDir())
			_, err := s.placement.tree.SetInventory(nodeUUID, "CUSTOM_LICENSE", providertree.Inventory{Total: 3})
			must(s, err)
		})
		<-s.tracker.Ready()
		record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		if _, ours := record.Providers[nodeUUID].Inventories["CUSTOM_LICENSE"]; ours {
			t.Fatal("it is taken for ours before")
		}
		history := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
		must(s, s.tracker.Undo(t.Context(), history, 1))
		s.checkLayout(oldLayout)
		record = testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		owned := record.Providers[nodeUUID].Inventories
		if _, ours := owned["CUSTOM_LICENSE"]; ours || owned["VGPU"].Owner != ownership.Driver {
			t.Errorf("after the undo these are ours: %v", owned)
		}
	})
}

// TestUndoOfAnEntryOfVersion1: the files of a former version of the agent hold an entry as it is
// printed.
func TestUndoOfAnEntryOfVersion1(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus)
		<-s.tracker.Ready()
		entry := testproc.Try(journal.Find(s.stateDir(), 1)).Or(s.t)
		former := testproc.Try(json.MarshalIndent(entry, "", "  ")).Or(s.t)
		must(s, os.WriteFile(entry.File, former, 0o600))
		history := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
		must(s, s.tracker.Undo(t.Context(), history, 1))
		s.checkLayout(oldLayout)
	})
}

// TestAnUndoWithoutAnAnswer that happened all the same is found out, and the record brought to it,
// before anything else is written.
func TestAnUndoWithoutAnAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct{ happened, lost bool }{{true, true}, {false, true}, {false, false}} {
		happened := c.happened
		synctest.Test(t, func(t *testing.T) {
			s := start(t, threeSteps)
			<-s.tracker.Ready()
			history := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
			before := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
			s.placement.set(func(p *fakePlacement) {
				p.lost = happened
				p.onReshape = func() error {
					if record, err := s.records.Load(nodeUUID); err != nil || record.Layout != 0 {
						t.Errorf("a crash now would leave %+v, %v", record, err)
					}
					switch {
					case !c.lost:
						return fmt.Errorf("%w: no capacity", reportclient.ErrReshapeRefused)
					case !happened:
						return reportclient.ErrUnavailable
					}
					return nil
				}
			})
			if err := s.tracker.Undo(t.Context(), history, 1); err == nil {
				t.Fatal("Undo returned no error")
			}
			s.placement.set(func(p *fakePlacement) { p.lost, p.onReshape = false, nil })
			if open, err := s.journal.Unresolved(nodeUUID); err != nil || (len(open) > 0) != c.lost {
				t.Errorf("unresolved: %v, %v", open, err)
			}
			writes := s.writes()
			s.tracker.Refresh("a person asks")
			synctest.Wait()
			record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
			n := s.tracker.Status().Nodes[0]
			switch {
			case s.writes() != writes:
				t.Errorf("%d writes", s.writes()-writes)
			case !happened && (!record.Equal(before) || n.State != resourcetracker.Reporting):
				t.Errorf("nothing was undone, and recorded is %+v, node %+v", record, n)
			case happened &&
				(record.Layout != 0 || record.Providers[nodeUUID].Inventories["VGPU"].Owner != ownership.Driver ||
					n.Cause != resourcetracker.CauseReshapeLate):
				t.Errorf("it was undone, and recorded is %+v, node %+v", record, n)
			}
		})
	}
}

var check = testproc.Check

// TestUndoBetweenPasses: what a tracker reshaped is put back, and its driver's wish then is one for
// the next start.
func TestUndoBetweenPasses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus)
		<-s.tracker.Ready()
		s.checkLayout(newLayout)
		history := testproc.Try(journal.Read(s.stateDir())).Or(t)
		if !s.tracker.Reports(nodeUUID) || s.tracker.Reports(gpu) {
			t.Error("the tracker does not know whose node it is")
		}
		check(t, s.tracker.Undo(t.Context(), history, 1))
		s.checkLayout(oldLayout)
		plans, err := s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})
		if err != nil || !errors.Is(plans[0].Err, plugins.ErrReshapeNeeded) {
			t.Errorf("Plan after an undo: got %v, %+v, want ErrReshapeNeeded", err, plans)
		}
	})
}
