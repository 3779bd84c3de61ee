// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// noStore is a store that keeps nothing: what a test reads is what the ledger has in memory. Tests
// have it unless an engine is chosen, see openStored.
type noStore struct{ version int64 }

func (s *noStore) Load(context.Context) (*ledger.State, error) {
	return &ledger.State{Version: s.version}, nil
}
func (s *noStore) Version(context.Context) (int64, error) { return s.version, nil }
func (s *noStore) Commit(_ context.Context, base int64, _ []ledger.Change) error {
	s.version = base + 1
	return nil
}
func (s *noStore) Changes(context.Context, int64) (*ledger.Delta, error) {
	return nil, ledger.ErrReload
}
func (s *noStore) Exclusive() bool { return true }
func (s *noStore) Close() error    { return nil }

// clock is the time in all tests, so that a stored Last-Modified differs from the actual time.
var clock = time.Date(2026, 11, 21, 4, 39, 25, 0, time.UTC)

func openLedger(t testing.TB) *transactor.Ledger {
	t.Helper()
	if dbservers.Engine(t) != "" {
		return openStored(t)
	}
	return openOn(t, &noStore{})
}

func openOn(t testing.TB, s ledger.Store) *transactor.Ledger {
	t.Helper()
	l, err := transactor.Open(context.Background(), s, transactor.Options{Now: func() time.Time { return clock }})
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.NoError(t, l.Close()) })
	return l
}

// newAPI makes an API on an empty ledger, where the user "admin" may do everything.
func newAPI(t testing.TB, change ...func(*api.Config)) *api.API {
	t.Helper()
	policy := testproc.Try(api.NewPolicy(api.Legacy)).Or(t)
	cfg := api.Config{Authenticator: osapi.NoAuth{}, Policy: policy, Logger: zerolog.Nop(),
		Now: func() time.Time { return clock }}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Ledger == nil {
		cfg.Ledger = openLedger(t)
	}
	return api.New(cfg)
}

// call is one request and what its answer must be.
type call struct {
	method, path string
	version      string   // "" sends no header
	headers      []string // "Name: value"; a "-Name" takes a header away that call sends by itself
	body         string   // sent as JSON
	status       int
	code         wire.ErrorCode // of an error
}

// send makes the call and checks nothing.
func (c call) send(h http.Handler) *httptest.ResponseRecorder {
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	r := httptest.NewRequest(c.method, c.path, body)
	r.Header.Set("X-Auth-Token", "admin")
	if c.body != "" || c.method == http.MethodPut || c.method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.version != "" {
		r.Header.Set("OpenStack-API-Version", "placement "+c.version)
	}
	for _, line := range c.headers {
		name, value, _ := strings.Cut(line, ": ")
		if name[0] == '-' {
			r.Header.Del(name[1:])
		} else {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// do makes the call and checks its status and code, and compares it with the OpenAPI document.
func (c call) do(t testing.TB, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	w := c.send(h)
	c.compare(t, w)
	if w.Code != c.status {
		t.Fatalf("%s %s at %q: status %d, want %d\n%s", c.method, c.path, c.version, w.Code, c.status, w.Body)
	}
	if c.code != "" {
		if got := errorOf(t, w).Code; got != c.code {
			t.Fatalf("%s %s at %q: code %q, want %q\n%s", c.method, c.path, c.version, got, c.code, w.Body)
		}
	}
	return w
}

// calls makes them in turn.
func calls(t testing.TB, h http.Handler, list ...call) {
	t.Helper()
	for _, c := range list {
		c.do(t, h)
	}
}

// errorOf is the error of an answer.
func errorOf(t testing.TB, w *httptest.ResponseRecorder) wire.ErrorItem {
	t.Helper()
	e := decoded[wire.ErrorBody](t, w)
	if len(e.Errors) != 1 || e.Errors[0].Status != w.Code {
		t.Fatalf("the answer is not one error of status %d: %s", w.Code, w.Body)
	}
	return e.Errors[0]
}

// decoded reads a body strictly: no key may be unknown to the type.
func decoded[T any](t testing.TB, w *httptest.ResponseRecorder) (value T) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Fatalf("Content-Type %q: %s", got, w.Body)
	}
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	d.DisallowUnknownFields()
	testproc.Checkf(t, d.Decode(&value), "%s", w.Body)
	return value
}

// Names that the tests use.
const (
	rp1   = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
	rp2   = "5bcff1f0-2ea8-4a55-a9de-2f6cc7b3f3a1"
	agg1  = "aaaaaaaa-0000-4000-8000-000000000001"
	agg2  = "aaaaaaaa-0000-4000-8000-000000000002"
	inst1 = "11111111-0000-4000-8000-000000000001"
	inst2 = "11111111-0000-4000-8000-000000000002"
)

// host fills an API with rp1, a node with VCPU and MEMORY_MB at generation 1, and rp2, its child at
// generation 0.
func host(t testing.TB, h http.Handler) {
	t.Helper()
	calls(t, h,
		call{method: "POST", path: "/resource_providers",
			version: "1.39", body: `{"name":"node","uuid":"` + rp1 + `"}`, status: 200},
		call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":"numa0","uuid":"` + rp2 +
			`","parent_provider_uuid":"` + rp1 + `"}`, status: 200},
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/inventories", version: "1.39",
			body: `{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8},"MEMORY_MB":{"total":1024,` +
				`"step_size":64}}}`, status: 200},
	)
}

// instance is the body of an allocation at 1.39; generation is a number or null.
func instance(provider, generation string, vcpu int) string {
	return fmt.Sprintf(`{"allocations":{%q:{"resources":{"VCPU":%d}}},"project_id":"proj","user_id":"user",`+
		`"consumer_generation":%s,"consumer_type":"INSTANCE"}`,
		provider, vcpu, generation)
}
