// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// The files of a host, in the state directory of its agent.
const (
	// IdentityFile has the key of the host and its certificate, in one file: both are always those
	// of one another.
	IdentityFile = "identity.pem"
	// CAFile has the CA that the host trusts.
	CAFile = "ca.pem"
	// PlacementCAFile has that of Placement, where it is another one.
	PlacementCAFile = "placement-ca.pem"
	// PendingKeyFile has the key of a host that has not got its certificate yet.
	PendingKeyFile = "joining.key"
)

// HostIdentity is an identity file.
type HostIdentity struct {
	pki.Identity
	// Since is when the host got the certificate, as far as the file says.
	Since time.Time
	// Key is the digest of its public key.
	Key string
}

// ReadIdentity reads an identity file, or two files with a certificate and its key. The error wraps
// os.ErrNotExist if there is none.
func ReadIdentity(certFile, keyFile string) (HostIdentity, error) {
	info, err := os.Stat(certFile)
	if err != nil {
		return HostIdentity{}, files.Denied(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return HostIdentity{}, fmt.Errorf("%s: %w", certFile, files.Denied(err))
	}
	out, err := identityOf(pair.Leaf)
	if err != nil {
		return HostIdentity{}, fmt.Errorf("%s: %w", certFile, err)
	}
	// A certificate begins to be valid somewhat before it was signed, for clocks that are behind.
	if at := info.ModTime(); at.After(out.Since) && at.Before(out.Expires) {
		out.Since = at
	}
	return out, nil
}

func identityOf(c *x509.Certificate) (HostIdentity, error) {
	id, err := pki.IdentityOf(c)
	if err != nil {
		return HostIdentity{}, err
	}
	digest, err := keyDigest(c.PublicKey)
	return HostIdentity{Identity: id, Since: id.Issued, Key: digest}, err
}

// NewIdentity is the content of an identity file: a key, and the certificates that were made for
// it, the host's first. It refuses those of another key, and one that is not the certificate of a
// client, or not valid now.
func NewIdentity(keyPEM, certificates []byte, now time.Time) ([]byte, HostIdentity, error) {
	all, err := parseCertificates(certificates)
	if err != nil {
		return nil, HostIdentity{}, err
	}
	content := slices.Clone(keyPEM)
	for _, c := range all {
		content = append(content, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	if _, err := tls.X509KeyPair(content, content); err != nil {
		return nil, HostIdentity{}, fmt.Errorf("the certificate is not for the key of this host: %w", err)
	}
	leaf := all[0]
	switch {
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) &&
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny):
		return nil, HostIdentity{},
			errors.New("the certificate is not that of a client (extended key usage clientAuth)")
	case now.After(leaf.NotAfter):
		return nil, HostIdentity{}, fmt.Errorf("the certificate expired at %s; check the clock of this machine",
			leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	id, err := identityOf(leaf)
	return content, id, err
}

// maxChain is how many certificates a file may have.
const maxChain = 16

// parseCertificates reads certificates in PEM: at least one, and nothing else.
func parseCertificates(data []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(all) == maxChain {
			return nil, fmt.Errorf("a %.64q where at most %d certificates are expected", block.Type, maxChain)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no certificate in PEM")
	}
	return all, nil
}

// replaceIdentity writes an identity file.
func replaceIdentity(path string, content []byte) error { return files.Replace(path, content) }
