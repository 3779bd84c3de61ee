// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func answering(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const subject = "X-Subject-Token"

// TestFailures: whatever Keystone, or what stands in its place, answers: the error says what it was
// and what to do, is of the right kind, repeats no secret; and when Keystone is well again, so is
// the session.
func TestFailures(t *testing.T) {
	message := func(text string) string { return fmt.Sprintf(`{"error": {"message": %q}}`, text) }
	good := `{"token": {"issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z", "user": {"id": ` +
		`"u"}, "project": {"id": "p"}, "catalog": []}}`
	cases := []struct {
		name   string
		answer http.HandlerFunc
		kind   error
		says   []string
	}{
		{"a wrong password", answering(401, message("The request you have made requires authentication.")),
			keystone.ErrCredentials,
			[]string{"status 401: The request you have made requires authentication.",
				"check the user's name, domain and password", "[req-"}},
		{"a password that has expired",
			answering(401, message("The password is expired and needs to be changed for user: u1.")),
			keystone.ErrCredentials, []string{"is expired"}},
		{"a second factor", answering(401, "{}", "Openstack-Auth-Receipt", "r"), keystone.ErrCredentials,
			[]string{"more than one factor", "application credential"}},
		{"no role in the project", answering(403, message("no")), keystone.ErrCredentials, []string{"403"}},
		{"a bad request that repeats the password", answering(400, message("'"+secret+"' is not of type 'object'")),
			keystone.ErrCredentials, []string{"status 400; check"}},
		{"no such path", answering(404, "<html>"),
			keystone.ErrUnavailable, []string{"404", "/v3/auth/tokens", "placement_client.auth_url"}},
		{"a redirection", answering(302, "", "Location", "http://192.0.2.1/"), keystone.ErrUnavailable,
			[]string{"302", "placement_client.auth_url"}},
		{"another 2xx", answering(200, good), keystone.ErrUnavailable, []string{"200"}},
		{"down behind a proxy", answering(503, "<html>secret-"+secret), keystone.ErrUnavailable,
			[]string{"503", "tried again"}},
		{"broken", answering(500, message("An unexpected error prevented the server from fulfilling your request.")),
			keystone.ErrUnavailable, []string{"500: An unexpected error"}},
		{"a login page", answering(201, "<html>", subject, "t"), keystone.ErrUnavailable, []string{"not JSON"}},
		{"nothing", answering(201, "", subject, "t"), keystone.ErrUnavailable, nil},
		{"null", answering(201, "null", subject, "t"), keystone.ErrUnavailable, []string{"no token with a user"}},
		{"a list", answering(201, "[]", subject, "t"), keystone.ErrUnavailable, []string{"not JSON"}},
		{"a token of another kind", answering(201, `{"token": "`+secret+`"}`, subject, "t"),
			keystone.ErrUnavailable, []string{"not JSON"}},
		{"an invalid time", answering(201, strings.Replace(good, "2026-01-01T01:00:00Z", secret, 1), subject, "t"),
			keystone.ErrUnavailable, []string{"not JSON"}},
		{"no end", answering(201, strings.Replace(good, "expires_at", "expires", 1), subject, "t"),
			keystone.ErrUnavailable, []string{"no token with a user"}},
		{"no header", answering(201, good), keystone.ErrUnavailable, []string{"no token with a user"}},
		{"a token with spaces", answering(201, good, subject, "a b"), keystone.ErrUnavailable, []string{"characters"}},
		{"an unscoped token", answering(201, strings.Replace(good, `"project": {"id": "p"},`, "", 1), subject, "t"),
			keystone.ErrCredentials, []string{"unscoped", "project_name"}},
		{"no catalogue", answering(201, good, subject, "t"), keystone.ErrCatalog,
			[]string{"it is empty", "placement_client.url", "[req-"}},
		{"an answer without end", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(subject, "t")
			w.WriteHeader(http.StatusCreated)
			spaces := strings.Repeat(" ", 1<<20)
			for range 20 {
				_, _ = io.WriteString(w, spaces)
			}
		}, keystone.ErrUnavailable, []string{"longer than 16 MiB"}},
		{"an answer that breaks off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, good[:50])
		}, keystone.ErrUnavailable, []string{"EOF"}},
		{"a connection that is cut", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
			keystone.ErrUnavailable, []string{"EOF"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.fail = c.answer
			s, clock, log := session(t, f)
			err := s.Authorize(t.Context(), http.Header{})
			var failed *keystone.Error
			if !errors.Is(err, c.kind) || !errors.As(err, &failed) || failed.AuthURL != f.URL+"/v3" {
				t.Fatalf("got %v, want %v", err, c.kind)
			}
			if failed.Temporary() == errors.Is(c.kind, keystone.ErrCredentials) {
				t.Errorf("only refused credentials do not get better by themselves: %v", err)
			}
			for _, says := range c.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q is missing: %v", says, err)
				}
			}
			if strings.Contains(err.Error(), "%!") || strings.Contains(err.Error()+log.String(), secret) {
				t.Errorf("the secret is repeated, or the format wrong: %v\n%s", err, log)
			}
			f.change(func(f *fake) { f.fail = nil })
			clock.Pass(time.Minute)
			testproc.Equal(t, token(t, s), "token-1", "token %q")
		})
	}
}

// TestConnectionRefused: Keystone is down when the agent starts, and comes up later.
func TestConnectionRefused(t *testing.T) {
	f := newFake(t)
	away := true
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if away {
			address = "127.0.0.1:1"
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	s, _, _ := session(t, f, func(c *keystone.Config) { c.Transport = transport })
	if _, err := s.Endpoint(t.Context()); !errors.Is(err, keystone.ErrUnavailable) ||
		!strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "tried again") {
		t.Error(err)
	}
	away = false
	if endpoint, err := s.Endpoint(t.Context()); err != nil || endpoint == "" {
		t.Error(endpoint, err)
	}
}

// TestSlowKeystone: it does not keep us longer than we have time.
func TestSlowKeystone(t *testing.T) {
	f := newFake(t)
	done := make(chan struct{})
	defer close(done)
	f.fail = func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}
	s, _, _ := session(t, f, func(c *keystone.Config) { c.Timeout = 20 * time.Millisecond })
	err := s.Authorize(t.Context(), http.Header{})
	if !errors.Is(err, keystone.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "in time") {
		t.Error(err)
	}
}

// TestNoSecretInLog: neither the password nor the token is in the log, and what helps is.
func TestNoSecretInLog(t *testing.T) {
	f := newFake(t)
	s, clock, log := session(t, f)
	got := token(t, s)
	clock.Pass(59 * time.Minute)
	f.change(func(f *fake) { f.fail = answering(401, `{"error": {"message": "`+secret+`"}}`) })
	token(t, s)
	text := log.String()
	if strings.Contains(text, secret) || strings.Contains(text, got) {
		t.Errorf("a secret is in the log:\n%s", text)
	}
	for _, id := range f.ids {
		testproc.Contains(t, text, id, "request id %s is not in the log:\n%s", id)
	}
}

func TestConfig(t *testing.T) {
	base := keystone.Config{
		Section: "placement_client", Service: "placement",
		AuthURL: "https://k/v3", Method: keystone.Password,
		Username: "u", UserDomainName: "d", ProjectName: "p", ProjectDomainName: "d",
		Secret: func() (string, error) { return secret, nil }, Transport: http.DefaultTransport,
	}
	testproc.Try(keystone.NewSession(base)).Or(t)
	cases := map[string]func(*keystone.Config){
		"no URL such as":                 func(c *keystone.Config) { c.AuthURL = "keystone:5000" },
		"without a name and a password":  func(c *keystone.Config) { c.AuthURL = "https://u:" + secret + "@k/v3" },
		"(auth_url) is not given":        func(c *keystone.Config) { c.AuthURL = "" },
		"is no way to log in":            func(c *keystone.Config) { c.Method = "kerberos" },
		"a user (":                       func(c *keystone.Config) { c.Username = "" },
		"a user that is given by name":   func(c *keystone.Config) { c.UserDomainName = "" },
		"a project (":                    func(c *keystone.Config) { c.ProjectName = "" },
		"a project that is given":        func(c *keystone.Config) { c.ProjectDomainName = "" },
		"the id or the name of the appl": func(c *keystone.Config) { c.Method = keystone.ApplicationCredential },
		"neither a password":             func(c *keystone.Config) { c.Secret = nil },
	}
	for says, breakIt := range cases {
		cfg := base
		breakIt(&cfg)
		_, err := keystone.NewSession(cfg)
		if !errors.Is(err, keystone.ErrConfig) || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("want %q: %v", says, err)
		}
	}
}
