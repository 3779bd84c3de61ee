// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// gate is a transport before a Placement that passes on only requests with the right token.
type gate struct {
	mu      sync.Mutex
	right   string
	refused []string // what was answered 401, with the bodies' lengths
	status  int      // 401, or what else it answers to a wrong token
	next    http.RoundTripper
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Header.Get("X-Auth-Token") == g.right {
		r.Header.Set("X-Auth-Token", "admin")
		return g.next.RoundTrip(r)
	}
	body := int64(0)
	if r.Body != nil {
		body, _ = io.Copy(io.Discard, r.Body)
	}
	g.refused = append(g.refused, fmt.Sprintf("%s %s, body %t", r.Method, r.URL.Path, body > 0))
	status := g.status
	if status == 0 {
		status = http.StatusUnauthorized
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("go away")), Request: r}, nil
}

// tokens is a Keystone of few words.
type tokens struct {
	mu      sync.Mutex
	current string
	again   func() (string, error)
	renewed int
}

func (k *tokens) authorize(_ context.Context, h http.Header) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.Set("X-Auth-Token", k.current)
	return nil
}

func (k *tokens) reauthorize(_ context.Context, refused http.Header) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if refused.Get("X-Auth-Token") != k.current {
		return nil
	}
	k.renewed++
	token, err := k.again()
	if err == nil {
		k.current = token
	}
	return err
}

// TestTokenIsRevoked: a read or a write that is answered 401 is sent once more with a new token and
// the whole body, and the caller sees no error.
func TestTokenIsRevoked(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		requests := &counter{}
		g := &gate{right: "one", next: requests}
		k := &tokens{current: "one"}
		client := newClient(t, url, func(c *reportclient.Config) { c.Transport, c.Authorize, c.Reauthorize = g, k.authorize, k.reauthorize })
		ok(t, apply(t, client, firstTree...))
		requests.since()

		g.right, k.again = "two", func() (string, error) { return "two", nil }
		ok(t, apply(t, client, inventory(1, "VCPU", providertree.Inventory{Total: 9, AllocationRatio: 4, MaxUnit: 9})))
		want(t, requests, "PUT /resource_providers/#1/inventories")
		if d := cmp.Diff([]string{"PUT /resource_providers/" + id(1) + "/inventories, body true"}, g.refused); d != "" || k.renewed != 1 {
			t.Errorf("renewed %d times (-want +got):\n%s", k.renewed, d)
		}
	})
}

// TestEndpointMoves: where Placement is comes late, and changes. The server there is checked again,
// and so is the tree; the TCP probe goes there too.
func TestEndpointMoves(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		requests := &counter{}
		var where string
		unknown := reportclient.ErrUnavailable
		var probed []string
		client := newClient(t, "", func(c *reportclient.Config) {
			c.Transport, c.Authorize = requests, authorized
			c.Endpoint = func(context.Context) (string, error) { return where, unknown }
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				probed = append(probed, address)
				return (&net.Dialer{}).DialContext(ctx, network, strings.Replace(address, "localhost", "127.0.0.1", 1))
			}
		})
		if _, err := client.Tree(t.Context(), id(1), "cn1"); !errors.Is(err, reportclient.ErrUnavailable) {
			t.Errorf("before it is known: %v", err)
		}
		if client.Endpoint() != "" {
			t.Error("the endpoint is known before the catalog was read")
		}
		want(t, requests)
		where, unknown = url+"/", nil
		ok(t, apply(t, client, firstTree...))
		ok(t, apply(t, client))
		requests.since()

		moved := strings.Replace(url, "127.0.0.1", "localhost", 1)
		where = moved
		ok(t, apply(t, client))
		want(t, requests, "GET /", "GET /resource_providers")
		ok(t, apply(t, client))
		want(t, requests)
		if client.Endpoint() != moved {
			t.Errorf("endpoint %q", client.Endpoint())
		}
		host := func(url string) string { return strings.TrimPrefix(url, "http://") }
		if d := cmp.Diff([]string{host(url), host(moved)}, probed); d != "" {
			t.Errorf("probes (-want +got):\n%s", d)
		}
		where = "nonsense"
		if _, err := client.Tree(t.Context(), id(1), "cn1"); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
			t.Errorf("an invalid endpoint: %v", err)
		}
	})
}

// TestMicroversion: a Placement that does not speak ours is refused in clear words, also if it is
// exchanged for one later.
func TestMicroversion(t *testing.T) {
	document := func(low, high string) string {
		return fmt.Sprintf(`{"versions": [{"id": "v1.0", "min_version": %q, "max_version": %q, "status": "CURRENT"}]}`, low, high)
	}
	var low, high string
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("OpenStack-API-Version"))
		switch speaks := low == "1.0" && high == "1.39"; {
		case r.URL.Path == "/" && r.Header.Get("OpenStack-API-Version") == "":
			_, _ = io.WriteString(w, document(low, high))
		case !speaks:
			w.WriteHeader(http.StatusNotAcceptable)
			_, _ = io.WriteString(w, `{"errors": [{"status": 406, "detail": "Unacceptable version header: 1.37"}]}`)
		case strings.HasSuffix(r.URL.Path, "/inventories"):
			_, _ = io.WriteString(w, `{"resource_provider_generation": 1, "inventories": {}}`)
		case strings.HasSuffix(r.URL.Path, "/traits"):
			_, _ = io.WriteString(w, `{"resource_provider_generation": 1, "traits": []}`)
		case strings.HasSuffix(r.URL.Path, "/aggregates"):
			_, _ = io.WriteString(w, `{"resource_provider_generation": 1, "aggregates": []}`)
		default:
			_, _ = fmt.Fprintf(w, `{"resource_providers": [{"uuid": %q, "name": "cn1", "generation": 1, "root_provider_uuid": %[1]q, "parent_provider_uuid": null}]}`, id(1))
		}
	}))
	defer server.Close()
	cases := []struct {
		low, high string
		want      error
		says      []string
	}{
		{"1.0", "1.36", reportclient.ErrTooOld, []string{"1.0 to 1.36", "1.37 is needed", "upgrade Placement", "Xena"}},
		{"1.0", "0.99", reportclient.ErrTooOld, []string{"upgrade Placement"}},
		{"1.38", "1.50", reportclient.ErrTooOld, []string{"1.38 to 1.50", "upgrade the agent"}},
		{"2.0", "2.1", reportclient.ErrTooOld, []string{"upgrade the agent"}},
		{"", "1.39", reportclient.ErrUnexpected, []string{"are invalid"}},
		{"1.0", "", reportclient.ErrUnexpected, []string{"no version document"}},
		{"1.0", "latest", reportclient.ErrUnexpected, []string{"latest"}},
		{"1.0", "1.", reportclient.ErrUnexpected, nil},
		{"1.0", "1.-3", reportclient.ErrUnexpected, nil},
		{"1.0", "1.39.1", reportclient.ErrUnexpected, nil},
		{"1.0", "1.99999999999999999999999", reportclient.ErrUnexpected, nil},
		{"1.0", strings.Repeat("9", 5000), reportclient.ErrUnexpected, nil},
		{"1.0", "1.39", nil, nil},
	}
	client := newClient(t, server.URL)
	for _, c := range cases {
		low, high = c.low, c.high
		_, err := client.Tree(t.Context(), id(1), "cn1")
		if !errors.Is(err, c.want) {
			t.Fatalf("%.20s to %.20s: got %v, want %v", c.low, c.high, err, c.want)
		}
		if err == nil {
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
	}
	// It is exchanged for an older one while the agent runs: a write is answered 406, and the next
	// pass says what is wrong.
	asked = nil
	_, err := client.Tree(t.Context(), id(1), "cn1")
	ok(t, err)
	if len(asked) != 0 {
		t.Errorf("a server that was found good is asked again: %v", asked)
	}
	high = "1.30"
	if _, err := client.Usages(t.Context(), id(1)); !errors.Is(err, reportclient.ErrTooOld) {
		t.Errorf("usages: %v", err)
	}
	if _, err := client.Tree(t.Context(), id(1), "cn1"); !errors.Is(err, reportclient.ErrTooOld) || !strings.Contains(err.Error(), "1.0 to 1.30") {
		t.Errorf("after the exchange: %v", err)
	}
	high = "1.39"
	asked = nil
	_, err = client.Tree(t.Context(), id(1), "cn1")
	ok(t, err)
	if d := cmp.Diff([]string{"/ ", "/resource_providers placement 1.37"}, asked); d != "" {
		t.Errorf("after the upgrade (-want +got):\n%s", d)
	}
}

// TestObserve: each request is seen once, with a route that does not vary, and may be given
// headers.
func TestObserve(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		var mu sync.Mutex
		var seen []string
		requests := &counter{fail: func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Traceparent") == "" {
				t.Errorf("%s %s went without the header", r.Method, r.URL.Path)
			}
			return nil, nil
		}}
		client := newClient(t, url, func(c *reportclient.Config) {
			c.Transport, c.Authorize = requests, authorized
			c.Observe = func(_ context.Context, req *http.Request, route string) func(int, error) {
				req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
				return func(status int, err error) {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, fmt.Sprint(req.Method, " ", route, " ", status, " ", err == nil))
				}
			}
		})
		ok(t, apply(t, client, firstTree...))
		_, err := client.Usages(t.Context(), id(9))
		if !errors.Is(err, reportclient.ErrNotFound) {
			t.Error(err)
		}
		want := []string{
			"GET / 200 true", "GET /resource_providers 200 true", "GET /resource_providers 200 true",
			"PUT /resource_classes/{name} 201 true", "PUT /traits/{name} 201 true", "POST /resource_providers 200 true", "POST /resource_providers 200 true",
			"PUT /resource_providers/{uuid}/inventories 200 true", "PUT /resource_providers/{uuid}/inventories 200 true", "PUT /resource_providers/{uuid}/traits 200 true",
			"GET /resource_providers/{uuid}/usages 404 false",
		}
		if d := cmp.Diff(want, seen); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	})
}

func TestObserveWithoutAnswer(t *testing.T) {
	var statuses []int
	client := newClient(t, "http://127.0.0.1:1", func(c *reportclient.Config) {
		c.Observe = func(context.Context, *http.Request, string) func(int, error) {
			return func(status int, err error) {
				if err == nil {
					t.Error("no error")
				}
				statuses = append(statuses, status)
			}
		}
	})
	if _, err := client.Tree(t.Context(), id(1), "cn1"); !errors.Is(err, reportclient.ErrUnavailable) {
		t.Error(err)
	}
	if d := cmp.Diff([]int{0}, statuses); d != "" {
		t.Error(d)
	}
}

// TestLogLines: a line for each request, with our id and Placement's, and no token.
func TestLogLines(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		var log strings.Builder
		var sent []string
		requests := &counter{fail: func(r *http.Request) (*http.Response, error) {
			sent = append(sent, r.Header.Get("X-Openstack-Request-Id"))
			r.Header.Set("X-Auth-Token", "admin")
			return nil, nil
		}}
		client := newClient(t, url, func(c *reportclient.Config) {
			c.Transport, c.Logger, c.Timeout = requests, zerolog.New(&log), time.Minute
			c.Authorize = func(_ context.Context, h http.Header) error { h.Set("X-Auth-Token", "gAAAAA-hush"); return nil }
		})
		_, err := client.Tree(t.Context(), id(1), "cn1")
		ok(t, err)
		text := strings.TrimSpace(log.String())
		if lines := strings.Split(text, "\n"); len(lines) != len(sent) || len(sent) == 0 {
			t.Fatalf("%d lines for %d requests:\n%s", len(lines), len(sent), text)
		}
		for i, line := range strings.Split(text, "\n") {
			if !strings.Contains(line, `"request_id":"`+sent[i]+`"`) || !strings.Contains(line, `"server_request_id":"req-`) || strings.Contains(line, "hush") {
				t.Errorf("line %d: %s", i, line)
			}
		}
	})
}
