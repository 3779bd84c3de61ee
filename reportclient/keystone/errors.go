// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"errors"
	"strings"

	"github.com/compute-agent/compute-agent/reportclient"
)

// What went wrong, in the terms in which an operator can act.
var (
	// ErrConfig: New was given what cannot work.
	ErrConfig = errors.New("keystone credentials are incomplete")
	// ErrUnavailable: Keystone could not be reached, did not answer in time, answered 5xx, or answered what it does not answer.
	ErrUnavailable = errors.New("keystone cannot be asked for a token")
	// ErrCredentials: Keystone refuses the credentials, or they cannot be read.
	ErrCredentials = errors.New("keystone gives no token for the agent's credentials")
	// ErrCatalog: there is a token, but the service catalogue has no endpoint of Placement that could be used.
	ErrCatalog = errors.New("keystone's service catalogue has no endpoint of placement to use")
)

// Error is why there is no token, or no endpoint. To reportclient, [ErrCredentials] are its ErrRefused, and all else is its
// ErrUnavailable: it may be better the next time.
type Error struct {
	// Kind is [ErrUnavailable], [ErrCredentials] or [ErrCatalog].
	Kind error
	// AuthURL is the Keystone that was asked.
	AuthURL string
	// Detail is what was found, Remedy what to do about it; either may be empty.
	Detail, Remedy string
	// Status is that of the answer, 0 if there was none.
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
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	if e.RequestID != "" {
		b.WriteString(" [" + e.RequestID + "]")
	}
	return b.String()
}

// Unwrap gives errors.Is the kind, what it is to reportclient, and the cause.
func (e *Error) Unwrap() []error {
	kinds := []error{e.Kind, reportclient.ErrUnavailable}
	if errors.Is(e.Kind, ErrCredentials) {
		kinds[1] = reportclient.ErrRefused
	}
	if e.Cause != nil {
		kinds = append(kinds, e.Cause)
	}
	return kinds
}
