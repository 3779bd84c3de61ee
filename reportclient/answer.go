// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/placement/request"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// refuse sorts an answer that is not 2xx.
func refuse(e *RequestError, content []byte) {
	e.Refused(content)
	switch e.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge:
		e.Kind = ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Kind = ErrRefused
	case http.StatusNotFound:
		e.Kind = ErrNotFound
	case http.StatusNotAcceptable:
		e.Kind = ErrTooOld
	case http.StatusConflict:
		e.Kind = conflictKind(e.Code)
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		e.Kind = ErrUnavailable
	default:
		e.Kind = ErrUnexpected
		if e.Status >= http.StatusInternalServerError {
			e.Kind = ErrUnavailable
		}
	}
}

func conflictKind(code string) error {
	switch wire.ErrorCode(code) {
	case wire.CodeInventoryInUse:
		return ErrInventoryInUse
	case wire.CodeDuplicateName:
		return ErrDuplicate
	case wire.CodeProviderInUse, wire.CodeCannotDeleteParent:
		return ErrProviderInUse
	}
	return ErrConflict
}

func decode(status int, content []byte, out any) error {
	switch out.(type) {
	case nil:
		return nil
	case noContent:
		if status != http.StatusNoContent {
			return fmt.Errorf("the answer has status %d, and done is only 204: %s", status, request.Excerpt(content))
		}
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("the answer cannot be read: %w: %s", err, request.Excerpt(content))
	}
	if err := wire.CheckAnswer(out); err != nil {
		return fmt.Errorf("the answer is not Placement's: %w", err)
	}
	return nil
}
