// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
)

// The files of an Authority, in its directory.
const (
	CACertificateFile = "ca.pem"
	CAKeyFile         = "ca.key"
)

const (
	// authorityLife is how long the certificate of a new Authority is valid.
	authorityLife = 10 * 365 * 24 * time.Hour
	// clockSkew is how long before it was signed a certificate begins to be valid, for servers
	// whose clocks are behind.
	clockSkew = time.Minute
	// maxCommonName is the length of a common name (RFC 5280, ub-common-name).
	maxCommonName = 64
	// maxHostName is the length of a name in the DNS.
	maxHostName = 253
)

// Authority is a small CA: it signs the certificates of hosts and of services, and of no other CA.
// It keeps no record of what it signed. It is safe for concurrent use.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte
}

// InitAuthority makes an Authority with a new key in a directory, which it makes if it is missing.
// An error that wraps [os.ErrExist] if the directory has one already.
func InitAuthority(dir, name string, now time.Time) (*Authority, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	key, keyPEM, err := NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the CA: %w", err)
	}
	if err := writeAuthority(dir, keyPEM, certificatePEM(der)); err != nil {
		return nil, fmt.Errorf("make a CA in %s: %w", dir, err)
	}
	return openAuthority(dir, now)
}

// writeAuthority makes the files of a CA. The key comes first: without its certificate it is good
// for nothing.
func writeAuthority(dir string, key, certificate []byte) error {
	path := filepath.Join(dir, CACertificateFile)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w; choose another directory to make another CA", path, os.ErrExist)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := files.Create(filepath.Join(dir, CAKeyFile), key, 0o600); err != nil {
		return err
	}
	return files.Create(path, certificate, 0o644)
}

// OpenAuthority reads the Authority of a directory. A key that other users may read is refused, as
// is a certificate that is not that of the key, not of a CA, or not valid now.
func OpenAuthority(dir string) (*Authority, error) { return openAuthority(dir, time.Now()) }

func openAuthority(dir string, now time.Time) (*Authority, error) {
	key, err := files.Read(filepath.Join(dir, CAKeyFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s has no CA: %w; make one with: compute-agent ca init --dir %[1]s", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the key of the CA: %w", err)
	}
	if err := errors.Join(key.Private(), key.OwnedHere()); err != nil {
		return nil, fmt.Errorf("the key of the CA: %w", err)
	}
	certificate, err := files.Read(filepath.Join(dir, CACertificateFile))
	if err != nil {
		return nil, fmt.Errorf("the certificate of the CA: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate.Data, key.Data)
	if err != nil {
		return nil, fmt.Errorf("the CA in %s: %w", dir, err)
	}
	c, signer := pair.Leaf, pair.PrivateKey.(crypto.Signer) // X509KeyPair returns no other keys
	if !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, fmt.Errorf("%s is not the certificate of a CA", certificate.Path)
	}
	if err := validAt(c, now); err != nil {
		return nil, fmt.Errorf(
			"%s: %w; make a new CA in another directory, and let servers trust both while hosts and services get "+
				"new certificates", certificate.Path, err)
	}
	return &Authority{certificate: c, key: signer, pem: certificatePEM(c.Raw)}, nil
}

// Certificate returns the certificate of the Authority.
func (a *Authority) Certificate() *x509.Certificate { return a.certificate }

// PEM is Certificate in PEM.
func (a *Authority) PEM() []byte { return a.pem }

// Fingerprint returns the fingerprint of Certificate.
func (a *Authority) Fingerprint() string { return Fingerprint(a.certificate) }

// Fingerprint is the SHA-256 of a certificate, in hexadecimal digits.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// SignOptions are about one certificate.
type SignOptions struct {
	// Lifetime is how long it is valid from Now on; not longer than the certificate of the CA.
	Lifetime time.Duration
	Now      time.Time
	// NotBefore is when it begins to be valid at the earliest, such as when its host was put on the
	// deny list: earlier certificates are refused. It may be zero.
	NotBefore time.Time
	// Addresses are the IP addresses at which clients reach the service.
	Addresses []net.IP
	// Client lets a service show it as a client, too. Hosts are clients only.
	Client bool
}

// Sign makes a certificate for the key of a request, in PEM. It is for id: its common name, its DNS
// names and its URIs are those of id, and nothing of the request but its key.
func (a *Authority) Sign(request *x509.CertificateRequest, id Identity, o SignOptions) ([]byte, error) {
	if err := a.check(id, o); err != nil {
		return nil, err
	}
	if err := checkKey(request.PublicKey); err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		NotBefore: latest(o.Now.Add(-clockSkew).Truncate(time.Second),
			roundUp(o.NotBefore), a.certificate.NotBefore),
		NotAfter: o.Now.Add(o.Lifetime),
		DNSNames: id.Names, URIs: id.URIs(), IPAddresses: o.Addresses,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	if !template.NotAfter.After(template.NotBefore) {
		return nil, fmt.Errorf("%w: it would begin at %s and end at %s",
			ErrInvalid, rfc3339(template.NotBefore), rfc3339(template.NotAfter))
	}
	if len(id.Name) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: id.Name}
	}
	if id.Kind == Service {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if o.Client {
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, request.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", id.Name, err)
	}
	return certificatePEM(der), nil
}

// SignPEM is Sign for a request in PEM.
func (a *Authority) SignPEM(csr []byte, id Identity, o SignOptions) ([]byte, error) {
	request, err := ParseRequest(csr)
	if err != nil {
		return nil, err
	}
	return a.Sign(request, id, o)
}

// Issue makes the certificate of a service, in PEM, and writes it to certFile. Its key is that of
// keyFile; see FileKey.
func (a *Authority) Issue(certFile, keyFile string, service Identity, o SignOptions) ([]byte, error) {
	key, err := FileKey(keyFile)
	if err != nil {
		return nil, err
	}
	csr, err := NewRequest(key, service.Name)
	if err != nil {
		return nil, err
	}
	certificate, err := a.SignPEM(csr, service, o)
	if err != nil {
		return nil, err
	}
	return certificate, files.ReplaceMode(certFile, certificate, 0o644)
}

// check refuses what no certificate can say, and a CA that is not valid.
func (a *Authority) check(id Identity, o SignOptions) error {
	switch {
	case id.Kind == Unmarked:
		return fmt.Errorf("%w: it is neither of a host nor of a service", ErrInvalid)
	case id.Kind == Service && (len(id.Nodes) > 0 || id.Cell != ""):
		return fmt.Errorf("%w: a service has no compute nodes and no cell", ErrInvalid)
	case id.Kind == Host && len(o.Addresses) > 0:
		return fmt.Errorf("%w: the certificate of a host has no addresses: it is a client's", ErrInvalid)
	case o.Lifetime <= 0:
		return fmt.Errorf("%w: a lifetime of %s", ErrInvalid, o.Lifetime)
	}
	for _, name := range append([]string{id.Name}, id.Names...) {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	if err := validAt(a.certificate, o.Now); err != nil {
		return fmt.Errorf("the certificate of the CA: %w", err)
	}
	// What is signed is what will be read: an identity that cannot be read back is not signed.
	if _, err := IdentityOf(&x509.Certificate{DNSNames: id.Names, URIs: id.URIs()}); err != nil {
		return err
	}
	return nil
}

// CheckName returns ErrInvalid for a name that a host or a service cannot have: it is one of the
// DNS, in which "_" may be too.
func CheckName(name string) error {
	if name == "" || len(name) > maxHostName || strings.ContainsAny(name[:1], ".-") ||
		strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
				!strings.ContainsRune(".-_", r)
		}) {
		return fmt.Errorf(
			"%w: %.300q is no name of a host or a service; it has at most %d letters, digits, and \".\", \"-\", "+
				"\"_\" after the first", ErrInvalid, name, maxHostName)
	}
	return nil
}

func validAt(c *x509.Certificate, now time.Time) error {
	if now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return fmt.Errorf("it is valid from %s until %s, and not now", rfc3339(c.NotBefore), rfc3339(c.NotAfter))
	}
	return nil
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// roundUp is the full second at or after t: certificates know no shorter times.
func roundUp(t time.Time) time.Time {
	if down := t.Truncate(time.Second); down.Before(t) {
		return down.Add(time.Second)
	}
	return t
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	return serial.Add(serial, big.NewInt(1)), nil // zero is not allowed
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
