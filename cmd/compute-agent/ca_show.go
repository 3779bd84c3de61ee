// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// certificateView is a certificate as `ca show` prints it.
type certificateView struct {
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

// certificateViews are those of the certificates in a PEM. name is what errors call it.
func certificateViews(text []byte, name string, now time.Time) ([]certificateView, error) {
	all, err := pki.Certificates(text, name)
	if err != nil {
		return nil, err
	}
	views := make([]certificateView, 0, len(all))
	for _, c := range all {
		v, err := viewCertificate(c, now)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of %s: %w", len(views)+1, name, err)
		}
		views = append(views, v)
	}
	return views, nil
}

func viewCertificate(c *x509.Certificate, now time.Time) (certificateView, error) {
	v := certificateView{
		Kind: "CA", Name: c.Subject.CommonName, Names: []string{}, Issuer: c.Issuer.CommonName,
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), State: "valid", Fingerprint: pki.Fingerprint(c),
	}
	if !c.IsCA {
		id, err := pki.Of(c)
		if err != nil {
			return v, err
		}
		v.Kind = map[pki.Kind]string{pki.Host: "host", pki.Service: "service", pki.Unmarked: "unmarked"}[id.Kind]
		v.Name, v.Names, v.Nodes, v.Cell = id.Name, append(v.Names, id.Names...), id.Nodes, id.Cell
	}
	for _, ip := range c.IPAddresses {
		v.Addresses = append(v.Addresses, ip.String())
	}
	for usage, name := range map[x509.ExtKeyUsage]string{x509.ExtKeyUsageClientAuth: "client", x509.ExtKeyUsageServerAuth: "server"} {
		if slices.Contains(c.ExtKeyUsage, usage) {
			v.Usages = append(v.Usages, name)
		}
	}
	slices.Sort(v.Usages)
	switch {
	case now.After(c.NotAfter):
		v.State = "expired"
	case now.Before(c.NotBefore):
		v.State = "not valid yet"
	}
	return v, nil
}

// print writes a line for each thing there is.
func (v *certificateView) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"For", v.Kind + " " + v.Name},
		{"Names", strings.Join(append(slices.Clone(v.Names), v.Addresses...), ", ")},
		{"Nodes", strings.Join(v.Nodes, ", ")},
		{"Cell", v.Cell},
		{"Use", strings.Join(v.Usages, ", ")},
		{"Issuer", v.Issuer},
		{"Valid", v.NotBefore.Format(time.RFC3339) + " until " + v.NotAfter.Format(time.RFC3339) + " (" + v.State + ")"},
		{"Fingerprint", v.Fingerprint},
	} {
		if line[1] != "" {
			_, _ = fmt.Fprintf(t, "%s\t%s\n", line[0], textutil.Printable(line[1]))
		}
	}
	return t.Flush()
}
