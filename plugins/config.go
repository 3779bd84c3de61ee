// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// DecodeConfig decodes a driver's configuration into a struct, strictly: unknown keys, wrong types
// and trailing data are a [*ConfigError]. Fields that raw does not have keep their value, so set
// the defaults first. An empty raw counts as "{}".
func DecodeConfig(raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return configError(err, raw, into)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &ConfigError{Problem: "is followed by more than one JSON value"}
	}
	return nil
}

func configError(err error, raw json.RawMessage, into any) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		return &ConfigError{Key: keyOf(wrongType.Field, reflect.TypeOf(into)),
			Problem: fmt.Sprintf("is %s, must be %s", given(wrongType.Value), wanted(wrongType.Type))}
	case errors.As(err, &syntax):
		return &ConfigError{Problem: fmt.Sprintf("is not valid JSON (byte %d): %v", syntax.Offset, syntax)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &ConfigError{Problem: "is truncated: not valid JSON"}
	}
	// encoding/json has no error type for an unknown field; only the message names the key.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		var value any
		if json.Unmarshal(raw, &value) == nil {
			if path := pathOf(value, reflect.TypeOf(into), name); path != "" {
				name = path
			}
		}
		return &ConfigError{Key: name, Problem: "is not a key of this driver"}
	}
	return &ConfigError{Problem: err.Error()}
}

// given translates encoding/json's name of a kind of value for the author of the file, which need
// not be JSON.
func given(value string) string {
	kind, rest, _ := strings.Cut(value, " ")
	switch kind {
	case "string":
		return "a text"
	case "number":
		return strings.TrimSpace("the number " + rest)
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "a table"
	}
	return value
}

// wanted describes what can be decoded into a type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a table"
	}
	return "a value of type " + t.String()
}

// pathOf returns the path of an unknown key in a value of a type, or "": types with their own
// decoder are not searched.
func pathOf(value any, t reflect.Type, unknown string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			var below reflect.Type
			switch t.Kind() {
			case reflect.Map:
				below = t.Elem()
			case reflect.Struct:
				field, found := fieldOf(t, name)
				if !found && name == unknown {
					return name
				}
				if !found {
					continue
				}
				below = field.Type
			default:
				return ""
			}
			if path := pathOf(v[name], below, unknown); path != "" {
				return strings.Replace(name+"."+path, ".[", "[", 1)
			}
		}
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return ""
		}
		for i, item := range v {
			if path := pathOf(item, t.Elem(), unknown); path != "" {
				return fmt.Sprintf("[%d].%s", i, path)
			}
		}
	}
	return ""
}

// keyOf returns the path of a key as it is written in the file: encoding/json also names embedded
// Go structs.
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

// fieldOf returns the field that encoding/json uses for a name: by its tag, or by its Go name.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name || tag == "" && strings.EqualFold(f.Name, name) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
