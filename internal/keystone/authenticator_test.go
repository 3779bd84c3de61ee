// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// tokenServer is a Keystone that knows some tokens, and counts what it is asked.
type tokenServer struct {
	*httptest.Server
	clock atomic.Int64 // seconds

	mu       sync.Mutex
	password string // of the service user
	own      string // the service user's token that is good now
	logins   int
	tokens   map[string]string // body by token
	expired  map[string]bool   // tokens that are good with allow_expired only
	answer   http.HandlerFunc  // instead of all else, for GET
	calls    []string
}

func newTokenServer(t testing.TB) *tokenServer {
	t.Helper()
	f := &tokenServer{password: "s3cret", tokens: map[string]string{}, expired: map[string]bool{}}
	f.clock.Store(1_000_000)
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (ts *tokenServer) now() time.Time { return time.Unix(ts.clock.Load(), 0) }

// token is what Keystone says of a token that is good for some seconds from now.
func (ts *tokenServer) token(seconds int, rest string) string {
	const layout = "2006-01-02T15:04:05.000000Z"
	return fmt.Sprintf(`{"token":{"issued_at":%q,"expires_at":%q,"user":{"id":"u1","name":"nova"},%s}}`,
		ts.now().UTC().Format(layout), ts.now().Add(time.Duration(seconds)*time.Second).UTC().Format(layout), rest)
}

const asService = `"project":{"id":"p1","name":"service"},"roles":[{"id":"r1","name":"service"},{"id":"r2",` +
	`"name":"Reader"}]`

func (ts *tokenServer) serve(w http.ResponseWriter, r *http.Request) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.calls = append(ts.calls, r.Method+" "+r.URL.RequestURI())
	if r.Method == http.MethodPost {
		var body struct {
			Auth struct {
				Identity struct {
					Password struct {
						User struct{ Name, Password string }
					}
					Application struct{ ID, Secret string } `json:"application_credential"`
				}
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&body) // What cannot be read is not the password.
		id := body.Auth.Identity
		if id.Password.User.Password != ts.password && id.Application.Secret != ts.password {
			http.Error(w, `{"error":{"code":401}}`, http.StatusUnauthorized)
			return
		}
		ts.logins++
		ts.own = fmt.Sprintf("own-%d", ts.logins)
		w.Header().Set("X-Subject-Token", ts.own)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, ts.token(3600, asService))
		return
	}
	if r.Header.Get("X-Auth-Token") != ts.own || ts.own == "" {
		http.Error(w, `{"error":{"code":401}}`, http.StatusUnauthorized)
		return
	}
	if ts.answer != nil {
		ts.answer(w, r)
		return
	}
	subject := r.Header.Get("X-Subject-Token")
	body, known := ts.tokens[subject]
	if !known || ts.expired[subject] && r.URL.Query().Get("allow_expired") != "1" {
		http.Error(w, `{"error":{"code":404,"message":"Could not find token: `+subject+`"}}`, http.StatusNotFound)
		return
	}
	_, _ = fmt.Fprint(w, body)
}

// asked is what was asked since the last time.
func (ts *tokenServer) asked() string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	calls := strings.Join(ts.calls, ", ")
	ts.calls = nil
	return calls
}

func (ts *tokenServer) set(change func()) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	change()
}

func (ts *tokenServer) config() keystone.AuthenticatorConfig {
	return keystone.AuthenticatorConfig{
		Config: keystone.Config{
			AuthURL: ts.URL + "/v3", Username: "placement",
			UserDomainName: "Default", ProjectName: "service", ProjectDomainName: "Default",
			Secret: func() (string, error) { return "s3cret", nil }, Now: ts.now,
		},
		WWWAuthenticateURI: "https://keystone.example/v3",
	}
}

func (ts *tokenServer) authenticator(t testing.TB) *keystone.Authenticator {
	t.Helper()
	return testproc.Try(keystone.NewAuthenticator(ts.config())).Or(t)
}

func request(tokens ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/traits", nil)
	for i, name := range []string{"X-Auth-Token", "X-Service-Token"} {
		if i < len(tokens) {
			r.Header.Set(name, tokens[i])
		}
	}
	return r
}

// outcome is how a request ends: "ok", "401" or "503".
func outcome(t *testing.T, a *keystone.Authenticator, tokens ...string) string {
	t.Helper()
	_, err := a.Authenticate(request(tokens...))
	for _, token := range tokens {
		if err != nil && len(token) > 3 && strings.Contains(err.Error(), token) {
			t.Errorf("the error repeats the token: %v", err)
		}
	}
	var refused *osapi.Unauthenticated
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &refused):
		testproc.Equal(t, refused.Challenge, `Keystone uri="https://keystone.example/v3"`, "the challenge is %q")
		return "401"
	case errors.Is(err, keystone.ErrUnavailable):
		return "503"
	}
	t.Errorf("unexpected: %v", err)
	return "?"
}

const (
	post        = "POST /v3/auth/tokens"
	get         = "GET /v3/auth/tokens?nocatalog"
	getExpired  = get + "&allow_expired=1"
	notAskedAny = ""
)

func TestPrincipalOfAToken(t *testing.T) {
	f := newTokenServer(t)
	a := f.authenticator(t)
	for name, c := range map[string]struct {
		rest string
		want osapi.Principal
	}{
		"of a project": {asService, osapi.Principal{User: "u1", Project: "p1", Roles: []string{"service", "reader"}}},
		"of the system": {`"system":{"all":true},"roles":[{"name":"admin"}]`,
			osapi.Principal{User: "u1", Roles: []string{"admin"}, SystemScope: true}},
		"of a domain": {`"domain":{"id":"default"},"roles":[{"name":"admin"}]`,
			osapi.Principal{User: "u1", Roles: []string{"admin"}, DomainScope: true}},
		"of nothing": {`"methods":["password"]`, osapi.Principal{User: "u1"}},
	} {
		f.set(func() { f.tokens[name] = f.token(600, c.rest) })
		got, err := a.Authenticate(request(name))
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestValidationsAreCached is a story: after each step, how the request ended and what Keystone
// was asked.
func TestValidationsAreCached(t *testing.T) {
	f := newTokenServer(t)
	f.tokens["good"], f.tokens["short"] = f.token(1000, asService), f.token(100, asService)
	a := f.authenticator(t)
	for i, step := range []struct {
		after   int64 // seconds
		token   string
		outcome string
		asked   string
	}{
		{0, "", "401", notAskedAny},
		{0, strings.Repeat("x", 9000), "401", notAskedAny},
		{0, "good", "ok", post + ", " + get},
		{0, "good", "ok", notAskedAny},
		{0, " good ", "ok", notAskedAny},
		{0, "bad", "401", get},
		{29, "bad", "401", notAskedAny},
		{1, "bad", "401", get},
		{0, "short", "ok", get},
		{69, "short", "ok", notAskedAny},
		{1, "short", "401", get}, // it has expired: what was known of it is not used, and what Keystone says neither
		{199, "good", "ok", notAskedAny},
		{1, "good", "ok", get}, // 300 seconds after it was asked about
		{300, "good", "ok", get},
		{299, "good", "ok", notAskedAny},
		{101, "good", "401", get}, // 1001 s: expired
	} {
		f.clock.Add(step.after)
		testproc.Equal(t, outcome(t, a, step.token), step.outcome, "step %d, %.20s: %s", i, step.token)
		testproc.Samef(t, cmp.Diff(step.asked, f.asked()), "step %d, %.20s: asked", i, step.token)
	}
}

func TestConcurrentValidationsAreShared(t *testing.T) {
	f := newTokenServer(t)
	f.tokens["good"] = f.token(1000, asService)
	a := f.authenticator(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := a.Authenticate(request("good")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	testproc.Samef(t, cmp.Diff(post+", "+get, f.asked()), "asked")
}

func TestCancelledRequestDoesNotCancelOthers(t *testing.T) {
	f := newTokenServer(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	body := f.token(1000, asService)
	f.answer = func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = fmt.Fprint(w, body)
	}
	a := f.authenticator(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := a.Authenticate(request("good").WithContext(ctx))
		gone <- err
	}()
	<-entered
	cancel()
	testproc.ErrorIs(t, <-gone, context.Canceled, "the request that went away: %v")
	close(leave)
	testproc.Equal(t, outcome(t, a, "good"), "ok", "the other: %s")
	testproc.Samef(t, cmp.Diff(post+", "+get, f.asked()), "asked")
}

func TestAuthenticatorWhileKeystoneIsDown(t *testing.T) {
	f := newTokenServer(t)
	f.tokens["good"], f.tokens["new"] = f.token(1000, asService), f.token(1000, asService)
	a := f.authenticator(t)
	if got := outcome(t, a, "good"); got != "ok" {
		t.Fatal(got)
	}
	f.asked()
	// An answer that is of no use is not remembered, and never a 401.
	for name, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w,
				"no", http.StatusInternalServerError)
		},
		"403":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") },
		"no token": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{}`) },
		"no user": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"token":{"expires_at":"2040-01-01T00:00:00Z"}}`)
		},
		"no expiry": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"token":{"user":{"id":"x"}}}`)
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"a":"`+strings.Repeat("x", 2<<20)+`"}`)
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r,
				"/v3/else", http.StatusFound)
		},
		"always 401":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) },
		"it hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"too many asks": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w,
				"no", http.StatusTooManyRequests)
		},
	} {
		f.set(func() { f.answer = answer })
		testproc.Equal(t, outcome(t, a, "new"), "503", "%s: %s", name)
		if asked := f.asked(); strings.Contains(asked, "else") {
			t.Errorf("%s: the token went elsewhere: %s", name, asked)
		}
		testproc.Equal(t, outcome(t, a, "good"), "ok", "%s: a token that is known: %s", name)
	}
	f.set(func() { f.answer = nil })
	testproc.Equal(t, outcome(t, a, "new"), "ok", "after all that: %s")
	f.Close()
	testproc.Equal(t, outcome(t, a, "newer")+outcome(t, a, "good"), "503ok", "without a Keystone: %s")
	f.clock.Add(300)
	testproc.Equal(t, outcome(t, a, "good"), "503", "without a Keystone, 300 s later: %s")
	testproc.ErrorIs(t, f.authenticator(t).Check(t.Context()), keystone.ErrUnavailable, "Check without a Keystone: %v")
}

func TestTheServiceUser(t *testing.T) {
	f := newTokenServer(t)
	for _, token := range []string{"a", "b", "c", "d", "e"} {
		f.tokens[token] = f.token(1000, asService)
	}
	cfg := f.config()
	password := "s3cret"
	cfg.Secret = func() (string, error) { return password, nil }
	a := testproc.Try(keystone.NewAuthenticator(cfg)).Or(t)
	testproc.NoError(t, a.Check(t.Context()))
	step := func(token, want, asked string) {
		t.Helper()
		testproc.Equal(t, outcome(t, a, token), want, "%s: %s", token)
		testproc.Samef(t, cmp.Diff(asked, f.asked()), "%s: asked", token)
	}
	step("a", "ok", post+", "+get)
	// Its own token expires.
	f.set(func() { f.own = "another" })
	step("b", "ok", get+", "+post+", "+get)
	// Its password was changed: it does not try the old one with every request, but the new one
	// when it is there.
	f.set(func() { f.own, f.password = "another", "other" })
	step("c", "503", get+", "+post)
	step("d", "503", get)
	_, err := a.Authenticate(request("e"))
	testproc.ErrorIs(t, err, keystone.ErrCredentials, "the error does not say that the credentials are refused: %v")
	f.asked()
	password = "other"
	f.clock.Add(5)
	step("c", "ok", get+", "+post+", "+get)
}

func TestServiceTokens(t *testing.T) {
	f := newTokenServer(t)
	f.tokens["user"], f.tokens["old"] = f.token(1000, asService), f.token(-10, asService)
	f.tokens["service"] = f.token(1000, asService)
	f.tokens["member"] = f.token(1000, `"project":{"id":"p"},"roles":[{"name":"member"}]`)
	f.expired["old"] = true
	a := f.authenticator(t)
	for i, step := range []struct {
		tokens  []string
		outcome string
		asked   string
	}{
		{[]string{"old"}, "401", post + ", " + get},
		{[]string{"old", "service"}, "ok", get + ", " + getExpired},
		{[]string{"old", "service"}, "ok", notAskedAny},
		{[]string{"old"}, "401", notAskedAny},
		{[]string{"old", "member"}, "401", get}, // whose user has not the role
		{[]string{"user", "member"}, "ok", get},
		{[]string{"user", "unknown"}, "401", get},
		{[]string{"unknown too", "service"}, "401", getExpired},
	} {
		testproc.Equal(t, outcome(t, a, step.tokens...), step.outcome, "step %d, %v: %s", i, step.tokens)
		testproc.Samef(t, cmp.Diff(step.asked, f.asked()), "step %d, %v: asked", i, step.tokens)
	}
}

func TestAuthenticatorApplicationCredential(t *testing.T) {
	f := newTokenServer(t)
	f.tokens["good"] = f.token(1000, asService)
	a := testproc.Try(keystone.NewAuthenticator(keystone.AuthenticatorConfig{
		Config: keystone.Config{AuthURL: f.URL,
			ApplicationCredentialID: "21dc", Secret: func() (string, error) { return "s3cret", nil }, Now: f.now},
		WWWAuthenticateURI: "https://keystone.example/v3",
	})).Or(t)
	testproc.Equal(t, outcome(t, a, "good"), "ok", "the outcome: %v")
}

func TestAuthenticatorConfigurations(t *testing.T) {
	secret := func() (string, error) { return "s3cret", nil }
	good := keystone.AuthenticatorConfig{Config: keystone.Config{
		AuthURL: "https://keystone.example/v3", Username: "u", UserDomainName: "d", ProjectName: "p",
		ProjectDomainName: "d", Secret: secret,
	}}
	for name, change := range map[string]func(*keystone.AuthenticatorConfig){
		"no address": func(c *keystone.AuthenticatorConfig) { c.AuthURL = "" },
		"no URL":     func(c *keystone.AuthenticatorConfig) { c.AuthURL = "keystone.example" },
		"a password in it": func(c *keystone.AuthenticatorConfig) {
			c.AuthURL =
				"https://u:s3cret@keystone.example"
		},
		"no secret":            func(c *keystone.AuthenticatorConfig) { c.Secret = nil },
		"no user":              func(c *keystone.AuthenticatorConfig) { c.Username = "" },
		"no project":           func(c *keystone.AuthenticatorConfig) { c.ProjectName = "" },
		"no certificates":      func(c *keystone.AuthenticatorConfig) { c.CAFile = "/dev/null" },
		"certificates are not": func(c *keystone.AuthenticatorConfig) { c.CAFile = "/nowhere" },
	} {
		cfg := good
		change(&cfg)
		if _, err := keystone.NewAuthenticator(cfg); !errors.Is(err, keystone.ErrConfig) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := keystone.NewAuthenticator(good); err != nil {
		t.Error(err)
	}
	gone := errors.New("the file is gone")
	good.Secret = func() (string, error) { return "", gone }
	if _, err := keystone.NewAuthenticator(good); !errors.Is(err, keystone.ErrConfig) || !errors.Is(err, gone) {
		t.Error(err)
	}
	there := true
	good.Secret = func() (string, error) {
		if there {
			return "s3cret", nil
		}
		return "", gone
	}
	a := testproc.Try(keystone.NewAuthenticator(good)).Or(t)
	there = false
	if err := a.Check(t.Context()); !errors.Is(err, keystone.ErrUnavailable) || !errors.Is(err, gone) {
		t.Error(err)
	}
}

// BenchmarkKnownToken is what each request pays.
func BenchmarkKnownToken(b *testing.B) {
	f := newTokenServer(b)
	token := strings.Repeat("x", 250)
	f.tokens[token] = f.token(1<<20, asService)
	cfg := f.config()
	cfg.TokenCacheTime = time.Hour
	a := testproc.Try(keystone.NewAuthenticator(cfg)).Or(b)
	r := request(token)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(r); err != nil { // Try would cost half as much again
			b.Fatal(err)
		}
	}
}
