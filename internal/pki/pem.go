// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
)

// CertPool reads the certificates of the CAs that a client trusts, in PEM. What Go cannot parse is
// left out, as of the system's: bundles of many CAs have some.
func CertPool(path string) (*x509.CertPool, error) {
	data, err := os.ReadFile(path)
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

// Description is what a certificate says, for people and programs.
type Description struct {
	// Kind is "host", "service", "CA", or "unmarked" for one of another CA.
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	Names     []string  `json:"names"`
	Addresses []string  `json:"addresses,omitempty"`
	Nodes     []string  `json:"nodes,omitempty"`
	Cell      string    `json:"cell,omitempty"`
	Usages    []string  `json:"usages,omitempty"`
	Issuer    string    `json:"issuer"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	// State is "valid", "expired" or "not valid yet".
	State       string `json:"state"`
	Fingerprint string `json:"fingerprint"`
}

// Describe returns what the certificates in a PEM say. name is what errors call it.
func Describe(text []byte, name string, now time.Time) ([]Description, error) {
	all, err := Certificates(text, name)
	if err != nil {
		return nil, err
	}
	out := make([]Description, len(all))
	for i, c := range all {
		if out[i], err = describe(c, now); err != nil {
			return nil, fmt.Errorf("certificate %d of %s: %w", i+1, name, err)
		}
	}
	return out, nil
}

func describe(c *x509.Certificate, now time.Time) (Description, error) {
	v := Description{
		Kind: "CA", Name: c.Subject.CommonName, Names: []string{}, Issuer: c.Issuer.CommonName,
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), State: "valid", Fingerprint: Fingerprint(c),
	}
	if !c.IsCA {
		id, err := IdentityOf(c)
		if err != nil {
			return v, err
		}
		v.Kind = map[Kind]string{Host: "host", Service: "service", Unmarked: "unmarked"}[id.Kind]
		v.Name, v.Names, v.Nodes, v.Cell = id.Name, append(v.Names, id.Names...), id.Nodes, id.Cell
	}
	for _, ip := range c.IPAddresses {
		v.Addresses = append(v.Addresses, ip.String())
	}
	for _, u := range []struct {
		usage x509.ExtKeyUsage
		name  string
	}{{x509.ExtKeyUsageClientAuth, "client"}, {x509.ExtKeyUsageServerAuth, "server"}} {
		if slices.Contains(c.ExtKeyUsage, u.usage) {
			v.Usages = append(v.Usages, u.name)
		}
	}
	switch {
	case now.After(c.NotAfter):
		v.State = "expired"
	case now.Before(c.NotBefore):
		v.State = "not valid yet"
	}
	return v, nil
}
