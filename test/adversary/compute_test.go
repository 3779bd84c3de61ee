// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var segment = regexp.MustCompile(`\{[a-z_]+\}`)

// TestComputeAPI makes each call of the compute API as each identity. It has tokens only: a client
// without one that it knows gets the list of versions and nothing else, whatever certificate it
// shows, and the token of a host is refused.
func TestComputeAPI(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	certFile, keyFile := s.server("compute-api")
	quotas := apidb.QuotaSet{}
	const limited = "instances cores ram metadata_items key_pairs server_groups server_group_members"
	for _, resource := range strings.Fields(limited) {
		quotas[resource] = -1
	}
	file := s.tokenFile("api-tokens", "host", victim, "host", attacker, "host", stolen, "member", "alice")
	tokens := testproc.Try(osapi.OpenTokens(file, nopLog)).Or(t)
	api := testproc.Try(cells.NewAPI(t.Context(), cells.APIConfig{
		Database: filepath.Join(t.TempDir(), "api.db"),
		Auth:     tokens, TLS: osapi.TLSFiles{CertFile: certFile, KeyFile: keyFile},
		CellClient: func(c apidb.Cell) (*cellclient.Client, error) {
			return cellclient.New(
				cellclient.Config{URL: c.URL})
		},
		CellTimeout: time.Second, Placement: placementclient.Config{URL: "http://127.0.0.1:1"},
		Quotas: quotas, Logger: nopLog,
	})).Or(t)
	url := serve(t, api.Serve, api.Close)
	for _, i := range s.identities() {
		if i.host == "" && !i.unknown && !i.handshake && !i.api {
			continue // users have policies, which package compute tests
		}
		c := s.client(i)
		for _, call := range compute.Calls() {
			if call.Open {
				continue
			}
			a := asked{method: call.Method,
				path: segment.ReplaceAllString(call.Path, victimGuest), version: "compute 2.69"}
			if call.Method != http.MethodGet {
				a.body = object{}
			}
			got, answer := send(t, c, url, i, a)
			want := unknown
			if i.token != "" && i.name != "unknown token" { // that of a host, denied or not
				want = forbidden
			}
			if got != want {
				t.Errorf("as %s: %s, want %s: %s", i.name, got, want, answer)
			}
		}
	}
}
