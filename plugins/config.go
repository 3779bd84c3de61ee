// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// DecodeConfig decodes a driver's configuration into a struct, strictly: unknown keys, wrong types and trailing data are
// a [*ConfigError]. Fields that raw does not name keep their value, so fill in the defaults first. An empty raw counts as
// "{}".
func DecodeConfig(raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return configError(err, into)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &ConfigError{Problem: "is followed by more than one JSON value"}
	}
	return nil
}

func configError(err error, into any) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		return &ConfigError{Key: keyOf(wrongType.Field, reflect.TypeOf(into)), Problem: fmt.Sprintf("is a JSON %s, must be of type %s", wrongType.Value, wrongType.Type)}
	case errors.As(err, &syntax):
		return &ConfigError{Problem: fmt.Sprintf("is not valid JSON (byte %d): %v", syntax.Offset, syntax)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &ConfigError{Problem: "is cut off: not valid JSON"}
	}
	// encoding/json has no type for an unknown field; only its words name the key.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &ConfigError{Key: strings.Trim(name, `"`), Problem: "is no key of this driver"}
	}
	return &ConfigError{Problem: err.Error()}
}

// keyOf is the path of a key as its author wrote it: encoding/json also names the Go structs that are embedded on the way.
func keyOf(path string, t reflect.Type) string {
	var keys []string
	for _, name := range strings.Split(path, ".") {
		for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			t = t.Elem()
		}
		if t == nil || (t.Kind() != reflect.Struct && t.Kind() != reflect.Map) {
			keys, t = append(keys, name), nil
			continue
		}
		if t.Kind() == reflect.Map {
			keys, t = append(keys, name), t.Elem()
			continue
		}
		field, found := fieldOf(t, name)
		if !found {
			keys, t = append(keys, name), nil
			continue
		}
		if !field.Anonymous || field.Tag.Get("json") != "" {
			keys = append(keys, name)
		}
		t = field.Type
	}
	return strings.Join(keys, ".")
}

// fieldOf finds the field that encoding/json means by a name: that of its tag, or else Go's.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name || tag == "" && strings.EqualFold(f.Name, name) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
