// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/placement/request"
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

// RequestError is one request that failed. Its Path is without the query, its Kind one of the sentinels of this package.
type RequestError = request.Error

// refuse sorts an answer that is not 2xx.
func refuse(e *RequestError, content []byte) {
	e.Refused(content)
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
			e.Kind = lost(e.Method)
		}
	}
}

// lost is the kind of a request that may have arrived, and has no answer.
func lost(method string) error {
	if method == http.MethodGet {
		return ErrUnavailable
	}
	return ErrOutcomeUnknown
}
