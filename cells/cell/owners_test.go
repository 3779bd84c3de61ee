// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// withIdentity is a request over a connection whose client showed a certificate that says of itself
// what it is.
func withIdentity(id pki.Identity) func(*http.Request) {
	return func(r *http.Request) {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: id.Names[0]}, DNSNames: id.Names, URIs: id.URIs(),
			NotBefore: id.Issued, NotAfter: id.Expires}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c},
			VerifiedChains: [][]*x509.Certificate{{c}}}
	}
}

// identityOf is the identity of a host for a day, with its nodes.
func identityOf(name string, nodes ...string) pki.Identity {
	return pki.Identity{Kind: pki.Host, Name: name, Names: []string{name}, Nodes: nodes, Issued: start.Add(-time.Hour),
		Expires: start.Add(23 * time.Hour)}
}

func serviceIdentity(name string, names ...string) pki.Identity {
	return pki.Identity{Kind: pki.Service, Name: name, Names: names, Issued: start.Add(-time.Hour),
		Expires: start.Add(23 * time.Hour)}
}

func denied(t *testing.T, lines string) *pki.DenyFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "denied")
	testproc.Check(t, os.WriteFile(path, []byte(lines), 0o600))
	return testproc.Try(pki.OpenDenyFile(path, zerolog.Nop())).Or(t)
}

// TestAHostOfAnotherCell: a cell refuses each call of a host whose certificate names another cell,
// and says which one. One whose certificate names none is let in, and logged once a day.
func TestAHostOfAnotherCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, func(c *cell.Config) { c.Auth, c.Name = cell.MutualTLS([]string{"compute-api"}), "cell1" })
	of := func(cell string) func(*http.Request) {
		id := identityOf("h1")
		id.Cell, id.Expires = cell, start.Add(72*time.Hour)
		return withIdentity(id)
	}
	report := cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{}}
	for _, one := range everyCall {
		got := send(t, w.cell, one.method, one.target, one.body, of("cell2"))
		message := refusal(t, got, 403, cellwire.CodeForbidden)
		for _, part := range []string{"host h1 is for cell cell2, and this is cell cell1", "cell_client.url",
			"add-host h1 --cell cell1 --again"} {
			testproc.Contains(t, message, part, "%s %s: %s", one.method, one.target)
		}
	}
	if services := testproc.Try(w.store.Services(t.Context(), celldb.Moment{Now: start, DownTime: time.Minute})).
		Or(t); len(services) > 0 {
		t.Errorf("the cell has %+v", services)
	}
	const unbound = "names no cell"
	if log := w.log.String(); strings.Contains(log, unbound) || strings.Count(log, "Rejected a request") != 1 ||
		!strings.Contains(log, "may be stolen") {
		t.Errorf("the log has %s", log)
	}
	for _, cell := range []string{"cell1", "", ""} {
		if got := send(t, w.cell, "PUT", "/v1/hosts/h1", report, of(cell)); got.Code != 200 {
			t.Errorf("a host of cell %q: %d %s", cell, got.Code, got.Body)
		}
	}
	testproc.Equal(t, strings.Count(w.log.String(), unbound), 1, "logged %d times")
	w.pass(24 * time.Hour)
	send(t, w.cell, "PUT", "/v1/hosts/h1", report, of(""))
	testproc.Equal(t, strings.Count(w.log.String(), unbound), 2, "a day later, logged %d times")
}

// TestKindOfACertificateGoesBeforeItsNames: a certificate that says what it is, is that, whatever
// its names.
func TestKindOfACertificateGoesBeforeItsNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	list := denied(t, "h9 "+start.Format(time.RFC3339)+" stolen\n")
	w := begin(t, func(c *cell.Config) {
		c.Auth, c.Denied = cell.MutualTLS([]string{"compute-api"}), list
	})
	another, expired, again, unmarked := identityOf("h1"), identityOf("h1"), identityOf("h9"), identityOf("h9")
	another.Names = []string{"compute-api", "h2"}
	expired.Expires = start.Add(-time.Minute)
	again.Issued = start
	unmarked.Kind = pki.Unmarked
	for name, c := range map[string]struct {
		id        pki.Identity
		api, h1   int
		of        string // the host that is tried; "": h1
		forbidden string
	}{
		"a host":                          {identityOf("h1"), 403, 200, "", ""},
		"another host":                    {identityOf("h2"), 403, 403, "", ""},
		"a host that is called like more": {another, 403, 200, "", ""},
		"that host as another one":        {another, 403, 403, "h2", ""},
		"the compute API":                 {serviceIdentity("compute-api", "x"), 200, 403, "", ""},
		"the compute API by a name":       {serviceIdentity("nova", "compute-api"), 200, 403, "", ""},
		"another service":                 {serviceIdentity("h1", "h1"), 403, 403, "", ""},
		"expired":                         {expired, 401, 401, "", ""},
		"denied":                          {identityOf("h9"), 403, 403, "h9", "stolen"},
		"denied, of the site's CA":        {unmarked, 403, 403, "h9", "stolen"},
		"enrolled again":                  {again, 403, 200, "h9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			of := c.of
			if of == "" {
				of = "h1"
			}
			if got := w.send("GET", "/v1/services", nil, withIdentity(c.id)); got.Code != c.api {
				t.Errorf("as the compute API: %d %s", got.Code, got.Body)
			}
			got := w.send("PUT", "/v1/hosts/"+of, cellwire.HostReport{Version: "1"}, withIdentity(c.id))
			if got.Code != c.h1 || !strings.Contains(got.Body.String(), c.forbidden) {
				t.Errorf("as %s: %d %s", of, got.Code, got.Body)
			}
		})
	}
	tokens := testproc.Try(osapi.ReadTokens(strings.NewReader(tokenLine("t-h9", "agent", "h9")), "tokens")).Or(t)
	w = begin(t, func(c *cell.Config) { c.Auth, c.Denied = cell.Tokens(tokens), list })
	refusal(t, w.send("PUT", "/v1/hosts/h9", cellwire.HostReport{Version: "1"}, withToken("t-h9")), 403,
		cellwire.CodeForbidden)
}

// TestStolenHost is the attack of issue "a host reports another host's node": with the certificate
// of h2, and with one that lists its nodes, while h1 reports its node and while it is silent. h2
// never has it, and gets none of the servers.
func TestStolenHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	node, own := uuid(1, 1), uuid(1, 2)
	for name, thief := range map[string]pki.Identity{
		"of the site's CA": {Kind: pki.Unmarked, Names: []string{"h2"}, Issued: start,
			Expires: start.Add(23 * time.Hour)},
		"without nodes": identityOf("h2"),
		"with nodes":    identityOf("h2", own),
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, func(c *cell.Config) { c.Auth = cell.MutualTLS([]string{"compute-api"}) })
			api := withIdentity(serviceIdentity("compute-api", "x"))
			report := func(id pki.Identity, host string, nodes ...cellwire.ReportedNode) cellwire.HostState {
				t.Helper()
				got := w.send("PUT", "/v1/hosts/"+host,
					cellwire.HostReport{Version: "1", Nodes: nodes}, withIdentity(id))
				if got.Code != 200 {
					t.Fatalf("the report of a host: got %d %s, want 200", got.Code, got.Body)
				}
				return decodeAs[cellwire.HostState](t, got.Body.Bytes())
			}
			victim := pki.Identity{Kind: pki.Unmarked,
				Names: []string{"h1"}, Issued: start, Expires: start.Add(23 * time.Hour)}
			a := cellwire.ReportedNode{UUID: node, Name: "cn1"}
			report(victim, "h1", a)
			if got := w.send("POST", "/v1/compute-nodes/mapped", cellwire.MappedRequest{UUIDs: []string{node}},
				api); got.Code != 204 {
				t.Fatal(got.Body)
			}
			for _, silent := range []bool{false, true} {
				if silent {
					report(victim, "h1")
				}
				if got := report(thief, "h2", a); len(got.Refused) != 1 || len(got.Problems) != 1 {
					t.Errorf("the thief is answered %+v", got)
				}
				server := building(1, "h2")
				server.NodeUUID, server.Node = node, "cn1"
				refusal(t, w.send("PUT", "/v1/servers/"+sid(1), server, api), 409, cellwire.CodeContested)
			}
			got := report(victim, "h1", a)
			if contested := thief.Nodes == nil; contested != (len(got.Problems) == 1 &&
				got.Problems[0].Code == cellwire.NodeContested &&
				got.Problems[0].Host == "h2") || len(got.Refused) != 0 {
				t.Errorf("the victim is answered %+v", got)
			}
			answer := decodeAs[cellwire.NodesAnswer](t, w.send("GET", "/v1/compute-nodes", nil, api).Body.Bytes())
			if n := answer.Nodes[0]; len(answer.Nodes) != 1 || n.Host != "h1" || !n.Mapped {
				t.Errorf("the nodes: %+v", answer.Nodes)
			}
			testproc.Contains(t, w.log.String(), "A node of a host gets no new servers there", "the log: %s")
		})
	}
}

// TestTwoAgentsWithOneCertificate: a copied disk has the key of its host, so both machines show its
// certificate. Neither gets a new server, each learns of both, and the cell's log names them.
func TestTwoAgentsWithOneCertificate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	node := uuid(1, 1)
	w := begin(t, func(c *cell.Config) { c.Auth = cell.MutualTLS([]string{"compute-api"}) })
	api := withIdentity(serviceIdentity("compute-api", "x"))
	turns := map[string]int64{}
	beat := func(token string) cellwire.HostState {
		t.Helper()
		got := w.send("PUT", "/v1/hosts/h1", cellwire.HostReport{
			Version: "1", Nodes: []cellwire.ReportedNode{{UUID: node, Name: "cn1"}}, Turn: turns[token],
			Process: &agentruns.Process{Token: token, Boot: "boot-" + token, Started: start},
		}, withIdentity(identityOf("h1", node)))
		if got.Code != 200 {
			t.Fatalf("the report of h1: got %d %s, want 200", got.Code, got.Body)
		}
		state := decodeAs[cellwire.HostState](t, got.Body.Bytes())
		turns[token] = state.Turn
		w.pass(5 * time.Second)
		return state
	}
	boot := func() *httptest.ResponseRecorder {
		server := building(1, "h1")
		server.NodeUUID, server.Node = node, "cn1"
		return w.send("PUT", "/v1/servers/"+sid(1), server, api)
	}
	for range 3 {
		beat("a")
	}
	var a, b cellwire.HostState
	for range 3 {
		b, a = beat("b"), beat("a")
	}
	for name, state := range map[string]cellwire.HostState{"a": a, "b": b} {
		if len(state.Refused) != 0 || len(state.Problems) != 1 ||
			state.Problems[0].Code != cellwire.NodeSeveralAgents ||
			!strings.Contains(state.Problems[0].Message, "2 agents report as host h1: one that started at ") {
			t.Errorf("%s is answered %+v", name, state)
		}
	}
	refusal(t, boot(), 409, cellwire.CodeContested)
	services := decodeAs[map[string][]cellwire.Service](t,
		w.send("GET", "/v1/services", nil, api).Body.Bytes())["services"]
	if len(services) != 1 || !services[0].SeveralAgents || len(services[0].Agents) != 2 ||
		len(services[0].Contested) != 1 {
		t.Errorf("the services: got %+v, want h1 with two agents and one contested node", services)
	}
	testproc.Contains(t, w.log.String(), "2 agents report as host h1", "the log: %s")
	w.pass(5 * time.Minute) // b is gone for good
	if state := beat("a"); len(state.Problems) != 0 {
		t.Errorf("a, alone: %+v", state)
	}
	if got := boot(); got.Code >= 300 {
		t.Errorf("a new server: %d %s", got.Code, got.Body)
	}
}

// TestAnExpiredHostDoesNotWait: a request that waits for work ends when the certificate expires.
func TestAnExpiredHostDoesNotWait(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, func(c *cell.Config) { c.Auth = cell.MutualTLS(nil) })
		id := identityOf("h1")
		if got := w.send("PUT", "/v1/hosts/h1", cellwire.HostReport{Version: "1"}, withIdentity(id)); got.Code != 200 {
			t.Fatal(got.Body)
		}
		work := decodeAs[cellwire.Work](t,
			w.send("GET", "/v1/hosts/h1/work?after=0", nil, withIdentity(id)).Body.Bytes())
		began := time.Now()
		answered := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			answered <- w.send("GET", fmt.Sprintf("/v1/hosts/h1/work?after=%d&epoch=%s&wait=60",
				work.Revision, work.Epoch), nil, withIdentity(id))
		}()
		synctest.Wait()
		w.pass(24 * time.Hour)
		refusal(t, <-answered, 401, cellwire.CodeUnauthorized)
		if waited := time.Since(began); waited > 5*time.Second {
			t.Errorf("it waited %v", waited)
		}
	})
}

// fickle lets all in until it does not.
type fickle struct{ refuses *atomic.Bool }

func (f fickle) Authenticate(*http.Request) (osapi.Principal, error) {
	if f.refuses.Load() {
		return osapi.Principal{}, &osapi.Unauthenticated{Reason: "Not any more."}
	}
	return osapi.Principal{User: "h1", Roles: []string{cell.RoleAPI, cell.RoleAgent}}, nil
}

// TestStreamsOfRefusedHostsEnd: a stream ends when one of its ends is not let in any more.
func TestStreamsOfRefusedHostsEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var refuses atomic.Bool
	s := newStreaming(t, 0, func(c *cell.Config) {
		c.Auth, c.RecheckInterval = cell.Tokens(fickle{&refuses}), 5*time.Millisecond
	})
	begun := make(chan struct{})
	ended := make(chan error, 1)
	s.agent(0, func(_ cellwire.StreamOffer, end *cellwire.Stream) {
		close(begun)
		_, err := io.Copy(io.Discard, end)
		ended <- err
	})
	end := testproc.Try(s.api.OpenStream(t.Context(), sid(1), cellwire.PurposeConsole, 7)).Or(t)
	defer func() { _ = end.Close() }()
	<-begun
	refuses.Store(true)
	_, err := io.ReadAll(end)
	var refused *cellwire.Error
	if !errors.As(err, &refused) || refused.Code != cellwire.CodeForbidden {
		t.Errorf("the end of the compute API: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the end of the agent ended in good order")
	}
}

// TestHostsAreBounded: too many requests of a host are answered with 429, and a large one with 413;
// others are served.
func TestHostsAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := &seen{}
	w := begin(t, func(c *cell.Config) { c.Observer = s })
	limited := 0
	for range 300 {
		got := w.send("PUT", "/v1/hosts/h1", cellwire.HostReport{Version: "1"})
		if got.Code == http.StatusTooManyRequests {
			limited++
			refusal(t, got, 429, cellwire.CodeTooMany)
			if got.Header().Get("Retry-After") == "" {
				t.Fatal("no Retry-After")
			}
		}
	}
	if limited != 100 || strings.Count(strings.Join(s.lines, "\n"), "limited") != 100 {
		t.Errorf("%d of 300 requests were refused", limited)
	}
	w.register("h2")
	w.pass(time.Second)
	w.register("h1")
	large := `{"version":"` + strings.Repeat("x", 1<<20) + `"}`
	refusal(t, w.send("PUT", "/v1/hosts/h2", large), 413, cellwire.CodeTooLarge)
	testproc.Equal(t, strings.Count(w.log.String(), "A host sends too many requests"), 1, "logged %d times")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.cell.ForgetNodes(ctx) // it ends with its context
}
