// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestLogin: what is asked of Keystone, for every way to prove who one is.
func TestLogin(t *testing.T) {
	project := `"scope": {"project": {"name": "service", "domain": {"name": "Default"}}}`
	cases := []struct {
		name   string
		change func(*keystone.Config)
		want   string
	}{
		{"a password", func(*keystone.Config) {},
			`{"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "agent", "domain": ` +
				`{"name": "Default"}, "password": "` + secret + `"}}}, ` + project + `}}`},
		{"ids", func(c *keystone.Config) { c.UserID, c.ProjectID = "u1", "p1" },
			`{"auth": {"identity": {"methods": ["password"], "password": {"user": {"id": "u1", "password": "` + secret +
				`"}}}, "scope": {"project": {"id": "p1"}}}}`},
		{"domains by id", func(c *keystone.Config) { c.UserDomainID, c.ProjectDomainID = "d1", "d2" },
			`{"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "agent", "domain": {"id": "d1"}, "password": "` + secret + `"}}},
			"scope": {"project": {"name": "service", "domain": {"id": "d2"}}}}}`},
		{"the system", func(c *keystone.Config) { c.SystemScope, c.ProjectName = true, "" },
			`{"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "agent", "domain": ` +
				`{"name": "Default"}, "password": "` + secret + `"}}}, "scope": {"system": {"all": true}}}}`},
		{"an application credential",
			func(c *keystone.Config) { c.Method, c.ApplicationCredentialID = keystone.ApplicationCredential, "a1" },
			`{"auth": {"identity": {"methods": ["application_credential"], "application_credential": {"id": "a1", ` +
				`"secret": "` + secret + `"}}}}`},
		{"an application credential by name", func(c *keystone.Config) {
			c.Method, c.ApplicationCredentialName = keystone.ApplicationCredential, "of-cn1"
		}, `{"auth": {"identity": {"methods": ["application_credential"], "application_credential": {"name": "of-cn1", "secret": "` + secret + `",
			"user": {"name": "agent", "domain": {"name": "Default"}}}}}}`},
		{"an application credential by name and a user by id", func(c *keystone.Config) {
			c.Method, c.ApplicationCredentialName, c.UserID = keystone.ApplicationCredential, "of-cn1", "u1"
		}, `{"auth": {"identity": {"methods": ["application_credential"], "application_credential": {"name": ` +
			`"of-cn1", "secret": "` + secret + `", "user": {"id": "u1"}}}}}`},
		{"a token that is traded", func(c *keystone.Config) { c.Method = keystone.Token },
			`{"auth": {"identity": {"methods": ["token"], "token": {"id": "` + secret + `"}}, ` + project + `}}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			s, _, _ := session(t, f, c.change)
			if f.logins() != 0 {
				t.Error("Keystone was asked before any caller needed it")
			}
			testproc.Equal(t, token(t, s), "token-1", "token %q")
			testproc.Samef(t, cmp.Diff(decoded(t, c.want), decoded(t, f.bodies[0])), "body")
			if endpoint, err := s.Endpoint(t.Context()); err != nil || endpoint != "http://internal.example:8778" {
				t.Errorf("endpoint %q, %v", endpoint, err)
			}
			if !strings.HasPrefix(f.ids[0], "req-") {
				t.Errorf("request id %q", f.ids[0])
			}
			testproc.Equal(t, f.logins(), 1, "%d requests for one token and one catalogue")
		})
	}
}

// TestGivenToken: a token without a scope is used as it is, once Keystone has said how long, and
// what there is.
func TestGivenToken(t *testing.T) {
	f := newFake(t)
	f.life = 20 * time.Minute
	file := secret
	s, clock, _ := session(t, f, func(c *keystone.Config) {
		c.Method, c.ProjectName, c.Secret = keystone.Token, "", func() (string, error) { return file, nil }
	})
	if got := token(t, s); got != secret {
		t.Error("another token is sent than the one that was given")
	}
	testproc.Same(t, cmp.Diff([]string{"GET /v3/auth/tokens"}, f.requests))
	clock.Pass(17 * time.Minute) // it was issued 40 minutes ago, but has 20 left
	token(t, s)
	if f.logins() != 1 {
		t.Error("the end of the token was not counted from Keystone's time")
	}
	// Placement refuses it, and Keystone does not: nothing gets better by asking again.
	err := s.Reauthorize(t.Context(), refusal(secret))
	if !errors.Is(err, keystone.ErrCredentials) || !strings.Contains(err.Error(), "keystone_authtoken") {
		t.Error(err)
	}
	f.change(func(f *fake) { f.password = "another-token" })
	if err := s.Reauthorize(t.Context(), refusal(secret)); !errors.Is(err, keystone.ErrCredentials) ||
		!strings.Contains(err.Error(), "token_file") {
		t.Error(err)
	}
	file = "another-token" // an operator has put a new one there
	testproc.NoError(t, s.Reauthorize(t.Context(), refusal(secret)))
	testproc.Equal(t, token(t, s), "another-token", "token %q")
}

// TestRenewal: a token is renewed before its end, by Keystone's clock and not by ours, and used to
// its end if Keystone is unavailable.
func TestRenewal(t *testing.T) {
	f := newFake(t)
	s, clock, _ := session(t, f) // the fake's clock is 25 years behind
	for range 10 {
		token(t, s)
	}
	clock.Pass(57*time.Minute + 59*time.Second)
	if got := token(t, s); got != "token-1" || f.logins() != 1 {
		t.Fatalf("%s after %d logins, before it was due", got, f.logins())
	}
	clock.Pass(time.Second)
	f.change(func(f *fake) {
		f.catalog = strings.ReplaceAll(f.catalog, "internal.example:8778", "moved.example")
	})
	if got := token(t, s); got != "token-2" || f.logins() != 2 {
		t.Fatalf("%s after %d logins, two minutes before the end", got, f.logins())
	}
	if endpoint, err := s.Endpoint(t.Context()); err != nil || endpoint != "http://moved.example" {
		t.Errorf("the catalogue was not read again: %q, %v", endpoint, err)
	}

	f.change(func(f *fake) {
		f.fail = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	})
	clock.Pass(58 * time.Minute)
	for range 5 { // Keystone is tried once a minute, and the token still good
		testproc.Equal(t, token(t, s), "token-2", "token %q")
	}
	if f.logins() != 3 {
		t.Errorf("%d tries to renew", f.logins()-2)
	}
	clock.Pass(2 * time.Minute)
	testproc.ErrorIs(t, s.Authorize(t.Context(), http.Header{}), keystone.ErrUnavailable, "beyond the end: %v")
	if endpoint, err := s.Endpoint(t.Context()); err != nil || endpoint != "http://moved.example" {
		t.Errorf("where Placement was is forgotten: %q, %v", endpoint, err)
	}
	f.change(func(f *fake) { f.fail = nil })
	testproc.Equal(t, token(t, s), "token-3", "token %q")
}

// TestInvalidExpiryTimes: whatever Keystone says of the end of a token, there is no login for each
// request.
func TestInvalidExpiryTimes(t *testing.T) {
	for _, life := range []time.Duration{0, -time.Hour, time.Nanosecond, time.Second, 100 * 365 * 24 * time.Hour} {
		f := newFake(t)
		f.life = life
		s, clock, _ := session(t, f, func(c *keystone.Config) { c.Jitter = func() float64 { return 0.99 } })
		for range 9 {
			token(t, s)
			clock.Pass(time.Second)
		}
		testproc.Equal(t, f.logins(), 1, "life %v: %d logins", life)
	}
}

// TestOneAtATime: many who need a token at once make one request, be it the first token, or one
// that was revoked.
func TestOneAtATime(t *testing.T) {
	f := newFake(t)
	s, _, _ := session(t, f)
	together := func(do func() error) {
		t.Helper()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				testproc.NoError(t, do())
			})
		}
		all.Wait()
	}
	together(func() error { return s.Authorize(t.Context(), http.Header{}) })
	testproc.Equal(t, f.logins(), 1, "%d logins for the first token")
	together(func() error { return s.Reauthorize(t.Context(), refusal("token-1")) })
	if f.logins() != 2 {
		t.Errorf("%d logins for the second", f.logins()-1)
	}
	testproc.Equal(t, token(t, s), "token-2", "token %q")
}

// TestCallerTimeout: a caller whose time is up returns, and the others that wait for the same login
// get its token.
func TestCallerTimeout(t *testing.T) {
	f := newFake(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	f.fail = func(w http.ResponseWriter, r *http.Request) {
		f.change(func(f *fake) { f.fail = nil })
		close(arrived)
		<-goOn
		w.Header().Set("X-Subject-Token", "token-0")
		w.WriteHeader(http.StatusCreated)
		f.change(func(f *fake) { f.token(w, f.now) })
	}
	s, _, _ := session(t, f)
	hasty, leave := context.WithCancel(t.Context())
	gone, patient := make(chan error), make(chan error)
	go func() { gone <- s.Authorize(hasty, http.Header{}) }()
	<-arrived
	go func() { patient <- s.Authorize(t.Context(), http.Header{}) }()
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) || !errors.Is(err, keystone.ErrUnavailable) {
		t.Errorf("who left: %v", err)
	}
	close(goOn)
	testproc.NoErrorf(t, <-patient, "who stayed")
	if got := token(t, s); got != "token-0" || f.logins() != 1 {
		t.Errorf("%s after %d requests", got, f.logins())
	}
}

// TestRefusedCredentials: a wrong password is not tried again and again, for Keystone may lock the
// user; a new one is tried at once.
func TestRefusedCredentials(t *testing.T) {
	f := newFake(t)
	password := "wrong-" + secret
	s, clock, _ := session(t, f,
		func(c *keystone.Config) { c.Secret = func() (string, error) { return password, nil } })
	try := func() error { return s.Authorize(t.Context(), http.Header{}) }
	var tries []int
	for _, pause := range []time.Duration{0, 4 * time.Second, time.Second, 9 * time.Second, time.Second,
		time.Hour, 119 * time.Second} {
		clock.Pass(pause)
		if err := try(); !errors.Is(err, keystone.ErrCredentials) {
			t.Fatal(err)
		}
		tries = append(tries, f.logins())
	}
	testproc.Samef(t, cmp.Diff([]int{1, 1, 2, 2, 3, 4, 5}, tries), "tries, with pauses of 5, 10, 20 and 40 s")
	password = secret
	testproc.NoErrorf(t, try(), "the new password")
	password = ""
	testproc.ErrorIs(t, s.Reauthorize(t.Context(), refusal("token-1")), keystone.ErrCredentials, "no password: %v")
}

// TestSecretFile: a secret that cannot be read is no reason to ask Keystone, nor to give up.
func TestSecretFile(t *testing.T) {
	f := newFake(t)
	missing := &os.PathError{Op: "open", Path: "/etc/compute-agent/password", Err: os.ErrNotExist}
	var err error = missing
	s, _, _ := session(t, f, func(c *keystone.Config) { c.Secret = func() (string, error) { return secret, err } })
	got := s.Authorize(t.Context(), http.Header{})
	if !errors.Is(got, os.ErrNotExist) || !errors.Is(got, keystone.ErrCredentials) ||
		!strings.Contains(got.Error(), "/etc/compute-agent/password") || f.logins() != 0 {
		t.Error(got, f.logins())
	}
	err = nil
	token(t, s)
}

func TestIdentify(t *testing.T) {
	f := newFake(t)
	s, clock, _ := session(t, f, func(c *keystone.Config) { c.Endpoint = "http://override.example" })
	f.catalog = "[]" // which does not matter then
	if endpoint, err := s.Endpoint(t.Context()); err != nil ||
		endpoint != "http://override.example" || f.logins() != 0 {
		t.Errorf("%q, %v, %d logins", endpoint, err, f.logins())
	}
	got, err := s.Identify(t.Context())
	want := keystone.Identity{User: "agent", Project: "service", Roles: []string{"member", "service"},
		Endpoint: "http://override.example", Expires: clock.Now().Add(time.Hour)}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}
