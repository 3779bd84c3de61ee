// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Error is a cell's refusal.
type Error struct {
	Status  int    `json:"-"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d %s)", e.Message, e.Status, e.Code) }

// Code names the reason of a refusal, for programs.
type Code string

// The codes, with their status.
const (
	CodeBadRequest   Code = "bad_request"  // 400
	CodeUnauthorized Code = "unauthorized" // 401
	CodeForbidden    Code = "forbidden"    // 403
	CodeNotFound     Code = "not_found"    // 404
	CodeConflict     Code = "conflict"     // 409: the state of the server does not allow it
	CodeExists       Code = "exists"       // 409: another server has this uuid
	CodeTooLarge     Code = "too_large"    // 413
	CodeAnotherCell  Code = "another_cell" // 421: the request is for the cell that HeaderCell names, and this is none of that name
	CodeInternal     Code = "internal"     // 500
	CodeUnavailable  Code = "unavailable"  // 503: the database cannot be used now
)

// UnmarshalJSON decodes numbers as int64: as float64 two times could become one.
func (k *Key) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var values []any
	if err := decoder.Decode(&values); err != nil {
		return err
	}
	for i, v := range values {
		switch v := v.(type) {
		case string:
		case json.Number:
			n, err := v.Int64()
			if err != nil {
				return fmt.Errorf("value %d of a key: %w", i, err)
			}
			values[i] = n
		default:
			return fmt.Errorf("value %d of a key is a %T, not a string or an integer", i, v)
		}
	}
	*k = values
	return nil
}
