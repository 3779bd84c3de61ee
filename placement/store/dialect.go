// SPDX-License-Identifier: Apache-2.0

package store

import (
	"io/fs"
	"time"
)

// Dialect is what differs from one database to the other. The statements of
// this package are written with ? for parameters.
type Dialect struct {
	// Rebind turns ? into what the database wants; nil when that is ?.
	Rebind func(query string) string
	// TimeColumn is the expression that reads a time column as text in the
	// form 2006-01-02 15:04:05[.000000].
	TimeColumn func(column string) string
	// TimeArg is what is written to a time column, which is never NULL here.
	TimeArg func(t time.Time) any
	// MaxParams is how many parameters a statement can have.
	MaxParams int
	// Migrations holds NNNN.sql, the steps of the schema in order, each run
	// in one transaction where the database can. The first is Placement's own.
	Migrations fs.FS
	// HasTable is a query for the number of tables with a name, AnyTable one
	// for the name of some table, '' when there is none.
	HasTable, AnyTable string
	// Classify turns a driver's error into an *Error of a kind, with what was
	// being done; conflict says that rows were not as the writer knew them.
	Classify func(op string, err error) (classified error, conflict bool)
	// CommitUnknown says that after this error of COMMIT itself nobody knows
	// whether it happened.
	CommitUnknown func(err error) bool
}

func (d *Dialect) rebind(query string) string {
	if d.Rebind == nil {
		return query
	}
	return d.Rebind(query)
}

func (d *Dialect) timeArg(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return d.TimeArg(t)
}
