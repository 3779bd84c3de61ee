// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/celldb/serverquery"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// dbEngine is how a database engine is asked what a cell asks. Statements are the same for all
// where they can be; what differs beside the words of its Dialect is here.
type dbEngine struct {
	serverquery.Engine
	// present selects the rows of a host that it may have to do something about, soft those that
	// were softly deleted at softAt, until a time.
	present, soft, softAt string
	// columns lists the columns that the schema steps make with this engine but not with SQLite.
	columns []column
	// allColumns is a query for the tables and columns of the database.
	allColumns string
}

const (
	presentRows = "i.hidden = 0 AND i.host <> '' AND (i.gone < 2 OR i.cleanup_due = 1) AND i.host = ?"
	softRows    = "gone < 2 AND deleted_at > 0 AND deleted_at <= ?"
)

var engines = map[*engine.Dialect]*dbEngine{
	engine.SQLite: {
		Engine:  serverquery.Engine{Dialect: engine.SQLite, Matches: true},
		present: presentRows, soft: softRows, softAt: "deleted_at",
		allColumns: "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' " +
			"AND t.name NOT LIKE 'sqlite_%'",
	},
	engine.MySQL: {
		Engine:  serverquery.Engine{Dialect: engine.MySQL, Older: "i.older"},
		present: "i.host_present = ?", soft: "soft_at > 0 AND soft_at <= ?", softAt: "soft_at",
		columns:    []column{{"instances", "older"}, {"instances", "host_present"}, {"instances", "soft_at"}},
		allColumns: "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE()",
	},
	engine.PostgreSQL: {
		Engine:  serverquery.Engine{Dialect: engine.PostgreSQL},
		present: presentRows, soft: softRows, softAt: "deleted_at",
		allColumns: "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN " +
			"pg_namespace n ON n.oid = c.relnamespace " +
			"WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped",
	},
}

// changesOf selects the servers of a host that changed after a revision and that it may have to act
// on. "+ 0" keeps an engine from using the index of the other engine.
const changesOf = "i.hidden = 0 AND i.host <> '' AND (i.gone + 0 < 2 OR i.cleanup_due = 1) AND i.host = ? AND " +
	"i.revision > ? ORDER BY i.revision"

func (e *dbEngine) allOf() string { return e.present + " ORDER BY i.revision + 0" }

// livingOf says whether a host, which is asked for twice, has servers that are not deleted, hidden
// ones among them. The first is read from an index of the host's rows, the other from that of the
// few hidden ones.
func (e *dbEngine) livingOf() string {
	return "SELECT EXISTS (SELECT 1 FROM instances i WHERE " + e.present + " AND i.gone + 0 < 2) OR " +
		"EXISTS (SELECT 1 FROM instances i WHERE i.hidden = 1 AND i.inserted_at >= 0 AND i.host = ?)"
}

// unfinished asks for the first servers of a condition, by the time in a column.
func unfinished(since, condition string) string {
	return fmt.Sprintf("SELECT uuid, project_id, %s FROM instances WHERE %s ORDER BY %[1]s LIMIT %[3]d",
		since, condition, MaxUnfinished)
}

// softlyDeleted asks for those that were softly deleted until a time and are not in a task state.
func (e *dbEngine) softlyDeleted() string { return unfinished(e.softAt, e.soft+" AND task_state <> ?") }

const (
	hiddenUntil = "hidden = 1 AND inserted_at <= ?"
	notFreed    = "unfreed = 1"
)

// has are the columns of all tables.
func (e *dbEngine) has(ctx context.Context, db sqldb.Querier) (map[column]bool, error) {
	out := map[column]bool{}
	err := sqldb.Each(ctx, db, e.allColumns, nil, func(row sqldb.Row) error {
		var c column
		err := row.Scan(&c.table, &c.name)
		out[c] = true
		return err
	})
	return out, err
}
