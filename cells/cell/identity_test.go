// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func tokenLine(token, roles, user string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:]) + " " + roles + " " + user + "\n"
}

func withToken(token string) func(*http.Request) {
	return func(r *http.Request) {
		if token != "" {
			r.Header.Set(osapi.HeaderToken, token)
		}
	}
}

// withCertificate is a request over a connection whose client showed a certificate that was
// verified.
func withCertificate(cn string, names ...string) func(*http.Request) {
	return func(r *http.Request) {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: cn}, DNSNames: names, NotBefore: start.Add(-time.Hour),
			NotAfter: start.Add(24 * time.Hour)}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c},
			VerifiedChains: [][]*x509.Certificate{{c}}}
	}
}

// TestAuthorizationOfEachCall tries each call as each client. A client without permission learns
// nothing.
func TestAuthorizationOfEachCall(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tokens, err := osapi.ReadTokens(
		strings.NewReader(tokenLine("t-api", "compute-api", "nova")+tokenLine("t-h1", "agent", "h1")+
			tokenLine("t-h2", "agent", "h2")+tokenLine("t-both", "agent,compute-api", "h1")+
			tokenLine("t-admin", "admin,reader", "h1")), "tokens")
	testproc.Check(t, err)
	type client struct {
		name   string
		change func(*http.Request)
		is     string // what it may do: of "any api h1"; or with what status it is refused
	}
	for name, c := range map[string]struct {
		auth    cell.Auth
		clients []client
	}{
		"noauth": {cell.NoAuth(), []client{{"any client", func(*http.Request) {}, "any api h1"}}},
		"token": {cell.Tokens(tokens), []client{
			{"the API", withToken("t-api"), "any api"},
			{"the agent", withToken("t-h1"), "any h1"}, {"another agent", withToken("t-h2"), "any"},
			{"both in one", withToken("t-both"), "any api h1"}, {"another role", withToken("t-admin"), "403"},
			{"no token", withToken(""), "401"}, {"a wrong token", withToken("x"), "401"}}},
		"mtls": {cell.MutualTLS([]string{"api.example"}), []client{
			{"the API by its common name", withCertificate("api.example"), "any api"},
			{"the API by a DNS name", withCertificate("x", "api.example"), "any api"},
			{"the API that is called like a host too", withCertificate("h1", "api.example"), "any api"},
			{"the agent by its common name", withCertificate("h1"), "any h1"},
			{"the agent by a DNS name", withCertificate("", "h1"), "any h1"},
			{"another agent", withCertificate("h2", "h2.example"), "any"},
			{"no certificate", func(*http.Request) {}, "401"},
			{"a certificate that was not verified",
				func(r *http.Request) { withCertificate("h1")(r); r.TLS.VerifiedChains = nil }, "401"},
		}},
	} {
		for _, client := range c.clients {
			t.Run(name+" "+client.name, func(t *testing.T) {
				w := begin(t, func(config *cell.Config) { config.Auth = c.auth })
				for _, one := range everyCall {
					got := send(t, w.cell, one.method, one.target, one.body, client.change)
					switch {
					case client.is == "401":
						refusal(t, got, 401, cellwire.CodeUnauthorized)
						if name == "token" && got.Header().Get("WWW-Authenticate") == "" {
							t.Errorf("%s %s: no challenge", one.method, one.target)
						}
					case client.is == "403" || !strings.Contains(client.is, one.who):
						refusal(t, got, 403, cellwire.CodeForbidden)
					case got.Code == 401 || got.Code == 403:
						t.Errorf("%s %s: answered %d %s", one.method, one.target, got.Code, got.Body)
					}
				}
			})
		}
	}
}

// TestRejectionsAreRateLimited: each rejected client is logged with a hint, at most once a minute.
func TestRejectionsAreRateLimited(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tokens, err := osapi.ReadTokens(
		strings.NewReader(tokenLine("t-api", "compute-api", "nova")+tokenLine("t-h2", "agent", "h2")), "tokens")
	testproc.Check(t, err)
	for name, c := range map[string]struct {
		auth   cell.Auth
		target string
		change func(*http.Request)
		says   []string
	}{
		"a wrong host": {cell.MutualTLS([]string{"api"}), "/v1/hosts/h1/work", withCertificate("h2"),
			[]string{`"certificate":["h2"]`, `"host":"h1"`, "agent.host"}},
		"no API": {cell.MutualTLS([]string{"api"}), "/v1/services", withCertificate("apj"),
			[]string{`"certificate":["apj"]`, "/v1/services", "api_names"}},
		"a token's wrong host": {cell.Tokens(tokens), "/v1/hosts/h1/work", withToken("t-h2"),
			[]string{`"user":"h2"`, `"host":"h1"`, "token_file"}},
		"no token's": {cell.Tokens(tokens), "/v1/services", withToken("secret-x"),
			[]string{`"address":"192.0.2.1"`, "role compute-api"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, func(config *cell.Config) { config.Auth = c.auth })
			for range 3 {
				send(t, w.cell, "GET", c.target, nil, c.change)
			}
			said := w.log.String()
			if strings.Count(said, "Rejected a request") != 1 || !strings.Contains(said, `"level":"warn"`) ||
				strings.Contains(said, "secret-x") {
				t.Errorf("3 refusals, and the log is %s", said)
			}
			for _, part := range c.says {
				testproc.Contains(t, said, part, "no %s in %s", part)
			}
			w.pass(time.Minute)
			if send(t, w.cell, "GET", c.target, nil,
				c.change); strings.Count(w.log.String(), "Rejected a request") != 2 {
				t.Errorf("a minute later the log is %s", w.log.String())
			}
		})
	}
}

// failing is an authenticator that cannot tell.
type failing struct{}

func (failing) Authenticate(*http.Request) (osapi.Principal, error) {
	return osapi.Principal{}, errors.New("the disk is on fire")
}

func TestUnavailableAuthentication(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, func(c *cell.Config) { c.Auth = cell.Tokens(failing{}) })
	if message := w.refused(503, cellwire.CodeUnavailable, "GET", "/v1/cell", nil); strings.Contains(message, "fire") ||
		!strings.Contains(w.log.String(), "fire") {
		t.Errorf("the client gets %q, and the log %q", message, w.log.String())
	}
}

func TestCheckListen(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	unix, lo, lo6 := &net.UnixAddr{Net: "unix", Name: "/run/cell.sock"},
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8779}, &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	all, other := &net.TCPAddr{Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for _, c := range []struct {
		auth    cell.Auth
		address net.Addr
		ok      bool
	}{
		{cell.NoAuth(), unix, true}, {cell.NoAuth(), lo, true}, {cell.NoAuth(), lo6, true}, {cell.NoAuth(), all, false},
		{cell.NoAuth(), other, false},
		{cell.MutualTLS(nil), all, true}, {cell.Tokens(failing{}), other, true},
	} {
		if err := c.auth.CheckListen(c.address); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.address, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	for name, c := range map[string]struct {
		config cell.Config
		says   string
	}{
		"no store":        {cell.Config{Auth: cell.NoAuth()}, "needs a store"},
		"no auth":         {cell.Config{Store: w.store}, "an authentication method"},
		"a negative time": {cell.Config{Store: w.store, Auth: cell.NoAuth(), MaxWait: -1}, "MaxWait must"},
		"a negative key": {
			cell.Config{Store: w.store, Auth: cell.NoAuth(), ReportInterval: -1},
			"report_interval must not be negative",
		},
		"hosts that die between two reports": {
			cell.Config{Store: w.store, Auth: cell.NoAuth(), ServiceDownTime: 5e9}, "service_down_time",
		},
	} {
		_, err := cell.New(c.config)
		testproc.ErrorHas(t, err, c.says, name+": got %v")
	}
}
