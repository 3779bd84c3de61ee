// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// What a database is to this program.
const (
	// StateEmpty: no tables.
	StateEmpty = "empty"
	// StateOpenStack: OpenStack Placement's tables only.
	StateOpenStack = "openstack"
	// StateAdopted: this program serves it.
	StateAdopted = "adopted"
	// StateUnfinished: adopting it, or handing it back, was interrupted. Either can be
	// repeated.
	StateUnfinished = "unfinished"
)

// Adoption is a database of OpenStack Placement as one who wants this program to
// serve it needs to know it. Nothing was changed to find it out.
type Adoption struct {
	Database string `json:"database"`
	State    string `json:"state"`
	// Alembic is the version of OpenStack Placement's tables, Release the releases that
	// have it, "" for one that is not known.
	Alembic string `json:"alembic_version"`
	Release string `json:"release,omitempty"`
	// Counts are the numbers of rows of OpenStack Placement's tables.
	Counts []Count `json:"counts"`
	// Findings are what is unusual, the worst first.
	Findings []Finding `json:"findings"`
	// Sessions are the other connections to the database, on this server.
	Sessions []sqldb.Session `json:"sessions"`
	// Guarded is how many of Guardable tables have the triggers that refuse what other
	// programs write.
	Guarded   int `json:"guarded_tables"`
	Guardable int `json:"guardable_tables"`
	// Nodes is the number of nodes of the Galera cluster, 0 for other servers. Sessions has the
	// connections to one node only.
	Nodes int `json:"galera_nodes,omitempty"`
	// Servers are the servers of this program that have the database open, or had it open and were
	// killed.
	Servers []string `json:"servers"`
}

// Count is the number of rows of a table.
type Count struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
}

// Adopted is what adopting a database, or handing it back, did.
type Adopted struct {
	Database string `json:"database"`
	// Before and After are states.
	Before string `json:"before"`
	After  string `json:"after"`
	// Rows is how many rows were written or removed, all of them in tables of this
	// program, Tables how many of these there are.
	Rows   int64 `json:"rows"`
	Tables int   `json:"tables"`
	// Guarded is how many tables of OpenStack Placement have triggers now.
	Guarded int `json:"guarded_tables"`
	// Sequences is how many sequences of PostgreSQL were moved past the highest number.
	Sequences int     `json:"sequences"`
	Seconds   float64 `json:"seconds"`
}

// AdoptOptions say how a database is adopted or handed back.
type AdoptOptions struct {
	// WithoutGuard leaves out the triggers.
	WithoutGuard bool
	// Force goes on although other programs are connected to the database.
	Force bool
}

// ErrRefused is the error of a command that would put data at risk.
var ErrRefused = errors.New("refused")

// guardName begins the names of the triggers, guardMessage is what they answer (at
// most 128 characters in MySQL).
const (
	guardName    = "compute_agent_guard"
	guardMessage = "compute-agent serves this database; give it back first: compute-agent placement adopt --hand-back"
)

// theirTables are OpenStack Placement's, without that of its migrations.
var theirTables = []string{
	"resource_providers", "inventories", "allocations",
	"consumers", "resource_classes", "traits", "resource_provider_traits",
	"placement_aggregates", "resource_provider_aggregates", "projects", "users", "consumer_types",
}

// ourTables in the order in which they are removed: no commit succeeds without the
// first, and the last one shows that something is left to remove.
var ourTables = []string{"ledger_version", "ledger_changes", "ledger_hosts", "ledger_servers", "ledger_migrations"}

// numberedTables are the tables whose rows PostgreSQL numbers from a sequence.
var numberedTables = []string{
	"resource_providers", "inventories", "allocations",
	"consumers", "resource_classes", "traits", "placement_aggregates", "projects", "users", "consumer_types",
}

// stopTime is how long a command waits for sessions that may be ending.
const stopTime = 6 * time.Second

// Adopt makes the tables of this program in a database that OpenStack Placement made,
// and the triggers that keep others from writing. OpenStack Placement's tables stay as
// they are. It may be repeated, and ended at any moment: until it is finished no server
// of this program starts, and HandBack undoes what it did. Errors: ErrRefused,
// *engine.Error.
func Adopt(ctx context.Context, name string, o AdoptOptions) (Adopted, error) {
	return withDatabase(name,
		func(path string, done *Adopted) error { return adoptFile(ctx, path, done) },
		func(done *Adopted) error { return adoptShared(ctx, name, o, done) })
}

// withDatabase changes the database of a name, a file or one of servers, and measures how long that
// takes.
func withDatabase(
	name string, file func(path string, done *Adopted) error, servers func(*Adopted) error,
) (done Adopted, err error) {
	began := time.Now()
	a, err := engine.ParseAddress(name)
	if err != nil {
		return done, err
	}
	done.Database = a.String()
	if a.Shared() {
		err = servers(&done)
	} else {
		err = file(a.Path, &done)
	}
	done.Seconds = time.Since(began).Seconds()
	return done, err
}

func adoptFile(ctx context.Context, path string, done *Adopted) error {
	found, err := CheckAdoption(ctx, path)
	if err != nil {
		return err
	}
	done.Before = found.State
	if err := found.refuse(AdoptOptions{Force: true}); err != nil {
		return err
	}
	s, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	done.After = StateAdopted
	if done.Before != StateAdopted {
		done.Tables, done.Rows, err = ourRows(ctx, s.db.Dialect, s.db.Reader)
	}
	return errors.Join(err, s.Close())
}

func adoptShared(ctx context.Context, name string, o AdoptOptions, done *Adopted) error {
	const op = "adopting"
	err := sqldb.Administer(ctx, name, op, sqldb.Options{Means: ledgerError},
		func(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
			found, err := check(ctx, d, db)
			if err != nil {
				return err
			}
			done.Before = found.State
			found.Database = done.Database
			if found.State != StateAdopted {
				if !o.Force {
					if found.Sessions, err = awaitSessions(ctx, d, db); err != nil {
						return err
					}
				}
				if err := found.refuse(o); err != nil {
					return err
				}
			}
			guard := !o.WithoutGuard && found.Guarded < len(theirTables)
			if guard || found.State == StateUnfinished {
				if err := tryTriggers(ctx, d, db); err != nil {
					return err
				}
			}
			if found.State == StateUnfinished {
				// The process that was interrupted is gone: what it left is no help.
				if err := remove(ctx, d, db); err != nil {
					return err
				}
				guard = !o.WithoutGuard
			}
			if !guard {
				return nil
			}
			if err := makeGuard(ctx, d, db); err != nil {
				if found.State != StateAdopted { // OpenStack Placement goes on
					err = errors.Join(err, sqldb.Unguard(ctx, d, db, guardName, theirTables))
				}
				return err
			}
			return nil
		})
	if err != nil {
		return err
	}
	if done.Before != StateAdopted {
		asked := *schema
		asked.Adopt = func(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (int, error) {
			return adoptTables(ctx, d, q, true)
		}
		db, err := sqldb.Open(ctx, name, sqldb.Options{Schema: &asked, Means: ledgerError})
		if err != nil {
			return err
		}
		if err := db.Close(); err != nil {
			return err
		}
	}
	return sqldb.Administer(ctx, name, op, sqldb.Options{Means: ledgerError},
		func(ctx context.Context, d *engine.Dialect, db *sql.DB) (err error) {
			if done.Before != StateAdopted {
				if done.Tables, done.Rows, err = ourRows(ctx, d, db); err != nil {
					return err
				}
			}
			if done.After, done.Guarded, err = sharedState(ctx, d, db); err != nil {
				return err
			}
			if done.After != StateAdopted || done.Guarded < len(theirTables) && !o.WithoutGuard {
				return &engine.Error{Kind: engine.ErrInUse,
					Hint: "another command adopted or handed back the database at the same time; run this one again " +
						"when that has ended"}
			}
			return nil
		})
}

// tryTriggers is an error that matches ErrRefused if the server lets only administrators make and
// remove triggers. It changes nothing.
func tryTriggers(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
	err := sqldb.TryTriggers(ctx, d, db, guardName)
	if engine.TriggersRefused(err) {
		return fmt.Errorf("%w: the user cannot make or remove triggers: %s (%s)", ErrRefused, loggedFix, err.Error())
	}
	return err
}

// loggedFix is what to do where a server lets only administrators make and remove triggers.
const loggedFix = "the server has a binary log or is a node of a Galera cluster, and lets only administrators make " +
	"and remove triggers then, both for --apply and for --hand-back: " +
	"have one run SET GLOBAL log_bin_trust_function_creators = 1 on this server, and run the command again; or run " +
	"it with the address of an administrator, " +
	"mysql://root@localhost/placement?unix_socket=/run/mysqld/mysqld.sock there"

// makeGuard makes the triggers, and says what to do when that is not allowed.
func makeGuard(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
	err := sqldb.Guard(ctx, d, db, guardName, guardMessage, theirTables)
	//nolint:errorlint // one of these values, never wrapped
	if kind, _ := d.Kind(err); kind == engine.ErrDenied {
		return &engine.Error{Kind: engine.ErrDenied,
			Err: err, Hint: "triggers keep OpenStack Placement from writing while this program " +
				"serves; let the user make them with GRANT TRIGGER ON its database, or " +
				"use --without-guard and see to it that OpenStack Placement stays stopped"}
	}
	return err
}

// HandBack removes what Adopt made, and leaves the database as OpenStack Placement
// needs it. It may be repeated, and ended at any moment: once it began no server of this
// program writes or starts. Errors: ErrRefused, *engine.Error.
func HandBack(ctx context.Context, name string, o AdoptOptions) (Adopted, error) {
	return withDatabase(name,
		func(path string, done *Adopted) error { return handBackFile(ctx, path, done) },
		func(done *Adopted) error {
			remove := func(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
				return handBackShared(ctx, d, db, o, done)
			}
			return sqldb.Administer(ctx, name, "handing back", sqldb.Options{Means: ledgerError}, remove)
		})
}

func handBackShared(ctx context.Context, d *engine.Dialect, db *sql.DB, o AdoptOptions, done *Adopted) (err error) {
	if done.Before, _, err = sharedState(ctx, d, db); err != nil {
		return err
	}
	done.After = done.Before
	if done.Before == StateEmpty || done.Before == StateOpenStack {
		return nil
	}
	if done.Before == StateAdopted && !o.Force {
		if err := refuseServers(ctx, d, db, done.Database); err != nil {
			return err
		}
	}
	if _, some, err := sqldb.Guarded(ctx, d, db, guardName, theirTables); err != nil {
		return err
	} else if len(some) > 0 { // otherwise there is no trigger to remove
		if err := tryTriggers(ctx, d, db); err != nil {
			return err
		}
	}
	if done.Tables, done.Rows, err = ourRows(ctx, d, db); err != nil {
		return err
	}
	if err := remove(ctx, d, db); err != nil {
		return err
	}
	if d == engine.PostgreSQL {
		done.Sequences = len(numberedTables)
	}
	done.After = StateOpenStack
	return nil
}

// remove removes the tables of this program and the triggers. The order is what makes
// it safe to end at any moment: see ourTables.
func remove(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
	drop := func(table string) error {
		_, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table)
		return err
	}
	last := len(ourTables) - 1
	for _, table := range ourTables[:last] {
		if err := drop(table); err != nil {
			return err
		}
	}
	if d == engine.PostgreSQL {
		for _, table := range numberedTables {
			// This program numbers rows itself. A sequence never goes back.
			var moved sql.NullInt64
			if err := db.QueryRowContext(ctx, "SELECT setval(pg_get_serial_sequence('"+table+
				"', 'id'), GREATEST(MAX(id), nextval(pg_get_serial_sequence('"+table+"', 'id')))) FROM "+
				table+" HAVING MAX(id) IS NOT NULL").
				Scan(&moved); err != nil &&
				!errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("move the sequence of %s: %w", table, err)
			}
		}
	}
	if err := sqldb.Unguard(ctx, d, db, guardName, theirTables); err != nil {
		return err
	}
	return drop(ourTables[last])
}

func handBackFile(ctx context.Context, path string, done *Adopted) error {
	found, err := CheckAdoption(ctx, path)
	if err != nil {
		return err
	}
	done.Before, done.After = found.State, found.State
	if found.State != StateAdopted {
		return nil
	}
	db, err := sqldb.Open(ctx, path, sqldb.Options{Schema: schema, Means: ledgerError}) // no server has the file
	if err != nil {
		return err
	}
	if done.Tables, done.Rows, err = ourRows(ctx, db.Dialect, db.Reader); err == nil {
		err = db.Write(ctx, "handing back", func(tx *sql.Tx) error {
			for _, table := range ourTables {
				if _, err := tx.ExecContext(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		db.RecordVersion(0) // the next adoption counts from the beginning
		done.After = StateOpenStack
	}
	return errors.Join(err, db.Close())
}

// stateOf returns the State… constant for a database, by the tables that it has.
func stateOf(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (string, error) {
	var has [3]bool
	for i, table := range []string{"resource_providers", schema.Table, "ledger_version"} {
		var err error
		if has[i], err = sqldb.HasTable(ctx, d, q, table); err != nil {
			return "", err
		}
	}
	openStack, steps, version := has[0], has[1], has[2]
	found := Schema{Newest: schema.Newest()}
	switch {
	case !openStack && !steps:
		return StateEmpty, otherProgram(ctx, d, q)
	case !steps && !version:
		return StateOpenStack, nil
	case steps:
		query := "SELECT COALESCE(MAX(number), 0) FROM " + schema.Table
		if d.Shared() {
			query += " WHERE done = 1"
		}
		if err := q.QueryRowContext(ctx, query).Scan(&found.Migration); err != nil {
			return "", err
		}
	}
	if openStack && version && found.Migration >= 2 {
		return StateAdopted, nil
	}
	return StateUnfinished, nil
}

// sharedState is what a database of servers is to this program, and how many tables have all
// triggers. With some of them alone it is as unfinished as with some of the tables.
func sharedState(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (state string, guarded int, err error) {
	if state, err = stateOf(ctx, d, q); err != nil || state == StateEmpty {
		return state, 0, err
	}
	guarded, some, err := sqldb.Guarded(ctx, d, q, guardName, theirTables)
	if state == StateOpenStack && len(some) > 0 {
		state = StateUnfinished
	}
	return state, guarded, err
}

// ourRows counts the tables of this program and their rows.
func ourRows(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (tables int, rows int64, err error) {
	for _, table := range ourTables {
		has, err := sqldb.HasTable(ctx, d, q, table)
		if err != nil {
			return 0, 0, err
		}
		if !has {
			continue
		}
		var n int64
		if err := q.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
			return 0, 0, err
		}
		tables++
		rows += n
	}
	return tables, rows, nil
}

// awaitSessions returns the sessions of others that are still there after a while: one
// that was closed just now may be shown for a moment.
func awaitSessions(ctx context.Context, d *engine.Dialect, q sqldb.Querier) ([]sqldb.Session, error) {
	const pause = 250 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		sessions, err := sqldb.Sessions(ctx, d, q)
		if err != nil || len(sessions) == 0 || waited >= stopTime {
			return sessions, err
		}
		if !wait.For(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

// refuseServers is an error while a server of this program has the database open, or another
// program is connected to it.
func refuseServers(ctx context.Context, d *engine.Dialect, db *sql.DB, database string) error {
	alive, err := schema.LiveProcesses(ctx, db) // they may be connected to another node of a cluster
	if err != nil {
		return err
	}
	var sessions []sqldb.Session
	if len(alive) == 0 {
		if sessions, err = awaitSessions(ctx, d, db); err != nil {
			return err
		}
	}
	switch {
	case len(alive) > 0:
		return fmt.Errorf("%w: %s is served by compute-agent on %s; stop that first",
			ErrRefused, database, strings.Join(alive, " and on "))
	case len(sessions) > 0:
		return fmt.Errorf(
			"%w: other programs are connected to %s: %s; stop them, or use --force if none of them is a server of "+
				"compute-agent", ErrRefused, database, listed(sessions))
	}
	return nil
}

func listed(sessions []sqldb.Session) string {
	const most = 5
	var out []string
	for i, s := range sessions {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(sessions)-most))
			break
		}
		out = append(out, s.String())
	}
	return strings.Join(out, ", ")
}
