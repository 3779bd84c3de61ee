// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// Error is an error answer. Each API encodes it in its own form.
type Error struct {
	Status int
	// Code is the error code, "" for an API that has none.
	Code string
	// Message is the sentence that the client gets.
	Message string
	// Allow is the Allow header of a 405, Challenge the WWW-Authenticate header of a 401.
	Allow, Challenge string
	// Retry: the same request may succeed in a moment.
	Retry bool
	// Cause is for the log, and not for the client.
	Cause error
	// Hint is for the log: what the operator can do.
	Hint string
	// Names are what it is about, for an API whose errors list that.
	Names []string
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Because sets the cause.
func (e *Error) Because(err error) *Error {
	e.Cause = err
	return e
}

// Errorf makes an Error of a status and a sentence.
func Errorf(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// BadRequest is a 400: the request is wrong.
func BadRequest(format string, args ...any) *Error {
	return Errorf(http.StatusBadRequest, format, args...)
}

// NotFound is a 404 for what the path names.
func NotFound(format string, args ...any) *Error {
	return Errorf(http.StatusNotFound, format, args...)
}

// Unavailable is a 503: the same request may succeed in a moment.
func Unavailable(format string, args ...any) *Error {
	e := Errorf(http.StatusServiceUnavailable, format, args...)
	e.Retry = true
	return e
}

// NoRoute is the 404 for an unknown path.
func NoRoute() *Error { return NotFound("The resource could not be found.") }

// NoMethod is the 405 for a path that has only the methods in allow.
func NoMethod(method, allow string) *Error {
	e := Errorf(http.StatusMethodNotAllowed, "The method %s is not allowed for this resource.", Shortened(method))
	e.Allow = allow
	return e
}

// Authenticate sets the sender of the request. Its error is a 401, or a 503 if the authenticator
// cannot decide now.
func (x *Exchange) Authenticate() error {
	who, err := x.service.Authenticator.Authenticate(x.R)
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return Unauthorized(err)
	case err != nil:
		return Unavailable("The sender of the request cannot be authenticated now. Send it again in a moment.").
			Because(err)
	}
	x.Caller = who
	if x.service.Tracing != nil {
		x.Trace(who.Host != nil || who.HasRole(roleAdmin) || who.HasRole(roleService))
	}
	return nil
}

// The roles of Keystone whose bearers decide what is traced.
const (
	roleAdmin   = "admin"
	roleService = "service"
)

// Unauthorized is the 401 for an error of an [Authenticator] that wraps ErrUnauthenticated.
func Unauthorized(err error) *Error {
	e := Errorf(http.StatusUnauthorized, "%s", err.Error())
	var u *Unauthenticated
	if errors.As(err, &u) {
		e.Challenge = u.Challenge
	}
	return e
}

// Shortened keeps what a client sent from filling error bodies and logs: see [jsonkit.Shortened].
func Shortened(s string) string { return jsonkit.Shortened(s) }
