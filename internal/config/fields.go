// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// field is one key's value, in a struct that it points into: how it is read, checked and written.
type field interface {
	set(any) *fault                // From what TOML decodes.
	fromText(string) (any, *fault) // What TOML would have decoded, from a variable or flag.
	format() string                // As TOML writes it.
	allowed() string               // What may be written, in words.
}

// rule is what strings may be, in words, and what says what is wrong with one; nil: nothing is.
type rule struct {
	words string
	check func(string) *fault
}

func (r rule) allowed() string { return r.words }

// text is a string. The empty string is not checked unless it is required.
type text struct {
	at       *string
	required bool
	rule
}

func (t text) set(v any) *fault {
	s, ok := v.(string)
	if !ok {
		return wrongType(v, t.allowed()+", in quotes")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return faultf("remove the control characters", "holds a control character or a line break")
	}
	if t.check != nil && (s != "" || t.required) {
		if bad := t.check(s); bad != nil {
			return bad
		}
	}
	*t.at = s
	return nil
}

func (t text) fromText(s string) (any, *fault) { return s, nil }
func (t text) format() string                  { return quote(*t.at) }

// secretFile is a text that holds the path of a file, or the name of a systemd credential, which
// Load turns into a path.
type secretFile struct{ text }

// choice is a string out of a few.
type choice struct {
	at     *string
	values []string
}

func (c choice) set(v any) *fault {
	s, ok := v.(string)
	if !ok {
		return wrongType(v, c.allowed())
	}
	if !slices.Contains(c.values, s) {
		return faultf("write "+c.allowed(), "%s is not one of the possible values", shown(s))
	}
	*c.at = s
	return nil
}

func (c choice) fromText(s string) (any, *fault) { return s, nil }
func (c choice) format() string                  { return quote(*c.at) }

func (c choice) allowed() string { return quotedSeries(c.values, "or") }

// toggle is true or false.
type toggle struct{ at *bool }

func (t toggle) set(v any) *fault {
	b, ok := v.(bool)
	if !ok {
		return wrongType(v, t.allowed())
	}
	*t.at = b
	return nil
}

func (t toggle) fromText(s string) (any, *fault) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return nil, faultf("write "+t.allowed(), "%s is neither true nor false", shown(s))
}

func (t toggle) format() string  { return strconv.FormatBool(*t.at) }
func (t toggle) allowed() string { return "true or false" }

// number is an integer between min and max.
type number struct {
	at       *int
	min, max int
}

func (nm number) set(v any) *fault {
	n, ok := v.(int64)
	if !ok {
		return wrongType(v, nm.allowed())
	}
	if n < int64(nm.min) || n > int64(nm.max) {
		return faultf("write "+nm.allowed(), "%d is out of bounds", n)
	}
	*nm.at = int(n)
	return nil
}

func (nm number) fromText(s string) (any, *fault) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, faultf("write "+nm.allowed(), "%s is not an integer", shown(s))
	}
	return n, nil
}

func (nm number) format() string { return strconv.Itoa(*nm.at) }

func (nm number) allowed() string {
	words := fmt.Sprintf("an integer from %d to %d", nm.min, nm.max)
	if nm.max == math.MaxInt32 {
		words = fmt.Sprintf("an integer of at least %d", nm.min)
	}
	return words
}

// duration is a span of time, written as "90s" or "1m30s". Zero is allowed
// only when it means something.
type duration struct {
	at       *time.Duration
	min, max time.Duration
	zero     string // What zero means; empty when it is not allowed.
}

func (dr duration) set(v any) *fault {
	s, ok := v.(string)
	if !ok {
		if n, isInt := v.(int64); isInt {
			return faultf(fmt.Sprintf("write %s, with its unit and in quotes", quote(strconv.FormatInt(n, 10)+"s")),
				"the number %d has no unit", n)
		}
		return wrongType(v, dr.allowed())
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return faultf("write "+dr.allowed(), "%s is not a duration", shown(s))
	}
	if (d < dr.min || d > dr.max) && (dr.zero == "" || d != 0) {
		return faultf("write "+dr.allowed(), "%s is out of bounds", shown(s))
	}
	*dr.at = d
	return nil
}

func (dr duration) fromText(s string) (any, *fault) { return s, nil }
func (dr duration) format() string                  { return quote(formatDuration(*dr.at)) }

func (dr duration) allowed() string {
	words := fmt.Sprintf("a duration from %s to %s", quote(formatDuration(dr.min)), quote(formatDuration(dr.max)))
	if dr.zero != "" {
		words += fmt.Sprintf(", or \"0s\" (%s)", dr.zero)
	}
	return words
}

// list is an array of strings. In a variable it is either TOML ("[\"a\"]") or
// the words between commas; the empty text is the empty list.
type list struct {
	at       *[]string
	required bool // The empty list is refused.
	rule
}

func (l list) set(v any) *fault {
	items, ok := v.([]any)
	if !ok {
		return wrongType(v, l.allowed())
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		s, isString := item.(string)
		if !isString {
			return faultf("write "+l.allowed(), "item %d is %s", i+1, describe(item))
		}
		if strings.ContainsRune(s, 0) {
			return faultf("remove it", "item %d holds a NUL byte", i+1)
		}
		if l.check != nil {
			if bad := l.check(s); bad != nil {
				return bad
			}
		}
		out = append(out, s)
	}
	if l.required && len(out) == 0 {
		return faultf("write "+l.allowed(), "the array is empty")
	}
	*l.at = out
	return nil
}

func (l list) fromText(s string) (any, *fault) {
	if strings.TrimSpace(s) == "" {
		return []any{}, nil
	}
	if strings.HasPrefix(strings.TrimSpace(s), "[") {
		return tomlText(s, l.allowed())
	}
	var items []any
	for item := range strings.SplitSeq(s, ",") {
		items = append(items, strings.TrimSpace(item))
	}
	return items, nil
}

func (l list) format() string {
	quoted := make([]string, len(*l.at))
	for i, s := range *l.at {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// stringTable is a table of strings; tables of later sources are merged into it.
type stringTable struct {
	at *map[string]string
	rule
}

func (st stringTable) set(v any) *fault {
	table, ok := v.(map[string]any)
	if !ok {
		return wrongType(v, st.allowed())
	}
	out := maps.Clone(*st.at)
	if out == nil {
		out = map[string]string{}
	}
	for _, name := range sortedKeys(table) {
		s, isString := table[name].(string)
		if !isString {
			return faultf("write the value in quotes", "%s is %s, not a string", shown(name), describe(table[name]))
		}
		if bad := st.check(name); bad != nil {
			return bad
		}
		if strings.ContainsRune(s, 0) {
			return faultf("remove it", "the value of %s holds a NUL byte", shown(name))
		}
		out[name] = s
	}
	*st.at = out
	return nil
}

func (st stringTable) fromText(s string) (any, *fault) { return tomlText(s, st.allowed()) }

func (st stringTable) format() string {
	table := make(map[string]any, len(*st.at))
	for k, v := range *st.at {
		table[k] = v
	}
	return inlineTable(table)
}

// freeTable is a table with keys of a driver; tables of later sources are
// merged into it, key by key.
type freeTable struct {
	at *map[string]any
	rule
}

func (f freeTable) set(v any) *fault {
	table, ok := v.(map[string]any)
	if !ok {
		return wrongType(v, f.allowed())
	}
	if _, err := json.Marshal(table); err != nil {
		return faultf("use finite numbers only", "cannot be given to the driver as JSON (%v)", err)
	}
	*f.at = merge(*f.at, table)
	return nil
}

func (f freeTable) fromText(s string) (any, *fault) { return tomlText(s, f.allowed()) }
func (f freeTable) format() string                  { return inlineTable(*f.at) }

// merge is over laid upon under: tables are merged, all else is replaced.
// Neither argument is changed.
func merge(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		table, isTable := v.(map[string]any)
		below, wasTable := out[k].(map[string]any)
		if isTable && wasTable {
			v = merge(below, table)
		}
		out[k] = v
	}
	return out
}

// tomlText reads the value of a variable that is not a plain word as TOML.
func tomlText(s, allowed string) (any, *fault) {
	if len(s) > maxFileSize {
		return nil, faultf("put it into a file of conf.d", "the value is longer than %d bytes", maxFileSize)
	}
	var doc map[string]any
	if err := toml.Unmarshal([]byte("value = "+s), &doc); err != nil || len(doc) != 1 {
		return nil, faultf("write "+allowed+", as TOML would write it", "the value is not TOML")
	}
	return doc["value"], nil
}

// fraction is a number from 0 to 1.
type fraction struct{ at *float64 }

func (f fraction) set(v any) *fault {
	var x float64
	switch v := v.(type) {
	case float64:
		x = v
	case int64:
		x = float64(v)
	default:
		return wrongType(v, f.allowed())
	}
	if !(x >= 0 && x <= 1) { // also true for NaN
		return faultf("write "+f.allowed(), "%v is out of bounds", x)
	}
	*f.at = x
	return nil
}

func (f fraction) fromText(s string) (any, *fault) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, faultf("write "+f.allowed(), "%s is not a number", shown(s))
	}
	return x, nil
}

// format writes a TOML float, which has a point.
func (f fraction) format() string {
	s := strconv.FormatFloat(*f.at, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func (f fraction) allowed() string { return "a number from 0 to 1" }
