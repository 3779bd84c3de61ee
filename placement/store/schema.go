// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"embed"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

//go:embed sql/*.sql
var steps embed.FS

// placementHeads are the migrations of OpenStack Placement's own tables that this
// program knows, with the releases that end there. The second one drops five
// indexes that unique constraints have anyway.
var placementHeads = map[string]string{
	"422ece571366": "Xena (6.0.0) to 2023.1 (9.0.0)",
	"a082b8bb98d0": "2023.2 (10.0.0) to 2026.1 (15.0.0)",
}

// tooOld are the migrations before them.
var tooOld = map[string]bool{"": true, "b4ed3a175331": true, "611cd6dffd7b": true, "b5c396305c25": true}

const syncFirst = "run `placement-manage db sync` of OpenStack Placement 6.0.0 or later first"

// schema is the tables of a ledger. The first step makes Placement's own.
var schema = &sqldb.Schema{
	Steps: steps, Table: "ledger_migrations", Adopt: adopt,
	Processes: "ledger_servers", Fence: fenceOlder, Transient: []string{"ledger_changes"},
}

// DatabaseOptions returns the options with which sqldb opens a database to copy or check it.
func DatabaseOptions() sqldb.Options { return sqldb.Options{Schema: schema, Means: ledgerError} }

// Verify checks that a ledger can be made of what is in a database.
func Verify(ctx context.Context, db *sqldb.DB) error {
	state, err := (&Store{db: db}).Load(ctx)
	if err != nil {
		return err
	}
	_, err = ledger.NewSnapshot(state)
	return err
}

// Schema describes the tables of a database.
type Schema struct {
	// Migration is the last of this program's migrations that was run, 0 for
	// none; Newest is the last one that this program has.
	Migration, Newest int
	// Alembic is the version of OpenStack Placement's own migrations, "" if the
	// database has none of its tables.
	Alembic string
}

// NeedsUpgrade reports whether migrations are left to run.
func (s Schema) NeedsUpgrade() bool { return s.Migration < s.Newest }

// CanBeAdopted reports whether there are no tables, or tables that this program
// can upgrade: those of OpenStack Placement only at their last version.
func (s Schema) CanBeAdopted() bool {
	return s.Migration > 0 || s.Alembic == "" || placementHeads[s.Alembic] != ""
}

// IsNewer reports whether a newer program has upgraded the schema.
func (s Schema) IsNewer() bool { return s.Migration > s.Newest }

// ReadSchema reads the schema of a database of servers, or of a file that no
// process of ours has open, and changes nothing. A missing file is fs.ErrNotExist, with the schema
// that this program would create; an empty one has no tables. A database of
// another program is an error (engine.ErrSchema). Errors are *engine.Error.
func ReadSchema(ctx context.Context, name string) (Schema, error) {
	found := Schema{Newest: schema.Newest()}
	err := sqldb.Inspect(ctx, name, sqldb.Options{Schema: schema, Means: ledgerError},
		func(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (err error) {
			return readSchema(ctx, d, q, &found)
		})
	if err != nil {
		return Schema{Newest: found.Newest}, err
	}
	return found, nil
}

// Schema describes the tables of the database.
func (s *Store) Schema(ctx context.Context) (Schema, error) {
	found := Schema{Newest: schema.Newest()}
	err := readSchema(ctx, s.db.Dialect, s.db.Reader, &found)
	return found, s.failed(ctx, "reading the schema of", err)
}

func readSchema(ctx context.Context, d *engine.Dialect, q sqldb.Querier, into *Schema) error {
	has, err := sqldb.HasTable(ctx, d, q, schema.Table)
	if err != nil {
		return err
	}
	if has {
		if into.Migration, err = schema.Done(ctx, d, q); err != nil {
			return err
		}
	}
	if into.Migration == 0 {
		found, err := sqldb.HasTable(ctx, d, q, "resource_providers")
		if err != nil {
			return err
		}
		if !found {
			return otherProgram(ctx, d, q)
		}
	}
	into.Alembic, err = alembic(ctx, d, q)
	return err
}

// alembic is the version of OpenStack Placement's own migrations, "" for none.
func alembic(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (head string, err error) {
	versioned, err := sqldb.HasTable(ctx, d, q, "alembic_version")
	if err == nil && versioned {
		err = q.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_num), '') FROM alembic_version").Scan(&head)
	}
	return head, err
}

// adopt returns how many steps count as run in a database without steps of this
// program: one, if OpenStack Placement created it. It refuses unknown versions of
// Placement's schema, and a database of servers unless an operator asked for it.
func adopt(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (steps int, err error) {
	return adoptTables(ctx, d, q, false)
}

func adoptTables(ctx context.Context, d *engine.Dialect, q sqldb.Querier, adoptShared bool) (steps int, err error) {
	found, err := sqldb.HasTable(ctx, d, q, "resource_providers")
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, otherProgram(ctx, d, q)
	}
	head, err := alembic(ctx, d, q)
	if err != nil {
		return 0, err
	}
	if hint := versionProblem(head); hint != "" {
		if err := refuseNova(ctx, d, q); err != nil {
			return 0, err
		}
		return 0, &engine.Error{Kind: engine.ErrSchema, Hint: hint}
	}
	if d.Shared() && !adoptShared {
		return 0, &engine.Error{Kind: engine.ErrSchema,
			Hint: "OpenStack Placement's tables are in it, and none of this program's; run `compute-agent placement " +
				"adopt --check` with this database first"}
	}
	return 1, nil
}

// versionProblem is why a version of OpenStack Placement's tables cannot be used; "" if it can.
func versionProblem(head string) string {
	switch {
	case placementHeads[head] != "":
		return ""
	case tooOld[head]:
		return fmt.Sprintf("its alembic version is %q, which is too old; %s", head, syncFirst)
	}
	return fmt.Sprintf("its alembic version is %q, which this program does not know: it knows those of OpenStack "+
		"Placement 6.0.0 (Xena) to 15.0.0 (2026.1); "+
		"use a version of this program that knows it, and leave it to OpenStack Placement until then", head)
}

// otherProgram is the error for a database with tables that are not Placement's.
func otherProgram(ctx context.Context, d *engine.Dialect, q sqldb.Querier) error {
	table, err := sqldb.SomeTable(ctx, d, q)
	if err != nil || table == "" {
		return err
	}
	if err := refuseNova(ctx, d, q); err != nil {
		return err
	}
	return &engine.Error{Kind: engine.ErrSchema,
		Hint: fmt.Sprintf(
			"it has the table %q and none of Placement's: it belongs to another program; choose another path, "+
				"nothing was changed", table)}
}

// refuseNova is the error for a database of Nova. These have tables with the names of Placement's,
// which was a part of Nova once and whose rows Nova does not use any more.
func refuseNova(ctx context.Context, d *engine.Dialect, q sqldb.Querier) error {
	for _, other := range []struct{ table, what string }{
		{"flavor_extra_specs", "Nova's API database (nova_api)"},
		{"instance_extra", "the database of a cell of Nova (nova, nova_cell0)"},
	} {
		has, err := sqldb.HasTable(ctx, d, q, other.table)
		if err != nil {
			return err
		}
		if has {
			return &engine.Error{Kind: engine.ErrSchema,
				Hint: fmt.Sprintf("it has the table %q: it is %s, which is not adopted; "+
					"the database of OpenStack Placement is that of [placement_database] connection in "+
					"/etc/placement/placement.conf; nothing was changed", other.table, other.what)}
		}
	}
	return nil
}

// schemaToken is a query for the token of the step that made the tables of this program: another
// one means that the database was handed back and adopted again.
const schemaToken = "SELECT token FROM ledger_migrations WHERE number = 2"

// handedBack is the error of a store whose tables were removed while it was open.
func handedBack() error {
	return &engine.Error{Kind: engine.ErrSchema, Means: ledger.ErrHandedBack,
		Hint: "it was handed back to OpenStack Placement while this server ran; stop this server"}
}

// tablesReplaced is the error of a store whose tables are others than those that it opened. What it
// knows is of the former ones, however the versions compare.
func tablesReplaced() error {
	return &engine.Error{Kind: engine.ErrSchema, Means: ledger.ErrReplaced,
		Hint: "its tables were made again while this server ran: a backup was restored, or it was handed back and " +
			"adopted again; restart this server"}
}

// checkTables turns the error of a statement that did not fit the tables into that of
// a database that was handed back, if it was.
func (s *Store) checkTables(ctx context.Context, err error) error {
	if s.exclusive || err == nil || !s.db.Dialect.Is(err, engine.Mismatch) {
		return err
	}
	if has, lookErr := sqldb.HasTable(ctx, s.db.Dialect, s.db.Reader, "ledger_version"); lookErr != nil || has {
		return err
	}
	return handedBack()
}
