// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Digest says what a database holds, whatever its engine: databases of the same rows have the same
// digest. The order of rows is of no importance, and times count to the second.
type Digest struct {
	Tables []TableDigest `json:"tables"`
}

// TableDigest is the digest of one table.
type TableDigest struct {
	Name string `json:"table"`
	Rows int64  `json:"rows"`
	sum  [4]uint64
}

// add adds a row.
func (t *TableDigest) add(row []any) {
	var text []byte
	for _, v := range row {
		text = appendValue(text, v)
	}
	hash := sha256.Sum256(text)
	for i := range t.sum {
		t.sum[i] += binary.BigEndian.Uint64(hash[8*i:])
	}
	t.Rows++
}

// appendValue appends a value in a form that no other value has.
func appendValue(text []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(text, 'n')
	case int64:
		return append(strconv.AppendInt(append(text, 'i'), v, 10), 0)
	case float64:
		return append(strconv.AppendFloat(append(text, 'f'), v, 'g', -1, 64), 0)
	case time.Time:
		return append(v.UTC().AppendFormat(append(text, 't'), time.DateTime), 0)
	case string:
		text = append(strconv.AppendInt(append(text, 's'), int64(len(v)), 10), 0)
		return append(text, v...)
	}
	panic(fmt.Sprintf("backup: a %T in a row", v)) // scanRow makes the above
}

// Rows is how many rows there are.
func (d Digest) Rows() (n int64) {
	for _, t := range d.Tables {
		n += t.Rows
	}
	return n
}

// String is the digest of all tables, 64 hexadecimal digits.
func (d Digest) String() string {
	hash := sha256.New()
	for _, t := range d.Tables {
		_, _ = fmt.Fprintf(hash, "%s %d %x\n", t.Name, t.Rows, t.sum) // a hash takes all
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// table is a table of a schema.
type table struct {
	name    string
	columns []column
	seeded  bool // the schema's own steps insert rows
}

type column struct {
	name, kind    string // kind as SQLite declares it
	selfReference bool   // it refers to another row of the same table
}

// tables returns the tables of a schema, each after the tables that its rows refer to. It leaves
// out the tables about processes, which are no contents.
func tables(ctx context.Context, s *sqldb.Schema) (out []table, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := s.Apply(ctx, engine.SQLite, db); err != nil {
		return nil, err
	}
	names, err := sqldb.All(ctx, db, sqldb.Value[string],
		`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == s.Table || slices.Contains(s.Transient, name) {
			continue
		}
		t := table{name: name}
		t.columns, err = sqldb.All(ctx, db,
			func(row sqldb.Row) (c column, err error) {
				err = row.Scan(&c.name, &c.kind, &c.selfReference)
				return c, err
			},
			`SELECT c.name, UPPER(c.type), EXISTS (SELECT 1 FROM pragma_foreign_key_list(?1) f WHERE f."from" = `+
				`c.name AND f."table" = ?1) FROM pragma_table_info(?1) c ORDER BY c.cid`, name)
		if err != nil {
			return nil, err
		}
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+name+")").Scan(&t.seeded); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// list is the names of the columns, times in the form that scanRow reads.
func (t table) list(d *engine.Dialect) string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		if names[i] = c.name; d != nil && c.kind == "DATETIME" {
			names[i] = d.TimeColumn(c.name)
		}
	}
	return strings.Join(names, ", ")
}

// scanRow reads a row of a table: nil, int64, float64, string or time.Time for each column.
func (t table) scanRow(row sqldb.Row) ([]any, error) {
	into := make([]any, len(t.columns))
	for i, c := range t.columns {
		switch {
		case c.kind == "DATETIME":
			into[i] = engine.TimeScan{To: new(time.Time)}
		case strings.Contains(c.kind, "INT"):
			into[i] = new(sql.NullInt64)
		case strings.Contains(c.kind, "FLOA"), strings.Contains(c.kind, "REAL"), strings.Contains(c.kind, "DOUBLE"):
			into[i] = new(sql.NullFloat64)
		default:
			into[i] = new(sql.NullString)
		}
	}
	if err := row.Scan(into...); err != nil {
		return nil, fmt.Errorf("read a row of %s: %w", t.name, err)
	}
	for i, v := range into {
		switch v := v.(type) {
		case engine.TimeScan:
			if into[i] = *v.To; v.To.IsZero() {
				into[i] = nil
			}
		case *sql.NullInt64:
			into[i], _ = v.Value()
		case *sql.NullFloat64:
			into[i], _ = v.Value()
		case *sql.NullString:
			into[i], _ = v.Value()
		}
	}
	return into, nil
}

// DigestOf reads all rows of one snapshot of a database with a schema.
func DigestOf(ctx context.Context, db *sqldb.DB, s *sqldb.Schema) (out Digest, err error) {
	all, err := tables(ctx, s)
	if err != nil {
		return out, err
	}
	err = db.Read(ctx, "reading", func(tx *sql.Tx) error {
		out = Digest{}
		for _, t := range all {
			d := TableDigest{Name: t.name}
			err := sqldb.Each(ctx, tx, "SELECT "+t.list(db.Dialect)+" FROM "+t.name, nil, func(row sqldb.Row) error {
				values, err := t.scanRow(row)
				if err == nil {
					d.add(values)
				}
				return err
			})
			if err != nil {
				return err
			}
			out.Tables = append(out.Tables, d)
		}
		return nil
	})
	return out, err
}

// copyRows copies all rows of one snapshot into a database that has none of its own, in one
// transaction, and says what was copied.
func copyRows(ctx context.Context, o sqldb.Options, from, to *sqldb.DB) (out Digest, err error) {
	all, err := tables(ctx, o.Schema)
	if err != nil {
		return out, err
	}
	err = to.Write(ctx, "writing to", func(into *sql.Tx) error {
		out = Digest{}
		var rows int64
		for _, t := range slices.Backward(all) {
			if err := t.clear(ctx, into); err != nil {
				return err
			}
		}
		return from.Read(ctx, "reading", func(tx *sql.Tx) error {
			for _, t := range all {
				c := copier{table: t, to: to.Dialect, into: into, digest: TableDigest{Name: t.name}}
				c.copied = func() {
					if rows++; o.Copied != nil && rows%rowsPerReport == 0 {
						o.Copied(t.name, rows)
					}
				}
				if err := c.copy(ctx, tx, from.Dialect); err != nil {
					return fmt.Errorf("copy the table %s: %w", t.name, err)
				}
				out.Tables = append(out.Tables, c.digest)
			}
			return nil
		})
	})
	return out, err
}

// clear removes what the steps of the schema inserted. Other rows are not removed.
func (t table) clear(ctx context.Context, tx *sql.Tx) error {
	if t.seeded {
		_, err := tx.ExecContext(ctx, "DELETE FROM "+t.name)
		return err
	}
	var rows int64
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+t.name).Scan(&rows); err != nil {
		return err
	}
	if rows > 0 {
		return &engine.Error{Kind: engine.ErrNotEmpty,
			Hint: fmt.Sprintf("its table %s has %d rows; restore to a new database, nothing was changed", t.name, rows)}
	}
	return nil
}

// copier copies one table.
type copier struct {
	table
	to     *engine.Dialect
	into   *sql.Tx
	digest TableDigest
	insert *sql.Stmt // of rowsPerInsert rows
	batch  []any
	later  [][]any // rows with references to rows of the same table
	copied func()  // is called for each row
}

// rowsPerReport is how many rows are copied in a fraction of a second.
const rowsPerReport = 1000

// rowsPerInsert is how many rows one statement inserts.
const rowsPerInsert = 50

func (c *copier) copy(ctx context.Context, from *sql.Tx, d *engine.Dialect) (err error) {
	if c.insert, err = c.into.PrepareContext(ctx, c.statement(rowsPerInsert)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.insert.Close()) }()
	err = sqldb.Each(ctx, from, "SELECT "+c.list(d)+" FROM "+c.name, nil, func(row sqldb.Row) error {
		values, err := c.scanRow(row)
		if err != nil {
			return err
		}
		c.digest.add(values)
		c.copied()
		return c.insertRow(ctx, values)
	})
	if err != nil {
		return err
	}
	if n := len(c.batch) / len(c.columns); n > 0 {
		if _, err := c.into.ExecContext(ctx, c.statement(n), c.batch...); err != nil {
			return err
		}
	}
	if err := c.link(ctx); err != nil {
		return err
	}
	return c.renumber(ctx)
}

func (c *copier) statement(rows int) string {
	group := "(" + sqldb.Placeholders(len(c.columns)) + ")"
	return "INSERT INTO " + c.name + " (" + c.list(nil) +
		") VALUES " + strings.TrimSuffix(strings.Repeat(group+", ", rows), ", ")
}

// insertRow inserts a row, with others. References to rows of the same table follow when all are
// there.
func (c *copier) insertRow(ctx context.Context, values []any) error {
	var refers []any
	for i, column := range c.columns {
		v := values[i]
		if t, ok := v.(time.Time); ok {
			v = c.to.TimeArg(t)
		}
		if column.selfReference && v != nil {
			refers, v = append(refers, i, v), nil
		}
		c.batch = append(c.batch, v)
	}
	if refers != nil {
		c.later = append(c.later, append(refers, values[c.index("id")]))
	}
	if len(c.batch) < rowsPerInsert*len(c.columns) {
		return nil
	}
	_, err := c.insert.ExecContext(ctx, c.batch...)
	c.batch = c.batch[:0]
	return err
}

func (c *copier) index(name string) int {
	return slices.IndexFunc(c.columns, func(c column) bool { return c.name == name })
}

// link sets the references within the table.
func (c *copier) link(ctx context.Context) error {
	statements := map[string]*sql.Stmt{}
	defer func() {
		for _, s := range statements {
			_ = s.Close() // it ends with the transaction at the latest
		}
	}()
	for _, row := range c.later {
		var set []string
		var args []any
		for i := 0; i+1 < len(row); i += 2 {
			set = append(set, c.columns[row[i].(int)].name+" = ?")
			args = append(args, row[i+1])
		}
		query := "UPDATE " + c.name + " SET " + strings.Join(set, ", ") + " WHERE id = ?"
		s := statements[query]
		if s == nil {
			var err error
			if s, err = c.into.PrepareContext(ctx, query); err != nil {
				return err
			}
			statements[query] = s
		}
		if _, err := s.ExecContext(ctx, append(args, row[len(row)-1])...); err != nil {
			return err
		}
	}
	return nil
}

// renumber has the engine number new rows after those that were copied. MySQL and SQLite do that by
// themselves.
func (c *copier) renumber(ctx context.Context) error {
	if c.to != engine.PostgreSQL || c.index("id") < 0 {
		return nil
	}
	sequence, _, err := sqldb.One(ctx, c.into, sqldb.Value[sql.NullString],
		"SELECT pg_get_serial_sequence(?, 'id')", c.name)
	if err != nil || !sequence.Valid {
		return err
	}
	_, err = c.into.ExecContext(ctx,
		"SELECT setval(CAST(? AS regclass), GREATEST((SELECT COALESCE(MAX(id), 0) FROM "+c.name+
			"), 1), (SELECT COUNT(*) > 0 FROM "+c.name+"))", sequence.String)
	return err
}
