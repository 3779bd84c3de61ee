// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ok = testproc.Check

// load reads a section [placement_client], in which DIR stands for the directory of the files.
func load(t *testing.T, dir, section string) config.PlacementClient {
	t.Helper()
	file := filepath.Join(dir, "compute-agent.toml")
	ok(t, os.WriteFile(file, []byte("[agent]\nstate_dir = \"/s\"\nruntime_dir = \"/r\"\n[placement_client]\n"+
		strings.ReplaceAll(section, "DIR", dir)), 0o600))
	cfg := testproc.Try(config.Load(config.Options{File: file, Environ: []string{}})).Or(t)
	return cfg.PlacementClient
}

// endpoint is where the client would send its requests.
func endpoint(t *testing.T, a *access.Access) (string, error) {
	t.Helper()
	if a.Endpoint == nil {
		return a.URL, nil
	}
	return a.Endpoint(t.Context())
}

// ask makes one request as the agent would, and returns its status.
func ask(t *testing.T, a *access.Access) (int, error) {
	t.Helper()
	base := testproc.Try(endpoint(t, a)).Or(t)
	req := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/", http.NoBody)).Or(t)
	if a.Authorize != nil {
		ok(t, a.Authorize(t.Context(), req.Header))
	}
	resp, err := (&http.Client{Transport: a.Transport}).Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

func made(t *testing.T, c config.PlacementClient) *access.Access {
	t.Helper()
	a := testproc.Try(access.New(c, nil, zerolog.Nop())).Or(t)
	t.Cleanup(a.CloseIdle)
	return a
}

// authority makes certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := testproc.Try(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).Or(t)
	cert := testproc.Try(x509.ParseCertificate(der)).Or(t)
	return &authority{key: key, cert: cert, next: 2}
}

// issue writes the certificate and key of a name into two files.
func (a *authority) issue(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	a.next++
	der := testproc.Try(x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)).Or(t)
	raw := testproc.Try(x509.MarshalPKCS8PrivateKey(key)).Or(t)
	ok(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	ok(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

// TestMutualTLS: a Placement that wants a certificate gets the agent's, also a renewed one without
// a restart, and is itself believed only if the given authority vouches for it.
func TestMutualTLS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	ca := newAuthority(t)
	ok(t, os.WriteFile(dir+"/ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}), 0o600))
	ca.issue(t, "placement", dir+"/server.pem", dir+"/server.key")
	ca.issue(t, "agent-1", dir+"/client.pem", dir+"/client.key")
	pair := testproc.Try(tls.LoadX509KeyPair(dir+"/server.pem", dir+"/server.key")).Or(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	var who string
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { who = r.TLS.PeerCertificates[0].Subject.CommonName }))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()

	section := "url = \"" + server.URL + "\"\n"
	trust := section + "ca_file = \"DIR/ca.pem\"\n"
	both := trust + "cert_file = \"DIR/client.pem\"\nkey_file = \"DIR/client.key\"\n"
	a := made(t, load(t, dir, both))
	if status, err := ask(t, a); err != nil || status != http.StatusOK || who != "agent-1" {
		t.Errorf("status %d, %v, as %q", status, err, who)
	}
	ca.issue(t, "agent-2", dir+"/client.pem", dir+"/client.key")
	a.CloseIdle()
	if _, err := ask(t, a); err != nil || who != "agent-2" {
		t.Errorf("after the renewal: %v, as %q", err, who)
	}
	// A host sends its certificate and no token. After a 401 it connects again, with what is there
	// then.
	host := made(t, load(t, dir, "auth = \"certificate\"\n"+both))
	if host.Authorize != nil || host.Reauthorize == nil {
		t.Error("a host sends a token")
	}
	if _, err := ask(t, host); err != nil || who != "agent-2" {
		t.Errorf("as a host: %v, as %q", err, who)
	}
	ca.issue(t, "agent-3", dir+"/client.pem", dir+"/client.key")
	ok(t, host.Reauthorize(t.Context(), http.Header{}))
	if _, err := ask(t, host); err != nil || who != "agent-3" {
		t.Errorf("as a host after a 401: %v, as %q", err, who)
	}
	if _, err := ask(t, made(t, load(t, dir, trust))); err == nil {
		t.Error("it was let in without a certificate")
	}
	var unknown x509.UnknownAuthorityError
	if _, err := ask(t, made(t, load(t, dir, section))); !errors.As(err, &unknown) {
		t.Errorf("an untrusted authority: %v", err)
	}

	ok(t, os.WriteFile(dir+"/empty.pem", nil, 0o600))
	for says, bad := range map[string]string{
		"placement_client.ca_file":   section + "ca_file = \"DIR/none.pem\"\n",
		"has no certificates in PEM": section + "ca_file = \"DIR/empty.pem\"\n",
		"placement_client.cert_file and key_file": section +
			"cert_file = \"DIR/client.pem\"\nkey_file = \"DIR/server.key\"\n",
	} {
		testproc.Try(access.New(load(t, dir, bad), nil, zerolog.Nop())).ErrorHas(t, says, "want %q: %v", says)
	}
}

// TestStaticToken: the token is read for each request; a file that is no secret any more is
// refused.
func TestStaticToken(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	a := made(t, load(t, dir, "auth = \"token\"\ntoken_file = \"DIR/token\"\n"))
	if a.Reauthorize != nil || a.Keystone != nil {
		t.Error("no other token is available")
	}
	for _, token := range []string{"one", "two"} {
		ok(t, os.WriteFile(dir+"/token", []byte(token+"\n"), 0o600))
		h := http.Header{}
		ok(t, a.Authorize(t.Context(), h))
		testproc.Equal(t, h.Get("X-Auth-Token"), token, "token %q")
	}
	ok(t, os.Chmod(dir+"/token", 0o644))
	err := a.Authorize(t.Context(), http.Header{})
	if !errors.Is(err, config.ErrSecret) || !strings.Contains(err.Error(), "placement_client.token_file") ||
		strings.Contains(err.Error(), "two") {
		t.Error(err)
	}
}

func TestNoauth(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := made(t, load(t, t.TempDir(), ""))
	h := http.Header{}
	ok(t, a.Authorize(t.Context(), h))
	if h.Get("X-Auth-Token") != "admin" || !strings.Contains(h.Get("X-Roles"), "admin") {
		t.Error(h)
	}
	if where, err := endpoint(t, a); err != nil || where != config.DefaultPlacementURL {
		t.Errorf("the endpoint: got %q, %v, want the default one", where, err)
	}
}

// TestProxy: the environment's proxy is used only if the configuration says so, and then there is
// no TCP probe of Placement itself.
func TestProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:3128") // read once by net/http, so only here
	t.Setenv("NO_PROXY", "")
	proxy := func(a *access.Access) *url.URL {
		transport := a.Transport.(*pki.Transport).Current()
		if transport.Proxy == nil {
			return nil
		}
		u, err := transport.Proxy(&http.Request{URL: &url.URL{Scheme: "http", Host: "placement.example"}})
		ok(t, err)
		return u
	}
	if a := made(t, load(t, t.TempDir(), "")); proxy(a) != nil || a.Dial == nil {
		t.Errorf("a proxy that is not configured: %v", proxy(a))
	}
	if a := made(t, load(t, t.TempDir(), "use_proxy = true\n")); proxy(a) == nil ||
		proxy(a).Host != "192.0.2.1:3128" || a.Dial != nil {
		t.Errorf("the proxy is not used: %v", proxy(a))
	}
}

// TestKeystone: the keys of the configuration arrive at Keystone, and what Keystone says arrives at
// the client; both are reached with the same TLS.
func TestKeystone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	ca := newAuthority(t)
	ok(t, os.WriteFile(dir+"/ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}), 0o600))
	ca.issue(t, "controller", dir+"/server.pem", dir+"/server.key")
	pair := testproc.Try(tls.LoadX509KeyPair(dir+"/server.pem", dir+"/server.key")).Or(t)
	var login, sent string
	mux := http.NewServeMux()
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	mux.HandleFunc("POST /identity/v3/auth/tokens", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		login = string(body)
		w.Header().Set("X-Subject-Token", "issued")
		w.WriteHeader(http.StatusCreated)
		ok(t, json.NewEncoder(w).Encode(map[string]any{"token": map[string]any{
			"issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z",
			"user": map[string]any{"id": "u", "name": "agent"}, "project": map[string]any{"id": "p"},
			"catalog": []any{map[string]any{"type": "placement", "endpoints": []any{
				map[string]any{"interface": "admin", "region_id": "here", "url": server.URL + "/placement"},
				map[string]any{"interface": "admin", "region_id": "there", "url": "http://there"},
			}}},
		}}))
	})
	mux.HandleFunc("GET /placement/",
		func(_ http.ResponseWriter, r *http.Request) { sent = r.Header.Get("X-Auth-Token") })
	server.StartTLS()
	defer server.Close()
	common := "auth = \"keystone\"\nauth_url = \"" +
		server.URL + "/identity\"\nca_file = \"DIR/ca.pem\"\nregion_name = \"here\"\nvalid_interfaces = " +
		"[\"public\", \"admin\"]\n"
	for name, c := range map[string]struct{ section, login string }{
		"password": {"username = \"agent\"\nuser_domain_name = \"Users\"\nproject_name = \"service\"\n" +
			"project_domain_id = \"d\"\npassword_file = \"DIR/secret\"\n",
			`{"auth":{"identity":{"methods":["password"],"password":{"user":{"domain":{"name":"Users"},` +
				`"name":"agent","password":"hush-hush"}}},"scope":{"project":{"domain":{"id":"d"},` +
				`"name":"service"}}}}`},
		"system": {"user_id = \"u\"\nsystem_scope = \"all\"\npassword_file = \"DIR/secret\"\n",
			`{"auth":{"identity":{"methods":["password"],"password":{"user":{"id":"u","password":"hush-hush"}}},` +
				`"scope":{"system":{"all":true}}}}`},
		"application credential": {"auth_type = \"application_credential\"\napplication_credential_id = \"a\"\n" +
			"application_credential_secret_file = \"DIR/secret\"\n",
			`{"auth":{"identity":{"application_credential":{"id":"a","secret":"hush-hush"},` +
				`"methods":["application_credential"]}}}`},
		"application credential by name": {"auth_type = \"application_credential\"\napplication_credential_name = " +
			"\"a\"\nusername = \"agent\"\nuser_domain_id = \"d\"\napplication_credential_secret_file = " +
			"\"DIR/secret\"\n",
			`{"auth":{"identity":{"application_credential":{"name":"a","secret":"hush-hush",` +
				`"user":{"domain":{"id":"d"},"name":"agent"}},"methods":["application_credential"]}}}`},
		"token": {"auth_type = \"token\"\ntoken_file = \"DIR/secret\"\nproject_id = \"p\"\n",
			`{"auth":{"identity":{"methods":["token"],"token":{"id":"hush-hush"}},"scope":{"project":{"id":"p"}}}}`},
	} {
		ok(t, os.WriteFile(dir+"/secret", []byte("hush-hush\n"), 0o600))
		login, sent = "", ""
		a := made(t, load(t, dir, common+c.section))
		if status, err := ask(t, a); err != nil || status != http.StatusOK || sent != "issued" || a.Reauthorize == nil {
			t.Errorf("%s: status %d, %v, token %q", name, status, err, sent)
		}
		if strings.TrimSpace(login) != c.login {
			t.Errorf("%s: login\n%s\nwant\n%s", name, login, c.login)
		}
		ok(t, os.Chmod(dir+"/secret", 0o604))
		err := made(t, load(t, dir, common+c.section)).Authorize(t.Context(), http.Header{})
		if !errors.Is(err, keystone.ErrCredentials) ||
			!errors.Is(err, config.ErrSecret) || !strings.Contains(err.Error(), "_file: ") {
			t.Errorf("%s: a secret that others can read: %v", name, err)
		}
		ok(t, os.Chmod(dir+"/secret", 0o600))
	}
	over := made(t, load(t, dir, common+
		"url = \"https://elsewhere.example\"\nauth_type = \"token\"\ntoken_file = \"DIR/secret\"\n"))
	if where, err := endpoint(t, over); err != nil || where != "https://elsewhere.example" {
		t.Errorf("the address that was set: %q, %v", where, err)
	}
}

// TestIdleConnectionsAreClosedBetweenPasses: a connection is closed before the next pass, which
// rarely needs one. Kept open, the connections of all hosts would wait in Placement's memory.
func TestIdleConnectionsAreClosedBetweenPasses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cfg := testproc.Try(config.Load(config.Options{Root: t.TempDir(), Environ: []string{"HOME=/nonexistent"}})).Or(t)
	transport := made(t, load(t, t.TempDir(), `url = "http://placement"`)).Transport.(*pki.Transport).Current()
	if idle := transport.IdleConnTimeout; idle <= 0 || idle >= cfg.Tracker.UpdateResourcesInterval {
		t.Errorf("a connection without requests stays open for %v, and passes are %v apart",
			idle, cfg.Tracker.UpdateResourcesInterval)
	}
}
