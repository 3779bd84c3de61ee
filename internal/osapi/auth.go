// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/pki"
)

// The headers by which a request says who sends it.
const (
	HeaderToken       = "X-Auth-Token"
	HeaderProjectID   = "X-Project-Id"
	HeaderRoles       = "X-Roles"
	HeaderSystemScope = "Openstack-System-Scope"
)

// Principal is the sender of a request.
type Principal struct {
	User, Project string
	// Roles are in lower case.
	Roles []string
	// SystemScope is set when the token is good for the whole system and for no project,
	// DomainScope when it is good for a domain and for no project.
	SystemScope, DomainScope bool
	// Host is the host whose agent it is; nil for everybody else. Its only role is RoleHost.
	Host *pki.Identity
}

// RoleHost is the role of hosts, which have their own tree of resource providers, and no other.
const RoleHost = "host"

// hostPrincipal is the principal of a host.
func hostPrincipal(id pki.Identity) Principal {
	return Principal{User: id.Name, Project: id.Name, Roles: hostRoles, Host: &id}
}

var hostRoles = []string{RoleHost}

// HasRole reports whether the principal has the role, in lower case.
func (p *Principal) HasRole(role string) bool { return slices.Contains(p.Roles, role) }

// Authenticator authenticates requests.
//
// It returns an error that wraps ErrUnauthenticated for a request without valid credentials (status
// 401); any other error means that it cannot decide now (status 503). It must be safe for
// concurrent use.
type Authenticator interface {
	Authenticate(r *http.Request) (Principal, error)
}

// ErrUnauthenticated is wrapped by the errors of an Authenticator for requests without valid
// credentials.
var ErrUnauthenticated = errors.New("the request is not authenticated")

// Unauthenticated is an ErrUnauthenticated with a challenge for the client.
type Unauthenticated struct {
	// Reason is a sentence for people.
	Reason string
	// Challenge is the value of the WWW-Authenticate header; "" for none.
	Challenge string
}

// Error is the reason.
func (u *Unauthenticated) Error() string { return u.Reason }

// Is makes it an ErrUnauthenticated.
func (u *Unauthenticated) Is(target error) bool { return target == ErrUnauthenticated }

// NoAuth believes what a request says of itself, as the noauth2 strategies of Placement and Nova
// do. It is for tests and for machines that are their own only client: a server that uses it must
// listen on the loopback interface only.
//
// The X-Auth-Token header is USER or USER:PROJECT; the project is the user's name when it is left
// out, and an X-Project-Id header goes before it. X-Roles gives the roles, separated by commas;
// without it the user "admin" has the role admin and all others have none. With an
// OpenStack-System-Scope header that is not empty the request is system-scoped.
//
// The user "notused", which keystoneauth's plugin none sends ("openstack --os-auth-type none"), has
// the role admin as well: a command line sends it if it is configured without an identity service.
// Placement gives it no role, and so refuses it.
type NoAuth struct{}

// Authenticate refuses only requests without a token.
func (NoAuth) Authenticate(r *http.Request) (Principal, error) {
	tokens := r.Header[HeaderToken]
	if len(tokens) == 0 {
		return Principal{}, &Unauthenticated{Reason: "The request has no X-Auth-Token header."}
	}
	var p Principal
	p.User, p.Project, _ = strings.Cut(tokens[0], ":")
	if p.Project == "" {
		p.Project = p.User
	}
	if project := r.Header.Get(HeaderProjectID); project != "" {
		p.Project = project
	}
	switch roles := r.Header[HeaderRoles]; {
	case len(roles) > 0:
		p.Roles = readRoles(strings.Join(roles, ","))
	case p.User == "admin", p.User == keystoneauthNone:
		p.Roles = adminRoles
	}
	if r.Header.Get(HeaderSystemScope) != "" {
		p.SystemScope, p.Project = true, ""
	}
	return p, nil
}

// keystoneauthNone is the token of keystoneauth's plugin none.
const keystoneauthNone = "notused"

var adminRoles = []string{roleAdmin}

// readRoles reads roles that are separated by commas.
func readRoles(list string) []string {
	roles := strings.Split(list, ",")
	for i, role := range roles {
		roles[i] = strings.ToLower(strings.TrimSpace(role))
	}
	return roles
}

// Fixed authenticates every request as the same principal. It is for callers within the process.
type Fixed struct{ Principal Principal }

// Authenticate gives the principal.
func (f Fixed) Authenticate(*http.Request) (Principal, error) { return f.Principal, nil }
