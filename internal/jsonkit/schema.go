// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/providertree"
)

// Schema is conditions in the order in which they are looked at; the first that fails is what the
// refusal is about.
type Schema []Condition

// Condition is one condition on a value, a keyword of JSON Schema.
type Condition interface {
	check(value any) *SchemaError
	// document adds the condition to a JSON Schema, see [Document].
	document(schema map[string]any)
}

// SchemaError is what is wrong with a value.
type SchemaError struct {
	// Path leads to the value: names of members, and indices of lists.
	Path []any
	// Value is what is wrong, Message why.
	Value   any
	Message string
	// plain messages do not show the value.
	plain bool
	query bool
}

// Error is Nova's text.
func (e *SchemaError) Error() string {
	switch {
	case e.plain || len(e.Path) == 0:
		return e.Message
	case e.query:
		return fmt.Sprintf("Invalid input for query parameters %s. Value: %s. %s",
			PythonStr(e.Path[0]), PythonStr(e.Value), e.Message)
	}
	return fmt.Sprintf("Invalid input for field/attribute %s. Value: %s. %s",
		PythonStr(e.Path[len(e.Path)-1]), PythonStr(e.Value), e.Message)
}

// Validate checks a value; its error is an *[SchemaError].
func Validate(s Schema, value any) error {
	if e := s.check(value); e != nil {
		return e
	}
	return nil
}

// ValidateQuery checks the parameters of a query; each may have come several times. Parameters that
// no property is for are of no interest.
func ValidateQuery(p Properties, query url.Values) error {
	for _, property := range p {
		for _, value := range query[property.Name] {
			if e := property.Schema.check(value); e != nil {
				e.Path, e.query = append([]any{property.Name}, e.Path...), true
				return e
			}
		}
	}
	return nil
}

// ValidateClosedQuery checks the parameters of a query that has no others than those that there are
// properties for, and each once.
func ValidateClosedQuery(p Properties, query url.Values) error {
	lists, given := Properties{}, new(Object)
	for _, property := range p {
		lists = append(lists, Property{Name: property.Name, Schema: Schema{Items(property.Schema), MaxItems(1)}})
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		var values []any
		for _, value := range query[name] {
			values = append(values, value)
		}
		given.Set(name, values)
	}
	if e := ClosedObject(lists).check(given); e != nil {
		e.query = true
		return e
	}
	return nil
}

func (s Schema) check(value any) *SchemaError {
	for _, condition := range s {
		if e := condition.check(value); e != nil {
			return e
		}
	}
	return nil
}

func schemaError(value any, format string, args ...any) *SchemaError {
	return &SchemaError{Value: value, Message: fmt.Sprintf(format, args...)}
}

// condition is one keyword with its value, and the function that checks it.
type condition struct {
	keyword string
	value   any
	test    func(value any) *SchemaError
}

func (c condition) check(value any) *SchemaError   { return c.test(value) }
func (c condition) document(schema map[string]any) { schema[c.keyword] = documented(c.value) }

// Type wants one of some types: object, array, string, integer, number, boolean, null. 1.0 is no
// integer, as in draft 4.
func Type(types ...string) Condition {
	quoted := make([]string, len(types))
	for i, t := range types {
		quoted[i] = "'" + t + "'"
	}
	wanted := strings.Join(quoted, ", ")
	return condition{"type", oneOrSeveral(types), func(value any) *SchemaError {
		for _, t := range types {
			if isType(value, t) {
				return nil
			}
		}
		return schemaError(value, "%s is not of type %s", PythonRepr(value), wanted)
	}}
}

func isType(value any, t string) bool {
	switch v := value.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case Number:
		return t == "number" || t == "integer" && v.IsInteger()
	case []any:
		return t == "array"
	case *Object:
		return t == "object"
	}
	return false
}

// Enum wants one of some values.
func Enum(values ...any) Condition {
	shown := PythonRepr(values)
	return condition{"enum", values, func(value any) *SchemaError {
		switch value.(type) {
		case nil, bool, string:
			if slices.Contains(values, value) {
				return nil
			}
		}
		return schemaError(value, "%s is not one of %s", PythonRepr(value), shown)
	}}
}

// Pattern wants strings to have a match of a regular expression.
func Pattern(expression string) Condition {
	return condition{"pattern", expression, matching(expression, regexp.MustCompile(expression).MatchString)}
}

// PatternFunc is Pattern for what Go's regular expressions cannot say: errors show text, documents
// have words, and matches decides.
func PatternFunc(text, words string, matches func(string) bool) Condition {
	return condition{"description", words, matching(text, matches)}
}

func matching(text string, matches func(string) bool) func(any) *SchemaError {
	return func(value any) *SchemaError {
		if s, is := value.(string); is && !matches(s) {
			return schemaError(value, "%s does not match %s", PythonRepr(value), PythonRepr(text))
		}
		return nil
	}
}

// MinLength and MaxLength bound the characters of strings.
func MinLength(n int) Condition {
	return condition{"minLength", n, func(value any) *SchemaError {
		if s, is := value.(string); is && utf8.RuneCountInString(s) < n {
			return schemaError(value, "%s is too short", PythonRepr(value))
		}
		return nil
	}}
}

// MaxLength see [MinLength].
func MaxLength(n int) Condition {
	return condition{"maxLength", n, func(value any) *SchemaError {
		if s, is := value.(string); is && utf8.RuneCountInString(s) > n {
			return schemaError(value, "%s is too long", PythonRepr(value))
		}
		return nil
	}}
}

// Format wants strings to be of a format: uuid, ipv4, ipv6, base64.
func Format(name string) Condition {
	like := formats[name]
	if like == nil {
		panic("jsonkit: unknown format " + name)
	}
	return condition{"format", name, func(value any) *SchemaError {
		if s, is := value.(string); is && !like(s) {
			return schemaError(value, "%s is not a '%s'", PythonRepr(value), name)
		}
		return nil
	}}
}

// Name wants strings to be fit for names, and says so in Nova's own words.
func Name() Condition { return nameCondition(nameLike, nameReason) }

// SpacedName is Name for names that may have spaces around them.
func SpacedName() Condition {
	return nameCondition(func(s string) bool { s = trimSpaces(s); return s != "" && nameLike(s) }, spacedNameReason)
}

func nameCondition(like func(string) bool, reason string) Condition {
	return condition{"description", reason, func(value any) *SchemaError {
		if s, is := value.(string); is && !like(s) {
			return &SchemaError{Value: value,
				Message: "An invalid 'name' value was provided. The name must be: " + reason, plain: true}
		}
		return nil
	}}
}

// Minimum and Maximum bound numbers, and strings that are numbers.
func Minimum(n float64) Condition {
	return condition{"minimum", n, func(value any) *SchemaError {
		if f, shown, is := numberOf(value); is && f < n {
			return schemaError(value, "%s is less than the minimum of %s", shown, reprBound(n))
		}
		return nil
	}}
}

// ExclusiveMinimum is Minimum with the minimum itself excluded.
func ExclusiveMinimum(n float64) Condition {
	return condition{"exclusiveMinimum", n, func(value any) *SchemaError {
		if f, shown, is := numberOf(value); is && f <= n {
			return schemaError(value, "%s is less than or equal to the minimum of %s", shown, reprBound(n))
		}
		return nil
	}}
}

// Maximum see [Minimum].
func Maximum(n float64) Condition {
	return condition{"maximum", n, func(value any) *SchemaError {
		if f, shown, is := numberOf(value); is && f > n {
			return schemaError(value, "%s is greater than the maximum of %s", shown, reprBound(n))
		}
		return nil
	}}
}

// numberOf is the value as a number and how Python shows that.
func numberOf(value any) (f float64, shown string, is bool) {
	switch v := value.(type) {
	case Number:
		return v.Float64(), PythonRepr(v), true
	case bool:
		if v {
			return 1, "1", true
		}
		return 0, "0", true
	case string:
		v = strings.TrimSpace(v)
		f, err := strconv.ParseFloat(v, 64)
		if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(v, "xXpP_") {
			return 0, "", false
		}
		if digits := strings.TrimLeft(v, "+-"); strings.Trim(digits, "0123456789") == "" {
			digits = strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
			if f < 0 {
				digits = "-" + digits
			}
			return f, digits, true
		}
		return f, reprFloat(f), true
	}
	return 0, "", false
}

func reprBound(n float64) string {
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return strconv.FormatInt(int64(n), 10)
	}
	return reprFloat(n)
}

// AnyOf wants at least one of some schemas to hold.
func AnyOf(schemas ...Schema) Condition {
	return condition{"anyOf", schemas, func(value any) *SchemaError {
		for _, s := range schemas {
			if s.check(value) == nil {
				return nil
			}
		}
		return schemaError(value, "%s is not valid under any of the given schemas", PythonRepr(value))
	}}
}

// IsPrintable says whether a character may be in a name: all but control and unassigned ones, and
// separators other than spaces, of any kind.
func IsPrintable(r rune) bool {
	return unicode.IsGraphic(r) && !unicode.Is(unicode.Zl, r) && !unicode.Is(unicode.Zp, r)
}

// formats are the formats that schemas name. Each is about strings; Type comes before it.
var formats = map[string]func(string) bool{
	"uuid":   providertree.IsUUID, // as Nova has it, in oslo_utils.uuidutils
	"ipv4":   func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
	"ipv6":   func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() && a.Zone() == "" },
	"base64": base64Like,
}

// base64Like says whether Python's base64 can decode a string: ASCII characters outside of its
// alphabet are skipped, and what is left has to be complete.
func base64Like(s string) bool {
	position, pads := 0, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '=':
			if position >= 2 {
				if pads++; position+pads >= 4 {
					return true
				}
			}
		case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/':
			position, pads = (position+1)%4, 0
		case c >= 0x80:
			return false
		}
	}
	return position == 0
}

// nameReason and spacedNameReason are what a name has to be, in Nova's words.
const (
	nameReason       = "printable characters. Can not start or end with whitespace."
	spacedNameReason = "printable characters with at least one non space character"
)

// nameLike says whether a string can be a name. Characters beyond the basic plane are none, as with
// Nova.
func nameLike(s string) bool {
	for _, r := range s {
		if !IsPrintable(r) || r >= 0xffff {
			return false
		}
	}
	return trimSpaces(s) == s
}

func trimSpaces(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.Is(unicode.Zs, r) })
}
