// SPDX-License-Identifier: Apache-2.0

package placementclient

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

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// handler is a transport that answers by itself.
type handler func(r *http.Request) answer

func (h handler) RoundTrip(r *http.Request) (*http.Response, error) {
	return (&answers{list: []answer{h(r)}}).RoundTrip(r)
}

func versions(low, high string) string {
	return fmt.Sprintf(`{"versions": [{"id": "v1.0", "min_version": %q, "max_version": %q, "status": "CURRENT"}]}`,
		low, high)
}

// TestCheckVersion: a Placement without our microversion is refused in clear words. One that was
// found good is not asked again, until it answers 406.
func TestCheckVersion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var document string
	var requests []string
	status := http.StatusOK
	client := newClient(t, handler(func(r *http.Request) answer {
		requests = append(requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get(wire.HeaderVersion)))
		if r.URL.Path == "/" {
			return answer{status: 200, body: document}
		}
		return answer{status: status, body: "{}"}
	}))
	want := func(list ...string) {
		t.Helper()
		testproc.Samef(t, cmp.Diff(list, requests), "requests")
		requests = nil
	}
	for _, c := range []struct {
		document string
		want     error
		says     []string
	}{
		{versions("1.0", "1.36"), ErrTooOld, []string{"1.0 to 1.36", "1.37 is needed", "upgrade Placement", "Xena"}},
		{versions("1.0", "0.99"), ErrTooOld, []string{"upgrade Placement"}},
		{versions("1.38", "1.50"), ErrTooOld, []string{"1.38 to 1.50", "upgrade the agent"}},
		{versions("2.0", "2.1"), ErrTooOld, []string{"upgrade the agent"}},
		{versions("", "1.39"), ErrUnexpected, []string{"are invalid"}},
		{versions("1.0", ""), ErrUnexpected, []string{"no version document"}},
		{versions("1.0", "latest"), ErrUnexpected, []string{"latest"}},
		{versions("1.0", "1."), ErrUnexpected, nil},
		{versions("1.0", "1.-3"), ErrUnexpected, nil},
		{versions("1.0", "1.39.1"), ErrUnexpected, nil},
		{versions("1.0", "1.99999999999999999999999"), ErrUnexpected, nil},
		{versions("1.0", strings.Repeat("9", 5000)), ErrUnexpected, nil},
		{`{"versions": []}`, ErrUnexpected, []string{"no version document"}},
		{"<html>", ErrUnexpected, nil},
	} {
		document = c.document
		err := client.CheckVersion(t.Context())
		if !errors.Is(err, c.want) || client.VersionChecked(t.Context()) {
			t.Errorf("%.80s: got %v, want %v", c.document, err, c.want)
			continue
		}
		if len(err.Error()) > 1000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%q is missing: %v", says, err)
			}
		}
		want("/")
	}
	for _, good := range []string{versions("1.0", "1.37"), versions("1.37", "1.39")} {
		document, status = good, http.StatusOK
		for range 2 {
			testproc.NoError(t, client.CheckVersion(t.Context()))
		}
		if err := client.Do(t.Context(), http.MethodGet, "/usages", nil, nil); err != nil ||
			!client.VersionChecked(t.Context()) {
			t.Errorf("a request after CheckVersion: got %v, want success, and the version checked", err)
		}
		want("/", "/usages placement 1.37")
		// It is exchanged for an older one.
		status = http.StatusNotAcceptable
		if err := client.Do(t.Context(), http.MethodGet, "/usages", nil, nil); !errors.Is(err, ErrTooOld) ||
			client.VersionChecked(t.Context()) {
			t.Errorf("a request to an older Placement: got %v, want ErrTooOld, and the version not checked", err)
		}
		want("/usages placement 1.37")
	}
}

// TestErrorNamesServiceThatIsNoPlacement: where something else than Placement answers, the error
// says what, and which option is wrong. A resource provider that another service does not know is
// not gone.
func TestErrorNamesServiceThatIsNoPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		answer answer
		who    string
	}{
		{answer{status: 404,
			body: `{"code": "not_found", "message": "This is a cell of compute-agent, which has no /."}`},
			"a cell of compute-agent"},
		{answer{status: 404, body: `{"itemNotFound": {"code": 404, "message": "The resource could not be found."}}`},
			"a compute API"},
		{answer{status: 300, body: `{"versions": {"values": [{"id": "v3.14"}]}}`}, "a Keystone"},
		{answer{status: 200, body: `{"versions": [{"id": "v2.1", "version": "2.71", "min_version": "2.1"}]}`},
			"a compute API"},
	} {
		client := newClient(t, handler(func(*http.Request) answer { return c.answer }))
		err := client.CheckVersion(t.Context())
		testproc.ErrorHas(t, err, c.who+" answers there: placement_client.url must be the URL of Placement",
			"an answer of another service: %v")
		testproc.ErrorIs(t, err, ErrUnexpected, "an answer of another service: %v")
		if _, err := client.Inventories(t.Context(), "x"); c.answer.status != 200 &&
			(errors.Is(err, ErrNotFound) || !errors.Is(err, ErrUnexpected)) {
			t.Errorf("%s: a resource provider is %v", c.who, err)
		}
	}
}

// TestInFrontOfPlacement: the middleware that asks for a login, and proxies, are not other
// services: what they say is kept, and what it means.
func TestInFrontOfPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	login := http.Header{"Www-Authenticate": {`Keystone uri="http://keystone/v3"`}}
	for _, c := range []struct {
		answer answer
		kind   error
		says   string
	}{
		{answer{status: 401, header: login, body: "Authentication required"}, ErrRefused, "Authentication required"},
		{
			answer{status: 401, header: login,
				body: `{"error": {"code": 401, "message": "The request you have made requires authentication.", ` +
					`"title": "Unauthorized"}}`},
			ErrRefused, "requires authentication",
		},
		{answer{status: 403, body: `{"forbidden": {"code": 403, "message": "Access was denied."}}`},
			ErrRefused, "Access was denied"},
		{answer{status: 407, body: `{"code": "proxy", "message": "Log in first."}`}, ErrUnexpected, "Log in first"},
		{answer{status: 429, body: `{"overLimit": {"code": 429, "message": "Slow down."}}`},
			ErrUnavailable, "Slow down"},
		{answer{status: 502, body: `{"code": "bad_gateway", "message": "No upstream."}`},
			ErrUnavailable, "No upstream"},
		{answer{status: 503, body: `{"error": {"code": 503, "message": "Try later.", "title": "Unavailable"}}`},
			ErrUnavailable, "Try later"},
		{answer{status: 504, body: `{"code": "timeout", "message": "No answer."}`}, ErrUnavailable, "No answer"},
	} {
		client := newClient(t, handler(func(*http.Request) answer { return c.answer }),
			func(cfg *Config) { cfg.Retries = 0 })
		_, err := client.Inventories(t.Context(), "x")
		var failed *Error
		if !errors.As(err, &failed) || !errors.Is(failed.Kind, c.kind) || failed.Service != "" {
			t.Errorf("status %d: %v", c.answer.status, err)
		}
		testproc.ErrorHas(t, err, c.says, "what it says: %v")
	}
	other := answer{status: 403, header: http.Header{"Openstack-Api-Version": {"compute 2.1"}}, body: "no"}
	_, err := newClient(t, handler(func(*http.Request) answer { return other })).Inventories(t.Context(), "x")
	testproc.ErrorIs(t, err, ErrUnexpected, "an answer of a compute API: %v")
}

// TestEndpoint: where Placement is comes late, and moves. The microversions of the server there are
// checked again.
func TestEndpoint(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var asked []string
	where, failure := "", fmt.Errorf("reading the catalog: %w", ErrUnavailable)
	client := newClient(t, handler(func(r *http.Request) answer {
		asked = append(asked, r.URL.String())
		return answer{status: 200, body: versions("1.0", "1.39")}
	}), func(c *Config) {
		c.URL, c.Endpoint = "", func(context.Context) (string, error) { return where, failure }
	})
	for _, c := range []struct {
		where string
		err   error
		says  string // the error, if there is one
		known string // where it is then
		asked []string
	}{
		{"", failure, "catalog", "", nil},
		{"nonsense", nil, `"nonsense"`, "", nil},
		{"http://one/placement/", nil, "", "http://one/placement", []string{"http://one/placement/"}},
		{"http://one/placement", nil, "", "http://one/placement", nil},
		{"https://two", nil, "", "https://two", []string{"https://two/"}},
		{"", failure, "catalog", "https://two", nil},
	} {
		asked, where, failure = nil, c.where, c.err
		err := client.CheckVersion(t.Context())
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("CheckVersion at the endpoint %q: got %v", c.where, err)
		}
		testproc.Equal(t, client.Endpoint(), c.known, "%q: the endpoint is %q", c.where)
		testproc.Samef(t, cmp.Diff(c.asked, asked), "%q: requests", c.where)
	}
}

// TestProbe opens one connection to the endpoint, at the port of its scheme, and closes it.
func TestProbe(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for address, c := range map[string]struct {
		dialed string
		err    error
	}{
		"http://placement":            {dialed: "placement:80"},
		"https://placement/a":         {dialed: "placement:443"},
		"http://[2001:db8::1]:8778/a": {dialed: "[2001:db8::1]:8778"},
		"http://placement:1":          {dialed: "placement:1", err: io.ErrUnexpectedEOF},
	} {
		near, far := net.Pipe()
		var dialed string
		client := newClient(t, nil, func(cfg *Config) {
			cfg.URL = address
			cfg.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
				dialed = network + " " + address
				return near, c.err
			}
		})
		err := client.Probe(t.Context())
		var failed *Error
		if c.err != nil {
			if !errors.As(err, &failed) || !errors.Is(err, ErrUnavailable) || !errors.Is(err, c.err) || !failed.Unsent {
				t.Errorf("%s: %v", address, err)
			}
		} else if _, open := far.Read(make([]byte, 1)); err != nil || !errors.Is(open, io.EOF) {
			t.Errorf("%s: %v; the connection is not closed: %v", address, err, open)
		}
		testproc.Equal(t, dialed, "tcp "+c.dialed, "%s: dialed %q", address)
	}
	nowhere := newClient(t, nil, func(c *Config) {
		c.Endpoint = func(context.Context) (string, error) { return "", errors.New("no password") }
		c.Dial = func(context.Context, string, string) (net.Conn, error) { t.Error("dialed"); return nil, io.EOF }
	})
	if err := nowhere.Probe(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no password") {
		t.Errorf("without an endpoint: %v", err)
	}
	testproc.NoErrorf(t, newClient(t, nil).Probe(t.Context()), "without Dial")
}

func TestRoute(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const id = "/00000000-0000-4000-8000-000000000001"
	for path, want := range map[string]string{
		"/":                                 "/",
		"/allocation_candidates?limit=/x/y": "/allocation_candidates",
		"/allocations" + id:                 "/allocations/{uuid}",
		"/resource_providers" + id:          "/resource_providers/{uuid}",
		"/resource_providers" + id + "/inventories":      "/resource_providers/{uuid}/inventories",
		"/resource_providers" + id + "/inventories/VCPU": "/resource_providers/{uuid}/inventories/{name}",
		"/resource_classes/CUSTOM_A":                     "/resource_classes/{name}",
		"/traits/CUSTOM_A":                               "/traits/{name}",
		"/reshaper":                                      "/reshaper",
	} {
		testproc.Equal(t, route(path), want, "%s is %s", path)
	}
}

// TestMicroversionIsRequired: a client that names no microversion is refused, and does not ask for
// the newest one, which an older Placement does not have.
func TestMicroversionIsRequired(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if _, err := New(Config{URL: "http://placement"}); err == nil || !strings.Contains(err.Error(), "no microversion") {
		t.Errorf("the error is %v", err)
	}
}

// TestHeaders: what each request carries. One without a body says so: sent in chunks instead,
// Apache with mod_wsgi answers 411 to it.
func TestHeaders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		call   Call
		want   http.Header
		length int64
	}{
		"a read": {Call{Method: "GET", Path: "/usages"}, http.Header{"Openstack-Api-Version": {"placement 1.37"}}, 0},
		"a write without a body": {Call{Method: "PUT", Path: "/traits/CUSTOM_A"},
			http.Header{"Openstack-Api-Version": {"placement 1.37"}}, 0},
		"a write": {Call{Method: "POST", Path: "/reshaper", Body: []int{1}, Microversion: "1.30"},
			http.Header{"Openstack-Api-Version": {"placement 1.30"}, "Content-Type": {"application/json"}}, 3},
		"extensions": {Call{Method: "GET", Path: "/usages", Extensions: "a, b"},
			http.Header{"Openstack-Api-Version": {"placement 1.37"}, "Placement-Extensions": {"a, b"}}, 0},
		"the version document": {Call{Method: "GET", Path: "/"}, http.Header{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var got http.Header
			client := newClient(t, handler(func(r *http.Request) answer {
				if r.ContentLength != c.length || len(r.TransferEncoding) > 0 {
					t.Errorf("length %d, transfer encoding %v", r.ContentLength, r.TransferEncoding)
				}
				got = r.Header
				return answer{status: 204}
			}))
			testproc.Check(t, client.Send(t.Context(), &c.call))
			if !strings.HasPrefix(got.Get(wire.HeaderRequestID), "req-") {
				t.Errorf("the request id is %q", got.Get(wire.HeaderRequestID))
			}
			got.Del(wire.HeaderRequestID)
			c.want["Accept"], c.want["User-Agent"] = []string{"application/json"}, []string{"compute-agent"}
			testproc.Samef(t, cmp.Diff(c.want, got), "headers")
		})
	}
}

// TestRequestIDOfTheCaller: Placement is given the id of the request that a request is sent for.
func TestRequestIDOfTheCaller(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type key struct{}
	var got string
	client := newClient(t, handler(func(r *http.Request) answer {
		got = r.Header.Get(wire.HeaderRequestID)
		return answer{status: 204}
	}), func(c *Config) {
		c.RequestID = func(ctx context.Context) string { id, _ := ctx.Value(key{}).(string); return id }
	})
	const request = "req-11111111-2222-4333-8444-555555555555"
	for _, want := range []string{request, ""} {
		testproc.Check(t, client.Do(context.WithValue(t.Context(), key{}, want), "GET", "/usages", nil, nil))
		if want != "" && got != want || want == "" && (got == request || !strings.HasPrefix(got, "req-")) {
			t.Errorf("sent %q for %q", got, want)
		}
	}
}

// TestObserve: each request is seen once, with a route and what became of it, and may be given
// headers. The log has a line for each, with both request ids and no token.
func TestObserve(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var seen []string
	var log strings.Builder
	token := "first"
	server := &answers{list: []answer{
		{status: 401, body: "no"},
		{status: 200, body: "{}", header: http.Header{"X-Openstack-Request-Id": {"req-theirs"}}},
		{err: io.ErrUnexpectedEOF},
	}}
	client := newClient(t, server, func(c *Config) {
		c.Retries, c.Logger = 0, zerolog.New(&log)
		c.Authorize = func(_ context.Context, h http.Header) error { h.Set("X-Auth-Token", "hush-"+token); return nil }
		c.Reauthorize = func(_ context.Context, refused http.Header) error {
			if refused.Get("Traceparent") == "" {
				t.Error("it went without the header")
			}
			token = "second"
			return nil
		}
		c.Observe = func(_ context.Context, req *http.Request, route string) func(int, error) {
			req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			return func(status int, err error) {
				seen = append(seen, fmt.Sprint(req.Method, " ", route, " ", status, " ", err == nil))
			}
		}
	})
	testproc.NoError(t, client.Do(t.Context(), http.MethodPut, "/traits/CUSTOM_A", nil, nil))
	testproc.ErrorIs(t, client.Do(t.Context(), http.MethodGet, "/usages", nil, nil), ErrUnavailable, "Do: %v")
	if d := cmp.Diff([]string{"PUT /traits/{name} 401 false", "PUT /traits/{name} 200 true", "GET /usages 0 false"},
		seen); d != "" {
		t.Errorf("seen (-want +got)\n%s", d)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != len(seen) {
		t.Fatalf("%d lines:\n%s", len(lines), log.String())
	}
	for i, line := range lines {
		if !strings.Contains(line, `"request_id":"req-`) ||
			strings.Contains(line, `"server_request_id":"req-theirs"`) != (i == 1) ||
			strings.Contains(line, `"error":`) != (i != 1) || strings.Contains(line, "hush") {
			t.Errorf("line %d: %s", i, line)
		}
	}
}

// TestTimeout: a try never takes forever.
func TestTimeout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for configured, want := range map[time.Duration]time.Duration{-1: defaultTimeout, 0: defaultTimeout,
		1: 1, time.Minute: time.Minute} {
		client := newClient(t, nil, func(c *Config) { c.Timeout = configured })
		if client.Timeout() != want || client.http.HTTPClient.Timeout != want {
			t.Errorf("%v is %v, %v", configured, client.Timeout(), client.http.HTTPClient.Timeout)
		}
	}
}
