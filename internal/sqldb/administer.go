// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Administer runs f on one connection to a database of servers, as it is: no schema is looked for,
// none is made. A statement may take an hour. op is what is being done, for errors, which are
// *[Error].
func Administer(ctx context.Context, name, op string, o Options, f func(context.Context, *Dialect, *sql.DB) error) error {
	a, err := ParseAddress(name)
	if err != nil {
		return addressError(o.Means, op, err)
	}
	db := &DB{Dialect: a.Dialect, path: a.String(), means: o.Means}
	if !a.Shared() {
		return db.Explain(ctx, op, &Error{Kind: ErrUnreachable, Hint: "it is a file, and this is for databases of servers"})
	}
	if db.connector, err = a.connect(patience); err == nil {
		err = errors.Join(f(ctx, a.Dialect, db.pool(1)), db.Close())
	}
	return db.Explain(ctx, op, err)
}

// Session is a connection of another client to a database.
type Session struct {
	User string `json:"user"`
	// Client is the address of the client, Program what it calls itself, where the server says so.
	Client  string `json:"client"`
	Program string `json:"program,omitempty"`
	State   string `json:"state,omitempty"`
}

// String describes the session.
func (s Session) String() string {
	text := s.User + " from " + s.Client
	if s.Program != "" {
		text += " (" + s.Program + ")"
	}
	return text
}

// Sessions are the other connections to the database that q is connected to, on the same server. A
// MariaDB or MySQL user without the privilege PROCESS sees its own only.
func Sessions(ctx context.Context, d *Dialect, q Querier) ([]Session, error) {
	return All(ctx, q, func(row Row) (s Session, err error) {
		err = row.Scan(&s.User, &s.Client, &s.Program, &s.State)
		return s, err
	}, d.sessions)
}

// Guard makes triggers that refuse what sessions of other programs change in tables, with a
// message. name begins their names. It may be repeated.
func Guard(ctx context.Context, d *Dialect, db *sql.DB, name, message string, tables []string) error {
	for _, statement := range d.guard(name, message, tables) {
		if _, err := db.ExecContext(ctx, statement); err != nil && !d.Exists(err) {
			return err
		}
	}
	return nil
}

// Unguard removes the triggers that Guard makes, as far as there are any.
func Unguard(ctx context.Context, d *Dialect, db *sql.DB, name string, tables []string) error {
	for _, statement := range d.unguard(name, tables) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Guarded is how many tables have the triggers that Guard makes, all of them.
func Guarded(ctx context.Context, d *Dialect, q Querier, name string, tables []string) (n int, err error) {
	for _, table := range tables {
		var there int
		if err := q.QueryRowContext(ctx, d.guarded, name+"%", table).Scan(&there); err != nil {
			return n, err
		}
		if there == d.guards {
			n++
		}
	}
	return n, nil
}

// The variables of a session that say that it is this program's.
const (
	mysqlOwnSession    = "@compute_agent"
	postgresOwnSession = "compute_agent.session"
)

// A trigger of MySQL is for one kind of change, and is not in a transaction.
var mysqlChanges = []string{"insert", "update", "delete"}

func mysqlGuard(name, message string, tables []string) (out []string) {
	for _, table := range tables {
		for _, change := range mysqlChanges {
			out = append(out, fmt.Sprintf("CREATE TRIGGER %s_%s_%s BEFORE %[3]s ON %[2]s FOR EACH ROW IF %[4]s IS NULL THEN "+
				"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '%[5]s'; END IF", name, table, change, mysqlOwnSession, message))
		}
	}
	return out
}

func mysqlUnguard(name string, tables []string) (out []string) {
	for _, table := range tables {
		for _, change := range mysqlChanges {
			out = append(out, fmt.Sprintf("DROP TRIGGER IF EXISTS %s_%s_%s", name, table, change))
		}
	}
	return out
}

func postgresGuard(name, message string, tables []string) []string {
	out := []string{fmt.Sprintf("CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
		"IF COALESCE(current_setting('%s', true), '') = '' THEN RAISE EXCEPTION '%s'; END IF; RETURN NULL; END $$", name, postgresOwnSession, message)}
	for _, table := range tables {
		out = append(out, fmt.Sprintf("CREATE TRIGGER %s BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %[1]s()", name, table))
	}
	return out
}

func postgresUnguard(name string, tables []string) (out []string) {
	for _, table := range tables {
		out = append(out, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", name, table))
	}
	return append(out, fmt.Sprintf("DROP FUNCTION IF EXISTS %s()", name))
}
