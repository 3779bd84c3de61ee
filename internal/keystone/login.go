// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// answer is what Keystone says of a token, as far as it matters here (Identity API v3,
// authentication and token management).
type answer struct {
	Token *struct {
		Issued  time.Time `json:"issued_at"`
		Expires time.Time `json:"expires_at"`
		User    struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"user"`
		Project *struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"project"`
		Domain *struct{} `json:"domain"`
		System *struct{} `json:"system"`
		Roles  []struct {
			Name string `json:"name"`
		} `json:"roles"`
		Catalog []tokens.CatalogEntry `json:"catalog"`
	} `json:"token"`
}

// grant is a token and what came with it. The times are this host's.
type grant struct {
	token         string
	renew         time.Time // from here on a new one is wanted
	expires       time.Time
	endpoint      string
	user, project string
	roles         []string
}

// attempt is one login.
type attempt struct {
	session   *Session
	secret    string
	requestID string
}

// logIn gets a token, once, unless Keystone has refused the same secret a moment ago.
func (s *Session) logIn(ctx context.Context) (*grant, error) {
	secret, err := s.config.Secret()
	if err != nil {
		return nil, &Error{Kind: ErrCredentials, AuthURL: s.config.AuthURL,
			Detail: "the secret cannot be read: " + err.Error(), Cause: err}
	}
	if secret == "" {
		return nil, &Error{Kind: ErrCredentials, AuthURL: s.config.AuthURL, Detail: "the secret is empty"}
	}
	digest := sha256.Sum256([]byte(secret))
	if s.refused != nil && s.refusedSecret == digest && s.now().Before(s.tryAgain) {
		return nil, s.refused
	}
	a := &attempt{session: s, secret: secret, requestID: "req-" + uuid.NewString()}
	start := s.now()
	g, err := a.run(ctx, start)
	s.config.Logger.Debug().Str("keystone", s.config.AuthURL).Str("request_id", a.requestID).
		Dur("took", s.now().Sub(start)).
		Err(err).Msg("Sent a login to Keystone.")
	if errors.Is(err, ErrCredentials) {
		s.pause = min(max(2*s.pause, firstPause), lastPause)
		s.refused, s.refusedSecret, s.tryAgain = err, digest, s.now().Add(s.pause)
	} else {
		s.refused, s.pause = nil, 0
	}
	return g, err
}

func (a *attempt) run(ctx context.Context, start time.Time) (*grant, error) {
	out, header, err := a.exchange(ctx)
	if err != nil {
		return nil, a.explain(ctx, err)
	}
	t := out.Token
	g := &grant{token: header.Get("X-Subject-Token")}
	if a.secretIsToken() {
		g.token = a.secret
	}
	switch {
	case t == nil || t.User.ID == "" || t.Expires.IsZero() || g.token == "":
		return nil, a.fail(ErrUnavailable, "the answer is no token with a user and a time at which it expires",
			"check that "+a.key("auth_url")+" is Keystone's")
	case strings.ContainsFunc(g.token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, a.fail(ErrUnavailable, "the token in the answer has characters that no token has", "check that "+
			a.key("auth_url")+" is Keystone's")
	case t.Project == nil && t.System == nil && t.Domain == nil:
		return nil, a.fail(ErrCredentials, "the token is unscoped: it is for no project, so services would refuse it",
			"set "+a.key("project_name")+" and project_domain_name")
	}
	g.user = t.User.Name
	if t.Project != nil {
		g.project = t.Project.Name
	}
	for _, r := range t.Roles {
		g.roles = append(g.roles, r.Name)
	}
	slices.Sort(g.roles)
	// Both times are Keystone's; of a token that was issued long ago, its clock is in the answer's
	// Date.
	since := t.Issued
	if date, err := http.ParseTime(header.Get("Date")); err == nil && (a.secretIsToken() || since.IsZero()) {
		since = date
	}
	if since.IsZero() {
		since = start
	}
	life := t.Expires.Sub(since)
	margin := min(life/10, longestMargin)
	margin = min(time.Duration((1+a.session.jitter())*float64(margin)), life)
	g.expires = start.Add(max(life, leastLife))
	g.renew = start.Add(max(life-margin, leastLife))
	g.endpoint = a.session.config.Endpoint
	if g.endpoint == "" && a.session.config.Service != "" {
		if g.endpoint, err = a.session.wanted.choose(t.Catalog); err != nil {
			var e *Error
			if errors.As(err, &e) {
				e.AuthURL, e.RequestID = a.session.config.AuthURL, a.requestID
			}
			return nil, err
		}
	}
	return g, nil
}

// secretIsToken reports whether the agent's secret is the very token to use.
func (a *attempt) secretIsToken() bool {
	return a.session.config.Method == Token && a.session.config.scope() == nil
}

// exchange makes the one request.
func (a *attempt) exchange(ctx context.Context) (*answer, http.Header, error) {
	cfg := a.session.config
	client, err := identityClient(cfg)
	if err != nil {
		return nil, nil, err
	}
	address := client.ServiceURL("auth", "tokens")
	headers := map[string]string{"X-Openstack-Request-Id": a.requestID}
	var out answer
	var resp *http.Response
	if a.secretIsToken() {
		headers["X-Auth-Token"], headers["X-Subject-Token"] = a.secret, a.secret
		resp, err = client.Get(ctx, address, &out,
			&gophercloud.RequestOpts{MoreHeaders: headers, OkCodes: []int{http.StatusOK}})
	} else {
		options := cfg.options(a.secret)
		scope, err1 := options.ToTokenV3ScopeMap()
		body, err2 := options.ToTokenV3CreateMap(scope)
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
		resp, err = client.Post(ctx, address, body, &out,
			&gophercloud.RequestOpts{MoreHeaders: headers, OkCodes: []int{http.StatusCreated}})
	}
	if err != nil {
		return nil, nil, err
	}
	_ = resp.Body.Close() // it was read
	return &out, resp.Header, nil
}

// explain says what went wrong without repeating what may hold a secret.
func (a *attempt) explain(ctx context.Context, err error) error {
	var code gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &code) {
		e := a.refusal(code)
		e.Status = code.Actual
		return e
	}
	e := a.fail(ErrUnavailable, "", "it is tried again; check "+a.key("auth_url")+", and that Keystone runs")
	e.Cause = err
	var long *http.MaxBytesError
	var transport *url.Error
	switch {
	case ctx.Err() != nil:
		e.Detail, e.Cause = "it did not answer in time", ctx.Err()
	case errors.As(err, &long):
		e.Detail = fmt.Sprintf("the answer is longer than %d MiB", maxAnswer>>20)
	case errors.As(err, &transport):
		e.Detail = transport.Err.Error() // without the method and the address, which are named already
	case isGarbage(err):
		// The cause of it may repeat what was answered.
		e.Detail, e.Cause, e.Hint = "the answer is not JSON as Keystone's is", nil, "check that "+
			a.key("auth_url")+" is Keystone's"
	default:
		e.Detail = err.Error()
	}
	e.Detail = a.redact(e.Detail)
	return e
}

func isGarbage(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var date *time.ParseError
	return errors.As(err, &syntax) || errors.As(err, &kind) || errors.As(err, &date)
}

// refusal returns the error for an answer that is not a token.
func (a *attempt) refusal(code gophercloud.ErrUnexpectedResponseCode) *Error {
	message := a.message(code.Body)
	status := fmt.Sprintf("status %d", code.Actual)
	if message != "" {
		status += ": " + message
	}
	switch {
	case code.Actual == http.StatusUnauthorized && code.ResponseHeader.Get("Openstack-Auth-Receipt") != "":
		return a.fail(ErrCredentials, status+" and an auth receipt: this user must log in with more than one factor",
			"use an application credential")
	case code.Actual == http.StatusUnauthorized:
		return a.fail(ErrCredentials, status, a.hint())
	// what Keystone says of application credentials and tokens that it does not know
	case code.Actual == http.StatusNotFound && message != "":
		return a.fail(ErrCredentials, status+" for "+code.URL, a.hint()+", and "+a.key("auth_url"))
	case code.Actual == http.StatusForbidden, code.Actual == http.StatusBadRequest:
		return a.fail(ErrCredentials, status, a.hint())
	case code.Actual == http.StatusNotFound, code.Actual/100 == 3, code.Actual/100 == 2,
		code.Actual == http.StatusMethodNotAllowed:
		return a.fail(ErrUnavailable, status+" for "+
			code.URL, "check "+a.key("auth_url")+": such as https://keystone.example:5000/v3, or .../identity/v3")
	}
	return a.fail(ErrUnavailable, status, "it is tried again; look into Keystone's log")
}

// hint returns what an operator can do about refused credentials.
func (a *attempt) hint() string {
	switch a.session.config.Method {
	case ApplicationCredential:
		return "check the application credential's id or name, its user, whether it has expired, and its secret"
	case Token:
		return "put a new token into " + a.key("token_file") + " (openstack token issue -f value -c id)"
	}
	return "check the user's name, domain and password, that it is enabled, and that it has a role in the project"
}

// message is Keystone's own message from an error body; empty without one, or if it repeats a
// secret.
func (a *attempt) message(body []byte) string {
	const most = 200
	var out struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &out) != nil {
		return ""
	}
	text := strings.Join(strings.Fields(out.Error.Message), " ")
	if strings.Contains(text, a.secret) {
		return ""
	}
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	return text
}

// redact is a text in which the secret is not repeated.
func (a *attempt) redact(text string) string { return strings.ReplaceAll(text, a.secret, "(secret)") }

func (a *attempt) fail(kind error, detail, hint string) *Error {
	return &Error{Kind: kind, AuthURL: a.session.config.AuthURL, Detail: detail, Hint: hint, RequestID: a.requestID}
}

// key returns the name of a setting in the configuration file.
func (a *attempt) key(name string) string { return a.session.config.key(name) }
