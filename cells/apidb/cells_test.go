// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func testCells(t *testing.T, e testEngine) {
	s := e.fresh(t)
	zero, err := s.CreateCell(ctx, apidb.Cell{UUID: apidb.Cell0UUID, Name: "cell0", URL: "unix:///run/cell0"})
	must(t, err)
	one := testproc.Try(s.CreateCell(ctx, apidb.Cell{Name: "cell1", URL: "http://one"})).Or(t)
	if _, err := uuid.Parse(one.UUID); err != nil || one.ID == zero.ID {
		t.Errorf("the cell was made as %+v", one)
	}
	for what, c := range map[string]apidb.Cell{
		"uuid": {UUID: one.UUID, Name: "other", URL: "http://other"},
		"name": {Name: "cell1", URL: "http://other"},
		"URL":  {Name: "other", URL: "http://one"},
	} {
		_, err := s.CreateCell(ctx, c)
		wantError(t, "another cell with the same "+what, err, apidb.ErrExists)
		if err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("the error does not say that it is the %s: %v", what, err)
		}
	}
	one.Name, one.Disabled = "east", true
	must(t, s.UpdateCell(ctx, one))
	wants[[]apidb.Cell](t, "cells")(s.Cells(ctx))([]apidb.Cell{zero, one})
	if _, err := s.CreateCell(ctx, apidb.Cell{UUID: apidb.Cell0UUID, Name: "zero", URL: "http://zero"}); err == nil ||
		!strings.Contains(err.Error(), "cell0, at unix:///run/cell0: exists already") {
		t.Errorf("a second cell0: %v", err)
	}
	taken := one
	taken.URL = zero.URL
	wantError(t, "the URL of another cell", s.UpdateCell(ctx, taken), apidb.ErrExists)
	wantError(t, "a cell that is not there", s.UpdateCell(ctx, apidb.Cell{UUID: "nowhere", Name: "n", URL: "u"}),
		apidb.ErrNotFound)
	zero.Disabled = true
	wantError(t, "disabling cell0", s.UpdateCell(ctx, zero), apidb.ErrInvalid)
	_, err = s.CreateCell(ctx, apidb.Cell{Name: "no URL"})
	wantError(t, "no URL", err, apidb.ErrInvalid)
	wants[[]apidb.Cell](t,
		"cells after refusals")(s.Cells(
		ctx))([]apidb.Cell{{ID: zero.ID, UUID: zero.UUID, Name: zero.Name, URL: zero.URL}, one})
}

// testCellIDsAreNotReused: an id is never given again: a page by ids must not go on with another
// cell's.
func testCellIDsAreNotReused(t *testing.T, e testEngine) {
	s := e.fresh(t)
	one := testproc.Try(s.CreateCell(ctx, apidb.Cell{Name: "a", URL: "http://a"})).Or(t)
	must(t, s.DeleteCell(ctx, one.UUID, false))
	two := testproc.Try(s.CreateCell(ctx, apidb.Cell{Name: "b", URL: "http://b"})).Or(t)
	if two.ID <= one.ID {
		t.Errorf("the second cell has id %d, the first had %d", two.ID, one.ID)
	}
}

func testDeleteCell(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 2)
	wantError(t, "a cell that is not there", s.DeleteCell(ctx, "nowhere", true), apidb.ErrNotFound)
	must(t, s.MapNodes(ctx, []apidb.Node{{UUID: "n1", Name: "n1", Host: "h1", CellUUID: cellUUID(1)}}))
	err := s.DeleteCell(ctx, cellUUID(1), false)
	wantError(t, "a cell with a host", err, apidb.ErrInUse)
	if err != nil && !strings.Contains(err.Error(), "cell cell1 has 1 hosts") {
		t.Errorf("it is not named: %v", err)
	}
	placed(t, s, server("s1", "p"), cellUUID(1))
	wantError(t, "force, with a living server", s.DeleteCell(ctx, cellUUID(1), true), apidb.ErrInUse)
	must(t, s.SetQueued(ctx, map[string]bool{"s1": true}))
	wantError(t, "no force, with a deleted server", s.DeleteCell(ctx, cellUUID(1), false), apidb.ErrInUse)
	must(t, s.DeleteCell(ctx, cellUUID(1), true))

	_, err = s.Mapping(ctx, "s1")
	wantError(t, "the mapping of a server in a cell that was deleted", err, apidb.ErrNotFound)
	_, err = s.RequestSpec(ctx, "s1")
	wantError(t, "its specification", err, apidb.ErrNotFound)
	wants[[]apidb.Node](t, "nodes")(s.Nodes(ctx))(nil)
	wants[[]apidb.HostMapping](t, "hosts")(s.Hosts(ctx))(nil)
	must(t, s.DeleteCell(ctx, cellUUID(2), false))
}

// testDeleteCellNotMigrated: a NULL queued_for_delete counts as living: such a server keeps its
// cell.
func testDeleteCellNotMigrated(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	placed(t, s, server("s1", "p"), cellUUID(1))
	execute(t, s.name, "UPDATE instance_mappings SET queued_for_delete = NULL")
	wantError(t, "force, with a server that is not migrated", s.DeleteCell(ctx, cellUUID(1), true), apidb.ErrInUse)
}

func testNodes(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 2)
	a := apidb.Node{UUID: "na", Name: "a", Host: "h1", CellUUID: cellUUID(1)}
	b := apidb.Node{UUID: "nb", Name: "b", Host: "h1", CellUUID: cellUUID(1)}
	c := apidb.Node{UUID: "nc", Name: "c", Host: "h2", CellUUID: cellUUID(2)}
	must(t, s.MapNodes(ctx, nil))
	must(t, s.MapNodes(ctx, []apidb.Node{c, b, a}))
	must(t, s.MapNodes(ctx, []apidb.Node{a, b, c})) // again
	a.Name = "A"
	must(t, s.MapNodes(ctx, []apidb.Node{a}))
	wants[[]apidb.Node](t, "nodes")(s.Nodes(ctx))([]apidb.Node{a, b, c})
	wants[[]apidb.HostMapping](t,
		"hosts")(s.Hosts(ctx))([]apidb.HostMapping{{Host: "h1", CellUUID: cellUUID(1)},
		{Host: "h2", CellUUID: cellUUID(2)}})

	d := apidb.Node{UUID: "nd", Name: "d", Host: "h3", CellUUID: cellUUID(1)}
	for _, refused := range []struct {
		what, name string
		node       apidb.Node
		want       error
	}{
		{"a host of another cell", "host h1 in cell cell1, not cell2",
			apidb.Node{UUID: "ne", Name: "e", Host: "h1", CellUUID: cellUUID(2)}, apidb.ErrExists},
		{"a node of another host", "na", apidb.Node{UUID: "na", Name: "a", Host: "h2", CellUUID: cellUUID(2)},
			apidb.ErrExists},
		{"a cell that is not there", "nowhere", apidb.Node{UUID: "ne", Name: "e", Host: "h4", CellUUID: "nowhere"},
			apidb.ErrNotFound},
		{"cell0", "cell0", apidb.Node{UUID: "ne", Name: "e", Host: "h4", CellUUID: apidb.Cell0UUID}, apidb.ErrInvalid},
		{"no host", "needs", apidb.Node{UUID: "ne", Name: "e", CellUUID: cellUUID(1)}, apidb.ErrInvalid},
	} {
		err := s.MapNodes(ctx, []apidb.Node{d, refused.node})
		wantError(t, refused.what, err, refused.want)
		if err != nil && !strings.Contains(err.Error(), refused.name) {
			t.Errorf("%s: the error does not name %s: %v", refused.what, refused.name, err)
		}
	}
	wants[[]apidb.Node](t, "nodes after refusals")(s.Nodes(ctx))([]apidb.Node{a, b, c})

	taken := apidb.Node{UUID: "nc", Name: "C", Host: "h3", CellUUID: cellUUID(1)}
	wantError(t, "taking a node from a host that does not have it", s.RemapNode(ctx, taken, "h1"), apidb.ErrExists)
	wantError(t, "taking a node for no host",
		s.RemapNode(ctx, apidb.Node{UUID: "nc", Name: "C", CellUUID: cellUUID(1)}, "h2"), apidb.ErrInvalid)
	wantError(t, "taking a node for a host of another cell",
		s.RemapNode(ctx, apidb.Node{UUID: "nc", Name: "C", Host: "h1", CellUUID: cellUUID(2)}, "h2"), apidb.ErrExists)
	wants[[]apidb.Node](t, "nodes after these refusals")(s.Nodes(ctx))([]apidb.Node{a, b, c})
	must(t, s.RemapNode(ctx, taken, "h2"))
	must(t, s.RemapNode(ctx, taken, "h2")) // again
	wants[[]apidb.Node](t, "nodes after one was taken")(s.Nodes(ctx))([]apidb.Node{a, b, taken})
	must(t, s.RemapNode(ctx, c, "h3"))
	must(t, s.DeleteHost(ctx, "h3"))

	must(t, s.DeleteHost(ctx, "h1"))
	wants[[]apidb.Node](t, "nodes without h1")(s.Nodes(ctx))([]apidb.Node{c})
	wantError(t, "unmapping a host again", s.DeleteHost(ctx, "h1"), apidb.ErrNotFound)
	a.CellUUID = cellUUID(2)
	must(t, s.MapNodes(ctx, []apidb.Node{a})) // a host may move once it is unmapped
}
