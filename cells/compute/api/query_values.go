// SPDX-License-Identifier: Apache-2.0

package api

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The kinds of values that a parameter may have.
type Kind int

const (
	anyText Kind = iota
	Pattern      // a regular expression
	DateTime
	Number // not negative
	Choice // one of its choices
)

// Wrong says what is wrong with a value, "" for nothing.
func (p *Parameter) Wrong(value string) string {
	quoted := PythonString(osapi.Shortened(value))
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return quoted + " is not text"
	}
	switch p.Kind {
	case Pattern: // empty is no pattern, as for Nova's format "regex"
		if _, err := syntax.Parse(value, syntax.Perl); err != nil || value == "" { // those that are looked for are bounded where they are compiled
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
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

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

const (
	TextLimit = "At most this many, and no more than the server gives ([compute_api] max_limit)."
)

// ReadLimit is how many records a page has at most.
func ReadLimit(params Query, most int) int {
	if !params.Has("limit") {
		return most
	}
	limit := strings.TrimLeft(params.Last("limit"), "0")
	n, err := strconv.Atoi("0" + limit)
	if err != nil {
		return most // more digits than a number has here
	}
	return min(n, most)
}

// inReference is the parameter for the reference.
func (p *Parameter) inReference() apidoc.Parameter {
	d := apidoc.Parameter{Name: p.Name, Text: p.Text, Versions: apidoc.Versions{Since: int(p.Since), Until: int(p.Until)}, Schema: p.Schema}
	if p.Repeated {
		d.Repeated = max(int(p.Since), int(MinVersion))
	}
	if d.Schema != nil {
		return d
	}
	d.Schema = SchemaText
	switch p.Kind {
	case Pattern:
		d.Schema = apidoc.Described(js.Schema{js.Type("string"), js.MinLength(1)}, "A regular expression.")
	case DateTime:
		d.Schema = apidoc.Described(SchemaText, "A time in ISO 8601.")
	case Number:
		d.Schema = js.Schema{js.Type("string"), js.MinLength(1), js.Pattern("^[0-9]*$")}
	case Choice:
		var all []any
		for _, value := range p.Choices {
			all = append(all, value)
		}
		d.Schema = js.Schema{js.Type("string"), js.Enum(all...)}
	case anyText:
	}
	return d
}
