// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

// Dialect is what differs from one database engine to the other. Statements are written once, with
// ? for parameters and in the SQL that all of them have; where they have none in common, a Dialect
// has the words. There is no "now": all times are parameters, by the clock of the process.
type Dialect struct {
	// Name is "sqlite", "mysql" or "postgres".
	Name string
	// Servers is nil for files.
	Servers *Servers
	// Upsert is the end of an INSERT that, where there is a row of the key, sets its columns to the
	// new values instead; without columns the row stays as it is.
	Upsert func(key string, columns ...string) string
	// Texts and Numbers are queries for the values of one parameter that List makes of texts or of
	// whole numbers: column IN (Texts).
	Texts, Numbers string
	// returning is the end of an INSERT that answers with the id of its row; "" asks the driver.
	returning string
	// TimeColumn is the expression that reads a time column of Placement's schema as text in the
	// form 2006-01-02 15:04:05[.000000], TimeArg what is written to one.
	TimeColumn func(column string) string
	TimeArg    func(t time.Time) any
	// TimeResolution is the resolution of these columns.
	TimeResolution time.Duration
	// MaxParams is how many parameters a statement can have.
	MaxParams int
	// Tables is a query for the tables of the database, by their name.
	Tables string
	// ReadOnly is an expression that is true on a server that does not take writes: what it has may
	// be older than what was acknowledged.
	ReadOnly string
	// Unconfirmed says that a primary that was restarted shows what its standby may not have. A
	// change after it, even one that changes nothing, is acknowledged when the standby has both.
	Unconfirmed bool
	// Kind is the kind of a driver's error, and what to do about it; nil for what is no failure of
	// the storage.
	Kind func(err error) (kind error, hint string)
	// class returns the class of a driver's error, for Is.
	class func(err error) Class
}

// Servers is what differs from one engine of database servers to the other.
type Servers struct {
	// Sessions is a query for the other sessions on the database: user, client, program, state.
	Sessions string
	// Facts are queries for the names and values of a diagnosis.
	Facts []string
	// Guard and Unguard are the statements that make and remove the triggers that keep other
	// programs from writing. Guarded is a query for how many with a name like the first parameter a
	// table has, Guards how many it should have.
	Guard   func(name, message string, tables []string) []string
	Unguard func(name string, tables []string) []string
	Guarded string
	Guards  int
	// Demotes says that a server can become a replica while connections to it last.
	Demotes bool
	// Bump changes row 0 of the table that has a row for each step of a schema: it adds one to beat
	// and puts a token before the others. It returns the new beat, and whether there is a row 0
	// that a program which knows a number of steps may change.
	Bump func(ctx context.Context, tx *sql.Tx, table, token string, knows int) (beat int64, found bool, err error)
}

// A token says whose transaction changed the row that all change. It has TokenSize characters; the
// row has those of the last KeptTokens transactions, the newest first.
const (
	TokenSize  = 26
	KeptTokens = 16
)

// Class is what a driver's error says of a statement, beside its kind.
type Class uint8

// The classes; an error may be of several.
const (
	Conflict      Class = 1 << iota // rows were not as the writer knew them
	Duplicate                       // of these conflicts, a key was there already
	Mismatch                        // the statement does not fit the tables
	Unfit                           // of these mismatches, a value does not fit its column
	Interrupted                     // a context ended
	Retry                           // another transaction undid this one; it may be run again
	Exists                          // a table, an index or a column is there already
	CommitUnknown                   // after COMMIT itself: it is not known whether it happened
)

// Is says that a driver's error is of one of the classes.
func (d *Dialect) Is(err error, classes Class) bool { return d.class(err)&classes != 0 }

// Shared says that several processes can use a database at the same time.
func (d *Dialect) Shared() bool { return d.Servers != nil }

// Dialects are all.
var Dialects = []*Dialect{SQLite, MySQL, PostgreSQL}

// TimeText is the form in which SQLAlchemy keeps times in SQLite: UTC, with microseconds.
const TimeText = "2006-01-02 15:04:05.000000"

// Insert runs an INSERT of one row into a table that numbers its rows in the column id, and returns
// the number.
func (d *Dialect) Insert(ctx context.Context, tx *sql.Tx, query string, args ...any) (id int64, err error) {
	if d.returning != "" {
		err := tx.QueryRowContext(ctx, query+d.returning, args...).Scan(&id)
		return id, err
	}
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// CountTables is a query for the number of tables, to which a condition on their name can be added.
func (d *Dialect) CountTables() string { return "SELECT COUNT(*) FROM (" + d.Tables + ") t" }

// SomeTable is a query for the name of some table, which is empty if the database has no table.
func (d *Dialect) SomeTable() string {
	return "SELECT COALESCE(MIN(name), '') FROM (" + d.Tables + ") t"
}

// Snapshot are the options of a transaction that reads what one moment has.
func (d *Dialect) Snapshot() *sql.TxOptions {
	o := &sql.TxOptions{ReadOnly: true}
	if d.Shared() {
		o.Isolation = sql.LevelRepeatableRead
	}
	return o
}

// onConflict is the Upsert of SQLite and PostgreSQL.
func onConflict(key string, columns ...string) string {
	if len(columns) == 0 {
		return " ON CONFLICT (" + key + ") DO NOTHING"
	}
	set := make([]string, len(columns))
	for i, c := range columns {
		set[i] = c + " = excluded." + c
	}
	return " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
}
