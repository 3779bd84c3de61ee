// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	a := &authority{key: key}
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.certificate, a.certificate, &key.PublicKey, key)
	testproc.Check(t, err)
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// sign makes a certificate for 127.0.0.1 that is valid for some days from now, or was until some
// days ago, and its key.
func (a *authority) sign(t *testing.T, name string, days int) (certificate, key []byte) {
	t.Helper()
	private := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	a.serial++
	end := time.Now().Add(time.Duration(days) * 24 * time.Hour)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: end.Add(-1000 * 24 * time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := testproc.Try(x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)).Or(t)
	keyDER := testproc.Try(x509.MarshalPKCS8PrivateKey(private)).Or(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// tlsFiles are those of a service, in a directory of the test.
func tlsFiles(t *testing.T) osapi.TLSFiles {
	t.Helper()
	dir := t.TempDir()
	return osapi.TLSFiles{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
}

func put(t *testing.T, path string, data []byte, mode fs.FileMode) {
	t.Helper()
	testproc.Check(t, errors.Join(os.WriteFile(path, data, mode), os.Chmod(path, mode)))
}

// client trusts one authority, and makes a new connection for each request.
func client(ca *authority, certificates ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: certificates},
		ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}}
}

// ask sends a request, and says who the server is or what went wrong.
func ask(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/resource_providers",
		strings.NewReader(`{"name":"`+t.Name()+time.Now().String()+`"}`))
	testproc.Check(t, err)
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	return resp, resp.Body.Close()
}

func TestTLS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server, clients, nextClients := newAuthority(t, "servers"), newAuthority(t, "clients"),
		newAuthority(t, "next clients")
	cfg := config(t)
	cfg.TLS = tlsFiles(t)
	cfg.TLS.ClientCAFile = cfg.TLS.CertFile + ".clients"
	var clock atomic.Int64 // seconds beside the machine's clock
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(clock.Load()) * time.Second) }
	var log testproc.Buffer
	cfg.Logger = zerolog.New(&log)
	certificate, key := server.sign(t, "first", 100)
	put(t, cfg.TLS.CertFile, certificate, 0o644)
	put(t, cfg.TLS.KeyFile, key, 0o600)
	put(t, cfg.TLS.ClientCAFile, clients.pem(), 0o644)
	service := testproc.Try(placement.New(t.Context(), cfg)).Or(t)
	l, _ := listen(t)
	url := "https://" + l.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- service.Serve(ctx, l) }()
	defer func() {
		stop()
		testproc.NoError(t, errors.Join(<-served, service.Close()))
	}()

	pair := func(a *authority) tls.Certificate {
		return testproc.Try(tls.X509KeyPair(a.sign(t, "agent", 10))).Or(t)
	}
	agent, nextAgent := client(server, pair(clients)), client(server, pair(nextClients))
	served1 := func(name string) {
		t.Helper()
		resp := testproc.Try(ask(t, agent, url)).Or(t)
		if got := resp.TLS.PeerCertificates[0].Subject.CommonName; got != name ||
			resp.StatusCode != http.StatusCreated {
			t.Errorf("the server is %q, want %q; status %d", got, name, resp.StatusCode)
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", resp.Proto)
		}
		if got := resp.Header.Get("Location"); !strings.HasPrefix(got, url+"/resource_providers/") {
			t.Errorf("Location: %s", got)
		}
	}
	served1("first")
	for name, c := range map[string]*http.Client{"a client of an untrusted CA": nextAgent,
		"a client without a certificate": client(server)} {
		if resp, err := ask(t, c, url); err == nil {
			t.Errorf("%s got an answer: %s", name, resp.Status)
		}
	}
	old := client(server, pair(clients))
	old.Transport.(*http.Transport).
		TLSClientConfig.MaxVersion = tls.VersionTLS11
	old.Transport.(*http.Transport).
		TLSClientConfig.MinVersion = tls.VersionTLS10
	if resp, err := ask(t, old, url); err == nil {
		t.Errorf("TLS 1.1 got an answer: %s", resp.Status)
	}

	// New files are for new connections; a certificate without its key is not used.
	certificate, key = server.sign(t, "second", 100)
	put(t, cfg.TLS.CertFile, certificate, 0o644)
	clock.Add(1)
	served1("first")
	if !strings.Contains(log.String(), "private key does not match public key") {
		t.Errorf("the log does not say what is wrong: %s", log.String())
	}
	put(t, cfg.TLS.KeyFile, key, 0o600)
	clock.Add(1)
	served1("second")
	put(t, cfg.TLS.ClientCAFile, nextClients.pem(), 0o644)
	clock.Add(1)
	if resp, err := ask(t, agent, url); err == nil {
		t.Errorf("an agent of a CA that is not trusted any more: %s", resp.Status)
	}
	agent = nextAgent
	served1("second")
}

func TestTLSFilesThatAreNotRight(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ca := newAuthority(t, "servers")
	certificate, key := ca.sign(t, "one", 100)
	other, _ := ca.sign(t, "other", 100)
	for name, c := range map[string]struct {
		change func(*osapi.TLSFiles)
		says   string
	}{
		"no key": {func(c *osapi.TLSFiles) { c.KeyFile = "" }, "needs a certificate and its key"},
		"only clients": {func(c *osapi.TLSFiles) { *c = osapi.TLSFiles{ClientCAFile: c.CertFile} },
			"needs a certificate and its key"},
		"a missing file": {func(c *osapi.TLSFiles) { c.CertFile += ".not" }, "no such file"},
		"another's key": {func(c *osapi.TLSFiles) { put(t, c.CertFile, other, 0o600) },
			"private key does not match public key"},
		"no certificate": {func(c *osapi.TLSFiles) { put(t, c.CertFile, []byte("hello"), 0o600) },
			"failed to find any PEM data"},
		"a key for all": {func(c *osapi.TLSFiles) { put(t, c.KeyFile, key, 0o644) },
			"has mode 0644, so that other users can read or change it; run: chmod g-w,o= "},
		"no CAs": {func(c *osapi.TLSFiles) { c.ClientCAFile = c.KeyFile }, "has no certificates in PEM"},
		"a broken CA": {func(c *osapi.TLSFiles) {
			c.ClientCAFile = c.CertFile + "2"
			put(t, c.ClientCAFile, []byte("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"), 0o600)
		}, "certificate 1 of"},
	} {
		cfg := config(t)
		cfg.TLS = tlsFiles(t)
		put(t, cfg.TLS.CertFile, certificate, 0o600)
		put(t, cfg.TLS.KeyFile, key, 0o600)
		c.change(&cfg.TLS)
		_, err := placement.New(t.Context(), cfg)
		if !errors.Is(err, placement.ErrConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A service that does not authenticate clients serves this machine only, whatever certificate
	// it has.
	cfg := config(t)
	cfg.TLS, cfg.Listen = tlsFiles(t), "0.0.0.0:0"
	put(t, cfg.TLS.CertFile, certificate, 0o600)
	put(t, cfg.TLS.KeyFile, key, 0o600)
	testproc.Try(placement.New(t.Context(), cfg)).ErrorIs(t, placement.ErrNotLoopback, "noauth for all: %v")
}

func TestCertificatesThatEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ca := newAuthority(t, "servers")
	for days, want := range map[int]string{-1: `"level":"error"`, 3: `"level":"warn"`,
		100: "", 2000: `"level":"error"`} {
		cfg := config(t)
		cfg.TLS = tlsFiles(t)
		certificate, key := ca.sign(t, "one", days)
		put(t, cfg.TLS.CertFile, certificate, 0o600)
		put(t, cfg.TLS.KeyFile, key, 0o600)
		var log bytes.Buffer
		cfg.Logger = zerolog.New(&log)
		server, err := placement.New(t.Context(), cfg)
		if err != nil {
			t.Errorf("%d days: %v", days, err)
			continue
		}
		testproc.NoError(t, server.Close())
		said := log.String()
		if !strings.Contains(said, want) || strings.Contains(said, "certificate") != (want != "") {
			t.Errorf("%d days: the log says %q", days, said)
		}
	}
}
