// SPDX-License-Identifier: Apache-2.0

package render

import (
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/enrolment"
)

// JoinAnswer prints what the enrolment service answered to a host that joins.
func JoinAnswer(w io.Writer, a *enrolment.Answer) error {
	p := newPrinter(w)
	p.line("This is host %s of cell %s; the certificate is good until %s.",
		a.Host, a.Cell.Name, a.Expires.UTC().Format(time.RFC3339))
	if len(a.Nodes) == 0 {
		p.line("It has no compute nodes yet: those that the agent names first become its own.")
	}
	for _, n := range a.Nodes {
		p.line("It is for compute node %s.", strings.TrimSpace(n.UUID+" "+n.Name))
	}
	if a.Placement.URL == "" {
		p.line("The compute API does not say where Placement is ([enrolment] placement_url): configure " +
			"[placement_client] yourself.")
	}
	return p.err
}

// JoinRequest prints where the request for a certificate of a host is, and what its CA does with
// it.
func JoinRequest(w io.Writer, file, name string, host enrolment.Host) error {
	p := newPrinter(w)
	key := filepath.Join(host.StateDir, enrolment.PendingKeyFile)
	p.line("Wrote %s: a request for the certificate of host %s. The key is in %s, and stays there.", file, name, key)
	p.line("The CA has to sign it for %s as a client (extended key usage clientAuth), and not as a server. "+
		"Then run: compute-agent join --certificate FILE --ca-file FILE", name)
	return p.err
}
