// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Administer runs f on one connection to a database of servers, as it is: no schema is looked for,
// none is made. A statement may take an hour. op is what is being done, for errors, which are
// *[engine.Error].
func Administer(
	ctx context.Context, name, op string, o Options, f func(context.Context, *engine.Dialect, *sql.DB) error,
) error {
	a, err := o.Address(op, name)
	if err != nil {
		return err
	}
	db := &DB{Dialect: a.Dialect, path: a.String(), means: o.Means}
	if !a.Shared() {
		return db.Explain(ctx, op,
			&engine.Error{Kind: engine.ErrUnreachable, Hint: "it is a file, and this is for databases of servers"})
	}
	if db.connector, err = a.Connect(engine.Patience); err == nil {
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
func Sessions(ctx context.Context, d *engine.Dialect, q Querier) ([]Session, error) {
	return All(ctx, q, func(row Row) (s Session, err error) {
		err = row.Scan(&s.User, &s.Client, &s.Program, &s.State)
		return s, err
	}, d.Servers.Sessions)
}

// Guard makes triggers that refuse what sessions of other programs change in tables, with a
// message. name begins their names. It may be repeated.
func Guard(ctx context.Context, d *engine.Dialect, db *sql.DB, name, message string, tables []string) error {
	for _, statement := range d.Servers.Guard(name, message, tables) {
		if _, err := db.ExecContext(ctx, statement); err != nil && !d.Is(err, engine.Exists) {
			return err
		}
	}
	return nil
}

// Unguard removes the triggers that Guard makes, as far as there are any. It names no trigger that
// is not there: MariaDB refuses that, too, to users that are not allowed to remove triggers.
func Unguard(ctx context.Context, d *engine.Dialect, db *sql.DB, name string, tables []string) error {
	_, some, err := Guarded(ctx, d, db, name, tables)
	if err != nil {
		return err
	}
	for _, statement := range d.Servers.Unguard(name, some) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Guarded returns how many tables have all triggers that Guard makes, and which have some or all of
// them. A MariaDB or MySQL user without the privilege TRIGGER sees none.
func Guarded(
	ctx context.Context, d *engine.Dialect, q Querier, name string, tables []string,
) (whole int, some []string, err error) {
	for _, table := range tables {
		var there int
		if err := q.QueryRowContext(ctx, d.Servers.Guarded, name+"%", table).Scan(&there); err != nil {
			return whole, some, err
		}
		if there == d.Servers.Guards {
			whole++
		}
		if there > 0 {
			some = append(some, table)
		}
	}
	return whole, some, nil
}

// TryTriggers fails with an error for which [engine.TriggersRefused] is true if the server lets
// only administrators create and remove triggers. It changes nothing: it tries to remove a trigger,
// by a name that none has.
func TryTriggers(ctx context.Context, d *engine.Dialect, db *sql.DB, name string) error {
	if d != engine.MySQL {
		return nil
	}
	_, err := db.ExecContext(ctx, "DROP TRIGGER IF EXISTS "+name)
	return err
}

// Triggers is what decides whether a user may make and remove triggers.
type Triggers struct {
	// Logged: the server has a binary log or is a node of a Galera cluster, and does not trust the
	// makers of triggers, unless they are administrators.
	Logged bool
	// Nodes is the number of nodes of the Galera cluster, 0 for other servers.
	Nodes int
}

// TriggerRules looks up the rules for triggers. Users' privileges are not looked at.
func TriggerRules(ctx context.Context, d *engine.Dialect, q Querier) (r Triggers, err error) {
	if d != engine.MySQL {
		return r, nil
	}
	type variable struct{ name, value string }
	values := map[string]string{}
	for _, kind := range []string{"VARIABLES", "STATUS"} {
		found, err := All(ctx, q, func(row Row) (v variable, err error) {
			err = row.Scan(&v.name, &v.value)
			return v, err
		}, "SHOW GLOBAL "+kind+
			" WHERE Variable_name IN ('log_bin', 'log_bin_trust_function_creators', 'wsrep_on', 'wsrep_cluster_size')")
		if err != nil {
			return r, err
		}
		for _, v := range found {
			values[v.name] = v.value
		}
	}
	if values["wsrep_on"] == "ON" {
		if r.Nodes, err = strconv.Atoi(values["wsrep_cluster_size"]); err != nil {
			return r, err
		}
	}
	r.Logged = (values["log_bin"] == "ON" || r.Nodes > 0) && values["log_bin_trust_function_creators"] == "OFF"
	return r, nil
}
