// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"fmt"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPagesOnMariaDB: a page that is sorted by created_at reads as many rows of an index as it has,
// and a few, wherever it begins. The server counts them.
func TestPagesOnMariaDB(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if dbservers.Engine(t) != "mariadb" {
		t.Skip("It is about MariaDB.")
	}
	const servers, limit = 3000, 20
	ctx := t.Context()
	s := testproc.Try(Open(ctx, dbservers.Fresh(t), "cell1", Options{})).Or(t)
	defer func() { testproc.Check(t, s.Close()) }()
	start := time.Now()
	var records []*serverstate.Record
	for n := range servers {
		r := testproc.Try(serverstate.NewRecord(cellwire.Server{
			UUID: fmt.Sprintf("5e000000-0000-4000-8000-%012x", n), ProjectID: fmt.Sprint("p", n%2), Host: "h",
			Node: "n", VMState: cellwire.VMBuilding,
			CreatedAt: start.Add(time.Duration(n) * time.Second),
		}, start)).Or(t)
		r.Release()
		records = append(records, r)
	}
	testproc.Check(t, s.Fill(ctx, records))
	testproc.Check(t, s.Analyze(ctx))
	conn := testproc.Try(s.kit.Reader.Conn(ctx)).Or(t)
	defer func() { testproc.Check(t, conn.Close()) }()
	read := func() (n int) {
		t.Helper()
		n, _, err := sqldb.One(ctx, conn, sqldb.Value[int],
			"SELECT CAST(SUM(variable_value) AS SIGNED) FROM information_schema.session_status "+
				"WHERE variable_name IN ('HANDLER_READ_NEXT', 'HANDLER_READ_PREV', 'HANDLER_READ_RND', "+
				"'HANDLER_READ_RND_NEXT')")
		testproc.Check(t, err)
		return n
	}
	before := read()
	alone := read() - before // what the question itself reads
	middle := cellwire.Key{start.Add(servers / 2 * time.Second).UnixMicro(), ""}
	for name, q := range map[string]cellwire.ServerQuery{
		"a project's": {ProjectID: "p1"}, "a project's later pages": {ProjectID: "p1", After: middle}, "all": {},
		"all, later pages":            {After: middle},
		"a project's, deleted or not": {ProjectID: "p1", Deleted: cellwire.DeletedAny, After: middle},
		"all, deleted or not":         {Deleted: cellwire.DeletedAny, After: middle},
		"with a state": {ProjectID: "p1",
			VMStates: []string{cellwire.VMBuilding, cellwire.VMActive}, After: middle},
	} {
		q.Limit, q.Sort = limit, []cellwire.SortKey{{Key: "created_at", Desc: true}}
		query, args, _ := s.engine.Statement(q, selectRecords, "")
		rows, before := 0, read()
		testproc.Check(t, sqldb.Each(ctx, conn, query, args, func(sqldb.Row) error {
			rows++
			return nil
		}))
		if n := read() - before - alone; rows != limit+1 || n > 2*limit {
			t.Errorf("%s: %d rows are answered, and %d read", name, rows, n)
		}
	}
}
