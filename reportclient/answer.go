// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// refuse sorts an answer that is not 2xx.
func (e *RequestError) refuse(content []byte) {
	var answer wire.ErrorBody
	if json.Unmarshal(content, &answer) == nil && len(answer.Errors) > 0 {
		e.Code, e.Detail = string(answer.Errors[0].Code), strings.Join(strings.Fields(answer.Errors[0].Detail), " ")
	} else {
		e.Detail = excerpt(content)
	}
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
			return fmt.Errorf("the answer has status %d, and done is only 204: %s", status, excerpt(content))
		}
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("the answer cannot be read: %w: %s", err, excerpt(content))
	}
	return nil
}

// excerpt makes a line of log from whatever came instead of an answer.
func excerpt(content []byte) string {
	const most = 200
	text := string(bytes.ToValidUTF8(content, []byte("?")))
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	return text
}

// plain takes the wrapping off a transport's error that repeats method and URL.
func plain(err error) string {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err.Error()
	}
	return err.Error()
}
