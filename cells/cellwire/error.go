// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// Error is a cell's refusal.
type Error struct {
	Status int `json:"-"`
	// RetryAfter is how long to wait before the request is sent again, of CodeTooMany.
	RetryAfter time.Duration `json:"-"`
	Code       Code          `json:"code"`
	Message    string        `json:"message"`
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
	CodeOutdated     Code = "outdated"     // 409: HeaderTerm is lower than one that the cell has seen
	CodeInUse        Code = "in_use"       // 409: servers need it
	CodeUnable       Code = "unable"       // 409: the host of the server lacks an ability
	CodeContested    Code = "contested"    // 409: it is not certain whose the node is
	CodeOverQuota    Code = "over_quota"   // 409: it would be more than there may be
	CodeTooLarge     Code = "too_large"    // 413
	CodeTooMany      Code = "too_many"     // 429: wait as Retry-After says
	CodeAnotherCell  Code = "another_cell" // 421: HeaderCell names another cell
	CodeInternal     Code = "internal"     // 500
	CodeUnavailable  Code = "unavailable"  // 503: the database cannot be used now
)

// UnmarshalJSON decodes numbers as int64: two of them could become one float64.
func (k *Key) UnmarshalJSON(data []byte) error {
	r := jsonkit.NewReader(data)
	if r.Null() {
		*k = nil
		return r.End()
	}
	key := make(Key, 0, 2) // most lists are sorted by one column
	err := r.Array(func(i int) error {
		value, err := r.Value()
		if err != nil {
			return err
		}
		switch v := value.(type) {
		case string:
		case jsonkit.Number:
			n, fits := v.Int64()
			if !fits {
				return fmt.Errorf("value %d of a key: %s is not an int64", i, v)
			}
			value = n
		default:
			return fmt.Errorf("value %d of a key is a %T, not a string or an integer", i, v)
		}
		key = append(key, value)
		return nil
	})
	if err != nil {
		return err
	}
	*k = key
	return r.End()
}
