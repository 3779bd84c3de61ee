// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// reshaper is a Placement with configured answers.
type reshaper struct {
	outcome    reportclient.ReshapeOutcome
	compareErr error
	applyErr   error
	log        *journal.Journal
	applied    []reportclient.Operation
	gone       map[string]bool
	usagesErr  error
}

func (r *reshaper) Usages(_ context.Context, provider string) (providertree.Resources, error) {
	if r.gone[provider] {
		return nil, fmt.Errorf("GET: %w", reportclient.ErrNotFound)
	}
	return nil, r.usagesErr
}

func (r *reshaper) CompareReshape(context.Context, *reportclient.Reshape) (reportclient.ReshapeOutcome, error) {
	return r.outcome, r.compareErr
}

func (r *reshaper) Apply(_ context.Context, root string, plan reportclient.Plan) error {
	r.applied = append(r.applied, plan.Operations...)
	if err := r.log.Begin(root, plan.Operations[0].Reshape); err != nil {
		return err
	}
	outcome := reportclient.ReshapeHappened
	if r.applyErr != nil {
		outcome = reportclient.ReshapeRefused
	}
	return errors.Join(r.applyErr, r.log.End(root, outcome))
}

// moved is a reshape as a journal holds it.
func moved() *reportclient.Reshape {
	return &reportclient.Reshape{Providers: []reportclient.ReshapedProvider{{UUID: nodeUUID,
		Name: "cn1", Generation: 4}}}
}

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
		stock := record.Providers[nodeUUID].Inventories
		if _, ours := stock["CUSTOM_LICENSE"]; ours || stock["VGPU"].Owner != ownership.Driver {
			t.Errorf("after the undo these are ours: %v", stock)
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

func TestUndo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		prepare func(*testing.T, *reshaper, string)
		id      int64
		refused bool
		says    string // "": it is undone
	}{
		"it is undone": {id: 1},
		"placement is unavailable": {id: 1,
			prepare: func(_ *testing.T, r *reshaper, _ string) { r.compareErr = reportclient.ErrUnavailable },
			says:    "comparing reshape 1"},
		"the answer is lost": {id: 1,
			prepare: func(_ *testing.T, r *reshaper, _ string) { r.applyErr = reportclient.ErrUnavailable },
			says:    "undoing reshape 1"},
		"its providers were cleared away": {id: 1, prepare: func(_ *testing.T, r *reshaper, _ string) {
			r.gone = map[string]bool{nodeUUID: true}
		}, refused: true,
			says: "no longer has all of its resource providers, so nothing can be moved back to them: cn1; what to " +
				"do: give the driver its former configuration"},
		"placement goes away": {id: 1,
			prepare: func(_ *testing.T, r *reshaper, _ string) { r.usagesErr = reportclient.ErrUnavailable },
			says:    "looking for the resource providers"},
		"another client wrote before": {id: 1,
			prepare: func(_ *testing.T, r *reshaper, _ string) { r.outcome = reportclient.ReshapeUnknown },
			refused: true, says: "have changed since"},
		"another client wrote just now": {id: 1, prepare: func(_ *testing.T, r *reshaper, _ string) {
			r.applyErr = fmt.Errorf("x: %w", reportclient.ErrConflict)
		}, refused: true, says: "another client has written"},
		"the capacity is used by now": {id: 1, prepare: func(_ *testing.T, r *reshaper, _ string) {
			r.applyErr = fmt.Errorf("%w: capacity", reportclient.ErrReshapeRefused)
		}, refused: true, says: "Placement refuses it"},
		"it was taken back otherwise": {id: 1,
			prepare: func(_ *testing.T, r *reshaper, _ string) { r.outcome = reportclient.ReshapeRefused },
			refused: true, says: "nothing to undo"},
		"there is none": {id: 9, says: "no such reshape"},
		"it did not happen": {id: 2, prepare: func(t *testing.T, r *reshaper, _ string) {
			check(t, r.log.Begin(nodeUUID, moved()), r.log.End(nodeUUID, reportclient.ReshapeRefused))
		}, refused: true, says: "it did not happen"},
		"it is unknown whether it happened": {id: 2, prepare: func(t *testing.T, r *reshaper, _ string) {
			check(t, r.log.Begin(nodeUUID, moved()))
		}, refused: true, says: "unknown whether it happened"},
		"its entry is damaged": {id: 1, prepare: func(t *testing.T, _ *reshaper, dir string) {
			check(t, os.WriteFile(filepath.Join(dir, journal.DirName, "000001-"+nodeUUID+".json"), []byte("{"), 0o600))
		}, refused: true, says: "damaged"},
		"it was undone already": {id: 1, prepare: func(t *testing.T, r *reshaper, _ string) {
			r.log.SetLabel(nodeUUID, journal.Label{Undoes: 1})
			check(t, r.log.Begin(nodeUUID, moved()), r.log.End(nodeUUID, reportclient.ReshapeHappened))
		}, refused: true, says: "already undone, by reshape 2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := &reshaper{outcome: reportclient.ReshapeHappened, log: journal.New(dir)}
			r.log.SetLabel(nodeUUID, journal.Label{Node: "cn1"})
			check(t, r.log.Begin(nodeUUID, moved()), r.log.End(nodeUUID, reportclient.ReshapeHappened))
			if c.prepare != nil {
				c.prepare(t, r, dir)
			}
			history := testproc.Try(journal.Read(dir)).Or(t)
			err := resourcetracker.Undo(t.Context(), r, r.log, nil, history, c.id)
			var refused *resourcetracker.UndoError
			if errors.As(err, &refused) != c.refused || (err == nil) != (c.says == "") || err != nil &&
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("Undo: got %v, want an error with %q, refused: %v", err, c.says, c.refused)
			}
			if err == nil {
				after, err := journal.Find(dir, 2)
				if err != nil || after.Undoes != 1 ||
					after.Node != "cn1" || after.Outcome != reportclient.ReshapeHappened || len(r.applied) != 1 {
					t.Errorf("%+v, %v; %v", after, err, r.applied)
				}
			}
		})
	}
}

var check = testproc.Check

// TestUndoNeedsTheRecord, if there is one, to be readable: nothing is posted before it is brought
// to the layout version that the tree may have.
func TestUndoNeedsTheRecord(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for content, says := range map[string]string{"": "",
		"{": "the node's record in the state directory cannot be changed"} {
		dir := t.TempDir()
		r := &reshaper{outcome: reportclient.ReshapeHappened, log: journal.New(dir)}
		check(t, r.log.Begin(nodeUUID, moved()), r.log.End(nodeUUID, reportclient.ReshapeHappened))
		records := ownership.Open(dir)
		if content != "" {
			check(t, records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake"}),
				os.WriteFile(records.Path(nodeUUID), []byte(content), 0o600))
		}
		history := testproc.Try(journal.Read(dir)).Or(t)
		err := resourcetracker.Undo(t.Context(), r, r.log, records, history, 1)
		if (err == nil) != (says == "") || err != nil &&
			!strings.Contains(err.Error(), says) || len(r.applied) == 1 != (err == nil) {
			t.Errorf("with the record %q: %v, %d posted", content, err, len(r.applied))
		}
	}
}

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
