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
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// proofs are the ways in which the compute API and the agents authenticate to a cell: keys of their
// configurations.
type proofs struct {
	cell, api []string
	agent     func(host string) []string
	// wrong are keys of a compute API that no cell knows, and reason is what its log says of that.
	wrong  []string
	reason string
	tls    bool
}

// TestTokens: API, cells and agents know each other by tokens.
func TestTokens(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(content+"\n"), 0o600))
		return fmt.Sprintf("%q", path)
	}
	var known strings.Builder
	for _, line := range []string{"compute-api api", "agent c1h1", "agent c1h2"} {
		_, name, _ := strings.Cut(line, " ")
		fmt.Fprintf(&known, "%x %s\n", sha256.Sum256([]byte("token-of-"+name)), line)
	}
	testIdentities(t, proofs{
		cell: []string{`cell.auth = "token"`, "cell.token_file = " + file("known", known.String())},
		api:  []string{"compute_api.cell_token_file = " + file("api", "token-of-api")},
		agent: func(host string) []string {
			return []string{"cell_client.token_file = " + file(host, "token-of-"+host)}
		},
		wrong:  []string{"compute_api.cell_token_file = " + file("wrong", "token-of-unknown")},
		reason: "it rejects the compute API's credentials",
	})
}

// TestMutualTLS: they know each other by certificates of one authority.
func TestMutualTLS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	authority, another := newAuthority(t), newAuthority(t)
	keysOf := func(a *issuer, name, prefix string) []string {
		cert, key := a.issue(t, name)
		return []string{fmt.Sprintf("%scert_file = %q", prefix, cert), fmt.Sprintf("%skey_file = %q", prefix, key)}
	}
	testIdentities(t, proofs{
		tls: true,
		cell: append([]string{`cell.auth = "mtls"`, fmt.Sprintf("cell.peer_ca_file = %q", authority.file),
			`cell.api_names = ["compute-api"]`},
			keysOf(authority, "cell", "cell.")...),
		api: append([]string{fmt.Sprintf("compute_api.cell_ca_file = %q", authority.file)},
			keysOf(authority, "compute-api", "compute_api.cell_")...),
		agent: func(host string) []string {
			return append([]string{fmt.Sprintf("cell_client.ca_file = %q", authority.file)},
				keysOf(authority, host, "cell_client.")...)
		},
		wrong:  keysOf(another, "compute-api", "compute_api.cell_"),
		reason: "tls: ",
	})
}

// testIdentities boots a server over a cell that wants proofs; an agent with the proof of another
// host and a compute API with a wrong one are refused, and say why.
func testIdentities(t *testing.T, p proofs) {
	t.Helper()
	w := deploy(t, world.Plan{Cells: []string{"cell1"},
		Cell: p.cell, API: append(p.api, `compute_api.discover_hosts_pattern = ["*"]`), TLS: p.tls})
	w.runAgent(w.AddAgent("cell1", "c1h1", p.agent("c1h1")...))
	w.Boot("p1", "web1", "c1h1")
	mistaken := w.AddAgent("cell1", "c1h2", p.agent("c1h1")...).Run()
	mistaken.Await(t, 0, "This call is for the agent of that host.", "403")
	w.RestartAPI(p.wrong...)
	w.lists(world.Of("p1"), "2.69", "web1?")
	w.API.Await(t, 0, `"level":"warn"`, "A cell is down", `"cell":"cell1"`, p.reason, "hint")
	w.RestartAPI()
	if s := w.Show(world.Admin, "2.69", "web1").Server(t); s["status"] != "ACTIVE" ||
		s["OS-EXT-STS:power_state"] != 1.0 {
		t.Errorf("after all, web1 is %v, power state %v", s["status"], s["OS-EXT-STS:power_state"])
	}
}

// TestClients: the compute API knows its clients by tokens and serves them by TLS, with policies
// for members, readers and unknown users.
func TestClients(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	authority := newAuthority(t)
	cert, key := authority.issue(t, "compute-api")
	var known strings.Builder
	for _, who := range []string{"member,reader alice p1", "reader bob p1", "admin carol p9"} {
		fmt.Fprintf(&known, "%x %s\n", sha256.Sum256([]byte(strings.Fields(who)[1]+"'s")), who)
	}
	tokens := filepath.Join(t.TempDir(), "known")
	check(t, os.WriteFile(tokens, []byte(known.String()), 0o600))
	w := withHosts(t, world.Plan{}, 64<<10, 64<<10)
	web1 := w.Boot("p1", "web1", "c1h1")
	w.RestartAPI(`compute_api.auth = "token"`, fmt.Sprintf("compute_api.token_file = %q", tokens),
		fmt.Sprintf("compute_api.cert_file = %q", cert), fmt.Sprintf("compute_api.key_file = %q", key))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	url := strings.Replace(w.APIURL, "http:", "https:", 1) + "/v2.1"
	ask := func(token, method, path string) *world.Answer {
		t.Helper()
		header := http.Header{"Openstack-Api-Version": {"compute 2.69"}}
		if token != "" {
			header.Set("X-Auth-Token", token)
		}
		return testproc.Try(world.Exchange(t.Context(), client, method, url+path, header, nil)).Or(t)
	}
	for _, token := range []string{"", "mallory's", "alice"} {
		ask(token, "GET", "/servers").Is(t, 401)
	}
	ask("", "GET", "/").Is(t, 200) // the version document is for everybody
	a := ask("bob's", "GET", "/servers")
	if diff := cmp.Diff([]string{"web1"}, w.Listed(a)); diff != "" ||
		!strings.Contains(string(a.Raw), `"`+url+"/servers/"+web1+`"`) {
		t.Errorf("%s: %s", diff, a.Raw)
	}
	ask("bob's", "DELETE", "/servers/"+web1).Fault(t, "forbidden", 403)
	ask("alice's", "GET", "/os-services").Fault(t, "forbidden", 403)
	if n := len(ask("carol's", "GET", "/os-services").List(t, "services")); n != 2 {
		t.Errorf("an administrator sees %d services", n)
	}
	ask("alice's", "DELETE", "/servers/"+web1).Is(t, 204)
	w.RestartAPI()
	w.Gone("web1")
}

// issuer is a certificate authority.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
	dir, file   string
	serial      int64
}

func newAuthority(t *testing.T) *issuer {
	t.Helper()
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := testproc.Try(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).Or(t)
	certificate := testproc.Try(x509.ParseCertificate(der)).Or(t)
	dir := t.TempDir()
	a := &issuer{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), dir,
		filepath.Join(dir, "ca.pem"), 1}
	check(t, os.WriteFile(a.file, a.pem, 0o600))
	return a
}

// issue makes a certificate for a name, good for clients and for servers on the loopback interface,
// and returns its files.
func (i *issuer) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	i.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(i.serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := testproc.Try(x509.CreateCertificate(rand.Reader, template, i.certificate, key.Public(), i.key)).Or(t)
	secret := testproc.Try(x509.MarshalPKCS8PrivateKey(key)).Or(t)
	certFile, keyFile = filepath.Join(i.dir, name+".pem"), filepath.Join(i.dir, name+".key")
	check(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return certFile, keyFile
}
