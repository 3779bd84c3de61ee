// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Object is an object, with its members in the order in which they were sent. Of a name that came
// twice the last value counts, as in Python. The zero Object is empty.
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

// IsInteger says whether the number has neither a fraction nor an exponent: 1.0 is no integer.
func (n Number) IsInteger() bool { return !strings.ContainsAny(string(n), ".eE") }

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

// Decode reads one value: nil, bool, [Number], string, []any or *[Object]. The error is an
// *[Error].
func Decode(text []byte) (any, error) {
	r := NewReader(text)
	value, err := r.Value()
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Value reads a value of any kind, see [Decode].
func (r *Reader) Value() (any, error) {
	switch c := r.peek(); {
	case c == '{':
		o := &Object{}
		return o, r.Object(func(key []byte) error {
			name := string(key)
			v, err := r.Value()
			o.Set(name, v)
			return err
		})
	case c == '[':
		list := []any{}
		return list, r.Array(func(int) error {
			v, err := r.Value()
			list = append(list, v)
			return err
		})
	case c == '"':
		text, err := r.text()
		return string(text), err
	case c == 't' && r.literal("true"):
		return true, nil
	case c == 'f' && r.literal("false"):
		return false, nil
	case c == 'n' && r.literal("null"):
		return nil, nil // null is the value
	}
	token, _, err := r.numeral("")
	return Number(token), err
}

// ErrTrailing is the error of Unmarshal for data after the value.
var ErrTrailing = errors.New("there is data after the JSON value")

// Unmarshal is json.Unmarshal for what has to be of this very version of a program: a member that
// into has no field for is an error.
func Unmarshal(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrTrailing
	}
	return nil
}
