// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Diagnosis is what can be seen of a database of servers, for people who look for what is wrong.
type Diagnosis struct {
	// Address is the database's, without a password.
	Address string
	// Facts are what the server says of itself, by the names of its variables, and "version",
	// "tls" (its version, "" for none) and "client" (the address that this connection comes from,
	// "" or localhost on the same machine).
	Facts map[string]string
	// Steps is how many steps of the schema the database has had, Newest how many there are.
	Steps, Newest int
	// Schema is why the tables cannot be used, Write why they cannot be written; nil if they can.
	Schema, Write error
}

// Diagnose looks at a database of servers, and changes nothing. The error is that it cannot be used
// at all, an *[engine.Error].
func Diagnose(ctx context.Context, name string, o Options) (d Diagnosis, err error) {
	const op = "looking at"
	a, err := o.Address(op, name)
	if err != nil {
		return d, err
	}
	db := &DB{Dialect: a.Dialect, path: a.String(), means: o.Means}
	if !a.Shared() {
		return d, db.Explain(ctx, op,
			&engine.Error{Kind: engine.ErrUnreachable, Hint: "it is a file, and this is for databases of servers"})
	}
	d = Diagnosis{Address: a.String(), Facts: map[string]string{}, Newest: o.Schema.Newest()}
	if db.connector, err = a.Connect(0); err == nil {
		err = errors.Join(db.diagnose(ctx, o.Schema, &d), db.Close())
	}
	return d, db.Explain(ctx, op, err)
}

func (db *DB) diagnose(ctx context.Context, s *Schema, d *Diagnosis) error {
	on := db.pool(1)
	for _, query := range db.Dialect.Servers.Facts {
		err := Each(ctx, on, query, nil, func(row Row) error {
			var name, value string
			err := row.Scan(&name, &value)
			if name == "Ssl_version" {
				name = "tls"
			}
			d.Facts[name] = value
			return err
		})
		if err != nil {
			return err
		}
	}
	var err error
	if d.Steps, err = s.version(ctx, db.Dialect, on); err != nil {
		d.Schema = db.Explain(ctx, "looking at", err)
		return nil
	}
	if d.Steps == 0 {
		return nil
	}
	tx, err := on.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing is to stay
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET beat = beat WHERE number = 0", s.Table)); err != nil {
		d.Write = db.Explain(ctx, "writing to", err)
	}
	return nil
}
