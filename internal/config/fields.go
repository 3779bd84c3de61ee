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
	reset()                        // Give it its default.
	set(any) *fault                // From what TOML decodes.
	fromText(string) (any, *fault) // What TOML would have decoded, from a variable or flag.
	format() string                // As TOML writes it.
	allowed() string               // What may be written, in words.
}

// text is a string; check, when given, says what is wrong with it. The empty string is not checked
// where it is the default.
type text struct {
	at    *string
	def   string
	words string
	check func(string) *fault
}

func (f text) reset() { *f.at = f.def }

func (f text) set(v any) *fault {
	s, ok := v.(string)
	if !ok {
		return wrongType(v, f.allowed()+", in quotes")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return faultf("remove the control characters", "holds a control character or a line break")
	}
	if f.check != nil && (s != "" || f.def != "") {
		if bad := f.check(s); bad != nil {
			return bad
		}
	}
	*f.at = s
	return nil
}

func (f text) fromText(s string) (any, *fault) { return s, nil }
func (f text) format() string                  { return quote(*f.at) }
func (f text) allowed() string                 { return f.words }

// choice is a string out of a few.
type choice struct {
	at     *string
	def    string
	values []string
}

func (f choice) reset() { *f.at = f.def }

func (f choice) set(v any) *fault {
	s, ok := v.(string)
	if !ok {
		return wrongType(v, f.allowed())
	}
	if !slices.Contains(f.values, s) {
		return faultf("write "+f.allowed(), "%s is not one of the possible values", shown(s))
	}
	*f.at = s
	return nil
}

func (f choice) fromText(s string) (any, *fault) { return s, nil }
func (f choice) format() string                  { return quote(*f.at) }

func (f choice) allowed() string { return quotedSeries(f.values, "or") }

// toggle is true or false.
type toggle struct {
	at  *bool
	def bool
}

func (f toggle) reset() { *f.at = f.def }

func (f toggle) set(v any) *fault {
	b, ok := v.(bool)
	if !ok {
		return wrongType(v, f.allowed())
	}
	*f.at = b
	return nil
}

func (f toggle) fromText(s string) (any, *fault) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return nil, faultf("write "+f.allowed(), "%s is neither true nor false", shown(s))
}

func (f toggle) format() string  { return strconv.FormatBool(*f.at) }
func (f toggle) allowed() string { return "true or false" }

// number is an integer between min and max.
type number struct {
	at       *int
	def      int
	min, max int
}

func (f number) reset() { *f.at = f.def }

func (f number) set(v any) *fault {
	n, ok := v.(int64)
	if !ok {
		return wrongType(v, f.allowed())
	}
	if n < int64(f.min) || n > int64(f.max) {
		return faultf("write "+f.allowed(), "%d is out of bounds", n)
	}
	*f.at = int(n)
	return nil
}

func (f number) fromText(s string) (any, *fault) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, faultf("write "+f.allowed(), "%s is not an integer", shown(s))
	}
	return n, nil
}

func (f number) format() string { return strconv.Itoa(*f.at) }

func (f number) allowed() string {
	words := fmt.Sprintf("an integer from %d to %d", f.min, f.max)
	if f.max == math.MaxInt32 {
		words = fmt.Sprintf("an integer of at least %d", f.min)
	}
	return words
}

// duration is a span of time, written as "90s" or "1m30s". Zero is allowed
// only when it means something.
type duration struct {
	at       *time.Duration
	def      time.Duration
	min, max time.Duration
	zero     string // What zero means; empty when it is not allowed.
}

func (f duration) reset() { *f.at = f.def }

func (f duration) set(v any) *fault {
	s, ok := v.(string)
	if !ok {
		if n, isInt := v.(int64); isInt {
			return faultf(fmt.Sprintf("write %s, with its unit and in quotes", quote(strconv.FormatInt(n, 10)+"s")),
				"the number %d has no unit", n)
		}
		return wrongType(v, f.allowed())
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return faultf("write "+f.allowed(), "%s is not a duration", shown(s))
	}
	if (d < f.min || d > f.max) && (f.zero == "" || d != 0) {
		return faultf("write "+f.allowed(), "%s is out of bounds", shown(s))
	}
	*f.at = d
	return nil
}

func (f duration) fromText(s string) (any, *fault) { return s, nil }
func (f duration) format() string                  { return quote(formatDuration(*f.at)) }

func (f duration) allowed() string {
	words := fmt.Sprintf("a duration from %s to %s", quote(formatDuration(f.min)), quote(formatDuration(f.max)))
	if f.zero != "" {
		words += fmt.Sprintf(", or \"0s\" (%s)", f.zero)
	}
	return words
}

// list is an array of strings. In a variable it is either TOML ("[\"a\"]") or
// the words between commas; the empty text is the empty list.
type list struct {
	at       *[]string
	def      []string
	words    string
	check    func(string) *fault
	required bool // The empty list is refused.
}

func (f list) reset() { *f.at = slices.Clone(f.def) }

func (f list) set(v any) *fault {
	items, ok := v.([]any)
	if !ok {
		return wrongType(v, f.allowed())
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		s, isString := item.(string)
		if !isString {
			return faultf("write "+f.allowed(), "item %d is %s", i+1, describe(item))
		}
		if strings.ContainsRune(s, 0) {
			return faultf("remove it", "item %d holds a NUL byte", i+1)
		}
		if f.check != nil {
			if bad := f.check(s); bad != nil {
				return bad
			}
		}
		out = append(out, s)
	}
	if f.required && len(out) == 0 {
		return faultf("write "+f.allowed(), "the array is empty")
	}
	*f.at = out
	return nil
}

func (f list) fromText(s string) (any, *fault) {
	if strings.TrimSpace(s) == "" {
		return []any{}, nil
	}
	if strings.HasPrefix(strings.TrimSpace(s), "[") {
		return tomlText(s, f.allowed())
	}
	var items []any
	for item := range strings.SplitSeq(s, ",") {
		items = append(items, strings.TrimSpace(item))
	}
	return items, nil
}

func (f list) format() string {
	quoted := make([]string, len(*f.at))
	for i, s := range *f.at {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (f list) allowed() string { return f.words }

// strs is a table of strings; tables of later sources are merged into it.
type strs struct {
	at    *map[string]string
	words string
	check func(name string) *fault
}

func (f strs) reset() { *f.at = nil }

func (f strs) set(v any) *fault {
	table, ok := v.(map[string]any)
	if !ok {
		return wrongType(v, f.allowed())
	}
	out := maps.Clone(*f.at)
	if out == nil {
		out = map[string]string{}
	}
	for _, name := range sortedKeys(table) {
		s, isString := table[name].(string)
		if !isString {
			return faultf("write the value in quotes", "%s is %s, not a string", shown(name), describe(table[name]))
		}
		if bad := f.check(name); bad != nil {
			return bad
		}
		if strings.ContainsRune(s, 0) {
			return faultf("remove it", "the value of %s holds a NUL byte", shown(name))
		}
		out[name] = s
	}
	*f.at = out
	return nil
}

func (f strs) fromText(s string) (any, *fault) { return tomlText(s, f.allowed()) }

func (f strs) format() string {
	table := make(map[string]any, len(*f.at))
	for k, v := range *f.at {
		table[k] = v
	}
	return inlineTable(table)
}

func (f strs) allowed() string { return f.words }

// free is a table with keys of a driver; tables of later sources are
// merged into it, key by key.
type free struct {
	at    *map[string]any
	words string
}

func (f free) reset() { *f.at = nil }

func (f free) set(v any) *fault {
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

func (f free) fromText(s string) (any, *fault) { return tomlText(s, f.allowed()) }
func (f free) format() string                  { return inlineTable(*f.at) }
func (f free) allowed() string                 { return f.words }

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
