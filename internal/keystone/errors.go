// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"errors"
	"strings"
)

// What went wrong, in the terms in which an operator can act.
var (
	// ErrConfig: the configuration cannot work.
	ErrConfig = errors.New("invalid Keystone configuration")
	// ErrUnavailable: Keystone could not be reached, did not answer in time, answered 5xx, or
	// answered what it does not answer.
	ErrUnavailable = errors.New("keystone is unavailable")
	// ErrCredentials: Keystone refuses the credentials, or they cannot be read.
	ErrCredentials = errors.New("keystone rejects the credentials")
	// ErrCatalog: there is a token, but the catalog has no endpoint of the service that could be
	// used.
	ErrCatalog = errors.New("keystone's catalog has no usable endpoint of the service")
)

// Error is why there is no token, or no endpoint.
type Error struct {
	// Kind is [ErrUnavailable], [ErrCredentials] or [ErrCatalog].
	Kind error
	// AuthURL is the Keystone that was asked.
	AuthURL string
	// Detail is what was found, Hint what to do about it; either may be empty.
	Detail, Hint string
	// Status is the HTTP status of the answer, 0 if there was none.
	Status int
	// RequestID is ours, under which Keystone logs the request; empty if none was made.
	RequestID string
	// Cause is the transport's error, or that of reading the secret, if any.
	Cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.Error())
	b.WriteString(" (" + e.AuthURL + ")")
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	if e.RequestID != "" {
		b.WriteString(" [" + e.RequestID + "]")
	}
	return b.String()
}

// Unwrap gives errors.Is the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Temporary reports whether it may work the next time: all but refused credentials.
func (e *Error) Temporary() bool { return !errors.Is(e.Kind, ErrCredentials) }
