// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// serveCell serves a cell of the site until the test ends, and returns its URL.
func (s *site) serveCell(t *testing.T, name string, auth cell.Auth, tls osapi.TLSFiles, denied *pki.DenyFile) string {
	t.Helper()
	process := testproc.Try(cells.NewCell(t.Context(), cells.CellConfig{
		Name: name, Database: filepath.Join(t.TempDir(), "cell.db"), Auth: auth, TLS: tls, Denied: denied,
		Logger: nopLog,
	})).Or(t)
	return serve(t, process.Serve, process.Close)
}

// ofCell are the files of a cell that asks certificates, and of one that asks tokens, and these.
func (s *site) ofCell() (tls, byToken osapi.TLSFiles, tokens *osapi.TokenFile) {
	s.t.Helper()
	certFile, keyFile := s.server("cell1")
	tls = osapi.TLSFiles{CertFile: certFile, KeyFile: keyFile, ClientCAFile: s.file("peers.pem", s.ca.PEM())}
	tokens = testproc.Try(osapi.OpenTokens(s.tokenFile("cell-tokens",
		cell.RoleAgent, victim, cell.RoleAgent, attacker, cell.RoleAgent, stolen, cell.RoleAPI, "nova",
		"admin", "admin", "member", "alice"), nopLog)).Or(s.t)
	byToken = tls
	byToken.ClientCAFile = ""
	return tls, byToken, tokens
}

// TestCell makes each call of a cell as each identity: with certificates, and with tokens.
func TestCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	tls, byToken, tokens := s.ofCell()
	for name, c := range map[string]struct {
		url   string
		token bool
	}{
		"cell.txt":        {s.serveCell(t, "cell1", cell.MutualTLS([]string{"compute-api"}), tls, s.denied()), false},
		"cell-tokens.txt": {s.serveCell(t, "cell1", cell.Tokens(tokens), byToken, s.denied()), true},
	} {
		out := table{{"CALL", "FOR"}}
		var clients []*http.Client
		var as []identity
		for _, i := range s.identities() {
			if (i.token == "") == c.token && i.name != "no credential" {
				continue
			}
			as, clients, out[0] = append(as, i), append(clients, s.client(i)), append(out[0], i.name)
		}
		nodes := []object{{"uuid": victimNode, "name": victim}}
		for n, i := range as {
			if i.host == victim {
				succeed(t, clients[n], c.url, i, put("/v1/hosts/"+victim, object{"version": "1", "nodes": nodes}))
			}
		}
		for _, call := range cell.Calls() {
			a := asked{method: call.Method, path: words.Replace(call.Path)}
			if call.Method != http.MethodGet {
				a.body = object{}
			}
			row := []string{call.Method + " " + call.Path, call.For}
			for n, i := range as {
				got, answer := send(t, clients[n], c.url, i, a)
				row = append(row, string(got))
				if want := ruleOfCell(i, call.For, !c.token); got != want {
					t.Errorf("%s: as %s: %s, want %s: %s", name, i.name, got, want, answer)
				}
			}
			out = append(out, row)
		}
		out.compare(t, name)
	}
}

// TestAHostOfOneCellInAnother: the certificate of a host that was enrolled for cell1 is of no use
// in cell2: each call is refused with the reason, and cell2 does not learn of the host. A
// certificate of before these named their cells is for both.
func TestAHostOfOneCellInAnother(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	of := func(name string) identity {
		id := hostIdentity(attacker, attackerNode)
		id.Cell = name
		pair := testproc.Try(tls.X509KeyPair(s.pair(s.ca, id, pki.SignOptions{}))).Or(t)
		return identity{name: "host of " + name, pair: &pair, host: attacker}
	}
	ofCell1, ofNone, compute := of("cell1"), of(""), s.as("compute API")
	nodes := []object{{"uuid": attackerNode, "name": attacker}}
	report := put("/v1/hosts/"+attacker, object{"version": "1", "nodes": nodes})
	for name, allowed := range map[string]bool{"cell1": true, "cell2": false} {
		certFile, keyFile := s.server(name)
		files := osapi.TLSFiles{CertFile: certFile,
			KeyFile: keyFile, ClientCAFile: s.file(name+"-peers.pem", s.ca.PEM())}
		url := s.serveCell(t, name, cell.MutualTLS([]string{"compute-api"}), files, s.denied())
		c := s.client(ofCell1)
		if allowed {
			succeed(t, c, url, ofCell1, report)
			continue
		}
		got, answer := send(t, c, url, ofCell1, report)
		if text := string(answer.Raw); got != forbidden ||
			!strings.Contains(text, "is for cell cell1, and this is cell cell2") {
			t.Errorf("it reports: %s", answer)
		}
		for _, call := range cell.Calls() {
			a := asked{method: call.Method, path: strings.ReplaceAll(words.Replace(call.Path), victim, attacker)}
			if call.Method != http.MethodGet {
				a.body = object{}
			}
			if got, answer := send(t, c, url, ofCell1, a); got != forbidden {
				t.Errorf("%s %s: %s", call.Method, call.Path, answer)
			}
		}
		api := s.client(compute)
		for _, path := range []string{"/v1/services", "/v1/compute-nodes"} {
			if answer := succeed(t, api, url, compute, get(path)); strings.Contains(string(answer.Raw), attacker) {
				t.Errorf("the cell has the host: %s", answer)
			}
		}
		succeed(t, s.client(ofNone), url, ofNone, report)
	}
}

var words = strings.NewReplacer("{host}", victim, "{node}", victimNode, "{uuid}", victimGuest, "{id}", "1")

// ruleOfCell is what a cell's rules say of an identity and a call.
func ruleOfCell(i identity, who string, certificates bool) outcome {
	api := i.api || i.user == "nova"
	switch {
	case i.handshake, i.name == "no credential" && certificates:
		return noConnection
	case i.name == "client service", i.user != "" && !api, strings.HasPrefix(i.name, "denied"):
		return forbidden // known, and not let in
	case i.unknown:
		return unknown
	case who == "any client that is known", who == "the compute API" && api,
		who == "the agent of the host" && i.host == victim:
		return answered
	}
	return forbidden
}
