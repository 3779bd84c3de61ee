// SPDX-License-Identifier: Apache-2.0

package reshape_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const nodeUUID = "11111111-0000-4000-8000-000000000001"

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

var check = testproc.Check

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
			err := reshape.Undo(t.Context(), r, r.log, nil, history, c.id)
			var refused *reshape.UndoError
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
		err := reshape.Undo(t.Context(), r, r.log, records, history, 1)
		if (err == nil) != (says == "") || err != nil &&
			!strings.Contains(err.Error(), says) || len(r.applied) == 1 != (err == nil) {
			t.Errorf("with the record %q: %v, %d posted", content, err, len(r.applied))
		}
	}
}
