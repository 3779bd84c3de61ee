// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/api"
)

// Config is what a Placement service is made of. A StateDir or a Database, and an Auth, are
// required.
type Config struct {
	// StateDir is where the embedded database lives, as placement.db. It is made when it is not
	// there.
	StateDir string
	// Database is the DSN of a database and goes before StateDir; see engine.ParseAddress.
	Database string
	// Exclusive refuses a database that a Placement service serves, and keeps services from
	// starting on it meanwhile. A database file belongs to one process anyway.
	Exclusive bool
	// Listen is the address of the service, HOST:PORT: without Auth, one of loopback. "": any.
	Listen string
	// Auth is how the service knows who sends a request. Direct does not need it.
	Auth Auth
	// Policy is the set of rules that says who may do what: api.Secure when empty.
	Policy api.Defaults
	// PolicyFile has rules that go before those of Policy, as api.OpenPolicy reads them. None when
	// empty.
	PolicyFile string
	// TLS is how the service is reached by TLS. With its HostCAFile, a request without a token is
	// that of the host whose certificate its connection has, whatever Auth is.
	TLS osapi.TLSFiles
	// Denied are the hosts that are refused; none when nil.
	Denied *pki.DenyFile
	// Connections bounds the connections of all servers of the process, which share it; nil: the
	// service has one of its own.
	Connections *osapi.Connections
	// CORS are the origins whose pages may use the API. None by default.
	CORS api.CORS
	// StaleReads is how old an answer to a read may be while the database cannot be asked; see
	// transactor.Options. Direct ignores it.
	StaleReads time.Duration
	// Placement are Placement's own options.
	Placement api.Options
	// Limits bound what requests may take. The zero Limits are the defaults.
	Limits osapi.Limits
	// ShutdownGrace is how long requests under way may take to end when the service stops. 10 s
	// when zero.
	ShutdownGrace time.Duration
	// ShutdownDelay is how long the service goes on when it has to stop, while /readyz answers 503.
	ShutdownDelay time.Duration
	// Audit receives who changed what. The service does not close it. None when nil.
	Audit *auditlog.Log
	// Tracing makes spans of requests. The service does not close it. Off when nil.
	Tracing *tracing.Tracing
	Logger  zerolog.Logger
	// Progress, if set, is called now and then while New upgrades or loads the database.
	Progress func()
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Strategy names how a service knows who sends a request.
type Strategy string

// The strategies.
const (
	// NoAuth believes what a request says of itself. A service with it serves on loopback and unix
	// sockets only.
	NoAuth Strategy = "noauth"
	// Token knows a fixed set of tokens, from a file.
	Token Strategy = "token"
	// Keystone asks OpenStack's identity service about tokens.
	Keystone Strategy = "keystone"
)

// Auth says how a service knows who sends a request.
type Auth struct {
	Strategy Strategy
	// TokenFile is the file of the Token strategy; osapi.ReadTokens says how it looks.
	TokenFile string
	// Keystone is the service of the Keystone strategy.
	Keystone keystone.AuthenticatorConfig
	// Authenticator goes before Strategy, for strategies that are made elsewhere.
	Authenticator osapi.Authenticator
}

// Errors that a caller may want to tell apart.
var (
	// ErrConfig is wrapped by all errors about a Config that cannot work.
	ErrConfig = errors.New("invalid Placement configuration")
	// ErrNotLoopback is wrapped by the error about a service that does not authenticate clients and
	// would be open to a network.
	ErrNotLoopback = errors.New("the noauth strategy serves on loopback addresses only")
)

// authenticator makes what the strategy names. It asks Keystone nothing yet.
func (a Auth) authenticator(log zerolog.Logger, now func() time.Time) (osapi.Authenticator, error) {
	switch {
	case a.Authenticator != nil:
		return a.Authenticator, nil
	case a.TokenFile != "" && (a.Strategy == NoAuth || a.Strategy == Keystone):
		return nil, fmt.Errorf(
			"%w: a token file has no effect with the auth strategy %s; choose the strategy %s, or leave the file out",
			ErrConfig, a.Strategy, Token)
	case a.Strategy == NoAuth:
		return osapi.NoAuth{}, nil
	case a.Strategy == Token && a.TokenFile == "":
		return nil, fmt.Errorf("%w: the auth strategy %s needs a token file", ErrConfig, Token)
	case a.Strategy == Token:
		tokens, err := osapi.OpenTokens(a.TokenFile, log)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		return tokens, nil
	case a.Strategy == Keystone:
		cfg := a.Keystone
		if cfg.Now == nil {
			cfg.Now = now
		}
		asking, err := keystone.NewAuthenticator(cfg)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		return asking, nil
	}
	return nil, fmt.Errorf("%w: the auth strategy %q is not known; it is %s, %s or %s",
		ErrConfig, a.Strategy, NoAuth, Token, Keystone)
}

// hosts is an authenticator that also knows hosts.
func (c *Config) hosts(others osapi.Authenticator) (osapi.Authenticator, error) {
	hosts := &osapi.Hosts{Others: others, Denied: c.Denied, Now: c.Now}
	if c.TLS.HostCAFile != "" {
		var err error
		if hosts.CAs, err = osapi.OpenCAFile(c.TLS.HostCAFile, c.Logger); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return hosts, nil
}

// policy makes the rules that say who may do what.
func (c *Config) policy() (policy api.Policy, err error) {
	if c.PolicyFile == "" {
		policy, err = api.NewPolicy(c.Policy)
	} else {
		policy, err = api.OpenPolicy(c.Policy, c.PolicyFile, c.Logger)
	}
	if err != nil {
		return api.Policy{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return policy, nil
}

// open says that the service does not authenticate clients.
func (a Auth) open() bool {
	if a.Authenticator == nil {
		return a.Strategy == NoAuth
	}
	_, open := a.Authenticator.(osapi.NoAuth)
	return open
}

// checkListen refuses an address that everybody on the network could use without a token.
func (a Auth) checkListen(address string) error {
	if !a.open() {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: the listen address %q is not HOST:PORT: %w", ErrConfig, address, err)
	}
	if !osapi.IsLoopback(host) {
		return fmt.Errorf("%w: %w, and %s is not one; listen on 127.0.0.1, or choose the strategy %s or %s",
			ErrConfig, ErrNotLoopback, address, Token, Keystone)
	}
	return nil
}

// checkListener is checkListen for a listener that is there already.
func (a Auth) checkListener(l net.Listener) error {
	if osapi.IsLoopbackAddr(l.Addr()) {
		return nil
	}
	return a.checkListen(l.Addr().String())
}

// DatabaseName is the database that the configuration names, as engine.ParseAddress reads it: the
// path of a file, or a DSN.
func (c *Config) DatabaseName() (string, error) {
	if c.Database == "" {
		if c.StateDir == "" {
			return "", fmt.Errorf("%w: neither a state directory nor a database is given", ErrConfig)
		}
		return filepath.Join(c.StateDir, "placement.db"), nil
	}
	if !strings.Contains(c.Database, "://") {
		return "", fmt.Errorf("%w: the database %s is a path and not an address; write sqlite://%s",
			ErrConfig, c.Database, c.Database)
	}
	a, err := engine.ParseAddress(c.Database)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if a.Shared() {
		return c.Database, nil
	}
	return a.Path, nil
}
