// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// certified writes a certificate of a CA and its key.
func certified(t *testing.T, ca *pki.Authority, id pki.Identity, certFile, keyFile string) {
	t.Helper()
	key, keyPEM, err := pki.NewKey()
	testproc.Check(t, err)
	text := testproc.Try(pki.NewRequest(key, id.Name)).Or(t)
	request := testproc.Try(pki.ParseRequest(text)).Or(t)
	o := pki.SignOptions{Lifetime: time.Hour, Now: time.Now()}
	if id.Kind == pki.Service {
		o.Addresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	certificate := testproc.Try(ca.Sign(request, id, o)).Or(t)
	write(t, certFile, certificate)
	write(t, keyFile, keyPEM)
}

// write replaces a file.
func write(t *testing.T, path string, text []byte) {
	t.Helper()
	testproc.Check(t, os.WriteFile(path+".new", text, 0o600))
	testproc.Check(t, os.Rename(path+".new", path))
}

func newCA(t *testing.T) *pki.Authority {
	t.Helper()
	return testproc.Try(pki.InitAuthority(filepath.Join(t.TempDir(), "ca"), "ca", time.Now())).Or(t)
}

// TestClientSaysWhichCAItTrusts, and of which CA the server's certificate is, if they differ.
func TestClientSaysWhichCAItTrusts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	theirs := testproc.Try(pki.InitAuthority(filepath.Join(dir, "theirs"), "placement-ca", time.Now())).Or(t)
	ours := testproc.Try(pki.InitAuthority(filepath.Join(dir, "ours"), "hosts-ca", time.Now())).Or(t)
	cert, key, trust := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key"), filepath.Join(dir, "ca.pem")
	certified(t, theirs, pki.Identity{Kind: pki.Service, Name: "placement"}, cert, key)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{testproc.Try(tls.LoadX509KeyPair(cert, key)).Or(t)}}
	server.StartTLS()
	t.Cleanup(server.Close)
	get := func(caFile string) error {
		transport := testproc.Try(pki.ClientTLS{CAFile: caFile}.Transport(zerolog.Nop(), nil,
			func(c *tls.Config) *http.Transport { return &http.Transport{TLSClientConfig: c} })).Or(t)
		client := &http.Client{Transport: transport}
		defer client.CloseIdleConnections()
		resp, err := client.Get(server.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	write(t, trust, ours.PEM())
	for file, want := range map[string]string{
		trust: `the server's certificate is of the CA "placement-ca", and ` + trust + ` has "hosts-ca"`,
		"": `the server's certificate is of the CA "placement-ca", and the CAs of the system are trusted; name ` +
			`its CA in ca_file`,
	} {
		err := get(file)
		var unverified *tls.CertificateVerificationError
		var unknown x509.UnknownAuthorityError
		if !errors.As(err, &unverified) || !errors.As(err, &unknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	write(t, trust, append(slices.Repeat(ours.PEM(), 4), '\n'))
	if err := get(trust); err == nil || !strings.Contains(err.Error(), `"hosts-ca", "hosts-ca", "hosts-ca", 1 more`) {
		t.Errorf("many CAs: %v", err)
	}
	write(t, trust, theirs.PEM())
	testproc.NoError(t, get(trust))
}

// TestClientFollowsItsFiles replaces each file of a client whose connection stays open: the
// certificate of before is not shown on, and a new CA is trusted without a restart.
func TestClientFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	caFile, certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"),
		filepath.Join(dir, "key.pem")
	serverCert, serverKey := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	first, second := newCA(t), newCA(t)
	certified(t, first, pki.Identity{Kind: pki.Service, Name: "server"}, serverCert, serverKey)
	certified(t, first, pki.Identity{Kind: pki.Host, Name: "h1"}, certFile, keyFile)
	write(t, caFile, first.PEM())
	clients := x509.NewCertPool()
	clients.AddCert(first.Certificate())
	var who string
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { who = r.TLS.PeerCertificates[0].Subject.CommonName }))
	server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
			return &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert,
				ClientCAs: clients, Certificates: []tls.Certificate{pair}}, err
		},
	}
	server.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()

	var log bytes.Buffer
	now := time.Now().Add(time.Hour) // no file was written a moment ago
	transport, err := pki.ClientTLS{CAFile: caFile, CertFile: certFile, KeyFile: keyFile, MinVersion: tls.VersionTLS13}.
		Transport(zerolog.New(&log), func() time.Time { return now }, func(config *tls.Config) *http.Transport {
			return &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
		})
	testproc.Check(t, err)
	ask := func() error {
		req := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)).Or(t)
		who = ""
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	if err := ask(); err != nil || who != "h1" {
		t.Fatalf("%v, as %q", err, who)
	}
	certified(t, first, pki.Identity{Kind: pki.Host, Name: "h1-renewed"}, certFile, keyFile)
	now = now.Add(time.Second)
	if err := ask(); err != nil || who != "h1-renewed" {
		t.Errorf("another certificate: %v, as %q", err, who)
	}
	write(t, caFile, []byte("not a certificate"))
	now = now.Add(time.Second)
	if err := ask(); err != nil || !strings.Contains(log.String(), "Failed to reload") {
		t.Errorf("a broken file: %v\n%s", err, &log)
	}
	certified(t, second, pki.Identity{Kind: pki.Service, Name: "server"}, serverCert, serverKey)
	write(t, caFile, second.PEM())
	now = now.Add(time.Second)
	if err := ask(); err != nil || who != "h1-renewed" {
		t.Errorf("another CA: %v, as %q", err, who)
	}
	write(t, caFile, first.PEM())
	now = now.Add(time.Second)
	var unknown x509.UnknownAuthorityError
	if err := ask(); !errors.As(err, &unknown) {
		t.Errorf("a CA that is not trusted any more: %v", err)
	}
}

func TestClientFilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	missing, broken := filepath.Join(dir, "missing"), filepath.Join(dir, "broken")
	write(t, broken, []byte("nothing"))
	for name, c := range map[string]struct {
		files pki.ClientTLS
		want  error
	}{
		"no CA file":       {pki.ClientTLS{CAFile: missing}, pki.ErrCAFile},
		"a CA file of not": {pki.ClientTLS{CAFile: broken}, pki.ErrCAFile},
		"no certificate":   {pki.ClientTLS{CertFile: missing, KeyFile: missing}, pki.ErrCertificate},
		"a broken one":     {pki.ClientTLS{CertFile: broken, KeyFile: broken}, pki.ErrCertificate},
	} {
		if _, err := c.files.Transport(zerolog.Nop(), nil,
			func(*tls.Config) *http.Transport { return &http.Transport{} }); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
