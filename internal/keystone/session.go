// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"golang.org/x/sync/singleflight"
)

const (
	// longestMargin is how long before its end a token is renewed, at least; at most it is twice
	// that.
	longestMargin = 2 * time.Minute
	// leastLife is how long a token is used at least, whatever Keystone says of its end: the
	// service will say when it is over.
	leastLife = 10 * time.Second
	// renewPause is the time between two tries to renew a token that is still good.
	renewPause = time.Minute
	// firstPause and lastPause bound the time between two logins with a secret that Keystone
	// refused.
	firstPause, lastPause = 5 * time.Second, 2 * time.Minute
)

// Session is a login at Keystone. Its methods may be called from several goroutines.
type Session struct {
	config Config
	wanted wanted
	flight singleflight.Group

	mu          sync.Mutex
	held        *grant
	endpoint    string    // the last one, kept when the token is not good any more
	nextRenewal time.Time // no try to renew before this, as long as the token is good

	// What follows belongs to the one login that is under way.
	refused       error // of the last login, if Keystone refused it
	refusedSecret [sha256.Size]byte
	tryAgain      time.Time
	pause         time.Duration
}

// NewSession checks the configuration and returns a session. It makes no request, and does not read
// the secret.
func NewSession(cfg Config) (*Session, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport(nil)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if len(cfg.Interfaces) == 0 {
		cfg.Interfaces = []string{"internal", "public"}
	}
	return &Session{config: cfg, wanted: wanted{service: cfg.Service, key: cfg.key, region: cfg.RegionName,
		interfaces: slices.Clone(cfg.Interfaces)}, endpoint: cfg.Endpoint}, nil
}

// Authorize puts a token into headers, after a login if the session has none or it expires soon.
//
// Errors: an [Error].
//
// Cost: nothing while the token is good, else one request, shared by all who wait for it.
func (s *Session) Authorize(ctx context.Context, headers http.Header) error {
	g, err := s.grant(ctx)
	if err != nil {
		return err
	}
	headers.Set("X-Auth-Token", g.token)
	return nil
}

// Reauthorize gets another token than the one in headers, which the service refused. It does
// nothing if that has happened already.
//
// Errors: an [Error], of kind [ErrCredentials] if no other token is available.
//
// Cost: one request, shared by all who wait for it.
func (s *Session) Reauthorize(ctx context.Context, refused http.Header) error {
	token := refused.Get("X-Auth-Token")
	for range 2 { // the first may be a login that had begun before the token was refused
		g, err := s.login(ctx, token)
		if err != nil {
			return err
		}
		if g.token != token {
			return nil
		}
	}
	return &Error{
		Kind: ErrCredentials, AuthURL: s.config.AuthURL, Detail: "the service refuses a token that Keystone calls good",
		Hint: "check that it asks the same Keystone ([keystone_authtoken] in its configuration)",
	}
}

// Endpoint is the service's: the one that was set, or what the last catalog had, also when the
// token is not good any more. The first call logs in.
//
// Errors: an [Error], of kind [ErrCatalog] if the catalog is at fault.
func (s *Session) Endpoint(ctx context.Context) (string, error) {
	s.mu.Lock()
	endpoint := s.endpoint
	s.mu.Unlock()
	if endpoint != "" {
		return endpoint, nil
	}
	g, err := s.grant(ctx)
	if err != nil {
		return "", err
	}
	return g.endpoint, nil
}

// Identity is who the session is to Keystone, and so to the service.
type Identity struct {
	User string
	// Project is "" for a token for the system.
	Project string
	Roles   []string // sorted
	// Endpoint is the service's.
	Endpoint string
	// Expires is when the token ends, by this host's clock.
	Expires time.Time
}

// Identify logs in if need be and says who the session is.
//
// Errors and cost as for Authorize.
func (s *Session) Identify(ctx context.Context) (Identity, error) {
	g, err := s.grant(ctx)
	if err != nil {
		return Identity{}, err
	}
	return Identity{User: g.user, Project: g.project,
		Roles: slices.Clone(g.roles), Endpoint: g.endpoint, Expires: g.expires}, nil
}

// grant is a token that is good, as far as we know.
func (s *Session) grant(ctx context.Context) (*grant, error) {
	now := s.now()
	s.mu.Lock()
	g, nextRenewal := s.held, s.nextRenewal
	s.mu.Unlock()
	valid := g != nil && now.Before(g.expires)
	if valid && (now.Before(g.renew) || now.Before(nextRenewal)) {
		return g, nil
	}
	fresh, err := s.login(ctx, "")
	if err != nil && valid {
		s.mu.Lock()
		s.nextRenewal = s.now().Add(renewPause)
		s.mu.Unlock()
		s.config.Logger.Debug().Err(err).Time("expires", g.expires).
			Msg("Could not renew the token. Using the current one until it expires.")
		return g, nil
	}
	return fresh, err
}

// login is a new token, not the refused one. Who comes while one is being fetched waits for that
// one. The request belongs to all of them, so it goes on when the first of them has no more time,
// for Config.Timeout at most.
func (s *Session) login(ctx context.Context, refused string) (*grant, error) {
	done := s.flight.DoChan("", func() (any, error) {
		s.mu.Lock()
		g := s.held
		s.mu.Unlock()
		if g != nil && g.token != refused && s.now().Before(g.renew) {
			return g, nil // another caller was faster
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
		defer cancel()
		g, err := s.logIn(ctx)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held, s.endpoint, s.nextRenewal = g, g.endpoint, time.Time{}
		return g, nil
	})
	select {
	case result := <-done:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*grant), nil
	case <-ctx.Done():
		return nil, &Error{Kind: ErrUnavailable, AuthURL: s.config.AuthURL,
			Detail: fmt.Sprintf("no time to wait for the answer (%v)", ctx.Err()), Cause: ctx.Err()}
	}
}

func (s *Session) now() time.Time {
	if s.config.Now != nil {
		return s.config.Now()
	}
	return time.Now()
}

func (s *Session) jitter() float64 {
	if s.config.Jitter != nil {
		return s.config.Jitter()
	}
	return rand.Float64()
}

// maxAnswer bounds what Keystone answers, in bytes. A catalog of 100 regions with 30 services each
// is some 2 MiB.
const maxAnswer = 16 << 20

// identityClient asks Keystone's API v3. Each request brings its own token. It follows no redirect:
// with one, secrets would go where they were not meant to go.
func identityClient(cfg Config) (*gophercloud.ServiceClient, error) {
	provider, err := openstack.NewClient(cfg.AuthURL)
	if err != nil {
		return nil, err
	}
	provider.HTTPClient = http.Client{
		Transport:     bounded{cfg.Transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	provider.UserAgent.Prepend("compute-agent")
	provider.SetThrowaway(true)
	return openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})
}

// newTransport makes a transport that takes no proxy from the environment.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: maxCalls,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: defaultTimeout,
	}
}

// bounded is a transport whose answers are cut off after maxAnswer bytes.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}
