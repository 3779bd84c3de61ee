// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The kinds of values that a parameter may have.
type paramKind int

const (
	anyText paramKind = iota
	pattern           // a regular expression
	dateTime
	number // not negative
	choice // one of its choices
)

// wrong says what is wrong with a value, "" for nothing.
func (p *parameter) wrong(value string) string {
	quoted := pythonString(shortened(value))
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return quoted + " is not text"
	}
	switch p.kind {
	case pattern: // empty is no pattern, as for Nova's format "regex"
		if _, err := syntax.Parse(value, syntax.Perl); err != nil || value == "" { // those that are looked for are bounded where they are compiled
			return quoted + " is not a 'regex'"
		}
	case dateTime:
		if _, ok := readTime(value); !ok {
			return quoted + " is not a 'date-time'"
		}
	case number:
		switch {
		case value == "":
			return quoted + " is too short"
		case !digits.MatchString(value):
			return quoted + " does not match '^[0-9]*$'"
		}
	case choice:
		if !slices.Contains(p.choices, value) {
			return quoted + " is not one of " + pythonList(p.choices)
		}
	}
	return ""
}

var digits = regexp.MustCompile(`^[0-9]*$`)

// pythonString is a string as Python's repr has it, for the plain ones that go into errors.
func pythonString(s string) string {
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
		quoted[i] = pythonString(word)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// timeForms are the forms of ISO 8601 that clients use; without a zone it is UTC.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

func readTime(s string) (time.Time, bool) {
	for _, form := range timeForms {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// readBool reads a word as oslo.utils does.
func readBool(s string) (value, known bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, true
	case "0", "f", "false", "off", "n", "no":
		return false, true
	}
	return false, false
}

const (
	textLimit = "At most this many, and no more than the server gives ([compute_api] max_limit)."
)

// readLimit is how many records a page has at most.
func readLimit(params query, most int) int {
	if !params.has("limit") {
		return most
	}
	limit := strings.TrimLeft(params.last("limit"), "0")
	n, err := strconv.Atoi("0" + limit)
	if err != nil {
		return most // more digits than a number has here
	}
	return min(n, most)
}

// inReference is the parameter for the reference.
func (p *parameter) inReference() apidoc.Parameter {
	d := apidoc.Parameter{Name: p.name, Text: p.text, Versions: apidoc.Versions{Since: int(p.since), Until: int(p.until)}, Schema: p.schema}
	if p.repeated {
		d.Repeated = max(int(p.since), int(MinVersion))
	}
	if d.Schema != nil {
		return d
	}
	d.Schema = schemaText
	switch p.kind {
	case pattern:
		d.Schema = described(js.Schema{js.Type("string"), js.MinLength(1)}, "A regular expression.")
	case dateTime:
		d.Schema = described(schemaText, "A time in ISO 8601.")
	case number:
		d.Schema = js.Schema{js.Type("string"), js.MinLength(1), js.Pattern("^[0-9]*$")}
	case choice:
		var all []any
		for _, value := range p.choices {
			all = append(all, value)
		}
		d.Schema = js.Schema{js.Type("string"), js.Enum(all...)}
	case anyText:
	}
	return d
}
