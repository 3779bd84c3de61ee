// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"regexp/syntax"
	"slices"
)

// Bounds of a query.
const (
	// MaxLimit is how many rows a page has at most.
	MaxLimit = 10000
	// maxPattern bounds a pattern, in bytes.
	maxPattern = 1024
	// maxConditions bounds conditions of which each is a look-up of its own.
	maxConditions = 100
)

// Pattern is one of the regular expressions of a query. It is bounded in bytes, and in what it
// becomes: see maxSteps.
func Pattern(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, badQuery("a pattern has at most %d bytes", maxPattern)
	}
	tree, err := syntax.Parse("(?i)"+pattern, syntax.Perl)
	if err != nil {
		return nil, badQuery("the pattern cannot be read: %v", err)
	}
	if n := steps(tree); n > maxSteps {
		return nil, badQuery("the pattern has %d steps, more than %d; what is repeated counts as often as it may be",
			n, maxSteps)
	}
	compiled, err := regexp.Compile("(?i)" + pattern)
	if err != nil {
		return nil, badQuery("the pattern cannot be read: %v", err)
	}
	return compiled, nil
}

// maxSteps bounds what a pattern comes to when its repetitions are written out: memory for it, and
// time for each character of each name, grow with that and not with its length. ".{0,1000}" has
// nine bytes.
const maxSteps = 1000

// steps is about how many instructions a pattern becomes.
func steps(tree *syntax.Regexp) int {
	n := 1
	switch tree.Op {
	case syntax.OpLiteral:
		n = len(tree.Rune)
	case syntax.OpCharClass:
		n += len(tree.Rune) / 32 // its ranges are searched
	}
	for _, sub := range tree.Sub {
		n += steps(sub)
	}
	if tree.Op == syntax.OpRepeat {
		n *= max(tree.Min, tree.Max, 1)
	}
	return min(n, 1<<30)
}

// Integer says whether the values of one of SortColumns in a key are integers; otherwise they are
// strings.
func Integer(column string) bool { return slices.Contains(integerColumns, column) }

var integerColumns = []string{"auto_disk_config", "config_drive", "created_at", "launch_index", "launched_at",
	"power_state", "terminated_at", "updated_at"}

// Check refuses a query that means nothing: both sides ask it, the one before it sends a query and
// the other before it answers.
func (q ServerQuery) Check() error {
	switch {
	case q.Limit < 1 || q.Limit > MaxLimit:
		return badQuery("limit is %d, not 1 to %d", q.Limit, MaxLimit)
	case q.Deleted != DeletedNone && q.Deleted != DeletedOnly && q.Deleted != DeletedAny:
		return badQuery("deleted is %.64q, not %q, %q or %q", q.Deleted, DeletedNone, DeletedOnly, DeletedAny)
	case len(q.Sort) > len(SortColumns):
		return badQuery("%d sort keys are more than the %d columns that there are", len(q.Sort), len(SortColumns))
	case q.After != nil && len(q.After) != len(q.Sort)+1:
		return badQuery("after has %d values, not one for each of %d sort keys and the uuid", len(q.After), len(q.Sort))
	case len(q.Metadata) > maxConditions || len(q.TagsAll) > maxConditions || len(q.NotTagsAll) > maxConditions:
		return badQuery("more than %d tags or metadata items", maxConditions)
	}
	for i, k := range q.Sort {
		if !slices.Contains(SortColumns, k.Key) {
			return badQuery("servers cannot be sorted by %.64q", k.Key)
		}
		if q.After != nil && !fits(q.After[i], Integer(k.Key)) {
			return badQuery("value %d of after is a %T, which %s is not", i, q.After[i], k.Key)
		}
	}
	if q.After != nil && !fits(q.After[len(q.Sort)], false) {
		return badQuery("after does not end with a uuid")
	}
	for _, pattern := range append(slices.Collect(maps.Values(q.Patterns)), q.NamePattern) {
		if _, err := Pattern(pattern); err != nil {
			return err
		}
	}
	for column := range q.Patterns {
		if !slices.Contains(PatternColumns, column) {
			return badQuery("there are no patterns for %.64q", column)
		}
	}
	return nil
}

func fits(value any, integer bool) bool {
	switch value.(type) {
	case string:
		return !integer
	case int64:
		return integer
	}
	return false
}

func badQuery(format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Code: CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}
