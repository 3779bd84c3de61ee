// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Errors of asking Keystone.
var (
	// ErrUnavailable is wrapped when Keystone could not be asked, or gave no answer that could be used.
	ErrUnavailable = errors.New("keystone cannot be asked about tokens")
	// ErrCredentials is wrapped, beside ErrUnavailable, when Keystone refuses the service's own credentials.
	ErrCredentials = errors.New("keystone refuses the credentials of the service user")

	errUnknown = errors.New("the token is not known to Keystone")
)

// loginPause is the time between two logins that Keystone refuses: it may lock users that fail too often.
const loginPause = 5 * time.Second

// identity asks Keystone's API v3.
type identity struct {
	client  *gophercloud.ServiceClient
	options gophercloud.AuthOptions // without the secret
	secret  func() (string, error)
	now     func() time.Time

	// turn is taken by who reads or changes what is below.
	turn    chan struct{}
	token   string // of the service itself, "" before the first login
	refused error  // of the last login, if Keystone refused it
	retry   time.Time
}

func newIdentity(cfg Config, now func() time.Time) (*identity, error) {
	l, err := cfg.login()
	if err != nil {
		return nil, err
	}
	if _, err := cfg.Secret(); err != nil {
		return nil, fmt.Errorf("%w: the secret of the service user: %w", ErrConfig, err)
	}
	provider, err := openstack.NewClient(l.options.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	provider.HTTPClient = httpClient(l.tls)
	provider.SetThrowaway(true) // Each request brings its own token.
	client, err := openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return &identity{client: client, options: l.options, secret: cfg.Secret, now: now, turn: make(chan struct{}, 1)}, nil
}

// subject is what Keystone says of a token.
type subject struct {
	who     osapi.Principal
	expires time.Time
}

// validate asks about a token; the error is errUnknown when Keystone does not know it, or not any more. Cost: one request,
// and one or two more when the service has to log in.
func (k *identity) validate(ctx context.Context, token string, expired bool) (subject, error) {
	own, err := k.login(ctx, "")
	if err != nil {
		return subject{}, err
	}
	s, err := k.get(ctx, own, token, expired)
	if gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) { // The service's own token has expired.
		if own, err = k.login(ctx, own); err != nil {
			return subject{}, err
		}
		s, err = k.get(ctx, own, token, expired)
	}
	switch {
	case err == nil:
		return s, nil
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return subject{}, errUnknown
	case gophercloud.ResponseCodeIs(err, http.StatusForbidden):
		return subject{}, fmt.Errorf("%w: the service user may not validate tokens (status 403); give it the role service, or admin", ErrUnavailable)
	}
	return subject{}, unavailable("validate a token", err)
}

// get asks about a token with the service's own one.
func (k *identity) get(ctx context.Context, own, token string, expired bool) (subject, error) {
	address := k.client.ServiceURL("auth", "tokens") + "?nocatalog"
	if expired {
		address += "&allow_expired=1"
	}
	var answer struct {
		Token *struct {
			Expires time.Time `json:"expires_at"`
			User    struct {
				ID string `json:"id"`
			} `json:"user"`
			Project struct {
				ID string `json:"id"`
			} `json:"project"`
			Domain *struct{} `json:"domain"`
			System struct {
				All bool `json:"all"`
			} `json:"system"`
			Roles []struct {
				Name string `json:"name"`
			} `json:"roles"`
		} `json:"token"`
	}
	resp, err := k.client.Get(ctx, address, &answer, &gophercloud.RequestOpts{
		MoreHeaders: map[string]string{"X-Auth-Token": own, "X-Subject-Token": token},
		OkCodes:     []int{http.StatusOK},
	})
	if err != nil {
		return subject{}, err
	}
	_ = resp.Body.Close() // It was read.
	t := answer.Token
	if t == nil || t.User.ID == "" || t.Expires.IsZero() {
		return subject{}, errors.New("the answer names no token, no user or no time of expiry")
	}
	s := subject{expires: t.Expires, who: osapi.Principal{
		User: t.User.ID, Project: t.Project.ID, SystemScope: t.System.All, DomainScope: t.Domain != nil,
	}}
	for _, role := range t.Roles {
		s.who.Roles = append(s.who.Roles, strings.ToLower(role.Name))
	}
	return s, nil
}

// login is a token of the service itself, another one than old. Many callers at once make one request.
func (k *identity) login(ctx context.Context, old string) (string, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("%w: log in: %w", ErrUnavailable, ctx.Err())
	}
	if k.token != "" && k.token != old {
		return k.token, nil
	}
	if k.refused != nil && k.now().Before(k.retry) {
		return "", k.refused
	}
	secret, err := k.secret()
	if err != nil {
		return "", fmt.Errorf("%w: read the secret of the service user: %w", ErrUnavailable, err)
	}
	options := k.options
	if options.ApplicationCredentialID != "" {
		options.ApplicationCredentialSecret = secret
	} else {
		options.Password = secret
	}
	token, err := tokens.Create(ctx, k.client, &options).ExtractTokenID()
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusUnauthorized):
		k.refused, k.retry = fmt.Errorf("%w: %w (status 401); check its name, domain, project and secret", ErrUnavailable, ErrCredentials), k.now().Add(loginPause)
		return "", k.refused
	case err != nil:
		return "", unavailable("log in", err)
	case token == "":
		return "", fmt.Errorf("%w: log in: the answer has no X-Subject-Token", ErrUnavailable)
	}
	k.token, k.refused = token, nil
	return token, nil
}

// unavailable is an error for the log. What Keystone says in the body of an error is left out: it may repeat a token.
func unavailable(doing string, err error) error {
	var code gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &code) {
		return fmt.Errorf("%w: %s: status %d of %s", ErrUnavailable, doing, code.Actual, code.URL)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
}
