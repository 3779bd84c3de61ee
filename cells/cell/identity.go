// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Roles of tokens.
const (
	RoleAPI   = "compute-api" // does the calls of the compute API
	RoleAgent = "agent"       // does those of the host that the token's user is
)

// Auth is how a cell finds out who sends a request. Make one with [NoAuth], [Peer], [Tokens] or
// [MutualTLS].
type Auth struct {
	name     string
	identify func(r *http.Request) (caller, error)
}

// caller is who sends a request.
type caller struct {
	user string // of its token
	api  bool
	host func(name string) bool // whether it is the agent of that host
}

// NoAuth allows every client everything. See [Auth.CheckListen].
func NoAuth() Auth {
	return Auth{"noauth", func(*http.Request) (caller, error) {
		return caller{api: true, host: func(string) bool { return true }}, nil
	}}
}

// Tokens asks tokens. One with the role compute-api is the compute API, one with the role agent is
// the agent of the host that is its user.
func Tokens(tokens osapi.Authenticator) Auth {
	return Auth{"token", func(r *http.Request) (caller, error) {
		p, err := tokens.Authenticate(r)
		if err != nil {
			return caller{}, err
		}
		agent := p.HasRole(RoleAgent)
		if !agent && !p.HasRole(RoleAPI) {
			return caller{user: p.User}, forbidden("The token has neither role of a cell's clients: " + RoleAPI + " or " + RoleAgent + ".")
		}
		return caller{user: p.User, api: p.HasRole(RoleAPI), host: func(name string) bool { return agent && name == p.User }}, nil
	}}
}

// MutualTLS asks the client's certificate, which the TLS configuration has had verified. One whose
// common name or one of whose DNS names is among apiNames is the compute API; any other is the
// agent of the hosts that it names.
func MutualTLS(apiNames []string) Auth {
	apiNames = slices.Clone(apiNames)
	return Auth{"mtls", func(r *http.Request) (caller, error) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
			return caller{}, &osapi.Unauthenticated{Reason: "The connection has no verified client certificate."}
		}
		certificate := r.TLS.VerifiedChains[0][0]
		names := slices.Clone(certificate.DNSNames)
		if certificate.Subject.CommonName != "" {
			names = append(names, certificate.Subject.CommonName)
		}
		api := slices.ContainsFunc(names, func(name string) bool { return slices.Contains(apiNames, name) })
		return caller{api: api, host: func(name string) bool { return !api && slices.Contains(names, name) }}, nil
	}}
}

// CheckListen refuses noauth on addresses that other machines can reach: it is for the loopback
// interface and for unix sockets. Peer is for unix sockets only.
func (a Auth) CheckListen(address net.Addr) error {
	if a.name == peerName && address.Network() != "unix" {
		return fmt.Errorf("a cell that authenticates users of the machine (auth = \"peer\") listens on a unix socket, and %s is not one: set listen to unix:///PATH", address)
	}
	if a.name != "noauth" || osapi.IsLoopbackAddr(address) {
		return nil
	}
	return fmt.Errorf(
		"a cell without authentication does not listen on %s, where other machines can reach it: listen on 127.0.0.1 or a unix socket, or set auth to token or mtls",
		address,
	)
}

// permission is what a call needs.
type permission int

const (
	anyClient permission = iota // any that is known
	computeAPIOnly
	hostAgentOnly // the agent of the host in the path
)

// authorize authenticates a request, and rejects clients without the permission.
func (a Auth) authorize(r *http.Request, need permission, host string) (caller, error) {
	who, err := a.identify(r)
	switch {
	case err != nil:
	case need == computeAPIOnly && !who.api:
		err = forbidden("This call is for the compute API.")
	case need == hostAgentOnly && !who.host(host):
		err = forbidden("This call is for the agent of that host.")
	}
	return who, err
}

func forbidden(message string) error {
	return &cellwire.Error{Status: http.StatusForbidden, Code: cellwire.CodeForbidden, Message: message}
}
