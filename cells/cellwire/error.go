// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
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
	CodeNoCall       Code = "no_call"      // 404: the cell has no such call, as it is of another version
	CodeConflict     Code = "conflict"     // 409: the state of the server does not allow it
	CodeExists       Code = "exists"       // 409: another server has this uuid
	CodeInUse        Code = "in_use"       // 409: servers need it
	CodeTooLarge     Code = "too_large"    // 413
	CodeAnotherCell  Code = "another_cell" // 421: the request is for the cell that HeaderCell names, and this is none of that name
	CodeInternal     Code = "internal"     // 500
	CodeUnavailable  Code = "unavailable"  // 503: the database cannot be used now
)

// UnmarshalJSON decodes numbers as int64: as float64 two times could become one. There is a key in each row of each page, so those that are written
// as cells write them are read without a decoder.
func (k *Key) UnmarshalJSON(data []byte) error {
	if plain, ok := plainKey(data); ok {
		*k = plain
		return nil
	}
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

// plainKey reads a key of integers and of strings that are written as they are, with no space between. It says no to anything else.
func plainKey(data []byte) (Key, bool) {
	if len(data) < 3 || data[0] != '[' || data[len(data)-1] != ']' {
		return nil, false
	}
	var key Key
	for rest := data[1:]; ; rest = rest[1:] {
		n := 0 // bytes of the value
		if rest[0] == '"' {
			for n = 1; n < len(rest) && rest[n] >= ' ' && rest[n] <= '~' && rest[n] != '"' && rest[n] != '\\'; n++ {
			}
			if n == len(rest) || rest[n] != '"' {
				return nil, false
			}
			key = append(key, string(rest[1:n]))
			n++
		} else {
			for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '-') {
				n++
			}
			text := string(rest[:n])
			value, err := strconv.ParseInt(text, 10, 64)
			if err != nil || strconv.FormatInt(value, 10) != text {
				return nil, false
			}
			key = append(key, value)
		}
		switch rest = rest[n:]; {
		case len(rest) == 1: // the bracket at the end
			return key, true
		case len(rest) < 3 || rest[0] != ',':
			return nil, false
		}
	}
}
