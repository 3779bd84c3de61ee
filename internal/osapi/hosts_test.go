// SPDX-License-Identifier: Apache-2.0

package osapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// testCA signs certificates of hosts and of a server.
type testCA struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testproc.Check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testproc.Check(t, err)
	cert, err := x509.ParseCertificate(der)
	testproc.Check(t, err)
	return &testCA{t, key, cert}
}

func (t *testCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: t.cert.Raw})
}

// pair makes a certificate, and its key in PEM.
func (t *testCA) pair(template x509.Certificate) (certificate, key []byte) {
	t.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testproc.Check(t.t, err)
	template.SerialNumber = big.NewInt(2)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, t.cert, private.Public(), t.key)
	testproc.Check(t.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	testproc.Check(t.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// client makes a client with a certificate.
func (t *testCA) client(template x509.Certificate) *http.Client {
	t.t.Helper()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	certificate, key := t.pair(template)
	pair, err := tls.X509KeyPair(certificate, key)
	testproc.Check(t.t, err)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		Certificates: []tls.Certificate{pair},
	}}}
}

func host(name string) x509.Certificate {
	return x509.Certificate{URIs: pki.Identity{Kind: pki.Host, Name: name}.URIs()}
}

// TestHosts: who a request is from follows from its token, or else from the certificate, which is
// checked with each request of a connection.
func TestHosts(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		testproc.Check(t, os.WriteFile(path, data, 0o600))
		return path
	}
	hosts, others := newTestCA(t), newTestCA(t)
	certificate, key := others.pair(x509.Certificate{Subject: pkix.Name{CommonName: "server"}})
	files := osapi.TLSFiles{
		CertFile: write("cert", certificate), KeyFile: write("key", key),
		HostCAFile: write("hosts", append(hosts.pem(), others.pem()...)), MinVersion: tls.VersionTLS13,
	}
	config, err := files.Config(zerolog.Nop(), nil)
	testproc.Check(t, err)
	cas, err := osapi.OpenCAFile(write("only", hosts.pem()), zerolog.Nop())
	testproc.Check(t, err)
	denied, err := pki.OpenDenyFile(write("denied", []byte("stolen 2100-01-01T00:00:00Z from rack 7\n")), zerolog.Nop())
	testproc.Check(t, err)
	tokens, err := osapi.ReadTokens(strings.NewReader(
		"3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 host h2\n"+ // two
			"b786fb359064bba0a8f486efd6480a4c887db3007604bf4967847d384602decb host stolen\n"), // stolen-token
		"tokens")
	testproc.Check(t, err)
	clock := time.Now
	auth := &osapi.Hosts{Others: tokens, CAs: cas, Denied: denied, Now: func() time.Time { return clock() }}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := auth.Authenticate(r)
		switch {
		case errors.Is(err, osapi.ErrUnauthenticated):
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case p.Host == nil:
			_, _ = io.WriteString(w, "user "+p.User)
		default:
			_, _ = io.WriteString(w, "host "+p.Host.Name+" with "+strings.Join(p.Roles, ","))
		}
	}))
	server.TLS = config
	server.StartTLS()
	defer server.Close()
	ask := func(c *http.Client, token string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		testproc.Check(t, err)
		if token != "" {
			r.Header.Set(osapi.HeaderToken, token)
		}
		answer, err := c.Do(r)
		testproc.Check(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		testproc.Check(t, err)
		return string(body)
	}
	h1 := hosts.client(host("h1"))
	for name, c := range map[string]struct {
		client *http.Client
		token  string
		want   string
	}{
		"a host":             {h1, "", "host h1 with host"},
		"a token goes first": {h1, "two", "host h2 with host"},
		"an unknown token":   {h1, "unknown", "The token is not known here."},
		"a certificate of names": {hosts.client(x509.Certificate{Subject: pkix.Name{CommonName: "h3"}}), "",
			"host h3 with host"},
		"one that is denied": {hosts.client(host("stolen")), "", "from rack 7"},
		"a service": {hosts.client(
			x509.Certificate{URIs: pki.Identity{Kind: pki.Service, Name: "cell1"}.URIs()}), "", "of the service cell1"},
		"a token that is denied": {hosts.client(host("h1")), "stolen-token", "from rack 7"},
		"another CA":             {others.client(host("h1")), "", "The request has no token"},
	} {
		testproc.Contains(t, ask(c.client, c.token), c.want, "%s: %q", name)
	}
	clock = func() time.Time { return time.Now().Add(2 * time.Hour) }
	testproc.Contains(t, ask(h1, ""), "not valid now", "on an open connection, after its certificate expired: %q")
}

// TestTokensOfHosts: such a token is for its host alone.
func TestTokensOfHosts(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for _, bad := range []string{sum + " host,service h1", sum + " host h1 project"} {
		testproc.Try(osapi.ReadTokens(strings.NewReader(bad), "tokens")).ErrorHas(t, "tokens line 1", "%q: %v", bad)
	}
}
