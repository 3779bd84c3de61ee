// SPDX-License-Identifier: Apache-2.0

package api

import "github.com/compute-agent/compute-agent/internal/authn"

// Who sends a request is found out by package authn. GET / asks no one. Placement's policies are for projects: a principal with a token for the
// system or for a domain may do nothing.
type (
	// Principal is who sends a request.
	Principal = authn.Principal
	// Authenticator finds out who that is.
	Authenticator = authn.Authenticator
	// Unauthenticated is an ErrUnauthenticated that tells the client how to do better.
	Unauthenticated = authn.Unauthenticated
	// NoAuth believes what a request says of itself.
	NoAuth = authn.NoAuth
	// Fixed takes every request for one of the same principal.
	Fixed = authn.Fixed
)

// ErrUnauthenticated is wrapped by the errors of an Authenticator for requests that prove nothing.
var ErrUnauthenticated = authn.ErrUnauthenticated
