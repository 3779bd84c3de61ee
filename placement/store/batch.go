// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

const (
	// maxRows is the number of keys in the largest statement for a server that lists keys.
	maxRows = 64
	// maxListed is the number of rows in the largest statement for a server that has them in one
	// parameter.
	maxListed = 2000
)

// rowKey is a row that a change is about, or all of a consumer's allocations.
type rowKey struct {
	table string
	a, b  int64
	uuid  string
	name  string
}

// keyOf is the row of a change that can be moved before others; false for one that cannot.
func keyOf(c ledger.Change) (rowKey, bool) {
	switch c := c.(type) {
	case ledger.BumpProvider:
		return rowKey{table: "resource_providers", a: c.ID}, true
	case ledger.InsertInventory:
		return rowKey{table: "inventories", a: c.Row.Provider, b: c.Row.Class}, true
	case ledger.UpdateInventory:
		return rowKey{table: "inventories", a: c.Row.Provider, b: c.Row.Class}, true
	case ledger.DeleteInventory:
		return rowKey{table: "inventories", a: c.Provider, b: c.Class}, true
	case ledger.InsertConsumer, ledger.UpdateConsumer, ledger.BumpConsumer, ledger.DeleteConsumer:
		return rowKey{table: "consumers", a: ledger.ObjectOf(c).ID}, true
	case ledger.InsertAllocation, ledger.DeleteAllocations:
		return rowKey{table: "allocations", uuid: ledger.ObjectOf(c).UUID}, true
	case ledger.InsertHostRow:
		return hostKey(c.Row), true
	case ledger.UpdateHostRow:
		return hostKey(c.Row), true
	case ledger.DeleteHostRow:
		return hostKey(c.Row), true
	}
	return rowKey{}, false
}

func hostKey(r ledger.HostRow) rowKey {
	return rowKey{table: "ledger_hosts", a: r.ID, b: int64(r.Kind), name: r.Name}
}

// group is changes of one kind that are written together.
type group struct {
	kind    reflect.Type
	changes []ledger.Change
	rows    map[rowKey]bool
}

var (
	insertConsumer    = reflect.TypeFor[ledger.InsertConsumer]()
	deleteConsumer    = reflect.TypeFor[ledger.DeleteConsumer]()
	insertAllocation  = reflect.TypeFor[ledger.InsertAllocation]()
	deleteAllocations = reflect.TypeFor[ledger.DeleteAllocations]()
)

// mayPrecede says whether a change of a kind and a row can be made before those of the group.
func (g *group) mayPrecede(kind reflect.Type, key rowKey) bool {
	// The uuid of a consumer that is deleted is not known, and may be the new one's.
	consumers := kind == insertConsumer && g.kind == deleteConsumer ||
		kind == deleteConsumer && g.kind == insertConsumer
	return g.rows != nil && !consumers && !g.rows[key]
}

// accepts says whether a change can be written together with those of the group.
func (g *group) accepts(kind reflect.Type, key rowKey) bool {
	return g.kind == kind && g.rows != nil && (!g.rows[key] || kind == insertAllocation || kind == deleteAllocations)
}

// grouped brings changes of one kind together, so that a commit takes few round trips to the
// server. Changes of one row stay in their order.
func grouped(changes []ledger.Change) []*group {
	var out []*group
next:
	for _, c := range changes {
		kind := reflect.TypeOf(c)
		key, free := keyOf(c)
		if !free {
			if n := len(out); n > 0 && out[n-1].kind == kind {
				out[n-1].changes = append(out[n-1].changes, c)
			} else {
				out = append(out, &group{kind: kind, changes: []ledger.Change{c}})
			}
			continue
		}
		for i := len(out) - 1; i >= 0; i-- {
			if out[i].accepts(kind, key) {
				out[i].changes = append(out[i].changes, c)
				out[i].rows[key] = true
				continue next
			}
			if !out[i].mayPrecede(kind, key) {
				break
			}
		}
		out = append(out, &group{kind: kind, changes: []ledger.Change{c}, rows: map[rowKey]bool{key: true}})
	}
	return out
}

// listedRow is a row of the parameter of a listed statement. The fields that do not matter to it
// are 0.
type listedRow struct {
	A  int64   `json:"a"`
	B  int64   `json:"b"`
	C  int64   `json:"c"`
	D  int64   `json:"d"`
	E  int64   `json:"e"`
	F  int64   `json:"f"`
	G  int64   `json:"g"`
	R  float64 `json:"r"`
	at time.Time
}

// listUpdates are the UPDATEs of many rows, by what follows SET and by what the rows are found.
var listUpdates = map[reflect.Type]struct{ table, set, where string }{
	reflect.TypeFor[ledger.BumpProvider](): {"resource_providers", "generation = v.c",
		"t.id = v.a AND COALESCE(t.generation, 0) = v.b"},
	reflect.TypeFor[ledger.UpdateInventory](): {
		"inventories", "total = v.c, reserved = v.d, min_unit = v.e, max_unit = v.f, step_size = v.g, " +
			"allocation_ratio = v.r",
		"t.resource_provider_id = v.a AND t.resource_class_id = v.b",
	},
	reflect.TypeFor[ledger.BumpConsumer](): {"consumers", "generation = v.c", "t.id = v.a"},
	reflect.TypeFor[ledger.UpdateConsumer](): {
		"consumers", "project_id = v.b, user_id = v.c, generation = v.d, consumer_type_id = NULLIF(v.e, 0)",
		"t.id = v.a",
	},
}

// listedRowOf returns the row that a listed statement writes for a change.
func listedRowOf(c ledger.Change) listedRow {
	switch c := c.(type) {
	case ledger.BumpProvider:
		return listedRow{A: c.ID, B: c.From, C: c.To, at: c.UpdatedAt}
	case ledger.BumpConsumer:
		return listedRow{A: c.ID, C: c.To, at: c.UpdatedAt}
	case ledger.UpdateInventory:
		r := c.Row
		return listedRow{A: r.Provider, B: r.Class, C: r.Total, D: r.Reserved, E: r.MinUnit, F: r.MaxUnit,
			G: r.StepSize, R: r.AllocationRatio, at: r.UpdatedAt}
	case ledger.UpdateConsumer:
		r := c.Row
		return listedRow{A: r.ID, B: r.Project, C: r.User, D: r.Generation, E: r.Type, at: r.UpdatedAt}
	}
	panic(fmt.Sprintf("store: %T is not listed", c))
}

// update writes changes of one kind that are UPDATEs of one row each, all that have the same time
// in one statement. done is false for other kinds.
func (w *commitWriter) update(changes []ledger.Change) (done bool, err error) {
	how, ok := listUpdates[reflect.TypeOf(changes[0])]
	if !ok || len(changes) == 1 || w.store.exclusive {
		return false, nil
	}
	d := w.store.db.Dialect
	var query string
	if d == engine.MySQL {
		query = "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (a BIGINT PATH '$.a', b BIGINT PATH " +
			"'$.b', c BIGINT PATH '$.c', d BIGINT PATH '$.d', e BIGINT PATH '$.e', f " +
			"BIGINT PATH '$.f', g BIGINT PATH '$.g', r DOUBLE PATH '$.r')) AS v JOIN " +
			how.table + " AS t ON " + how.where +
			" SET " + how.set + ", updated_at = ?"
	} else {
		query = "UPDATE " + how.table + " AS t SET " +
			how.set + ", updated_at = $2 FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS " +
			"v(a integer, b integer, c integer, d integer, e integer, f integer, g integer, r double " +
			"precision) WHERE " + how.where
	}
	for len(changes) > 0 {
		first := listedRowOf(changes[0])
		rows := []listedRow{first}
		for _, c := range changes[1:min(len(changes), maxListed)] {
			if r := listedRowOf(c); r.at.Equal(first.at) {
				rows = append(rows, r)
			} else {
				break
			}
		}
		n, err := w.exec(query, sqldb.List(rows), timeArg(d)(first.at))
		if err == nil && n != int64(len(rows)) {
			err = fmt.Errorf(
				"%q changed %d rows instead of %d: a program that does not update ledger_version wrote to the "+
					"database: %w", how.table, n, len(rows), ledger.ErrReload)
		}
		if err != nil {
			return true, err
		}
		changes = changes[len(rows):]
	}
	return true, nil
}

// rowsAtOnce is how many of n rows the next statement has. The numbers are few, as each needs a
// prepared statement of its own.
func (w *commitWriter) rowsAtOnce(n int) int {
	if w.store.exclusive {
		if n >= rowsPerInsert {
			return rowsPerInsert
		}
		return 1
	}
	size := 1
	for size < n && size < maxRows {
		size *= 2
	}
	return size
}

// columnType is how a server reads a column of the rows of a statement from JSON.
type columnType struct{ mysql, postgres string }

// The types of columns.
var (
	number = columnType{"BIGINT", "bigint"}
	ratio  = columnType{"DOUBLE", "double precision"}
	text   = columnType{"VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "varchar"}
	moment = columnType{"DATETIME", "timestamp"}
)

// table is the rows that an INSERT makes: the types are those of the columns.
type table struct {
	name, columns string
	types         []columnType
}

// fromList is an INSERT whose rows are in one parameter, a list of lists, so that any number of
// rows is one statement.
func (t table) fromList(d *engine.Dialect) string {
	var from, selected strings.Builder
	for i, column := range t.types {
		separator := ", "
		if i == 0 {
			separator = ""
		}
		if d == engine.MySQL {
			fmt.Fprintf(&from, "%sc%d %s PATH '$[%d]' ERROR ON ERROR", separator, i, column.mysql, i)
			fmt.Fprintf(&selected, "%sc%d", separator, i)
		} else {
			fmt.Fprintf(&selected, "%sCAST(v ->> %d AS %s)", separator, i, column.postgres)
		}
	}
	head := "INSERT INTO " + t.name + " (" + t.columns + ") SELECT " + selected.String() + " FROM "
	if d == engine.MySQL {
		return head + "JSON_TABLE(?, '$[*]' COLUMNS (" + from.String() + ")) AS v"
	}
	return head + "jsonb_array_elements(CAST(? AS jsonb)) AS v"
}

// insertList inserts n rows into a table of a server.
func (w *commitWriter) insertList(t table, n int, row func(i int, args []any) []any) error {
	query := t.fromList(w.store.db.Dialect)
	for done := 0; done < n; {
		rows := make([][]any, min(n-done, maxListed))
		for i := range rows {
			rows[i] = row(done+i, make([]any, 0, len(t.types)))
		}
		if _, err := w.exec(query, sqldb.List(rows)); err != nil {
			return err
		}
		done += len(rows)
	}
	return nil
}
