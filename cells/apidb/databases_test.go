// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// testDatabasesOfCells: what is noted of one answer after the other, each asked for when all before
// was known.
func testDatabasesOfCells(t *testing.T, e testEngine) {
	type saw struct {
		epoch    string
		revision int64
		accepted bool   // by an operator, before it was seen
		known    string // after it
		highest  int64
		suspect  string // "": it fits
	}
	for name, steps := range map[string][]saw{
		"first contact, changes, restarts": {{"a", 5, false, "a", 5, ""}, {"a", 9, false, "a", 9, ""},
			{"a", 9, false, "a", 9, ""}},
		"lost": {
			{"a", 5, false, "a", 5, ""}, {"b", 1, false, "a", 5, "b"}, {"b", 7, false, "a", 5, "b"},
			{"b", 8, true, "b", 8, ""}, {"b", 9, false, "b", 9, ""}, {"a", 20, false, "b", 9, "a"},
		},
		"lost, and the right one put back": {{"a", 5, false, "a", 5, ""}, {"b", 1, false, "a", 5, "b"},
			{"a", 5, false, "a", 5, ""}},
		"lost, and an older copy put back": {
			{"a", 5, false, "a", 5, ""}, {"b", 1, false, "a", 5, "b"},
			{"a", 4, false, "a", 5, "b"}, {"a", 4, true, "a", 4, ""},
		},
		"an older copy, which goes on": {
			{"a", 5, false, "a", 5, ""}, {"a", 4, false, "a", 5, "a"}, {"a", 6, false, "a", 5, "a"},
			{"b", 1, false, "a", 5, "a"}, {"a", 9, false, "a", 5, "a"},
			{"a", 9, true, "a", 9, ""}, {"a", 10, false, "a", 10, ""},
		},
		"accepted before it was ever seen": {{"a", 5, true, "a", 5, ""}, {"a", 4, false, "a", 5, "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := e.fresh(t)
			withCells(t, s, 1)
			cell := cellUUID(1)
			for i, step := range steps {
				seen := apidb.CellMark{Epoch: step.epoch, Revision: step.revision}
				if step.accepted {
					must(t, s.AcceptCell(ctx, cell, seen))
				}
				known := testproc.Try(s.CellDatabases(ctx)).Or(t)
				before := known[cell]
				before.CellUUID = cell
				now := testproc.Try(s.RecordMark(ctx, before, seen)).Or(t)
				if now.Known != (apidb.CellMark{Epoch: step.known, Revision: step.highest}) ||
					(now.Suspect != nil) != (step.suspect != "") || now.Suspect != nil &&
					now.Suspect.Epoch != step.suspect {
					t.Errorf("step %d, %+v: %+v, suspect %+v", i+1, step, now, now.Suspect)
				}
				if (now.Suspect == nil) != before.Fits(seen) {
					t.Errorf("step %d, %+v: Suspect contradicts Fits", i+1, step)
				}
				again := testproc.Try(s.CellDatabases(ctx)).Or(t)
				if d := cmp.Diff(map[string]apidb.CellDatabase{cell: now}, again); d != "" {
					t.Errorf("step %d, %+v: what is read is not what was returned (-returned +read):\n%s", i+1, step, d)
				}
			}
		})
	}
}

// testOutOfOrderRevisionsAreIgnored: an answer that comes late, after others told of more, is no
// going back, and does not undo what was accepted.
func testOutOfOrderRevisionsAreIgnored(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	cell := cellUUID(1)
	see := func(before apidb.CellDatabase, epoch string, revision int64) apidb.CellDatabase {
		t.Helper()
		return testproc.Try(s.RecordMark(ctx, before, apidb.CellMark{Epoch: epoch, Revision: revision})).Or(t)
	}
	none := apidb.CellDatabase{CellUUID: cell}
	first := see(none, "a", 5)
	see(first, "a", 9)
	for what, now := range map[string]apidb.CellDatabase{"of another process's first contact": see(none, "a", 6),
		"of a round before": see(first, "a", 7)} {
		if now.Known.Revision != 9 || now.Suspect != nil {
			t.Errorf("an answer %s: %+v", what, now)
		}
	}
	must(t, s.AcceptCell(ctx, cell, apidb.CellMark{Epoch: "b", Revision: 2}))
	if now := see(first, "b", 3); now.Suspect != nil || now.Known != (apidb.CellMark{Epoch: "b", Revision: 3}) {
		t.Errorf("what was accepted while the cell was asked: %+v", now)
	}
}

func testDatabasesOfCellsRefused(t *testing.T, e testEngine) {
	path := e.empty(t)
	since := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	s := open(t, path, apidb.Options{Now: func() time.Time { return since }})
	withCells(t, s, 2)
	good := apidb.CellMark{Epoch: "a", Revision: 3}
	for what, mark := range map[string]apidb.CellMark{"no epoch": {Revision: 1}, "no revision": {Epoch: "a"}} {
		wantError(t, "accepting "+what, s.AcceptCell(ctx, cellUUID(1), mark), apidb.ErrInvalid)
		_, err := s.RecordMark(ctx, apidb.CellDatabase{CellUUID: cellUUID(1)}, mark)
		wantError(t, "seeing "+what, err, apidb.ErrInvalid)
	}
	wantError(t, "accepting a cell that is not there", s.AcceptCell(ctx, "nowhere", good), apidb.ErrNotFound)
	_, err := s.RecordMark(ctx, apidb.CellDatabase{CellUUID: "nowhere"}, good)
	wantError(t, "seeing a cell that is not there", err, apidb.ErrNotFound)

	// What is suspect stays so when the process ends, and goes with the cell.
	one := testproc.Try(s.RecordMark(ctx, apidb.CellDatabase{CellUUID: cellUUID(1)}, good)).Or(t)
	testproc.Try(s.RecordMark(ctx, one, apidb.CellMark{Epoch: "a", Revision: 1})).Or(t)
	must(t, s.AcceptCell(ctx, cellUUID(2), good))
	shut(t, s)
	s = open(t, path, apidb.Options{})
	defer shut(t, s)
	two := apidb.CellDatabase{CellUUID: cellUUID(2), Known: good}
	wants[map[string]apidb.CellDatabase](t, "after a restart")(s.CellDatabases(ctx))(map[string]apidb.CellDatabase{
		cellUUID(1): {CellUUID: cellUUID(1), Known: good, Suspect: &apidb.CellMark{Epoch: "a", Revision: 1},
			Since: since}, cellUUID(2): two,
	})
	must(t, s.DeleteCell(ctx, cellUUID(1), true))
	wants[map[string]apidb.CellDatabase](t,
		"without the cell")(s.CellDatabases(ctx))(map[string]apidb.CellDatabase{cellUUID(2): two})
}
