// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"embed"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

//go:embed sql/*.sql
var steps embed.FS

// applicationID marks files of the API database: "CAap".
const applicationID = 0x43416170

// schema is the tables of an API database. With older, one that lacks steps is refused.
func schema(older string) *sqldb.Schema {
	return &sqldb.Schema{Steps: steps, ApplicationID: applicationID, Table: "api_schema",
		Processes: "processes", OlderHint: older}
}

// DatabaseOptions are those with which sqldb opens an API database, to copy or to check it.
func DatabaseOptions() sqldb.Options { return sqldb.Options{Schema: schema(""), Means: classifyError} }

// classifyError is what a failure of the database is to the callers of this package.
func classifyError(kind error) error {
	if kind == sqldb.ErrSchema || kind == sqldb.ErrNotDatabase { //nolint:errorlint // one of these values
		return ErrSchema
	}
	return ErrUnavailable
}

// Version says how many steps of the schema the database of a name has had, and how many this
// program knows. It changes nothing. Without a file the error is fs.ErrNotExist; while another
// process has the file open it is sqldb.ErrLocked.
func Version(ctx context.Context, name string) (has, knows int, err error) {
	s := schema("")
	has, err = sqldb.Version(ctx, name, sqldb.Options{Schema: s, Means: classifyError})
	return has, s.Newest(), err
}

// Migrate runs steps of the schema until the database has had as many as are asked for (0: all
// there are), and says how many it had before. A file is made if it is not there, and all steps
// happen to it in one transaction: they are all run or none. In a database of servers a step that
// failed in the middle is run again the next time. Steps that older programs cannot live with are
// run as well, unless one of those lives: then the error, which names it, matches sqldb.ErrInUse. A
// database that has had more already is ErrSchema: steps are not undone.
func Migrate(ctx context.Context, name string, to int) (had int, err error) {
	had, _, err = sqldb.Migrate(ctx, name, to, DatabaseOptions())
	return had, err
}
