// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const secret = "pa55-of-the-agent"

// fake is a Keystone that knows one user. Its clock is its own.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	now      time.Time // its clock, whatever others think that the time is
	life     time.Duration
	password string
	catalog  string
	fail     http.HandlerFunc // answers in its stead
	requests []string
	bodies   []string
	ids      []string // X-Openstack-Request-Id
	tokens   int
}

const oneCatalog = `[{"type": "identity", "endpoints": []}, {"type": "placement", "endpoints": [
	{"id": "e1", "interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": "https://public.example/placement"},
	{"id": "e2", "interface": "internal", "region": "RegionOne", "region_id": "RegionOne", "url": "http://internal.example:8778/"}]}]`

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{now: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), life: time.Hour, password: secret, catalog: oneCatalog}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// change does something to the fake while it serves no request.
func (f *fake) change(do func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f)
}

func (f *fake) logins() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	f.bodies = append(f.bodies, string(body))
	f.ids = append(f.ids, r.Header.Get("X-Openstack-Request-Id"))
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		fail(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Date", f.now.Format(http.TimeFormat))
	switch {
	case r.URL.Path != "/v3/auth/tokens":
		http.NotFound(w, r)
	case r.Method == http.MethodGet && r.Header.Get("X-Auth-Token") == f.password &&
		r.Header.Get("X-Subject-Token") == f.password:
		w.Header().Set("X-Subject-Token", f.password)
		f.token(w, f.now.Add(-40*time.Minute))
	case r.Method == http.MethodPost && bytes.Contains(body, []byte(`"`+f.password+`"`)):
		f.tokens++
		w.Header().Set("X-Subject-Token", fmt.Sprint("token-", f.tokens))
		w.WriteHeader(http.StatusCreated)
		f.token(w, f.now)
	default:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w,
			`{"error": {"code": 401, "title": "Unauthorized", "message": "The request you have made requires `+
				`authentication."}}`)
	}
}

func (f *fake) token(w io.Writer, issued time.Time) {
	_, _ = fmt.Fprintf(w, `{"token": {"issued_at": %q, "expires_at": %q, "user": {"id": "u1", "name": "agent"}, "project": {"id": "p1", "name": "service"},
		"roles": [{"name": "service"}, {"name": "member"}], "catalog": %s}}`,
		issued.Format("2006-01-02T15:04:05.000000Z"),
		f.now.Add(f.life).Format("2006-01-02T15:04:05.000000Z"), f.catalog)
}

// session is one with a password, whose log goes to log.
func session(
	t *testing.T, f *fake, change ...func(*keystone.Config),
) (*keystone.Session, *testproc.Clock, *testproc.Buffer) {
	t.Helper()
	clock, log := testproc.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), &testproc.Buffer{}
	cfg := keystone.Config{
		Section: "placement_client", Service: "placement",
		AuthURL: f.URL + "/v3", Method: keystone.Password,
		Username: "agent", UserDomainName: "Default", ProjectName: "service", ProjectDomainName: "Default",
		Secret:    func() (string, error) { return secret, nil },
		Transport: http.DefaultTransport, Timeout: 20 * time.Second,
		Now: clock.Now, Jitter: func() float64 { return 0 }, Logger: zerolog.New(log),
	}
	for _, c := range change {
		c(&cfg)
	}
	s := testproc.Try(keystone.NewSession(cfg)).Or(t)
	return s, clock, log
}

// token is what Authorize sends now.
func token(t *testing.T, s *keystone.Session) string {
	t.Helper()
	h := http.Header{}
	testproc.Check(t, s.Authorize(t.Context(), h))
	return h.Get("X-Auth-Token")
}

func refusal(token string) http.Header { return http.Header{"X-Auth-Token": {token}} }

// decoded is JSON in a form that can be compared.
func decoded(t *testing.T, text string) any {
	t.Helper()
	var out any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("decoding: %v: %s", err, text)
	}
	return out
}
