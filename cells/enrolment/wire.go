// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"fmt"
	"time"
)

// Node is a compute node of a host.
type Node struct {
	UUID string `json:"uuid"`
	// Name is its hypervisor_hostname; "": that of the host.
	Name string `json:"name,omitempty"`
}

// JoinRequest is the body of POST /v1/join.
type JoinRequest struct {
	Token string `json:"token"`
	// CSR is a request for a certificate (PKCS #10), in PEM.
	CSR   string `json:"csr"`
	Nodes []Node `json:"nodes,omitempty"`
}

// RenewRequest is the body of POST /v1/renew.
type RenewRequest struct {
	CSR   string `json:"csr"`
	Nodes []Node `json:"nodes,omitempty"`
}

// ConfirmRequest is the body of POST /v1/confirm: the host has the certificate that it shows, and
// its former key is refused from now on. It may be sent again.
type ConfirmRequest struct{}

// Confirmation is the answer to it.
type Confirmation struct {
	Host string `json:"host"`
}

// Answer is the answer to joining and renewing.
type Answer struct {
	Host string `json:"host"`
	// Certificate is in PEM and valid until Expires. CA has the certificates, in PEM, of the
	// authorities that the host trusts.
	Certificate string    `json:"certificate"`
	CA          string    `json:"ca"`
	Expires     time.Time `json:"expires"`
	// Nodes are the nodes in the certificate, Refused the requested ones that are not in it.
	Nodes     []Node         `json:"nodes"`
	Refused   []string       `json:"refused_nodes,omitempty"`
	Cell      CellAccess     `json:"cell"`
	Placement PlacementPlace `json:"placement"`
}

// CellAccess is the cell of a host.
type CellAccess struct {
	uuid string
	Name string   `json:"name"`
	URLs []string `json:"urls"`
}

// PlacementPlace is where Placement is. CA are the certificates that its own is signed by, in PEM;
// "": those of Answer.CA. URL is "" if the operator has not said it.
type PlacementPlace struct {
	URL string `json:"url,omitempty"`
	CA  string `json:"ca,omitempty"`
}

// Refusal is an answer with an error.
type Refusal struct {
	Status  int    `json:"-"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error is the message, with the code.
func (r *Refusal) Error() string { return fmt.Sprintf("%s (%d %s)", r.Message, r.Status, r.Code) }

// RenewedElsewhere reports whether the host is refused because another holder of its certificate
// renewed it.
func (r *Refusal) RenewedElsewhere() bool { return r.Code == CodeKeyUnknown }

// Final reports whether the same request will be refused again, until an operator acts.
func (r *Refusal) Final() bool {
	return r.Status >= 400 && r.Status < 500 && r.Code != CodeTooMany && r.Code != CodeTimeout
}

// Code names the reason of a refusal, for programs.
type Code string

// The codes, with their status.
const (
	CodeBadRequest   Code = "bad_request"   // 400
	CodeUnauthorized Code = "unauthorized"  // 401: no certificate, or none of this CA
	CodeTokenUnknown Code = "token_unknown" // 403
	CodeTokenExpired Code = "token_expired" // 403
	CodeEvicted      Code = "evicted"       // 403: the host is evicted, or on the deny list
	CodeNotEnrolled  Code = "not_enrolled"  // 403: the host has no enrolment, or was invited again
	CodeKeyUnknown   Code = "key_unknown"   // 403: another key is the host's now
	CodeNotFound     Code = "not_found"     // 404
	CodeTimeout      Code = "timeout"       // 408
	CodeTokenUsed    Code = "token_used"    // 409: with another key
	CodeNodeTaken    Code = "node_taken"    // 409: it is another host's, or not one of this host
	CodeNoCell       Code = "no_cell"       // 409: the cell of the enrolment is gone
	CodeTooLarge     Code = "too_large"     // 413
	CodeTooMany      Code = "too_many"      // 429: failures of this address or key, or renewals of this host
	CodeInternal     Code = "internal"      // 500
	CodeUnavailable  Code = "unavailable"   // 503: the database cannot be used now
)
