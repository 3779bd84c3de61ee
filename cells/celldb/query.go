// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// sortExpressions are what the columns of cellwire.SortColumns are here. Those that a cell does not
// keep are all equal.
var sortExpressions = map[string]string{
	"access_ip_v4":        "i.access_ip_v4",
	"access_ip_v6":        "i.access_ip_v6",
	"auto_disk_config":    "CASE WHEN i.disk_config = 'AUTO' THEN 1 ELSE 0 END",
	"availability_zone":   "i.availability_zone",
	"config_drive":        "i.config_drive",
	"created_at":          "i.created_at",
	"display_description": "COALESCE(i.display_description, '')",
	"display_name":        "i.display_name",
	"host":                "i.host",
	"hostname":            "i.hostname",
	"image_ref":           "i.image_ref",
	"instance_type_id":    "i.flavor_id",
	"key_name":            "i.key_name",
	"launch_index":        "i.launch_index",
	"launched_at":         "i.launched_at",
	"locked_by":           "''",
	"node":                "i.node",
	"power_state":         "i.power_state",
	"progress":            "''",
	"project_id":          "i.project_id",
	"root_device_name":    "''",
	"task_state":          "i.task_state",
	"terminated_at":       "i.terminated_at",
	"updated_at":          "i.updated_at",
	"user_id":             "i.user_id",
	"uuid":                "i.uuid",
	"vm_state":            "i.vm_state",
}

// initialRows is the initial capacity in rows: a list over many cells asks for no more.
const initialRows = 40

// Servers is a page of servers. Sorted by created_at it reads the page's rows from an index, and
// those before the page not at all; sorted by something else it reads all rows that match and keeps
// the page's. Patterns, tags and metadata are looked at row by row as they come.
func (d *DB) Servers(ctx context.Context, q cellwire.ServerQuery, m Moment) (page cellwire.ServerPage, err error) {
	const op = "listing servers from"
	if err := checkQuery(q); err != nil {
		return cellwire.ServerPage{}, err
	}
	if residual := d.engine.residual(q); residual != nil {
		err = d.read(ctx, op, func(db sqldb.Querier) error {
			page, err = d.filterRows(ctx, db, q, residual, m)
			return err
		})
		return page, err
	}
	page, err = d.page(ctx, q, m)
	if err != nil {
		return cellwire.ServerPage{}, d.kit.Explain(ctx, op, err)
	}
	return page, nil
}

// page answers a query with one statement.
func (d *DB) page(ctx context.Context, q cellwire.ServerQuery, m Moment) (cellwire.ServerPage, error) {
	columns, from := "SELECT i.id, i.uuid, i.display_name%s", " FROM instances i "
	if !q.Brief {
		columns, from = selectRecords, ""
	}
	query, args, keys := d.engine.statement(q, columns, from)
	page, weight := cellwire.ServerPage{Rows: make([]cellwire.Row, 0, min(q.Limit, initialRows))}, 0
	var brief cellwire.Server
	key, into := newKey(keys)
	briefly, reader := append([]any{&brief.ID, &brief.UUID, &brief.Name}, into...), newRecordReader(into...)
	err := sqldb.Each(ctx, d.kit.Reader, query, args, func(row sqldb.Row) error {
		if len(page.Rows) == q.Limit {
			page.More = true
			return sqldb.ErrEnough
		}
		if q.Brief {
			if err := row.Scan(briefly...); err != nil {
				return err
			}
			page.Rows = append(page.Rows, cellwire.Row{Server: brief, Key: keyOf(key)})
			return nil
		}
		r, err := reader.read(row)
		if err != nil {
			return err
		}
		if weight += Weight(r.Server); weight > MaxAnswer && len(page.Rows) > 0 {
			page.More = true
			return sqldb.ErrEnough
		}
		page.Rows = append(page.Rows, cellwire.Row{Server: r.server(m), Key: keyOf(key)})
		return nil
	})
	return page, err
}

// newKey makes a key of so many values, and where Scan puts them.
func newKey(n int) (key cellwire.Key, into []any) {
	key, into = make(cellwire.Key, n), make([]any, n)
	for i := range key {
		into[i] = &key[i]
	}
	return key, into
}

// keyOf copies a key that was read; some drivers have texts as bytes.
func keyOf(read cellwire.Key) cellwire.Key {
	key := slices.Clone(read)
	for i, v := range key {
		if text, ok := v.([]byte); ok {
			key[i] = string(text)
		}
	}
	return key
}

// checkQuery refuses a query that means nothing, or whose beginning is no row's key.
func checkQuery(q cellwire.ServerQuery) error {
	if err := q.Check(); err != nil {
		return err
	}
	for _, v := range q.After {
		if text, ok := v.(string); ok && !serverstate.Storable(text) {
			return serverstate.Invalid("after has the text %q, which no server has", textutil.Truncate(text, 64))
		}
	}
	return nil
}

// statement makes SQL of a query that was checked: columns, in which the key's are added for %s,
// and the conditions, the order and the limit. keys is of how many values a row's key is.
func (e *dbEngine) statement(q cellwire.ServerQuery, columns, from string) (query string, args []any, keys int) {
	order := e.order(q)
	w := e.conditions(q)
	if q.After != nil {
		w.addAfterKey(q, order)
	}
	var added strings.Builder
	var orders []string
	for _, o := range order {
		added.WriteString(", " + o.value)
		if o.by != "''" {
			orders = append(orders, o.by+o.direction)
		}
	}
	// The limit is not a parameter: SQLite, whose plan may depend on it, would prepare the
	// statement a second time when it is bound.
	query = fmt.Sprintf(columns, added.String()) + from
	if index := e.indexFor(q); index != "" {
		query = strings.Replace(query, "FROM instances i ", "FROM instances i FORCE INDEX ("+index+") ", 1)
	}
	query += "WHERE " + strings.Join(w.terms, " AND ") +
		" ORDER BY " + strings.Join(orders, ", ") + " LIMIT " + strconv.Itoa(q.Limit+1)
	return query, w.args, len(order)
}

// indexFor is the index that has the rows of a query in their order, which MySQL has to be given:
// it finds another one, and reads all rows before the page; "" leaves the choice to the engine.
func (e *dbEngine) indexFor(q cellwire.ServerQuery) string {
	if e.older == "" || len(q.UUIDs)+len(q.Hosts) > 0 ||
		len(q.Sort) == 0 || q.Sort[0] != (cellwire.SortKey{Key: "created_at", Desc: true}) {
		return ""
	}
	living := q.Deleted == cellwire.DeletedNone && !q.SoftDeleted
	switch {
	case q.ProjectID != "" && living:
		return "instances_project_living"
	case q.ProjectID != "":
		return "instances_project"
	case living:
		return "instances_living"
	}
	return "instances_created"
}

// sortKey is one column that an answer is sorted by.
type sortKey struct {
	value     string // in the key
	by        string // the expression that is sorted by, which may be another one of the same order
	direction string // after it in ORDER BY
	later     string // is what comes after a value
	of        func(any) any
}

// order is what a query is sorted by, the uuid last.
func (e *dbEngine) order(q cellwire.ServerQuery) []sortKey {
	same := func(v any) any { return v }
	order := make([]sortKey, 0, len(q.Sort)+1)
	for _, k := range q.Sort {
		o := sortKey{value: sortExpressions[k.Key], by: sortExpressions[k.Key], later: ">", of: same}
		if k.Desc {
			o.direction, o.later = " DESC", "<"
		}
		switch {
		case k.Key == "created_at" && k.Desc && e.older != "":
			o.by, o.direction, o.later = e.older, "", ">"
			o.of = func(v any) any { return -v.(int64) } // the query was checked
		case slices.Contains(smallColumns, k.Key):
			o.of = func(v any) any {
				return max(min(v.(int64), math.MaxInt16),
					math.MinInt16)
			}
		}
		order = append(order, o)
	}
	return append(order, sortKey{value: "i.uuid", by: "i.uuid", later: ">", of: same})
}

// smallColumns have values of few bits; one that has more compares as the largest does.
var smallColumns = []string{"auto_disk_config", "config_drive", "power_state"}

// where gathers conditions that all have to hold.
type where struct {
	terms []string
	args  []any
}

func (w *where) add(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

// addAfterKey admits the rows whose key comes after that of the query: later in the first column in
// which they differ. The first column alone is repeated, as a range that an index can begin at.
func (w *where) addAfterKey(q cellwire.ServerQuery, order []sortKey) {
	var (
		alternatives []string
		before, args []any
	)
	prefix := ""
	for i, o := range order {
		value := o.of(q.After[i])
		alternatives = append(alternatives, "("+prefix+o.by+" "+o.later+" ?)")
		args = append(append(args, before...), value)
		before = append(before, value)
		prefix += o.by + " = ? AND "
		if i == 0 {
			w.add(o.by+" "+o.later+"= ?", value)
		}
	}
	w.add("("+strings.Join(alternatives, " OR ")+")", args...)
}

// addEquals adds the condition that a column has a value.
func (w *where) addEquals(column, value string) {
	if !serverstate.Storable(value) {
		w.add("1 = 0")
		return
	}
	w.add(column+" = ?", value)
}

// oneOf adds a condition that a column has one of some values. MariaDB sorts all rows when a list
// that comes from a query selects few of them.
func (w *where) oneOf(e *dbEngine, column string, list []string) {
	switch {
	case len(list) == 0:
		w.add("1 = 0")
	case e.Shared() && len(list) <= maxListed:
		parameters, args := listParameters(list)
		w.add(column+" IN "+parameters, args...)
	default:
		w.add(column+" IN ("+e.Texts+")", sqldb.List(list))
	}
}

// conditions are those of a query, but for the page's beginning and what is looked at here.
func (e *dbEngine) conditions(q cellwire.ServerQuery) *where {
	w := &where{terms: []string{"i.hidden = 0"}}
	switch { // + 0 keeps an engine from an index that would not give the order
	case q.Deleted == cellwire.DeletedNone && !q.SoftDeleted:
		w.add("i.gone = 0")
	case q.Deleted == cellwire.DeletedNone:
		w.add("i.gone + 0 < 2")
	case q.Deleted == cellwire.DeletedOnly:
		w.add("i.gone + 0 > 0")
	}
	for _, c := range []struct{ column, value string }{
		{"project_id", q.ProjectID}, {"user_id", q.UserID}, {"flavor_id", q.FlavorID}, {"image_ref", q.ImageRef},
	} {
		if c.value != "" {
			w.addEquals("i."+c.column, c.value)
		}
	}
	if q.NoImage {
		w.add("i.image_ref = ''")
	}
	if q.LaunchIndex != nil {
		w.add("i.launch_index = ?", *q.LaunchIndex)
	}
	if q.Locked != nil {
		w.add("i.locked = ?", *q.Locked)
	}
	if q.ConfigDrive != nil {
		w.add("i.config_drive = ?", *q.ConfigDrive)
	}
	if q.ChangedSince != nil {
		w.add("i.changed_at >= ?", q.ChangedSince.UnixMicro())
	}
	if q.ChangedBefore != nil {
		w.add("i.changed_at <= ?", q.ChangedBefore.UnixMicro())
	}
	for _, c := range []struct {
		column string
		list   []string
	}{{"uuid", q.UUIDs}, {"vm_state", q.VMStates}, {"task_state", q.TaskStates}, {"host", q.Hosts}} {
		if len(c.list) > 0 {
			w.oneOf(e, "i."+c.column, slices.DeleteFunc(slices.Clone(c.list),
				func(s string) bool { return !serverstate.Storable(s) }))
		}
	}
	if len(q.PowerStates) > 0 {
		w.add("i.power_state IN ("+e.Numbers+")", sqldb.List(q.PowerStates))
	}
	if e.matches {
		w.addPatterns(q)
	} else {
		w.addContains(q)
	}
	return w
}

// MaxAnswer bounds the servers of one answer, in bytes by their [Weight]: what does not fit comes
// with the next one. If every character has to be escaped an answer is six times as long as that,
// which is still less than the 64 MiB that clients read.
const MaxAnswer = 8 << 20

// Weight is the approximate size of a server in an answer in bytes, without escapes: nearly all of
// it is its owner's data.
func Weight(s cellwire.Server) int {
	const others = 1 << 10 // keys, states and times
	n := others + len(s.Name) + len(s.Hostname) + len(s.UserData) + len(s.ImageRef) + len(s.ProjectID) + len(s.UserID) +
		len(s.KeyName) + len(s.KeyData)
	if s.Description != nil {
		n += len(*s.Description)
	}
	if s.Fault != nil {
		n += len(s.Fault.Message) + len(s.Fault.Details)
	}
	for _, texts := range []map[string]string{s.Metadata, s.Flavor.ExtraSpecs} {
		for key, value := range texts {
			n += len(key) + len(value) + 6
		}
	}
	for _, texts := range [][]string{s.Tags, s.TrustedCerts} {
		for _, text := range texts {
			n += len(text) + 3
		}
	}
	return n
}
