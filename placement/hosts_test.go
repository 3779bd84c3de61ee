// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHostsByCertificate: a certificate of a CA of hosts says which host a request without a token
// comes from, whatever the strategy is for everybody else. One that has expired, and one of a host
// on the deny list, are refused; one of another CA says nothing.
func TestHostsByCertificate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ca, other := newAuthority(t, "hosts"), newAuthority(t, "other")
	files := tlsFiles(t)
	certificate, key := ca.sign(t, "placement", 1)
	put(t, files.CertFile, certificate, 0o644)
	put(t, files.KeyFile, key, 0o600)
	dir := filepath.Dir(files.CertFile)
	files.HostCAFile, files.ClientCAFile = filepath.Join(dir, "hosts.pem"), filepath.Join(dir, "clients.pem")
	put(t, files.HostCAFile, ca.pem(), 0o644)
	put(t, files.ClientCAFile, append(ca.pem(), other.pem()...), 0o644)
	denied := filepath.Join(dir, "denied")
	put(t, denied, []byte("stolen 2100-01-01T00:00:00Z it was stolen\n"), 0o644)
	list := testproc.Try(pki.OpenDenyFile(denied, zerolog.Nop())).Or(t)
	s := testproc.Try(placement.New(t.Context(), placement.Config{
		StateDir: t.TempDir(), Auth: placement.Auth{Strategy: placement.NoAuth}, TLS: files,
		Denied: list, Logger: zerolog.Nop(),
	})).Or(t)
	defer func() { testproc.NoError(t, s.Close()) }()
	config := testproc.Try(files.Config(zerolog.Nop(), nil)).Or(t)
	web := httptest.NewUnstartedServer(s.Handler())
	web.TLS = config
	web.StartTLS()
	defer web.Close()
	for _, c := range []struct {
		name, path, token string
		by                *authority
		want              int
	}{
		{"cn1", "/resource_providers?name=cn1", "", ca, http.StatusOK},
		{"cn1", "/resource_providers?name=cn2", "", ca, http.StatusForbidden},
		{"cn1", "/resource_providers", "admin", ca, http.StatusOK},
		{"cn1", "/resource_providers?name=cn1", "user", ca, http.StatusForbidden},
		{"stolen", "/resource_providers?name=stolen", "", ca, http.StatusUnauthorized},
		{"cn1", "/resource_providers?name=cn1", "", other, http.StatusUnauthorized},
	} {
		certificate, key := c.by.sign(t, c.name, 1)
		pair := testproc.Try(tls.X509KeyPair(certificate, key)).Or(t)
		req := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+c.path, http.NoBody)).Or(t)
		req.Header.Set("Openstack-Api-Version", "placement 1.37")
		if c.token != "" {
			req.Header.Set("X-Auth-Token", c.token)
		}
		resp, err := client(ca, pair).Do(req)
		testproc.Checkf(t, err, "%s", c.name)
		if err := resp.Body.Close(); err != nil || resp.StatusCode != c.want {
			t.Errorf("%s %s with the token %q: %s, want %d", c.name, c.path, c.token, resp.Status, c.want)
		}
	}
}
