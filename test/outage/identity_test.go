// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// proofs are the ways in which the compute API and the agents authenticate to a cell: keys of their
// configurations, and a client for an identity.
type proofs struct {
	cell  []string
	api   []string
	agent func(host string) []string
	// wrong are keys of a compute API that no cell knows, and reason is what its log says of that.
	wrong  []string
	reason string
	// client is a client of the cell with an identity: a host, "compute-api", or "unknown".
	client func(url, identity string) cellclient.Config
	tls    bool
}

// TestTokens: API, cells and agents know each other by tokens.
func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(content+"\n"), 0o600))
		return path
	}
	var known strings.Builder
	token := func(identity string) string { return "token-of-" + identity }
	for _, line := range [][2]string{{"compute-api", "api"}, {"agent", "c1h1"}, {"agent", "c1h2"}, {"admin", "operator"}} {
		identity := line[1]
		if line[0] == "compute-api" {
			identity = line[0]
		}
		fmt.Fprintf(&known, "%x %s %s\n", sha256.Sum256([]byte(token(identity))), line[0], line[1])
	}
	testIdentities(t, proofs{
		cell: []string{`cell.auth = "token"`, "cell.token_file = " + quoted(file("known", known.String()))},
		api:  []string{"compute_api.cell_token_file = " + quoted(file("api", token("compute-api"))), `compute_api.discover_hosts_pattern = ["*"]`},
		agent: func(host string) []string {
			return []string{"cell_client.token_file = " + quoted(file(host, token(host)))}
		},
		wrong:  []string{"compute_api.cell_token_file = " + quoted(file("wrong", token("unknown")))},
		reason: "it rejects the compute API's credentials",
		client: func(url, identity string) cellclient.Config {
			return cellclient.Config{URL: url, Authorize: func(h http.Header) error {
				h.Set("X-Auth-Token", token(identity))
				return nil
			}}
		},
	})
}

// TestMutualTLS: they know each other by certificates of one authority.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority, another := newAuthority(t), newAuthority(t)
	ca := filepath.Join(dir, "ca.pem")
	check(t, os.WriteFile(ca, authority.pem, 0o600))
	keysOf := func(a *authorityOf, name, prefix string) []string {
		cert, key := a.issue(t, dir, name)
		return []string{prefix + "cert_file = " + quoted(cert), prefix + "key_file = " + quoted(key)}
	}
	own := keysOf(authority, "compute-api", "compute_api.cell_")
	testIdentities(t, proofs{
		tls: true,
		cell: append([]string{`cell.auth = "mtls"`, "cell.peer_ca_file = " + quoted(ca), `cell.api_names = ["compute-api"]`},
			keysOf(authority, "cell", "cell.")...),
		api: append([]string{"compute_api.cell_ca_file = " + quoted(ca), `compute_api.discover_hosts_pattern = ["*"]`}, own...),
		agent: func(host string) []string {
			return append([]string{"cell_client.ca_file = " + quoted(ca)}, keysOf(authority, host, "cell_client.")...)
		},
		wrong:  append([]string{"compute_api.cell_ca_file = " + quoted(ca)}, keysOf(another, "other-ca/compute-api", "compute_api.cell_")...),
		reason: "tls: ",
		client: func(url, identity string) cellclient.Config {
			from := authority
			if identity == "unknown" {
				from = another
			}
			cert, key := from.issue(t, dir, "client/"+identity)
			pair, err := tls.LoadX509KeyPair(cert, key)
			check(t, err)
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(authority.pem)
			return cellclient.Config{URL: url, TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}}
		},
	})
}

// TestClients: the compute API knows its clients by tokens and serves them by TLS, with policies
// for members, readers and unknown users.
func TestClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := newAuthority(t)
	cert, key := authority.issue(t, dir, "compute-api")
	var known strings.Builder
	for _, who := range []string{"member,reader alice p1", "reader bob p1", "admin carol p9"} {
		fmt.Fprintf(&known, "%x %s\n", sha256.Sum256([]byte(strings.Fields(who)[1]+"'s")), who)
	}
	check(t, os.WriteFile(filepath.Join(dir, "known"), []byte(known.String()), 0o600))
	w := newWorld(t, plan{})
	defer func() { w.close(t, t.Failed()) }()
	web1 := w.boot(t, "p1", "web1", "c1h1")
	api := w.another(t, "guarded", `compute_api.auth = "token"`, "compute_api.token_file = "+quoted(filepath.Join(dir, "known")),
		"compute_api.cert_file = "+quoted(cert), "compute_api.key_file = "+quoted(key))
	api.url = strings.Replace(api.url, "http:", "https:", 1)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.pem)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	ask := func(token, method, path string) *answer {
		header := http.Header{"Openstack-Api-Version": {"compute 2.69"}}
		if token != "" {
			header.Set("X-Auth-Token", token)
		}
		return exchangeBy(t, client, method, api.url+"/v2.1"+path, header, nil)
	}
	for _, token := range []string{"", "mallory's", "alice"} {
		ask(token, "GET", "/servers").status(t, 401)
	}
	ask("", "GET", "/").status(t, 200) // the version document is for everybody
	a := ask("bob's", "GET", "/servers")
	w.lists(t, a, "web1")
	if !strings.Contains(string(a.raw), `"`+api.url+"/v2.1/servers/"+web1+`"`) {
		t.Errorf("the links are %s", a.raw)
	}
	ask("bob's", "DELETE", "/servers/"+web1).fault(t, "forbidden", 403)
	ask("alice's", "GET", "/os-services").fault(t, "forbidden", 403)
	if n := len(ask("carol's", "GET", "/os-services").services(t)); n != 2 {
		t.Errorf("an administrator sees %d services", n)
	}
	ask("alice's", "DELETE", "/servers/"+web1).status(t, 204)
	w.back(t)
	w.gone(t, "web1")
}

// testIdentities boots a server over a cell that wants proofs, and has others try to get at it.
func testIdentities(t *testing.T, p proofs) {
	w := newWorld(t, plan{cells: []string{"cell1"}, noHosts: true, cell: p.cell, api: p.api, tls: p.tls})
	defer func() { w.close(t, t.Failed()) }()
	url := w.cells["cell1"].url
	w.addAgent(t, "c1h1", append(p.agent("c1h1"), "cell_client.url = "+quoted(url))...).run(t, w)
	w.discovered(t, 1)
	web1 := w.boot(t, "p1", "web1", "c1h1")

	as := func(identity string) *cellclient.Client {
		client, err := cellclient.New(p.client(url, identity))
		check(t, err)
		t.Cleanup(client.CloseIdle)
		return client
	}
	t.Run("another_host", func(t *testing.T) {
		other := as("c1h2")
		_, err := other.Work(t.Context(), "c1h1", 0, "", 0)
		forbidden(t, "the work of another host", err)
		_, err = other.Report(t.Context(), "c1h1", cellwire.HostReport{Version: "1", Stopping: true})
		forbidden(t, "to report as another host", err)
		report := []cellwire.Report{{UUID: web1, Kind: cellwire.ReportPower, PowerState: plugins.PowerShutdown}}
		_, err = other.Reports(t.Context(), "c1h1", report)
		forbidden(t, "reports of another host", err)
		_, err = other.Server(t.Context(), web1)
		forbidden(t, "a server, as a host", err)
		_, err = other.Servers(t.Context(), cellwire.ServerQuery{Limit: 10})
		forbidden(t, "all servers, as a host", err)
		_, err = other.Delete(t.Context(), web1, cellwire.DeleteNormal)
		forbidden(t, "to delete a server, as a host", err)

		// A host has access to its own servers, and gets a 404 for that of the other.
		_, err = other.Report(t.Context(), "c1h2", cellwire.HostReport{Version: "1"})
		check(t, err)
		work, err := other.Work(t.Context(), "c1h2", 0, "", 0)
		check(t, err)
		if len(work.Items) > 0 {
			t.Errorf("it sees %v", work.Items)
		}
		answer, err := other.Reports(t.Context(), "c1h2", report)
		check(t, err)
		if len(answer.Refused) != 1 || answer.Refused[0] == "" {
			t.Errorf("its report about the server of another is taken: %v", answer)
		}
	})
	t.Run("agent_with_the_proof_of_another", func(t *testing.T) {
		mistaken := w.addAgent(t, "c1h2", append(p.agent("c1h1"), "cell_client.url = "+quoted(url))...)
		mistaken.run(t, w)
		mistaken.process.Await(t, 0, "This call is for the agent of that host.", "403")
		mistaken.process.Kill()
	})
	t.Run("compute_api_is_no_host", func(t *testing.T) {
		api := as("compute-api")
		_, err := api.Server(t.Context(), web1)
		check(t, err)
		_, err = api.Work(t.Context(), "c1h1", 0, "", 0)
		forbidden(t, "the work of a host, as the compute API", err)
	})
	t.Run("unknown client", func(t *testing.T) {
		unknown := as("unknown")
		if _, err := unknown.Cell(t.Context()); err == nil {
			t.Error("an unknown client gets the cell")
		}
		if _, err := unknown.Work(t.Context(), "c1h1", 0, "", 0); err == nil {
			t.Error("an unknown client gets the work of a host")
		}
	})
	t.Run("compute_api_with_wrong_proof", func(t *testing.T) {
		wrong := w.another(t, "wrong", append(p.api, p.wrong...)...)
		w.lists(t, wrong.get(t, of("p1"), "2.69", "/servers"), "web1?")
		wrong.process.Await(t, 0, `"level":"warn"`, "A cell is down", `"cell":"cell1"`, p.reason, "hint")
	})
	if s := w.show(t, admin, "2.69", "web1").server(t); s["status"] != "ACTIVE" || s["OS-EXT-STS:power_state"] != 1.0 {
		t.Errorf("after all, web1 is %v, power state %v", s["status"], s["OS-EXT-STS:power_state"])
	}
}

func forbidden(t *testing.T, what string, err error) {
	t.Helper()
	var refusal *cellwire.Error
	if !errors.As(err, &refusal) || refusal.Status != http.StatusForbidden || refusal.Code != cellwire.CodeForbidden {
		t.Errorf("%s: %v, not 403", what, err)
	}
}

// authorityOf is a certificate authority.
type authorityOf struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
	serial      int64
}

func newAuthority(t *testing.T) *authorityOf {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	certificate, err := x509.ParseCertificate(der)
	check(t, err)
	return &authorityOf{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 1}
}

// issue makes a certificate for the last element of a path, good for clients and for servers on the
// loopback interface, and returns its files.
func (a *authorityOf) issue(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: filepath.Base(name)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	check(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	check(t, os.MkdirAll(filepath.Dir(certFile), 0o700))
	check(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return certFile, keyFile
}
