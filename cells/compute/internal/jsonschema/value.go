// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrMalformed says that a body is not one JSON value in UTF-8.
var ErrMalformed = errors.New("malformed JSON")

// maxDepth bounds how deep values may be nested; no schema goes deeper than ten.
const maxDepth = 100

// Object is an object of JSON, with its members in the order in which they were sent. Of a name that came twice the last value counts, as in
// Python. The zero Object is empty.
type Object struct {
	names  []string
	values map[string]any
}

// Names are the names of the members in order.
func (o *Object) Names() []string { return o.names }

// Get is the value of a member, and whether there is such a member.
func (o *Object) Get(name string) (any, bool) {
	v, ok := o.values[name]
	return v, ok
}

// Set adds a member, or gives it another value.
func (o *Object) Set(name string, value any) {
	if o.values == nil {
		o.values = map[string]any{}
	}
	if _, is := o.values[name]; !is {
		o.names = append(o.names, name)
	}
	o.values[name] = value
}

// Number is a number as it was sent: an integer, or one with a fraction or an exponent.
type Number string

func (n Number) integer() bool { return !strings.ContainsAny(string(n), ".eE") }

// Int64 is the number if it is an integer that fits.
func (n Number) Int64() (int64, bool) {
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
}

// Float64 is the number, infinite when it is too large.
func (n Number) Float64() float64 {
	f, _ := strconv.ParseFloat(string(n), 64)
	return f
}

// Decode reads one JSON value: nil, bool, [Number], string, []any or *[Object]. Errors wrap [ErrMalformed].
func Decode(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	value, err := decode(decoder, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more after the value", ErrMalformed)
	}
	return value, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		return Number(t), nil
	case json.Delim:
		if t == '[' {
			return decodeList(d, depth)
		}
		return decodeObject(d, depth)
	}
	return token, nil
}

func decodeList(d *json.Decoder, depth int) (any, error) {
	list := []any{}
	for d.More() {
		v, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.Token()
	return list, err
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	object := &Object{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		object.Set(name.(string), v)
	}
	_, err := d.Token()
	return object, err
}

// Str is a value as Python's str has it: strings without quotes.
func Str(value any) string {
	if s, is := value.(string); is {
		return s
	}
	return Repr(value)
}

// Repr is a value as Python's repr has it.
func Repr(value any) string {
	var b strings.Builder
	writeRepr(&b, value)
	return b.String()
}

func writeRepr(b *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int:
		b.WriteString(strconv.Itoa(v))
	case float64:
		b.WriteString(reprFloat(v))
	case Number:
		if v.integer() {
			b.WriteString(string(v))
		} else {
			b.WriteString(reprFloat(v.Float64()))
		}
	case string:
		writeQuoted(b, v)
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, item)
		}
		b.WriteByte(']')
	case *Object:
		b.WriteByte('{')
		for i, name := range v.names {
			if i > 0 {
				b.WriteString(", ")
			}
			writeQuoted(b, name)
			b.WriteString(": ")
			writeRepr(b, v.values[name])
		}
		b.WriteByte('}')
	default:
		fmt.Fprintf(b, "%v", v)
	}
}

// writeQuoted writes a string with single quotes, or with double ones when it has single ones and no double ones.
func writeQuoted(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}

// reprFloat writes the shortest form that reads back, with an exponent where Python has one: from 1e+16 on, and below 1e-4.
func reprFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
