// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// agentOf is a run of the agent of host h1.
type agentOf struct {
	t       *testing.T
	h       http.Handler
	headers []string // its credential
	sender  agentruns.ProcessSender
}

func newAgentOf(t *testing.T, h http.Handler, token, identity string, headers ...string) *agentOf {
	a := &agentOf{t: t, h: h, headers: headers}
	a.sender.Begin(agentruns.Process{Token: token, Boot: "boot-" + token, Started: clock}, "h1", identity)
	return a
}

// RoundTrip sends a call with the header of the agent.
func (a *agentOf) RoundTrip(r *http.Request) (*http.Response, error) {
	c := call{method: r.Method, path: r.URL.RequestURI(), version: "1.37",
		headers: append([]string{agentruns.HeaderProcess + ": " + r.Header.Get(agentruns.HeaderProcess)}, a.headers...)}
	if r.Method == http.MethodPut {
		c.body = `{"resource_provider_generation":9,"traits":[]}` // never the generation
	}
	return c.send(a.h).Result(), nil
}

// ask sends a read, and returns what the agent knows of others then.
func (a *agentOf) ask() string {
	a.t.Helper()
	return a.send(http.MethodGet, "/resource_providers?name=h1", http.StatusOK)
}

func (a *agentOf) send(method, path string, status int) string {
	a.t.Helper()
	resp := testproc.Try(a.sender.Transport(a).RoundTrip(httptest.NewRequest(method, path, http.NoBody))).Or(a.t)
	defer func() { _ = resp.Body.Close() }()
	testproc.Equal(a.t, resp.StatusCode, status, "status %d")
	return a.sender.SeveralAgents()
}

// TestTwoAgentsOfOneHostInPlacement: hosts are known by their credential, users by what they say.
// Each of the two agents learns of the other one, and the log has both once; no request is refused.
func TestTwoAgentsOfOneHostInPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		name, first, second string // identities
		headers             []string
		want                bool
	}{
		{"a host", "i1", "i1", []string{"X-Auth-Token: h1"}, true},
		{"a host whose state directories differ", "i1", "i2", []string{"X-Auth-Token: h1"}, true},
		{"the administrator", "i1", "i1", nil, true},
		{"a service", "i1", "i1", []string{"X-Auth-Token: nova:service", "X-Roles: service,admin"}, true},
		{"the administrator, for two machines", "i1", "i2", nil, false},
		{"the administrator, for none", "", "", nil, false},
		{"a reader", "i1", "i1", []string{"X-Auth-Token: me:project", "X-Roles: reader"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &testproc.Buffer{}
			h, _ := hostsWorld(t, func(a *api.Config) { a.Logger = zerolog.New(log) })
			first, second := newAgentOf(t, h, "a", c.first, c.headers...), newAgentOf(t, h, "b", c.second, c.headers...)
			status := http.StatusOK
			if c.name == "a reader" {
				status = http.StatusForbidden
			}
			for i := range 8 {
				for _, one := range []*agentOf{first, second} {
					why := one.send(http.MethodGet, "/resource_providers?name=h1", status)
					found := c.want && (i > 2 || i == 2 && one == second)
					if i != 1 && i != 2 && (why != "") != found || found &&
						!strings.HasPrefix(why,
							"2 agents report as host h1: one that started at 2026-11-21T04:39:25Z") {
						t.Errorf("round %d: %q", i, why)
					}
				}
			}
			testproc.Equal(t, h.HostsOfSeveralAgents() == 1, c.want, "it counts: %t")
			testproc.Equal(t, strings.Count(log.String(), "Two machines have the identity"),
				map[bool]int{true: 1}[c.want], "%d lines of the log")
			if c.want {
				first.send(http.MethodPut, "/resource_providers/"+root1+"/traits", http.StatusConflict) // and not 403
			}
		})
	}
}

// TestLogOfAgentsIsBounded: a client with the credential of a host, which can invent agents that
// come and go, has one line of the log in a minute.
func TestLogOfAgentsIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	at, log := clock, &testproc.Buffer{}
	h, _ := hostsWorld(t, func(a *api.Config) {
		a.Now = func() time.Time { return at }
		a.Logger = zerolog.New(log)
	})
	for round := range 6 {
		var last []*agentOf
		for n := range 8 { // as many as are remembered: what was proven before is forgotten
			one := newAgentOf(t, h, fmt.Sprintf("%d-%d", round, n), "i1", "X-Auth-Token: h1")
			one.ask()
			last = append(last, one)
		}
		var why string
		for range 3 {
			for _, one := range last[6:] {
				why = one.ask()
			}
		}
		testproc.Contains(t, why, "agents report as host h1", "in round %d: %q", round, why)
		if round == 4 {
			at = at.Add(time.Minute)
		}
	}
	testproc.Equal(t, strings.Count(log.String(), "Two machines have the identity"), 2, "%d lines of the log")
}

// TestOneAgentInPlacement: restarts are no second agent, what was proven ends, and who sends no
// such header gets none.
func TestOneAgentInPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	at := clock
	h, _ := hostsWorld(t, func(a *api.Config) { a.Now = func() time.Time { return at } })
	const host = "X-Auth-Token: h1"
	var last *agentOf
	for _, token := range []string{"a", "b", "c"} {
		one := newAgentOf(t, h, token, "i1", host)
		for range 3 {
			testproc.Equal(t, one.ask(), "", "restarts: %q")
		}
		last = one
	}
	copied := newAgentOf(t, h, "copy", "i1", host)
	for range 3 {
		copied.ask()
		last.ask()
	}
	testproc.Equal(t, h.HostsOfSeveralAgents(), 1, "%d hosts")
	at = at.Add(20*time.Minute + time.Second)
	testproc.Equal(t, last.ask(), "", "the copy was not seen for long: %q")
	testproc.Equal(t, h.HostsOfSeveralAgents(), 0, "%d hosts")
	for _, header := range []string{"", "token=", "%zz", url.Values{"token": {"x"}}.Encode()} {
		c := call{method: "GET", path: "/resource_providers?name=h1", status: 200}.as("h1")
		if header != "" {
			c.headers = append(c.headers, agentruns.HeaderProcess+": "+header)
		}
		if w := c.do(t, h); w.Header()[agentruns.HeaderProcess] != nil {
			t.Errorf("the header %q of an agent is answered with %v, want no such header", header, w.Header())
		}
	}
}
