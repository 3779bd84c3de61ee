// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"modernc.org/sqlite"

	"github.com/compute-agent/compute-agent/cells/cellwire"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// sortExpressions are what the columns of cellwire.SortColumns are here. Those that a cell does not
// keep are all equal.
var sortExpressions = map[string]string{
	"access_ip_v4": "i.access_ip_v4", "access_ip_v6": "i.access_ip_v6", "auto_disk_config": "(i.disk_config = 'AUTO')", "availability_zone": "i.availability_zone",
	"config_drive": "i.config_drive", "created_at": "i.created_at", "display_description": "COALESCE(i.display_description, '')", "display_name": "i.display_name",
	"host": "i.host", "hostname": "i.hostname", "image_ref": "i.image_ref", "instance_type_id": "i.flavor_id", "key_name": "''", "launch_index": "i.launch_index",
	"launched_at": "i.launched_at", "locked_by": "''", "node": "i.node", "power_state": "i.power_state", "progress": "''", "project_id": "i.project_id",
	"root_device_name": "''", "task_state": "i.task_state", "terminated_at": "i.terminated_at", "updated_at": "i.updated_at", "user_id": "i.user_id", "uuid": "i.uuid",
	"vm_state": "i.vm_state",
}

// initialRows is the initial capacity in rows: a list over many cells asks for no more.
const initialRows = 40

// Servers is a page of servers. Sorted by created_at it reads the page's rows from an index, and
// those before the page not at all; sorted by something else it reads all rows that match and keeps
// the page's. Patterns, tags and metadata are looked at row by row as they come.
func (s *DB) Servers(ctx context.Context, q cellwire.ServerQuery, m Moment) (cellwire.ServerPage, error) {
	if err := q.Check(); err != nil {
		return cellwire.ServerPage{}, err
	}
	query, args, keys, err := compose(q)
	if err != nil {
		return cellwire.ServerPage{}, err
	}
	page, weight := cellwire.ServerPage{Rows: make([]cellwire.Row, 0, min(q.Limit, initialRows))}, 0
	key := make(cellwire.Key, len(keys)) // of the row that is read
	into := make([]any, len(keys))
	for i := range key {
		into[i] = &key[i]
	}
	var brief cellwire.Server
	briefly, reader := append([]any{&brief.UUID, &brief.Name}, into...), newRecordReader(into...)
	err = sqldb.Each(ctx, s.asked, query, args, func(row sqldb.Row) error {
		if len(page.Rows) == q.Limit {
			page.More = true
			return sqldb.ErrEnough
		}
		if q.Brief {
			if err := row.Scan(briefly...); err != nil {
				return err
			}
			page.Rows = append(page.Rows, cellwire.Row{Server: brief, Key: slices.Clone(key)})
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
		page.Rows = append(page.Rows, cellwire.Row{Server: r.server(m), Key: slices.Clone(key)})
		return nil
	})
	if err != nil {
		return cellwire.ServerPage{}, s.kit.Explain(ctx, "listing servers from", err)
	}
	return page, nil
}

// compose makes SQL of a query that was checked. keys are the expressions of the values of a row's
// key.
func compose(q cellwire.ServerQuery) (query string, args []any, keys []string, err error) {
	var orders []string
	for _, k := range q.Sort {
		expression := sortExpressions[k.Key]
		keys = append(keys, expression)
		switch {
		case expression == "''":
		case k.Desc:
			orders = append(orders, expression+" DESC")
		default:
			orders = append(orders, expression)
		}
	}
	keys = append(keys, "i.uuid")
	orders = append(orders, "i.uuid")
	w, err := conditions(q)
	if err != nil {
		return "", nil, nil, err
	}
	if q.After != nil {
		w.after(q, keys)
	}
	added := ", " + strings.Join(keys, ", ")
	if q.Brief {
		query = "SELECT i.uuid, i.display_name" + added + " FROM instances i "
	} else {
		query = fmt.Sprintf(selectRecords, added)
	}
	// The limit is not a parameter: SQLite, whose plan may depend on it, would prepare the
	// statement a second time when it is bound.
	query += "WHERE " + strings.Join(w.terms, " AND ") + " ORDER BY " + strings.Join(orders, ", ") + " LIMIT " + strconv.Itoa(q.Limit+1)
	return query, w.args, keys, nil
}

// where gathers conditions that all have to hold.
type where struct {
	terms []string
	args  []any
}

func (w *where) add(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

// after admits the rows whose key comes after that of the query: greater in the first column in
// which they differ, in the column's direction. The first column alone is repeated, as a range
// that an index can begin at.
func (w *where) after(q cellwire.ServerQuery, keys []string) {
	var (
		alternatives []string
		args         []any
	)
	prefix := ""
	for i, expression := range keys {
		operator := " > ?"
		if i < len(q.Sort) && q.Sort[i].Desc {
			operator = " < ?"
		}
		alternatives = append(alternatives, "("+prefix+expression+operator+")")
		args = append(append(args, q.After[:i]...), q.After[i])
		prefix += expression + " = ? AND "
		if i == 0 {
			w.add(expression+strings.Replace(operator, " ?", "= ?", 1), q.After[0])
		}
	}
	w.add("("+strings.Join(alternatives, " OR ")+")", args...)
}

// conditions are those of a query, but for the page's beginning.
func conditions(q cellwire.ServerQuery) (*where, error) {
	w := &where{terms: []string{"i.hidden = 0"}}
	switch { // a + keeps SQLite from an index that would not give the order
	case q.Deleted == cellwire.DeletedNone && !q.SoftDeleted:
		w.add("i.gone = 0")
	case q.Deleted == cellwire.DeletedNone:
		w.add("+i.gone < 2")
	case q.Deleted == cellwire.DeletedOnly:
		w.add("+i.gone > 0")
	}
	for _, c := range []struct{ column, value string }{
		{"project_id", q.ProjectID}, {"user_id", q.UserID}, {"flavor_id", q.FlavorID}, {"image_ref", q.ImageRef},
	} {
		if c.value != "" {
			w.add("i."+c.column+" = ?", c.value)
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
	if err := w.lists(q); err != nil {
		return nil, err
	}
	if q.NamePattern != "" {
		w.add(matchFunction+"(?, i.display_name)", q.NamePattern)
	}
	for _, column := range sorted(q.Patterns) {
		w.add("(i."+column+" <> '' AND "+matchFunction+"(?, i."+column+"))", q.Patterns[column]) // the columns are checked
	}
	for _, name := range sorted(q.Metadata) {
		w.add("EXISTS (SELECT 1 FROM json_each(i.metadata) WHERE key = ? AND value = ?)", name, q.Metadata[name])
	}
	return w, nil
}

// lists adds the conditions that are lists of values. A list is one parameter, however long it is.
func (w *where) lists(q cellwire.ServerQuery) error {
	const (
		oneOf  = "SELECT 1 FROM json_each(i.tags) WHERE value IN (SELECT value FROM json_each(?))"
		hasOne = "EXISTS (" + oneOf + ")"
		hasTag = "EXISTS (SELECT 1 FROM json_each(i.tags) WHERE value = ?)"
	)
	for _, c := range []struct {
		term string
		list any
		n    int
	}{
		{"i.uuid IN (SELECT value FROM json_each(?))", q.UUIDs, len(q.UUIDs)},
		{"i.vm_state IN (SELECT value FROM json_each(?))", q.VMStates, len(q.VMStates)},
		{"i.task_state IN (SELECT value FROM json_each(?))", q.TaskStates, len(q.TaskStates)},
		{"i.power_state IN (SELECT value FROM json_each(?))", q.PowerStates, len(q.PowerStates)},
		{"i.host IN (SELECT value FROM json_each(?))", q.Hosts, len(q.Hosts)},
		{hasOne, q.TagsAny, len(q.TagsAny)},
		{"NOT " + hasOne, q.NotTagsAny, len(q.NotTagsAny)},
	} {
		if c.n == 0 {
			continue
		}
		text, err := json.Marshal(c.list)
		if err != nil {
			return err
		}
		w.add(c.term, string(text))
	}
	for _, tag := range q.TagsAll {
		w.add(hasTag, tag)
	}
	if len(q.NotTagsAll) > 0 {
		all := slices.Repeat([]string{hasTag}, len(q.NotTagsAll))
		args := make([]any, len(q.NotTagsAll))
		for i, tag := range q.NotTagsAll {
			args[i] = tag
		}
		w.add("NOT ("+strings.Join(all, " AND ")+")", args...)
	}
	return nil
}

func sorted(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// matchFunction is the SQL function that says whether a text, its second argument, has a match of a
// pattern, its first.
const matchFunction = "compute_agent_cell_match"

// compiled holds the patterns that were compiled lately, for a query asks row by row.
var compiled = struct {
	mu       sync.Mutex
	patterns map[string]*regexp.Regexp
}{patterns: map[string]*regexp.Regexp{}}

// maxCompiled bounds them; then all are forgotten.
const maxCompiled = 64

func pattern(text string) (*regexp.Regexp, error) {
	compiled.mu.Lock()
	defer compiled.mu.Unlock()
	if p := compiled.patterns[text]; p != nil {
		return p, nil
	}
	p, err := cellwire.Pattern(text)
	if err != nil {
		return nil, err
	}
	if len(compiled.patterns) >= maxCompiled {
		clear(compiled.patterns)
	}
	compiled.patterns[text] = p
	return p, nil
}

// init makes the function known to the driver, which wants that once in a process and before it
// connects.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction(matchFunction, 2, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		text, _ := args[0].(string)
		p, err := pattern(text)
		if err != nil {
			return nil, err
		}
		name, _ := args[1].(string)
		return p.MatchString(name), nil
	})
}
