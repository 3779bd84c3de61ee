// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
)

const (
	// maxKnown and maxRefused are how many tokens are remembered, some hundred bytes each.
	maxKnown, maxRefused = 10_000, 10_000
	// refusedFor is how long a token that Keystone does not know is not asked about again.
	refusedFor = 30 * time.Second
	// maxToken is the length of the longest token that Keystone is asked about, in bytes.
	// Keystone's own have about 300, and 1,000 with JWS.
	maxToken = 8 << 10
	// maxCalls is how many requests to Keystone are under way at once. Others wait for their turn.
	maxCalls = 32
	// serviceRole is what makes an X-Service-Token one of a service.
	serviceRole = "service"

	headerServiceToken = "X-Service-Token"

	defaultTimeout   = 10 * time.Second
	defaultCacheTime = 300 * time.Second
)

// AuthenticatorConfig says where Keystone is, and with whose login tokens are validated: the user
// needs the role service, or admin, to validate the tokens of others.
type AuthenticatorConfig struct {
	// Config configures the login. Timeout (10 s when zero) bounds the validation of a token. The
	// Method may be left out: ApplicationCredential if there is an ApplicationCredentialID, or else
	// Password.
	Config
	// CAFile has PEM certificates to trust instead of the system's, if there is no Transport. It is
	// read again when it changes.
	CAFile string
	// WWWAuthenticateURI is where clients get a token, as 401 answers say. AuthURL when empty.
	WWWAuthenticateURI string
	// TokenCacheTime is how long what Keystone says of a token is believed. 300 s when zero.
	TokenCacheTime time.Duration
}

// Authenticator is an osapi.Authenticator that asks Keystone. Make one with NewAuthenticator.
type Authenticator struct {
	validator *validator
	challenge string
	timeout   time.Duration
	cacheTime time.Duration
	now       func() time.Time

	known, refused *cache
	flights        singleflight.Group
	calls          chan struct{}
}

// NewAuthenticator makes an Authenticator. It reads the secret, and asks Keystone nothing yet. Its
// errors wrap ErrConfig.
func NewAuthenticator(cfg AuthenticatorConfig) (*Authenticator, error) {
	if cfg.Method == "" {
		cfg.Method = Password
		if cfg.ApplicationCredentialID != "" {
			cfg.Method = ApplicationCredential
		}
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.TokenCacheTime <= 0 {
		cfg.TokenCacheTime = defaultCacheTime
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.WWWAuthenticateURI == "" {
		cfg.WWWAuthenticateURI = cfg.AuthURL
	}
	if cfg.CAFile != "" && cfg.Transport == nil {
		made, err := pki.ClientTLS{CAFile: cfg.CAFile}.Transport(cfg.Logger, cfg.Now, newTransport)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		cfg.Transport = made
	}
	v, err := newValidator(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Authenticator{
		validator: v, challenge: fmt.Sprintf("Keystone uri=%q", cfg.WWWAuthenticateURI),
		timeout: cfg.Timeout, cacheTime: cfg.TokenCacheTime, now: cfg.Now,
		known: newCache(maxKnown), refused: newCache(maxRefused), calls: make(chan struct{}, maxCalls),
	}, nil
}

// Check logs in at Keystone, to find out early whether that works. An error wraps ErrUnavailable;
// the Authenticator goes on trying nevertheless.
func (a *Authenticator) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.validator.login(ctx, http.Header{})
}

// Authenticate finds out whose the token of a request is. Cost: one SHA-256 and a look into memory;
// for a token that was not seen lately a request to Keystone, one for all that ask for the same
// token at once.
func (a *Authenticator) Authenticate(r *http.Request) (osapi.Principal, error) {
	token := strings.TrimSpace(r.Header.Get(osapi.HeaderToken))
	if token == "" {
		return osapi.Principal{}, a.refuse("The request has no X-Auth-Token header.")
	}
	expired := false
	if service := strings.TrimSpace(r.Header.Get(headerServiceToken)); service != "" {
		who, err := a.principal(r.Context(), service, false)
		if errors.Is(err, osapi.ErrUnauthenticated) {
			return osapi.Principal{}, a.refuse("The token in X-Service-Token is not valid.")
		}
		if err != nil {
			return osapi.Principal{}, err
		}
		expired = who.HasRole(serviceRole)
	}
	return a.principal(r.Context(), token, expired)
}

func (a *Authenticator) refuse(reason string) error {
	return &osapi.Unauthenticated{Reason: reason, Challenge: a.challenge}
}

// principal is whose a token is. expired says that the token may have expired.
func (a *Authenticator) principal(ctx context.Context, token string, expired bool) (osapi.Principal, error) {
	if len(token) > maxToken {
		return osapi.Principal{}, a.refuse("The token is not valid: it is too long.")
	}
	k := key{sha256.Sum256([]byte(token)), expired}
	if who, found, err := a.cached(k); found {
		return who, err
	}
	id := string(k.sum[:])
	if expired {
		id += "+"
	}
	flight := a.flights.DoChan(id, func() (any, error) {
		if who, found, err := a.cached(k); found { // by a flight that has just ended
			return who, err
		}
		// Others may wait for the answer as well: it does not end with the request that began it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		defer cancel()
		return a.validateToken(ctx, k, token)
	})
	select {
	case <-ctx.Done():
		return osapi.Principal{}, ctx.Err()
	case answer := <-flight:
		who, _ := answer.Val.(osapi.Principal)
		return who, answer.Err
	}
}

// cached returns the cached principal of a token, or the error if the token was refused. found
// is false if neither is cached.
func (a *Authenticator) cached(k key) (who osapi.Principal, found bool, err error) {
	now := a.now()
	if who, found = a.known.get(k, now); found {
		return who, true, nil
	}
	if _, found = a.refused.get(k, now); found {
		return who, true, a.invalid()
	}
	return who, false, nil
}

func (a *Authenticator) invalid() error {
	return a.refuse("The token is not valid, or has expired.")
}

// validateToken asks Keystone about a token, and caches the answer, but no error of asking.
func (a *Authenticator) validateToken(ctx context.Context, k key, token string) (osapi.Principal, error) {
	select {
	case a.calls <- struct{}{}:
		defer func() { <-a.calls }()
	case <-ctx.Done():
		return osapi.Principal{}, fmt.Errorf("%w: %d validations are already in progress", ErrUnavailable, maxCalls)
	}
	s, err := a.validator.validate(ctx, token, k.expired)
	now := a.now()
	switch {
	case errors.Is(err, errUnknown), err == nil && !k.expired && !now.Before(s.expires):
		a.refused.put(k, osapi.Principal{}, now.Add(refusedFor))
		return osapi.Principal{}, a.invalid()
	case err != nil:
		return osapi.Principal{}, err
	}
	until := now.Add(a.cacheTime)
	if s.expires.Before(until) && !k.expired {
		until = s.expires
	}
	a.known.put(k, s.principal, until)
	return s.principal, nil
}
