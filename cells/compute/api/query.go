// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Parameter is a parameter of a query, of those microversions that have it; an Until of 0 is no
// bound. Kind says what it holds in calls that check it by that, and Schema in all others.
type Parameter struct {
	Name         string
	Since, Until Version
	Kind         Kind
	Choices      []string
	Schema       js.Schema
	// Text is for the reference. Repeated: it can be there several times.
	Text     string
	Repeated bool
}

// Parameters are the query parameters of a call. From the microversion Closed on all others are
// refused; before it, and if it is 0, they are ignored.
type Parameters struct {
	All    []Parameter
	Closed Version
	// Check reads and checks them; by their schemas when nil.
	Check func(*Exchange) (Query, error)
}

func (p *Parameters) read(x *Exchange) (Query, error) {
	if p.Check != nil {
		return p.Check(x)
	}
	return x.checkedQuery()
}

// Named is a parameter by its name; nil if there is none.
func (p *Parameters) Named(name string) *Parameter {
	if p == nil {
		return nil
	}
	at := slices.IndexFunc(p.All, func(one Parameter) bool { return one.Name == name })
	if at < 0 {
		return nil
	}
	return &p.All[at]
}

// ExistsAt reports whether a microversion has the parameter.
func (p *Parameter) ExistsAt(v Version) bool {
	return p != nil && v >= p.Since && (p.Until == 0 || v <= p.Until)
}

// Query are the parameters of a request. Only those can be read that the table of the call has: so
// the reference has all that count.
type Query struct {
	Values url.Values
	Known  *Parameters
	v      Version
}

// All are the values of a parameter, none if the microversion does not have it. It panics for a
// name that is not in the table of the call.
func (q Query) All(name string) []string {
	p := q.Known.Named(name)
	if p == nil {
		panic("api: the table of the call has no parameter " + name)
	}
	if !p.ExistsAt(q.v) {
		return nil
	}
	return q.Values[name]
}

// Has says whether a parameter is there.
func (q Query) Has(name string) bool { return len(q.All(name)) > 0 }

// Last is the last value of a parameter, which is the one that counts; "" without any.
func (q Query) Last(name string) string {
	return lastOf(q.All(name))
}

// ReadQuery are the parameters of the request, not checked.
func (x *Exchange) ReadQuery() (Query, error) {
	values, err := x.Values()
	return Query{values, x.route.Query, x.Version}, err
}

// checkedQuery are the parameters of the request, those that the call has of the types that they
// have; where others are refused, each of them once.
func (x *Exchange) checkedQuery() (Query, error) {
	q, err := x.ReadQuery()
	if err != nil {
		return q, err
	}
	var known js.Properties
	for i := range q.Known.All {
		if p := &q.Known.All[i]; p.ExistsAt(x.Version) {
			known = append(known, js.Property{Name: p.Name, Schema: p.Schema})
		}
	}
	check := js.ValidateQuery
	if q.Known.Closed > 0 && x.AtLeast(q.Known.Closed) {
		check = js.ValidateClosedQuery
	}
	if err := check(known, q.Values); err != nil {
		return q, osapi.BadRequest("%s", err)
	}
	return q, nil
}

// StrictQuery reads parameters of a list, each once, and none but those that there are. Before the
// call refuses others it is ReadQuery.
func (x *Exchange) StrictQuery() (Query, error) {
	q, err := x.ReadQuery()
	if err != nil || !x.AtLeast(q.Known.Closed) {
		return q, err
	}
	for _, name := range slices.Sorted(maps.Keys(q.Values)) {
		spec := q.Known.Named(name)
		if !spec.ExistsAt(x.Version) {
			return q, osapi.BadRequest("Additional properties are not allowed (%s was unexpected)",
				PythonString(osapi.Shortened(name)))
		}
		for _, value := range q.Values[name] {
			if wrong := spec.Problem(value); wrong != "" {
				return q, osapi.BadRequest("Invalid input for query parameters %s. Value: %s. %s",
					name, osapi.Shortened(value), wrong)
			}
		}
		if len(q.Values[name]) > 1 {
			all := osapi.Shortened(pythonList(q.Values[name]))
			return q, osapi.BadRequest("Invalid input for query parameters %s. Value: %s. %s is too long",
				name, all, all)
		}
	}
	return q, nil
}

// Kind is what values a parameter may have.
type Kind int

// The kinds of values.
const (
	anyText Kind = iota
	Pattern      // a regular expression
	DateTime
	Number // not negative
	Choice // one of its choices
)

// Problem says what is wrong with a value, "" for nothing.
func (p *Parameter) Problem(value string) string {
	quoted := PythonString(osapi.Shortened(value))
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return quoted + " is not text"
	}
	switch p.Kind {
	case Pattern: // empty is no pattern, as for Nova's format "regex"
		// those that are looked for are bounded where they are compiled
		if _, err := syntax.Parse(value, syntax.Perl); err != nil || value == "" {
			return quoted + " is not a 'regex'"
		}
	case DateTime:
		if _, ok := ReadTime(value); !ok {
			return quoted + " is not a 'date-time'"
		}
	case Number:
		switch {
		case value == "":
			return quoted + " is too short"
		case !digits.MatchString(value):
			return quoted + " does not match '^[0-9]*$'"
		}
	case Choice:
		if !slices.Contains(p.Choices, value) {
			return quoted + " is not one of " + pythonList(p.Choices)
		}
	}
	return ""
}

var digits = regexp.MustCompile(`^[0-9]*$`)

// PythonString is a string as Python's repr has it, for the plain ones that go into errors.
func PythonString(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	inner := strings.ReplaceAll(s, `\`, `\\`)
	if quote == "'" {
		inner = strings.ReplaceAll(inner, "'", `\'`)
	}
	return quote + inner + quote
}

func pythonList(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = PythonString(word)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// timeForms are the forms of ISO 8601 that clients use; without a zone it is UTC.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04",
	"2006-01-02 15:04", "2006-01-02"}

// ReadTime reads a time in one of these forms; false if it is not one.
func ReadTime(s string) (time.Time, bool) {
	for _, form := range timeForms {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// ReadBool reads a word as oslo.utils does.
func ReadBool(s string) (value, known bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, true
	case "0", "f", "false", "off", "n", "no":
		return false, true
	}
	return false, false
}

// TextLimit is what the reference says of the parameter limit.
const TextLimit = "At most this many, and no more than the server gives ([compute_api] max_limit)."

// ReadLimit is how many records a page has at most.
func ReadLimit(params Query, maxLimit int) int {
	if !params.Has("limit") {
		return maxLimit
	}
	limit := strings.TrimLeft(params.Last("limit"), "0")
	n, err := strconv.Atoi("0" + limit)
	if err != nil {
		return maxLimit // more digits than a number has here
	}
	return min(n, maxLimit)
}
