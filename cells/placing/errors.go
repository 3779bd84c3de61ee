// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// What went wrong with a request, in the terms in which a scheduler acts.
var (
	// ErrUnavailable: Placement could not be reached, or did not answer a read. Nothing was written.
	ErrUnavailable = errors.New("placement is unavailable")
	// ErrOutcomeUnknown: a write was sent and no answer that says what became of it came back. It may have happened, or may yet.
	ErrOutcomeUnknown = errors.New("placement did not say what became of the write")
	// ErrGenerationConflict: a provider was written at the same time (409 placement.concurrent_update). The same again may work.
	ErrGenerationConflict = errors.New("a resource provider was changed meanwhile")
	// ErrConsumerConflict: the consumer does not have the generation that was given. Read it and decide again.
	ErrConsumerConflict = errors.New("the consumer's allocations were changed meanwhile")
	// ErrNoRoom: what was to be allocated does not fit, or the inventory is not there (any more).
	ErrNoRoom = errors.New("it does not fit there")
	// ErrInvalid: 400. A provider, class or trait that Placement does not know, as a rule.
	ErrInvalid = errors.New("placement calls the request invalid")
	// ErrRefused: 401 or 403, or there is no proof of who we are. Trying again does not help until somebody mends it.
	ErrRefused = errors.New("placement refuses our credentials")
	// ErrUnexpected: an answer that a Placement does not give. Probably something else listens there, or it is too old.
	ErrUnexpected = errors.New("unexpected answer, is this a placement service of OpenStack Xena or later?")
)

// Down reports whether an error is about Placement as a whole, and not about what was asked: everything else waits too.
func Down(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrRefused) || errors.Is(err, ErrUnexpected)
}

// RequestError is one request that failed.
type RequestError struct {
	// Method and Path name the request, without the server and the query.
	Method, Path string
	// Status is 0 when no answer came.
	Status int
	// Code is Placement's own error code ("placement.concurrent_update", ...), where it gave one.
	Code string
	// Detail is what Placement said, or what the transport did.
	Detail string
	// RequestID is ours, under which Placement logs the request.
	RequestID string
	// Kind is one of the sentinels of this package; Cause is the transport's error, if any.
	Kind, Cause error
}

func (e *RequestError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %v", e.Method, e.Path, e.Kind)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (status %d", e.Status)
		if e.Code != "" {
			b.WriteString(", " + e.Code)
		}
		b.WriteString(")")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String() + " [" + e.RequestID + "]"
}

// Unwrap gives errors.Is both the kind and the transport's cause.
func (e *RequestError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// refuse sorts an answer that is not 2xx.
func (e *RequestError) refuse(content []byte) {
	var answer wire.ErrorBody
	if json.Unmarshal(content, &answer) == nil && len(answer.Errors) > 0 {
		e.Code, e.Detail = string(answer.Errors[0].Code), excerpt([]byte(answer.Errors[0].Detail))
	} else {
		e.Detail = excerpt(content)
	}
	switch e.Status {
	case http.StatusBadRequest:
		e.Kind = ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Kind = ErrRefused
	case http.StatusConflict:
		e.Kind = ErrNoRoom
		if wire.ErrorCode(e.Code) == wire.CodeConcurrentUpdate {
			e.Kind = ErrGenerationConflict
		}
	default:
		e.Kind = ErrUnexpected
		if e.Status >= http.StatusInternalServerError || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout {
			// A gateway says 502 and 504 of requests that arrived, and a server 500 of some that it carried out.
			e.Kind = e.lost()
		}
	}
}

// lost is the kind of a request that may have arrived, and has no answer.
func (e *RequestError) lost() error {
	if e.Method == http.MethodGet {
		return ErrUnavailable
	}
	return ErrOutcomeUnknown
}

// excerpt makes a line of log from whatever came instead of an answer.
func excerpt(content []byte) string {
	const most = 300
	if len(content) > 8*most {
		content = content[:8*most]
	}
	text := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(string(content), "?")), " "))
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}
