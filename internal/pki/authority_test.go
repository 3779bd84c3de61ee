// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func newAuthority(t testing.TB, now time.Time) *pki.Authority {
	t.Helper()
	return testproc.Try(pki.InitAuthority(filepath.Join(t.TempDir(), "ca"), "test-ca", now)).Or(t)
}

// request is that of a new key.
func request(t testing.TB, name string) *x509.CertificateRequest {
	t.Helper()
	key, _, err := pki.NewKey()
	testproc.Check(t, err)
	return requestOf(t, key, name)
}

func requestOf(t testing.TB, key crypto.Signer, name string) *x509.CertificateRequest {
	t.Helper()
	text := testproc.Try(pki.NewRequest(key, name)).Or(t)
	return testproc.Try(pki.ParseRequest(text)).Or(t)
}

func parsed(t testing.TB, text []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one certificate: %q", text)
	}
	return testproc.Try(x509.ParseCertificate(block.Bytes)).Or(t)
}

func TestAuthorityIsMadeOnceAndOpenedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "ca")
	if _, err := pki.OpenAuthority(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "ca init") {
		t.Errorf("a directory without a CA: %v", err)
	}
	made := testproc.Try(pki.InitAuthority(dir, "site-ca", time.Now())).Or(t)
	key, certificate := filepath.Join(dir, pki.CAKeyFile), filepath.Join(dir, pki.CACertificateFile)
	for path, mode := range map[string]os.FileMode{key: 0o600, certificate: 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	opened, err := pki.OpenAuthority(dir)
	if err != nil || opened.Fingerprint() != made.Fingerprint() || !bytes.Equal(opened.PEM(), made.PEM()) {
		t.Fatalf("opened: %v", err)
	}
	c := opened.Certificate()
	if !c.IsCA || !c.MaxPathLenZero || c.MaxPathLen != 0 || c.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign ||
		c.Subject.CommonName != "site-ca" {
		t.Errorf("the certificate of the CA: %+v", c)
	}
	before := testproc.Try(os.ReadFile(key)).Or(t)
	testproc.Try(pki.InitAuthority(dir, "other", time.Now())).ErrorIs(t, os.ErrExist, "made again: %v")
	if err := os.Remove(certificate); err != nil { // as after a crash between the two files
		t.Fatal(err)
	}
	testproc.Try(pki.InitAuthority(dir, "other", time.Now())).ErrorIs(t, os.ErrExist, "made again beside a key: %v")
	if after, err := os.ReadFile(key); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key was written over: %v", err)
	}
}

func TestAuthorityThatCannotBeUsed(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"a key that others may read": {func(dir string) error {
			return os.Chmod(filepath.Join(dir, pki.CAKeyFile),
				0o644)
		}, "chmod"},
		"a key of another certificate": {func(dir string) error {
			_, key, err := pki.NewKey()
			return errors.Join(err, os.WriteFile(filepath.Join(dir, pki.CAKeyFile), key, 0o600))
		}, "private key does not match"},
		"no certificate": {func(dir string) error { return os.Remove(filepath.Join(dir, pki.CACertificateFile)) },
			"certificate of the CA"},
		"a certificate of a host": {func(dir string) error {
			ca, err := pki.OpenAuthority(dir)
			if err != nil {
				return err
			}
			key, text, err := pki.NewKey()
			if err != nil {
				return err
			}
			made, err := ca.Sign(requestOf(t, key, "h1"),
				pki.Identity{Kind: pki.Host, Name: "h1"}, pki.SignOptions{Lifetime: time.Hour, Now: now})
			return errors.Join(err, os.WriteFile(filepath.Join(dir, pki.CAKeyFile), text, 0o600),
				os.WriteFile(filepath.Join(dir, pki.CACertificateFile), made, 0o600))
		}, "not the certificate of a CA"},
	} {
		dir := t.TempDir()
		testproc.Try(pki.InitAuthority(dir, "ca", now)).Or(t)
		testproc.Check(t, c.spoil(dir))
		testproc.Try(pki.OpenAuthority(dir)).ErrorHas(t, c.want, "%s: %v", name)
	}
	old := t.TempDir()
	testproc.Try(pki.InitAuthority(old, "ca", now.Add(-11*365*24*time.Hour))).Or(t)
	testproc.Try(pki.OpenAuthority(old)).ErrorHas(t, "not now", "an expired one: %v")
}

func TestSignedCertificates(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 500, time.UTC)
	ca := newAuthority(t, now.Add(-time.Hour))
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	long := strings.Repeat("n", 70) + ".example"
	client, server := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	for name, c := range map[string]struct {
		id      pki.Identity
		o       pki.SignOptions
		usages  []x509.ExtKeyUsage
		common  string
		notFrom time.Time
	}{
		"a host": {
			pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1", "h1.example"}, Nodes: []string{node}},
			pki.SignOptions{Lifetime: 24 * time.Hour, Client: true},
			[]x509.ExtKeyUsage{client}, "h1", now.Add(-time.Minute),
		},
		"a host that was denied until now": {
			pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1"}},
			pki.SignOptions{Lifetime: time.Hour, NotBefore: now},
			[]x509.ExtKeyUsage{client}, "h1", now,
		},
		"a long name": {pki.Identity{Kind: pki.Host, Name: long, Names: []string{long}},
			pki.SignOptions{Lifetime: time.Hour}, []x509.ExtKeyUsage{client}, "", now.Add(-time.Minute)},
		"a service": {pki.Identity{Kind: pki.Service, Name: "cell1", Names: []string{"cell1.example"}},
			pki.SignOptions{Lifetime: time.Hour, Addresses: []net.IP{net.IPv4(192, 0, 2, 1)}},
			[]x509.ExtKeyUsage{server}, "cell1", now.Add(-time.Minute)},
		"a service and client": {pki.Identity{Kind: pki.Service, Name: "compute-api"},
			pki.SignOptions{Lifetime: time.Hour, Client: true}, []x509.ExtKeyUsage{server, client},
			"compute-api", now.Add(-time.Minute)},
	} {
		c.o.Now = now
		r := request(t, "another")
		text, err := ca.Sign(r, c.id, c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := parsed(t, text)
		if got.IsCA || got.Subject.CommonName != c.common || !slices.Equal(got.DNSNames, c.id.Names) ||
			!slices.Equal(got.ExtKeyUsage, c.usages) || len(got.IPAddresses) != len(c.o.Addresses) {
			t.Errorf("%s: %+v", name, got)
		}
		if got.SerialNumber.BitLen() < 64 || got.SerialNumber.BitLen() > 129 {
			t.Errorf("%s: the serial number %x", name, got.SerialNumber)
		}
		// Never before it may be, and never much before now.
		if from := c.notFrom.Truncate(time.Second); got.NotBefore.Before(from) ||
			got.NotBefore.After(from.Add(time.Second)) || got.NotBefore.Before(c.o.NotBefore) {
			t.Errorf("%s: valid from %s", name, got.NotBefore)
		}
		if want := now.Add(c.o.Lifetime).Truncate(time.Second); !got.NotAfter.Equal(want) {
			t.Errorf("%s: valid until %s", name, got.NotAfter)
		}
		if _, err := got.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(time.Second),
			KeyUsages: c.usages[len(c.usages)-1:]}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		id, err := pki.IdentityOf(got)
		if err != nil || id.Kind != c.id.Kind || id.Name != c.id.Name || !slices.Equal(id.Nodes, c.id.Nodes) {
			t.Errorf("%s: read back as %+v, %v", name, id, err)
		}
	}
}

func TestReEnrolledHostIsLetInByItsNewCertificate(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 1, time.UTC)
	ca := newAuthority(t, now.Add(-time.Hour))
	denied := testproc.Try(pki.NewDenyList([]pki.Denial{{Host: "h1", Before: now}})).Or(t)
	for notBefore, refused := range map[time.Time]bool{{}: true, now: false} {
		text, err := ca.Sign(request(t, "h1"), pki.Identity{Kind: pki.Host, Name: "h1"},
			pki.SignOptions{Lifetime: time.Hour, Now: now, NotBefore: notBefore})
		testproc.Check(t, err)
		id := testproc.Try(pki.IdentityOf(parsed(t, text))).Or(t)
		if err := denied.CheckIdentity(id); errors.Is(err, pki.ErrDenied) != refused {
			t.Errorf("signed with %v: %v", notBefore, err)
		}
	}
}

func TestCertificateDoesNotOutliveItsCA(t *testing.T) {
	now := time.Now()
	ca := newAuthority(t, now)
	text, err := ca.Sign(request(t, "h1"), pki.Identity{Kind: pki.Host, Name: "h1"},
		pki.SignOptions{Lifetime: 100 * 365 * 24 * time.Hour, Now: now})
	testproc.Check(t, err)
	if c := parsed(t, text); !c.NotAfter.Equal(ca.Certificate().NotAfter) ||
		c.NotBefore.Before(ca.Certificate().NotBefore) {
		t.Errorf("valid from %s until %s", c.NotBefore, c.NotAfter)
	}
}

func TestWhatIsNotSigned(t *testing.T) {
	now := time.Now()
	ca := newAuthority(t, now)
	host := pki.Identity{Kind: pki.Host, Name: "h1"}
	hour := pki.SignOptions{Lifetime: time.Hour, Now: now}
	for name, c := range map[string]struct {
		id pki.Identity
		o  pki.SignOptions
	}{
		"neither host nor service":  {pki.Identity{Name: "h1"}, hour},
		"no name":                   {pki.Identity{Kind: pki.Host}, hour},
		"a name with a space":       {pki.Identity{Kind: pki.Host, Name: "a b"}, hour},
		"a name for a file":         {pki.Identity{Kind: pki.Host, Name: "../ca"}, hour},
		"a name that is too long":   {pki.Identity{Kind: pki.Host, Name: strings.Repeat("a", 254)}, hour},
		"another name with a break": {pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h\n2"}}, hour},
		"a node that is no uuid":    {pki.Identity{Kind: pki.Host, Name: "h1", Nodes: []string{"7"}}, hour},
		"a service with a node":     {pki.Identity{Kind: pki.Service, Name: "s", Nodes: []string{node}}, hour},
		"a host with an address": {host,
			pki.SignOptions{Lifetime: time.Hour, Now: now, Addresses: []net.IP{net.IPv4(192, 0, 2, 1)}}},
		"no lifetime": {host, pki.SignOptions{Now: now}},
		"one that ends before begin": {host,
			pki.SignOptions{Lifetime: time.Hour, Now: now, NotBefore: now.Add(2 * time.Hour)}},
		"an expired CA": {host, pki.SignOptions{Lifetime: time.Hour, Now: now.Add(11 * 365 * 24 * time.Hour)}},
	} {
		if text, err := ca.Sign(request(t, "h1"), c.id, c.o); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestRequestsOfKeys(t *testing.T) {
	ecKey := func(c elliptic.Curve) crypto.Signer {
		return testproc.Try(ecdsa.GenerateKey(c, rand.Reader)).Or(t)
	}
	rsaKey := func(bits int) crypto.Signer {
		return testproc.Try(rsa.GenerateKey(rand.Reader, bits)).Or(t)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	testproc.Check(t, err)
	for name, c := range map[string]struct {
		key   crypto.Signer
		taken bool
	}{
		"P-224": {ecKey(elliptic.P224()), false}, "P-256": {ecKey(elliptic.P256()), true},
		"P-384": {ecKey(elliptic.P384()), true}, "P-521": {ecKey(elliptic.P521()), false},
		"RSA 1024": {rsaKey(1024), false}, "RSA 2048": {rsaKey(2048), true}, "Ed25519": {edKey, true},
	} {
		text, err := pki.NewRequest(c.key, "h1")
		testproc.Checkf(t, err, "%s", name)
		if _, err := pki.ParseRequest(text); (err == nil) != c.taken || err != nil && !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysAreReadBack(t *testing.T) {
	key, text, err := pki.NewKey()
	testproc.Check(t, err)
	if again, err := pki.ParseKey(text); err != nil || !key.Public().(*ecdsa.PublicKey).Equal(again.Public()) {
		t.Error(err)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "a certificate": newAuthority(t, time.Now()).PEM(),
		"no key in it": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
	} {
		testproc.Try(pki.ParseKey(bad)).ErrorIs(t, pki.ErrInvalid, "%s: %v", name)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	key, keyPEM, err := pki.NewKey()
	testproc.Check(t, err)
	good := testproc.Try(pki.NewRequest(key, "h1")).Or(t)
	block, _ := pem.Decode(good)
	forged := slices.Clone(block.Bytes)
	forged[len(forged)-1] ^= 1 // the last byte of the signature
	for name, text := range map[string][]byte{
		"nothing":           nil,
		"no PEM":            []byte("a request"),
		"a key":             keyPEM,
		"no request in it":  pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: []byte("x")}),
		"another signature": pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: forged}),
		"two requests":      append(slices.Clone(good), good...),
		"too long":          append(slices.Clone(good), bytes.Repeat([]byte("\n"), 1<<20)...),
	} {
		testproc.Try(pki.ParseRequest(text)).ErrorIs(t, pki.ErrInvalid, "%s: %v", name)
	}
}

// FuzzParseRequest: what is parsed can be signed, and its certificate is for whom the CA says.
func FuzzParseRequest(f *testing.F) {
	ca := newAuthority(f, time.Now())
	key, _, err := pki.NewKey()
	testproc.Check(f, err)
	good := testproc.Try(pki.NewRequest(key, "h1")).Or(f)
	f.Add(good)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := pki.ParseRequest(text)
		if err != nil {
			testproc.ErrorIs(t, err, pki.ErrInvalid, "%v")
			return
		}
		made, err := ca.Sign(r, pki.Identity{Kind: pki.Host, Name: "h2"},
			pki.SignOptions{Lifetime: time.Hour, Now: time.Now()})
		testproc.Check(t, err)
		c := parsed(t, made)
		if id, err := pki.IdentityOf(c); err != nil || id.Name != "h2" || c.Subject.CommonName != "h2" ||
			len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses) > 0 {
			t.Errorf("the signed certificate: got %+v, %v, want h2 and no other names", id, err)
		}
	})
}
