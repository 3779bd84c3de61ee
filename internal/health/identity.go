// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"time"
)

// Identity is the certificate of this host, which its agent shows to its cell and to Placement.
type Identity struct {
	Host string `json:"host"`
	// Nodes are the compute nodes that it is for; none: it does not say.
	Nodes []string `json:"nodes,omitempty"`
	// Since is when the host got it.
	Since   time.Time `json:"since,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	// Renews says whether the agent renews it, next at NextRenewal. Otherwise the site does.
	Renews      bool      `json:"renews"`
	NextRenewal time.Time `json:"next_renewal,omitzero"`
	// Error is why the last renewal failed, or why it cannot be read. Refused says that the
	// enrolment service does not renew it until an operator acts.
	Error   string `json:"error,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	// RenewedElsewhere says that it is because another holder of the certificate renewed it.
	RenewedElsewhere bool `json:"renewed_elsewhere,omitempty"`
	// RefusedNodes are nodes of this host that the certificate does not have, and why.
	RefusedNodes []string `json:"refused_nodes,omitempty"`
	// SeveralAgents is what the enrolment service says, if another agent renews the certificate.
	SeveralAgents string `json:"several_agents,omitempty"`
	// Renewed and Failed count renewals since the start.
	Renewed int64 `json:"renewed"`
	Failed  int64 `json:"failed"`
}

// siteRenewal is how long before it expires a certificate that the site renews is reported.
const siteRenewal = 7 * 24 * time.Hour

// identity adds conditions of the certificate of this host.
func (fl *findingList) identity(now time.Time, id Identity) {
	left, life := id.Expires.Sub(now), id.Expires.Sub(id.Since)
	why := ""
	if id.Error != "" {
		why = ": " + id.Error
	}
	text := fmt.Sprintf("valid until %s%s", id.Expires.UTC().Format(time.RFC3339), why)
	switch {
	case id.Expires.IsZero():
		fl.add(CertificateExpired, Agent, id.Error)
	case left <= 0 || left < life/10 && left < 24*time.Hour:
		fl.add(CertificateExpired, Agent, text)
	case id.Refused:
	case id.Renews && left < life/2, !id.Renews && left < min(siteRenewal, life/2):
		fl.add(CertificateExpires, Agent, text)
	}
	switch {
	case id.RenewedElsewhere:
		fl.add(RenewedElsewhere, Agent, id.Error)
	case id.Refused:
		fl.add(RenewalRefused, Agent, id.Error)
	}
	if len(id.RefusedNodes) > 0 {
		fl.add(NodeNotEnrolled, Agent, "", id.RefusedNodes...)
	}
}
