// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		return configError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &ConfigError{Problem: "is followed by more than one JSON value"}
	}
	return nil
}

func configError(err error) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		return &ConfigError{Key: wrongType.Field, Problem: fmt.Sprintf("is a JSON %s, must be of type %s", wrongType.Value, wrongType.Type)}
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
