// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// answers is a transport that gives one answer after the other, and then the last one.
type answers struct {
	list   []answer
	at     []time.Duration // when each request came, since the first
	from   time.Time
	bodies []string
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error

	broken  error // of reading the body
	endless bool
}

// Read gives what there is of a body that has no end, or no good one.
func (a answer) Read(b []byte) (int, error) {
	if a.broken != nil {
		return 0, a.broken
	}
	return len(b), nil
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(a.at) == 0 {
		a.from = time.Now()
	}
	now := a.list[min(len(a.at), len(a.list)-1)]
	a.at = append(a.at, time.Since(a.from))
	if r.Body != nil {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		a.bodies = append(a.bodies, string(sent))
	}
	if now.err != nil {
		return nil, now.err
	}
	header := now.header
	if header == nil {
		header = http.Header{}
	}
	var body io.Reader = strings.NewReader(now.body)
	if now.broken != nil || now.endless {
		body = now
	}
	return &http.Response{StatusCode: now.status, Header: header, Body: io.NopCloser(body), Request: r}, nil
}

func newClient(t *testing.T, transport http.RoundTripper, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{URL: "http://placement", Transport: transport, Retries: 2, Microversion: "1.37"}
	for _, f := range change {
		f(&cfg)
	}
	return testproc.Try(New(cfg)).Or(t)
}

// TestRetryAfter: a pause that the server asks for, in seconds or as a date, is kept to the second,
// if it is short enough for the cap and the context; otherwise the answer is returned at once. The
// clock is the bubble's.
func TestRetryAfter(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := func(d time.Duration) func() string {
		return func() string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	}
	text := func(s string) func() string { return func() string { return s } }
	for name, c := range map[string]struct {
		method   string
		status   int
		after    func() string
		deadline time.Duration
		at       []time.Duration // of the requests
	}{
		"seconds":               {after: text("3"), at: []time.Duration{0, 3 * time.Second}},
		"a date":                {after: in(4 * time.Second), at: []time.Duration{0, 4 * time.Second}},
		"a date in the past":    {after: in(-time.Hour), at: []time.Duration{0, 0}},
		"too many requests":     {status: 429, after: text("2"), at: []time.Duration{0, 2 * time.Second}},
		"as long as the cap":    {after: text("10"), at: []time.Duration{0, MaxRetryAfter}},
		"longer than the cap":   {after: text("11"), at: []time.Duration{0}},
		"a date behind the cap": {after: in(time.Hour), at: []time.Duration{0}},
		"more than there is":    {after: text("9223372036854775807"), at: []time.Duration{0}},
		"behind the deadline":   {after: text("3"), deadline: 2 * time.Second, at: []time.Duration{0}},
		"at the deadline":       {after: text("3"), deadline: 3 * time.Second, at: []time.Duration{0}},
		"before the deadline": {after: text("3"),
			deadline: 4 * time.Second, at: []time.Duration{0, 3 * time.Second}},
		"a write is never repeated":  {method: http.MethodPut, after: text("1"), at: []time.Duration{0}},
		"nor is one with too many":   {method: http.MethodPut, status: 429, after: text("1"), at: []time.Duration{0}},
		"nor one that asks for date": {method: http.MethodDelete, after: in(time.Second), at: []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				method, status := c.method, c.status
				if method == "" {
					method = http.MethodGet
				}
				if status == 0 {
					status = http.StatusServiceUnavailable
				}
				server :=
					&answers{list: []answer{{status: status, header: http.Header{"Retry-After": {c.after()}},
						body: "busy"}, {status: 200, body: "{}"}}}
				client := newClient(t, server)
				err := client.Do(ctx, method, "/usages", nil, nil)
				testproc.Samef(t, cmp.Diff(c.at, server.at), "requests")
				if len(c.at) == 2 {
					testproc.NoError(t, err)
				} else if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "busy") ||
					errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the answer is lost: %v", err)
				}
				if all, writes := client.Requests(); all != int64(len(c.at)) ||
					(writes > 0) != (method != http.MethodGet) {
					t.Errorf("%d requests, %d writes", all, writes)
				}
			})
		})
	}
}

// TestRetries: what is tried again, and what is not.
func TestRetries(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for name, c := range map[string]struct {
		first         answer
		reads, writes int // requests
	}{
		"502": {answer{status: 502}, 2, 1},
		"503": {answer{status: 503}, 2, 1},
		"504": {answer{status: 504}, 2, 1},
		"429": {answer{status: 429}, 2, 1},
		"429 of Placement": {answer{status: 429,
			header: http.Header{wire.HeaderVersion: {"placement 1.39"}, "Retry-After": {"1"}}}, 2, 2},
		"and for too long": {answer{status: 429,
			header: http.Header{wire.HeaderVersion: {"placement 1.39"}, "Retry-After": {"60"}}}, 1, 1},
		"503 of Placement":   {answer{status: 503, header: http.Header{wire.HeaderVersion: {"placement 1.39"}}}, 2, 1},
		"500":                {answer{status: 500}, 1, 1},
		"409":                {answer{status: 409}, 1, 1},
		"302":                {answer{status: 302, header: http.Header{"Location": {"http://elsewhere/"}}}, 1, 1},
		"nothing listens":    {answer{err: dial}, 2, 2},
		"a reset connection": {answer{err: reset}, 2, 1},
		"a time-out": {answer{err: &url.Error{Op: "Get", URL: "http://placement",
			Err: context.DeadlineExceeded}}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for method, want := range map[string]int{http.MethodGet: c.reads, http.MethodPut: c.writes,
					http.MethodPost: c.writes, http.MethodDelete: c.writes} {
					server := &answers{list: []answer{c.first, {status: 200, body: "{}"}}}
					err := newClient(t, server).Do(t.Context(), method, "/usages", map[string]int{}, nil)
					if len(server.at) != want || (err == nil) != (want == 2) {
						t.Errorf("%s: %d requests, want %d: %v", method, len(server.at), want, err)
					}
				}
			})
		})
	}
}

// TestRetriesEnd: after [Config].Retries the answer is returned, and with the context the waiting
// ends.
func TestRetriesEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		server := &answers{list: []answer{{status: 503, body: "busy"}}}
		if err := newClient(t, server).Do(t.Context(), http.MethodGet, "/usages", nil, nil); !errors.Is(err,
			ErrUnavailable) || len(server.at) != 3 {
			t.Errorf("%d requests: %v", len(server.at), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		server.at = nil
		if err := newClient(t, server).Do(ctx, http.MethodGet, "/usages", nil, nil); !errors.Is(err,
			context.Canceled) || len(server.at) != 1 {
			t.Errorf("%d requests: %v", len(server.at), err)
		}
	})
}

// TestReauthorize: a request that is answered 401 is sent once more with a new proof, a write as
// well, and no third time.
func TestReauthorize(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		list     []answer
		err      error // of Reauthorize
		kind     error
		requests int
	}{
		"a new token helps": {list: []answer{{status: 401}, {status: 204}}, requests: 2},
		"it does not":       {list: []answer{{status: 401}}, kind: ErrRefused, requests: 2},
		"there is none": {list: []answer{{status: 401}}, err: errors.New("no password"),
			kind: ErrRefused, requests: 1},
		"Keystone is down": {list: []answer{{status: 401}}, err: temporary{}, kind: ErrUnavailable, requests: 1},
		"Keystone, wrapped": {list: []answer{{status: 401}}, err: fmt.Errorf("log in: %w", temporary{}),
			kind: ErrUnavailable, requests: 1},
		"403 is an answer": {list: []answer{{status: 403}}, kind: ErrRefused, requests: 1},
		"time ran out for that": {list: []answer{{status: 401}}, err: context.DeadlineExceeded,
			kind: ErrUnavailable, requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := &answers{list: c.list}
			token := "old"
			client := newClient(t, server, func(cfg *Config) {
				cfg.Authorize = func(_ context.Context, h http.Header) error {
					h.Set(
						"X-Auth-Token", token)
					return nil
				}
				cfg.Reauthorize = func(_ context.Context, refused http.Header) error {
					testproc.Equal(t, refused.Get("X-Auth-Token"), "old", "refused is %q")
					token = "new"
					return c.err
				}
			})
			err := client.Do(t.Context(), http.MethodPut, "/allocations/x", map[string]int{}, NoContent{})
			if !errors.Is(err, c.kind) || len(server.at) != c.requests || errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("%d requests: %v", len(server.at), err)
			}
			if c.kind != nil && errors.Is(err, ErrRefused) == errors.Is(err, ErrUnavailable) {
				t.Errorf("it is both or neither: %v", err)
			}
			if len(server.bodies) != c.requests ||
				slices.ContainsFunc(server.bodies, func(b string) bool { return b != "{}" }) {
				t.Errorf("the bodies are %q", server.bodies)
			}
		})
	}
}

type temporary struct{}

func (temporary) Error() string   { return "keystone is down" }
func (temporary) Temporary() bool { return true }

// TestNoCredentials: without a proof nothing is sent, and the error says whether it may work later.
func TestNoCredentials(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct{ cause, kind error }{
		{temporary{}, ErrUnavailable},
		{fmt.Errorf("keystone is down: %w", ErrUnavailable), ErrUnavailable},
		{fmt.Errorf("waiting for keystone: %w", context.Canceled), ErrUnavailable},
		{errors.New("no file of the token"), ErrRefused},
	} {
		server := &answers{list: []answer{{status: 204}}}
		client := newClient(t, server,
			func(cfg *Config) { cfg.Authorize = func(context.Context, http.Header) error { return c.cause } })
		err := client.Do(t.Context(), http.MethodPut, "/allocations/x", map[string]int{}, NoContent{})
		var failed *Error
		if !errors.Is(err, c.kind) || !errors.Is(err, c.cause) || !errors.As(err, &failed) || !failed.Unsent ||
			!strings.Contains(err.Error(), c.cause.Error()) {
			t.Errorf("got %v, want %v", err, c.kind)
		}
		if len(server.at) != 0 || errors.Is(err, ErrRefused) == errors.Is(err, ErrUnavailable) {
			t.Errorf("%d requests; it is both or neither: %v", len(server.at), err)
		}
	}
}

func TestBadURL(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, url := range []string{"", "placement", "ftp://x", "http://", "http://a b"} {
		if _, err := New(Config{URL: url}); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
}
