// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
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
	hosts    cellwire.HostAuth // how hosts show who they are
	identify func(r *http.Request, now time.Time, denied *pki.DenyList) (caller, error)
}

// caller is who sends a request.
type caller struct {
	user  string // of its token
	api   bool
	host  func(name string) bool // whether it is the agent of that host
	nodes []string               // those that its certificate names; none: it does not say
	cell  string                 // that which its certificate names; "": it does not say
	// enrolled is the host of a certificate of our own CA, which could name its cell.
	enrolled string
}

// NoAuth allows every client everything. See [Auth.CheckListen].
func NoAuth() Auth {
	return Auth{"noauth", cellwire.HostAuthNone, func(*http.Request, time.Time, *pki.DenyList) (caller, error) {
		return caller{api: true, host: func(string) bool { return true }}, nil
	}}
}

// Tokens asks tokens. One with the role compute-api is the compute API, one with the role agent is
// the agent of the host that is its user, unless that is on the deny list.
func Tokens(tokens osapi.Authenticator) Auth {
	return Auth{"token", cellwire.HostAuthToken,
		func(r *http.Request, _ time.Time, denied *pki.DenyList) (caller, error) {
			p, err := tokens.Authenticate(r)
			if err != nil {
				return caller{}, err
			}
			agent := p.HasRole(RoleAgent)
			if !agent && !p.HasRole(RoleAPI) {
				return caller{user: p.User},
					forbidden("The token has neither role of a cell's clients: " + RoleAPI + " or " + RoleAgent + ".")
			}
			if agent {
				if err := denied.Check(p.User, time.Time{}); err != nil {
					return caller{user: p.User}, hostDenied(err)
				}
			}
			return caller{user: p.User, api: p.HasRole(RoleAPI),
				host: func(name string) bool { return agent && name == p.User }}, nil
		}}
}

// MutualTLS asks the client's certificate, which the TLS configuration has had verified, with each
// request. One that says what it is, is that: the agent of a host, or a service, which is the
// compute API if apiNames has its name or one of its names. One that does not is the compute API
// if apiNames has one of its names, and otherwise the agent of the hosts that it names.
func MutualTLS(apiNames []string) Auth {
	apiNames = slices.Clone(apiNames)
	isAPI := func(name string) bool { return slices.Contains(apiNames, name) }
	return Auth{"mtls", cellwire.HostAuthCertificate,
		func(r *http.Request, now time.Time, denied *pki.DenyList) (caller, error) {
			id, err := pki.Peer(r.TLS, now)
			if err != nil {
				return caller{}, &osapi.Unauthenticated{Reason: sentence(err)}
			}
			who := caller{host: func(string) bool { return false }}
			switch id.Kind {
			case pki.Service:
				if who.api = isAPI(id.Name) || slices.ContainsFunc(id.Names, isAPI); !who.api {
					return who,
						forbidden("The certificate is of a service that is no client of a cell ([cell] api_names).")
				}
				return who, nil
			case pki.Host:
				who.host, who.nodes = func(name string) bool { return name == id.Name }, id.Nodes
				who.cell, who.enrolled = id.Cell, id.Name
			case pki.Unmarked:
				if who.api = slices.ContainsFunc(id.Names, isAPI); who.api {
					return who, nil
				}
				who.host = func(name string) bool { return slices.Contains(id.Names, name) }
			}
			if err := denied.CheckIdentity(id); err != nil {
				return who, hostDenied(err)
			}
			return who, nil
		}}
}

// hostDenied is the refusal of a host on the deny list.
func hostDenied(err error) error { return forbidden("The host is not let in: " + err.Error() + ".") }

// sentence is an error as one.
func sentence(err error) string {
	text := []byte(err.Error() + ".")
	if text[0] >= 'a' && text[0] <= 'z' {
		text[0] -= 'a' - 'A'
	}
	return string(text)
}

// CheckListen refuses noauth on addresses that other machines can reach: it is for the loopback
// interface and for unix sockets. Peer is for unix sockets only.
func (a Auth) CheckListen(address net.Addr) error {
	if a.name == peerName && address.Network() != "unix" {
		return fmt.Errorf(
			"a cell that authenticates users of the machine (auth = \"peer\") listens on a unix socket, and %s is "+
				"not one: set listen to unix:///PATH", address)
	}
	if a.name != "noauth" || osapi.IsLoopbackAddr(address) {
		return nil
	}
	return fmt.Errorf(
		"a cell without authentication does not listen on %s, where other machines can reach it: listen on "+
			"127.0.0.1 or a unix socket, or set auth to token or mtls",
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
func (c *Cell) authorize(r *http.Request, need permission) (caller, error) {
	who, err := c.config.Auth.identify(r, c.config.Now(), c.config.Denied.Get())
	switch {
	case err != nil:
	case c.ofOtherCell(who):
		err = forbidden(fmt.Sprintf("The certificate of host %s is for cell %s, and this is cell %s. "+
			"Set the agent's cell_client.url to cell %[2]s; or, if the host is to be in this cell, invite it again: "+
			"compute-agent cells manage add-host %[1]s --cell %[3]s --again.", who.enrolled, who.cell, c.config.Name))
	case need == computeAPIOnly && !who.api:
		err = forbidden("This call is for the compute API.")
	case need == hostAgentOnly && !who.host(r.PathValue("host")):
		err = forbidden("This call is for the agent of that host.")
	}
	return who, err
}

// ofOtherCell reports whether the certificate of a client is that of a host of another cell. Older
// certificates, which name no cell, are let in and logged: they are renewed within a day, with the
// cell.
func (c *Cell) ofOtherCell(who caller) bool {
	if who.enrolled == "" || c.config.Name == "" {
		return false
	}
	if who.cell == "" && c.noCellLimiter.Allow(who.enrolled) {
		c.config.Logger.Warn().Str("host", who.enrolled).
			Msg("The certificate of a host names no cell, so that all cells with the same " +
				"CA let it in. The enrolment service names the cell with the next renewal; " +
				"`compute-agent ca sign` does with --cell. Logged once a day for each host.")
	}
	return who.cell != "" && who.cell != c.config.Name
}

// recheckAccess returns an error if the sender of a request may not make it any more.
func (x *exchange) recheckAccess() error {
	who, err := x.cell.authorize(x.R, x.call.need)
	var unauthenticated *osapi.Unauthenticated
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unauthenticated), isRefusal(err):
		return x.reject(x.call, who, err)
	}
	return nil // it cannot be known now
}

func isRefusal(err error) bool {
	var refused *cellwire.Error
	return errors.As(err, &refused)
}

// reporter is the host that sends a request, and how it showed who it is.
func (x *exchange) reporter() serverstate.Reporter {
	return serverstate.Reporter{Host: x.R.PathValue("host"), Auth: x.cell.config.Auth.hosts, Nodes: x.who.nodes,
		Address: osapi.ClientAddress(x.R)}
}

func forbidden(message string) error {
	return &cellwire.Error{Status: http.StatusForbidden, Code: cellwire.CodeForbidden, Message: message}
}
