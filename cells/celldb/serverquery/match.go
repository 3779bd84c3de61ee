// SPDX-License-Identifier: Apache-2.0

package serverquery

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"modernc.org/sqlite"

	"github.com/compute-agent/compute-agent/cells/cellwire"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// addPatterns adds the conditions on patterns, tags and metadata, for an engine that looks at them.
func (w *where) addPatterns(q cellwire.ServerQuery) {
	const (
		oneOf  = "SELECT 1 FROM json_each(i.tags) WHERE value IN (SELECT value FROM json_each(?))"
		hasOne = "EXISTS (" + oneOf + ")"
		hasTag = "EXISTS (SELECT 1 FROM json_each(i.tags) WHERE value = ?)"
	)
	if len(q.TagsAny) > 0 {
		w.add(hasOne, sqldb.List(q.TagsAny))
	}
	if len(q.NotTagsAny) > 0 {
		w.add("NOT "+hasOne, sqldb.List(q.NotTagsAny))
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
	if q.NamePattern != "" {
		w.add(matchFunction+"(?, i.display_name)", q.NamePattern)
	}
	for _, column := range slices.Sorted(maps.Keys(q.Patterns)) {
		// the columns are checked
		w.add("(i."+column+" <> '' AND "+matchFunction+"(?, i."+column+"))", q.Patterns[column])
	}
	for _, name := range slices.Sorted(maps.Keys(q.Metadata)) {
		w.add("EXISTS (SELECT 1 FROM json_each(i.metadata) WHERE key = ? AND value = ?)", name, q.Metadata[name])
	}
}

// addContains adds conditions that are true of all rows with the tags and metadata of a query, and
// of few others: their text has that of each in it.
func (w *where) addContains(q cellwire.ServerQuery) {
	for _, tag := range q.TagsAll {
		w.add("POSITION(? IN i.tags) > 0", jsonText(tag))
	}
	for _, name := range slices.Sorted(maps.Keys(q.Metadata)) {
		w.add("POSITION(? IN i.metadata) > 0", jsonText(name)+":"+jsonText(q.Metadata[name]))
	}
}

// jsonText is a text as it is within a column of JSON.
func jsonText(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // every string has a form
	}
	return string(data)
}

// Residual is the part of a query that [Engine.Statement] does not cover. It is applied to each
// row.
type Residual struct {
	// Columns are the columns whose values Holds takes.
	Columns []string
	// Holds reports whether a row has what is asked for, and returns an error if a value cannot be
	// read.
	Holds func(values []sql.NullString) (bool, error)
}

// Residual returns the part of a query that the engine's SQL does not cover, nil if it covers all.
func (e *Engine) Residual(q cellwire.ServerQuery) *Residual {
	if e.Matches {
		return nil
	}
	var r Residual
	var conditions []func(text string) (bool, error)
	look := func(column string, holds func(text string) (bool, error)) {
		r.Columns, conditions = append(r.Columns, "i."+column), append(conditions, holds)
	}
	if len(q.TagsAll)+len(q.TagsAny)+len(q.NotTagsAll)+len(q.NotTagsAny) > 0 {
		look("tags", func(text string) (bool, error) {
			var tags []string
			err := json.Unmarshal([]byte(text), &tags)
			return tagsHold(q, tags), err
		})
	}
	if len(q.Metadata) > 0 {
		look("metadata", func(text string) (bool, error) {
			var metadata map[string]string
			err := json.Unmarshal([]byte(text), &metadata)
			for name, value := range q.Metadata {
				if got, found := metadata[name]; !found || got != value {
					return false, err
				}
			}
			return true, err
		})
	}
	search := func(column, expression string, empty bool) {
		look(column, func(text string) (bool, error) {
			p, err := pattern(expression)
			return err == nil && (empty || text != "") && p.MatchString(text), err
		})
	}
	if q.NamePattern != "" {
		search("display_name", q.NamePattern, true)
	}
	for column, expression := range q.Patterns {
		search(column, expression, false)
	}
	if len(conditions) == 0 {
		return nil
	}
	r.Holds = func(values []sql.NullString) (bool, error) {
		for i, holds := range conditions {
			if ok, err := holds(values[i].String); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	return &r
}

// tagsHold says whether the conditions of a query on tags are true.
func tagsHold(q cellwire.ServerQuery, tags []string) bool {
	has := func(tag string) bool { return slices.Contains(tags, tag) }
	lacks := func(tag string) bool { return !has(tag) }
	return !slices.ContainsFunc(q.TagsAll, lacks) &&
		(len(q.TagsAny) == 0 || slices.ContainsFunc(q.TagsAny, has)) &&
		(len(q.NotTagsAll) == 0 || slices.ContainsFunc(q.NotTagsAll, lacks)) &&
		!slices.ContainsFunc(q.NotTagsAny, has)
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
	sqlite.MustRegisterDeterministicScalarFunction(matchFunction, 2,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			text, _ := args[0].(string)
			p, err := pattern(text)
			if err != nil {
				return nil, err
			}
			name, _ := args[1].(string)
			return p.MatchString(name), nil
		})
}
