// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/compute-agent/compute-agent/internal/files"
)

// CertPool reads the certificates of the CAs that a client trusts, in PEM. What Go cannot parse is
// left out, as of the system's: bundles of many CAs have some.
func CertPool(path string) (*x509.CertPool, error) {
	data, err := os.ReadFile(path) //nolint:gosec // an operator names it
	if err != nil {
		return nil, files.Denied(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, noCertificates(path)
	}
	return pool, nil
}

func noCertificates(path string) error { return fmt.Errorf("%s has no certificates in PEM", path) }

// Certificates reads certificates in PEM; there must be one at least. name is what errors call the
// text.
func Certificates(text []byte, name string) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of %s: %w", len(all)+1, name, err)
		}
		all = append(all, certificate)
	}
	if len(all) == 0 {
		return nil, noCertificates(name)
	}
	return all, nil
}
