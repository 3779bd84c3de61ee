// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// serveCell serves a cell of the site until the test ends, and returns its URL.
func (s *site) serveCell(t *testing.T, auth cell.Auth, tls osapi.TLSFiles) string {
	t.Helper()
	process := testproc.Try(cells.NewCell(t.Context(), cells.CellConfig{
		Name: "cell1", Database: filepath.Join(t.TempDir(), "cell.db"), Auth: auth, TLS: tls, Denied: s.denied(),
		Logger: nopLog,
	})).Or(t)
	return serve(t, process.Serve, process.Close)
}

// TestCell makes each call of a cell as each identity: with certificates, and with tokens.
func TestCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	certFile, keyFile := s.server("cell1")
	tls := osapi.TLSFiles{CertFile: certFile, KeyFile: keyFile, ClientCAFile: s.file("peers.pem", s.ca.PEM())}
	tokens := testproc.Try(osapi.OpenTokens(s.tokenFile("cell-tokens",
		cell.RoleAgent, victim, cell.RoleAgent, attacker, cell.RoleAgent, stolen, cell.RoleAPI, "nova",
		"admin", "admin", "member", "alice"), nopLog)).Or(t)
	byToken := tls
	byToken.ClientCAFile = ""
	for name, c := range map[string]struct {
		url   string
		token bool
	}{
		"cell.txt":        {s.serveCell(t, cell.MutualTLS([]string{"compute-api"}), tls), false},
		"cell-tokens.txt": {s.serveCell(t, cell.Tokens(tokens), byToken), true},
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

var words = strings.NewReplacer("{host}", victim, "{uuid}", victimGuest, "{id}", "1")

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
