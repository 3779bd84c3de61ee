// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func uuids(ms []apidb.Mapping) (out []string) {
	for _, m := range ms {
		out = append(out, m.InstanceUUID)
	}
	return out
}

func wantUUIDs(t testing.TB, what string, ms []apidb.Mapping, err error, want ...string) {
	t.Helper()
	must(t, err)
	testproc.Samef(t, gocmp.Diff(want, uuids(ms)), "%s", what)
}

// testNotDeletedByCellAndProject has the assertions of Nova's
// test_get_not_deleted_by_cell_and_project, _limit and _None: who is not known to be deleted counts
// as living, also when it is not migrated.
func testNotDeletedByCellAndProject(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 2)
	for i, row := range []struct {
		uuid, project string
		cell          int
		queued        any
	}{
		{"deleted", "fake", 1, 1}, {"living", "fake", 1, 0}, {"unmigrated", "fake", 1, nil},
		{"other project", "faker", 1, 0}, {"other cell", "fake", 2, 0},
	} {
		placed(t, s, at(server(row.uuid, row.project), start.Add(time.Duration(i)*time.Second)), cellUUID(row.cell))
		must(t, setQueued(s.name, row.uuid, row.queued))
	}
	one := []string{cellUUID(1)}
	ms, err := s.Mappings(ctx, apidb.MappingFilter{ProjectID: "fake", CellUUIDs: one, Living: true})
	wantUUIDs(t, "of a project in a cell", ms, err, "unmigrated", "living")
	ms, err = s.Mappings(ctx, apidb.MappingFilter{ProjectID: "fake", CellUUIDs: one, Living: true, Limit: 1})
	wantUUIDs(t, "limited", ms, err, "unmigrated")
	ms, err = s.Mappings(ctx, apidb.MappingFilter{CellUUIDs: one, Living: true})
	wantUUIDs(t, "of all projects in a cell", ms, err, "other project", "unmigrated", "living")
	ms, err = s.Mappings(ctx, apidb.MappingFilter{CellUUIDs: one})
	wantUUIDs(t, "deleted ones as well", ms, err, "other project", "unmigrated", "living", "deleted")
	ms, err = s.Mappings(ctx, apidb.MappingFilter{Living: true})
	wantUUIDs(t, "of all cells", ms, err, "other cell", "other project", "unmigrated", "living")
	ms, err = s.Mappings(ctx, apidb.MappingFilter{CellUUIDs: []string{}, Living: true})
	wantUUIDs(t, "of no cell", ms, err)
	ms, err = s.Mappings(ctx, apidb.MappingFilter{CellUUIDs: []string{"nowhere"}})
	wantUUIDs(t, "of a cell that is not there", ms, err)
}

// testCounts has the assertions of Nova's test_get_counts: with usage from Placement, servers that
// are not migrated or queued for delete are not counted (Known); and what quota needs besides.
func testCounts(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 2)
	for _, row := range []struct {
		uuid, project string
		cell          int
		queued        any
	}{
		{"a", "fake", 1, 0}, {"b", "fake", 2, 0}, {"c", "fake", 1, nil}, {"d", "fake", 1, 1}, {"e", "other", 1, 0},
	} {
		placed(t, s, server(row.uuid, row.project), cellUUID(row.cell))
		must(t, setQueued(s.name, row.uuid, row.queued))
	}
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("nowhere", "fake")}, nil))
	execute(t, s.name, "UPDATE instance_mappings SET user_id = NULL WHERE instance_uuid = 'b'",
		"DELETE FROM request_specs WHERE instance_uuid = 'b'")
	wants[apidb.Counts](t,
		"everywhere")(s.CountProject(ctx, "fake", "", nil))(apidb.Counts{Instances: 4, Cores: 6,
		RAM: 3 * 512, Known: 3, Unmigrated: 2})
	wants[apidb.Counts](t,
		"in one cell")(s.CountProject(ctx, "fake", "", []string{cellUUID(1)}))(apidb.Counts{Instances: 2, Cores: 4,
		RAM: 1024, Known: 1, Unmigrated: 1})
	wants[apidb.Counts](t,
		"in both cells")(s.CountProject(ctx, "fake", "", []string{cellUUID(1), cellUUID(2)}))(apidb.Counts{Instances: 3,
		Cores: 4, RAM: 1024, Known: 2, Unmigrated: 2})
	wants[apidb.Counts](t, "in no cell")(s.CountProject(ctx, "fake", "", []string{}))(apidb.Counts{})
	wants[apidb.Counts](t,
		"of a user")(s.CountProject(ctx, "fake", "user", nil))(apidb.Counts{Instances: 3, Cores: 6,
		RAM: 3 * 512, Known: 2, Unmigrated: 1})
	wants[apidb.Counts](t,
		"of a user in one cell")(s.CountProject(ctx, "fake", "user", []string{cellUUID(2)}))(apidb.Counts{})
	wants[apidb.Counts](t, "of another user")(s.CountProject(ctx, "fake", "w", nil))(apidb.Counts{})
	wants[apidb.Counts](t, "of a project without servers")(s.CountProject(ctx, "empty", "", nil))(apidb.Counts{})
	wants[[]string](t, "cells of a project")(s.ProjectCells(ctx, "fake"))([]string{cellUUID(1), cellUUID(2)})
	wants[[]string](t, "cells of another project")(s.ProjectCells(ctx, "other"))([]string{cellUUID(1)})
	wants[[]string](t, "cells of a project without servers")(s.ProjectCells(ctx, "empty"))(nil)
}

func testQueued(t *testing.T, e testEngine) {
	now := start
	s := open(t, e.empty(t), apidb.Options{Now: func() time.Time { return now }})
	defer shut(t, s)
	withCells(t, s, 2)
	for _, uuid := range []string{"a", "b", "c", "d"} {
		placed(t, s, server(uuid, "p"), cellUUID(1))
	}
	execute(t, s.name, "UPDATE instance_mappings SET queued_for_delete = NULL, updated_at = NULL WHERE "+
		"instance_uuid < 'd'")
	wants[[]string](t, "cells that are not migrated")(s.UnmigratedCells(ctx))([]string{cellUUID(1)})
	ms, err := s.Unmigrated(ctx, cellUUID(1), 2)
	wantUUIDs(t, "not migrated, two of them", ms, err, "a", "b")
	if ms[0].QueuedForDelete != nil || ms[0].Queued() {
		t.Errorf("%+v is not NULL", ms[0])
	}
	ms, err = s.MappingsAfter(ctx, cellUUID(1), 0, 10)
	wantUUIDs(t, "known ones", ms, err, "d")

	must(t, s.SetQueued(ctx, nil))
	must(t, s.SetQueued(ctx, map[string]bool{"a": true, "b": false, "c": false, "not there": true}))
	ms, err = s.Unmigrated(ctx, cellUUID(1), 0)
	wantUUIDs(t, "not migrated, after all were", ms, err)
	wants[[]string](t, "cells that are not migrated, after all were")(s.UnmigratedCells(ctx))(nil)
	got := testproc.Try(s.MappingsOf(ctx, []string{"a", "b", "not there"})).Or(t)
	if len(got) != 2 || !got["a"].Queued() || got["b"].Queued() || got["b"].QueuedForDelete == nil {
		t.Errorf("got %+v", got)
	}
	// A mapping that already has the value is not updated.
	before := *got["a"].UpdatedAt
	now = now.Add(time.Minute)
	must(t, s.SetQueued(ctx, map[string]bool{"a": true, "b": true}))
	got = testproc.Try(s.MappingsOf(ctx, []string{"a", "b"})).Or(t)
	if !got["a"].UpdatedAt.Equal(before) || !got["b"].UpdatedAt.Equal(now) {
		t.Errorf("updated_at is %v and %v", got["a"].UpdatedAt, got["b"].UpdatedAt)
	}
	// Pages by id.
	first, err := s.MappingsAfter(ctx, cellUUID(1), 0, 3)
	wantUUIDs(t, "the first page", first, err, "a", "b", "c")
	rest, err := s.MappingsAfter(ctx, cellUUID(1), first[2].ID, 3)
	wantUUIDs(t, "the second page", rest, err, "d")
	none, err := s.MappingsAfter(ctx, cellUUID(2), 0, 3)
	wantUUIDs(t, "another cell's", none, err)
	// Rows that are placed nowhere are never migrated: no cell can be asked.
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("e", "p")}, nil))
	execute(t, s.name, "UPDATE instance_mappings SET queued_for_delete = NULL WHERE cell_id IS NULL")
	wants[[]string](t, "cells that are not migrated, with a row of no cell")(s.UnmigratedCells(ctx))(nil)
}

// testMany: as many at once as a reconciler may ask for, and more than a statement has parameters.
func testMany(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	n := 40000
	if e.shared {
		n = 12000
	}
	fill(t, s.name, n, 1)
	queued := map[string]bool{}
	for i := range n {
		queued[filled(i)] = i%2 == 0
	}
	must(t, s.SetQueued(ctx, queued))
	all := slices.Collect(maps.Keys(queued))
	got := testproc.Try(s.MappingsOf(ctx, all)).Or(t)
	for uuid, m := range got {
		if m.QueuedForDelete == nil || *m.QueuedForDelete != queued[uuid] {
			t.Fatalf("%s is %+v", uuid, m)
		}
	}
	testproc.Equal(t, len(got), n, "got %d mappings")
}

// testMappingsAreMerged compares the merge with sorting all there is.
func testMappingsAreMerged(t *testing.T, e testEngine) {
	s := e.fresh(t)
	const cells = 5
	withCells(t, s, cells)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		if round++; !e.sampled(round) {
			return
		}
		must(t, erase(s.name))
		var rows []apidb.Mapping
		var flags []string
		for i := range rapid.IntRange(0, 40).Draw(t, "rows") {
			m := apidb.Mapping{
				InstanceUUID: fmt.Sprintf("%02d-%d", rapid.IntRange(0, 99).Draw(t, "name"), i),
				CellUUID: rapid.SampledFrom([]string{"", cellUUID(1), cellUUID(2), cellUUID(3), cellUUID(4)}).
					Draw(t, "cell"),
				ProjectID: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "project"),
				CreatedAt: start.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "time")) * time.Microsecond),
			}
			queued := rapid.SampledFrom([]any{nil, 0, 1}).Draw(t, "queued")
			if queued != nil {
				is := queued == 1
				m.QueuedForDelete = &is
			}
			must(t, s.CreateServers(ctx, []apidb.RequestSpec{at(server(m.InstanceUUID, m.ProjectID), m.CreatedAt)},
				nil))
			if m.CellUUID != "" {
				must(t, s.Place(ctx, m.InstanceUUID, m.CellUUID))
			}
			flags = append(flags, settingQueued(m.InstanceUUID, queued))
			rows = append(rows, m)
		}
		must(t, direct(s.name, flags...))
		f := apidb.MappingFilter{
			ProjectID: rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "project asked for"),
			Living:    rapid.Bool().Draw(t, "living"), Limit: rapid.IntRange(0, 20).Draw(t, "limit"),
		}
		if rapid.Bool().Draw(t, "some cells") {
			f.CellUUIDs = rapid.SliceOf(rapid.Map(rapid.IntRange(0, cells), cellUUID)).Draw(t, "cells asked for")
			if f.CellUUIDs == nil {
				f.CellUUIDs = []string{}
			}
		}
		rows = slices.DeleteFunc(rows, func(m apidb.Mapping) bool {
			return m.CellUUID == "" || f.ProjectID != "" && m.ProjectID != f.ProjectID || f.Living && m.Queued() ||
				f.CellUUIDs != nil && !slices.Contains(f.CellUUIDs, m.CellUUID)
		})
		slices.SortFunc(rows, func(a, b apidb.Mapping) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.InstanceUUID, b.InstanceUUID))
		})
		if f.Limit > 0 && len(rows) > f.Limit {
			rows = rows[:f.Limit]
		}
		got := testproc.Try(s.Mappings(ctx, f)).Or(t)
		if diff := gocmp.Diff(uuids(rows), uuids(got)); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", f, diff)
		}
	})
}
