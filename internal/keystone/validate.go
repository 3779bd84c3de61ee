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

	"github.com/compute-agent/compute-agent/internal/osapi"
)

var errUnknown = errors.New("unknown token")

// validator asks Keystone about tokens, with a login of its own.
type validator struct {
	client  *gophercloud.ServiceClient
	session *Session
}

func newValidator(cfg Config) (*validator, error) {
	session, err := NewSession(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := cfg.Secret(); err != nil {
		return nil, fmt.Errorf("%w: the secret of the service user: %w", ErrConfig, err)
	}
	client, err := identityClient(session.config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return &validator{client: client, session: session}, nil
}

// login puts a token of the service itself into headers. The error wraps ErrUnavailable, and
// ErrCredentials if they are refused.
func (v *validator) login(ctx context.Context, headers http.Header) error {
	if err := v.session.Authorize(ctx, headers); err != nil {
		return unavailable("log in", err)
	}
	return nil
}

// subject is Keystone's answer about a token that is validated.
type subject struct {
	principal osapi.Principal
	expires   time.Time
}

// validate asks about a token; the error is errUnknown when Keystone does not know it, or not any
// more. Cost: one request, and one or two more when the service has to log in.
func (v *validator) validate(ctx context.Context, token string, expired bool) (subject, error) {
	own := http.Header{}
	if err := v.login(ctx, own); err != nil {
		return subject{}, err
	}
	s, err := v.get(ctx, own, token, expired)
	if gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) { // The service's own token has expired.
		if err := v.session.Reauthorize(ctx, own); err != nil {
			return subject{}, unavailable("log in", err)
		}
		if err := v.login(ctx, own); err != nil {
			return subject{}, err
		}
		s, err = v.get(ctx, own, token, expired)
	}
	switch {
	case err == nil:
		return s, nil
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return subject{}, errUnknown
	case gophercloud.ResponseCodeIs(err, http.StatusForbidden):
		return subject{},
			fmt.Errorf("%w: the service user must not validate tokens (status 403); give it the role service, or admin",
				ErrUnavailable)
	}
	return subject{}, unavailable("validate a token", err)
}

// get asks about a token with the service's own one.
func (v *validator) get(ctx context.Context, own http.Header, token string, expired bool) (subject, error) {
	address := v.client.ServiceURL("auth", "tokens") + "?nocatalog"
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
	resp, err := v.client.Get(ctx, address, &answer, &gophercloud.RequestOpts{
		MoreHeaders: map[string]string{osapi.HeaderToken: own.Get(osapi.HeaderToken), "X-Subject-Token": token},
		OkCodes:     []int{http.StatusOK},
	})
	if err != nil {
		return subject{}, err
	}
	_ = resp.Body.Close() // It was read.
	t := answer.Token
	if t == nil || t.User.ID == "" || t.Expires.IsZero() {
		return subject{}, errors.New("the answer has no token, user or expiry")
	}
	s := subject{expires: t.Expires, principal: osapi.Principal{
		User: t.User.ID, Project: t.Project.ID, SystemScope: t.System.All, DomainScope: t.Domain != nil,
	}}
	for _, role := range t.Roles {
		s.principal.Roles = append(s.principal.Roles, strings.ToLower(role.Name))
	}
	return s, nil
}

// unavailable is an error for the log. What Keystone says in the body of an error is left out: it
// may repeat a token.
func unavailable(doing string, err error) error {
	var code gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &code) {
		return fmt.Errorf("%w: %s: status %d of %s", ErrUnavailable, doing, code.Actual, code.URL)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
}
