// SPDX-License-Identifier: Apache-2.0

package serverquery

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Engine is how a database engine is asked for servers.
type Engine struct {
	*engine.Dialect
	// Matches says that patterns, tags and metadata are looked at by the engine, row by row.
	// Otherwise rows are read and looked at by their [Residual]: functions of servers for that
	// differ from each other.
	Matches bool
	// Older is a column that sorts as created_at does, descending, in ascending order; "" where
	// indexes have descending columns.
	Older string
}

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

// NewKey returns a key of n values, and where Scan puts them.
func NewKey(n int) (key cellwire.Key, into []any) {
	key, into = make(cellwire.Key, n), make([]any, n)
	for i := range key {
		into[i] = &key[i]
	}
	return key, into
}

// KeyOf returns a copy of a key that was read; some drivers have texts as bytes.
func KeyOf(read cellwire.Key) cellwire.Key {
	key := slices.Clone(read)
	for i, v := range key {
		if text, ok := v.([]byte); ok {
			key[i] = string(text)
		}
	}
	return key
}

// Check refuses (bad request) a query that means nothing, or whose beginning is no row's key.
func Check(q cellwire.ServerQuery) error {
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

// Statement returns the SQL of a query that [Check] accepts, and its arguments. columns is the
// SELECT clause, in which the key columns replace %s, from the FROM clause; keys is the number of
// key columns. The limit is the query's plus one.
func (e *Engine) Statement(q cellwire.ServerQuery, columns, from string) (query string, args []any, keys int) {
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
func (e *Engine) indexFor(q cellwire.ServerQuery) string {
	if e.Older == "" || len(q.UUIDs)+len(q.Hosts) > 0 ||
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
func (e *Engine) order(q cellwire.ServerQuery) []sortKey {
	same := func(v any) any { return v }
	order := make([]sortKey, 0, len(q.Sort)+1)
	for _, k := range q.Sort {
		column := sortKey{value: sortExpressions[k.Key], by: sortExpressions[k.Key], later: ">", of: same}
		if k.Desc {
			column.direction, column.later = " DESC", "<"
		}
		switch {
		case k.Key == "created_at" && k.Desc && e.Older != "":
			column.by, column.direction, column.later = e.Older, "", ">"
			column.of = func(v any) any { return -v.(int64) } // the query was checked
		case slices.Contains(smallColumns, k.Key):
			column.of = func(v any) any {
				return max(min(v.(int64), math.MaxInt16),
					math.MinInt16)
			}
		}
		order = append(order, column)
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
func (w *where) oneOf(e *Engine, column string, list []string) {
	switch {
	case len(list) == 0:
		w.add("1 = 0")
	case e.Shared() && len(list) <= sqldb.MaxListed:
		parameters, args := sqldb.ListParameters(list)
		w.add(column+" IN "+parameters, args...)
	default:
		w.add(column+" IN ("+e.Texts+")", sqldb.List(list))
	}
}

// conditions translates the filters of a query to SQL, without the start of the page and without
// the filters that are applied to the rows that were read.
func (e *Engine) conditions(q cellwire.ServerQuery) *where {
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
	if e.Matches {
		w.addPatterns(q)
	} else {
		w.addContains(q)
	}
	return w
}
