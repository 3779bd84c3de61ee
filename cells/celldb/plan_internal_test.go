// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// plan is how SQLite answers a query.
func plan(t *testing.T, s *DB, query string, args []any) string {
	t.Helper()
	var steps []string
	if err := sqldb.Each(context.Background(), s.kit.Reader, "EXPLAIN QUERY PLAN "+query, args,
		func(row sqldb.Row) error {
			var id, parent, unused int
			var step string
			err := row.Scan(&id, &parent, &unused, &step)
			steps = append(steps, step)
			return err
		}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(steps, "; ")
}

// TestPlans: the lists that people ask for come from an index in their order, so that a page costs
// what it has, wherever it begins; and an agent's question and a boot's discovery read their own
// rows only.
func TestPlans(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testproc.Try(Open(context.Background(), t.TempDir()+"/cell.db", "cell1", Options{})).Or(t)
	defer func() { testproc.NoError(t, s.Close()) }()
	newest := []cellwire.SortKey{{Key: "created_at", Desc: true}}
	after := cellwire.Key{time.Now().UnixMicro(), "5e"}
	for name, c := range map[string]struct {
		q     cellwire.ServerQuery
		index string
	}{
		"a project's": {cellwire.ServerQuery{ProjectID: "p"},
			"instances_project_living (project_id=? AND gone=?)"},
		"a project's later pages": {cellwire.ServerQuery{ProjectID: "p", After: after},
			"instances_project_living (project_id=? AND gone=? AND created_at<?)"},
		"a project's, brief": {cellwire.ServerQuery{ProjectID: "p", Brief: true, After: after},
			"instances_project_living (project_id=? AND gone=? AND created_at<?)"},
		"everybody's": {cellwire.ServerQuery{}, "instances_living (gone=?)"},
		"everybody's later pages": {cellwire.ServerQuery{After: after},
			"instances_living (gone=? AND created_at<?)"},
		"a project's, deleted or not": {cellwire.ServerQuery{ProjectID: "p", Deleted: cellwire.DeletedAny,
			After: after}, "instances_project (project_id=? AND created_at<?)"},
		"a project's, softly deleted": {cellwire.ServerQuery{ProjectID: "p", SoftDeleted: true, After: after},
			"instances_project (project_id=? AND created_at<?)"},
		"everybody's, deleted": {cellwire.ServerQuery{Deleted: cellwire.DeletedOnly, After: after},
			"instances_created (created_at<?)"},
		"a project's of some name": {cellwire.ServerQuery{ProjectID: "p", NamePattern: "x"},
			"instances_project_living (project_id=? AND gone=?)"},
		"a project's with some states": {cellwire.ServerQuery{ProjectID: "p", VMStates: []string{"active"}},
			"instances_project_living (project_id=? AND gone=?)"},
	} {
		t.Run(name, func(t *testing.T) {
			c.q.Limit, c.q.Sort = 100, newest
			query, args, _ := s.engine.Statement(c.q, selectRecords, "")
			got := plan(t, s, query, args)
			if !strings.Contains(got, c.index) || strings.Contains(got, "TEMP B-TREE") {
				t.Errorf("it is answered by %s\nwant %s, and no sorting", got, c.index)
			}
		})
	}
	for name, c := range map[string]struct{ query, index string }{
		"changes":    {"SELECT * FROM instances i WHERE " + changesOf, "instances_host (host=? AND revision>?)"},
		"everything": {"SELECT * FROM instances i WHERE " + s.engine.allOf(), "instances_host_present (host=?)"},
		"living":     {s.engine.livingOf(), "instances_host_present (host=?)"},
		"and hidden": {s.engine.livingOf(), "instances_hidden"},
		"usage":      {usageOf, "COVERING INDEX instances_usage (project_id=? AND gone=?)"},
		"hidden":     {unfinished("inserted_at", hiddenUntil), "instances_hidden"},
		"unfreed":    {unfinished("deleted_at", notFreed), "instances_unfreed"},
		"soft":       {s.engine.softlyDeleted(), "instances_softly_deleted"},
	} {
		args := make([]any, strings.Count(c.query, "?"))
		testproc.Contains(t, plan(t, s, c.query, args), c.index, "%s is answered by %s", name)
	}
}
