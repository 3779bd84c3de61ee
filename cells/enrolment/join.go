// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// join answers POST /v1/join.
func (x *exchange) join() (any, error) {
	address := osapi.ClientAddress(x.R)
	request, err := decode[JoinRequest](x)
	if err != nil {
		return nil, err
	}
	answer, err := x.joinAnswer(request, address)
	// A good token is let in whatever others of its network did, and one that is known gets its
	// reason: hosts may share an address.
	if refused := new(Refusal); errors.As(err, &refused) {
		if refused.Code == CodeBadRequest || refused.Code == CodeTokenUnknown {
			from := network(address)
			if x.failures.exceeded(from) {
				return nil,
					refusal(http.StatusTooManyRequests,
						CodeTooMany, "Too many joins of %s failed. Wait a minute.", from)
			}
			x.failures.add(from)
		}
		if x.logs.Allow("join " + network(address)) {
			x.config.Logger.Warn().Str("address", address).
				Str("code", string(refused.Code)).Str("why", refused.Message).
				Msg("A host was not let join. Further failures of this network are logged once a minute.")
		}
	}
	return answer, err
}

// joinAnswer is the answer to a host that joins.
func (x *exchange) joinAnswer(request JoinRequest, address string) (*Answer, error) {
	token, err := ParseToken(request.Token)
	if err != nil {
		return nil, badRequest("The token cannot be used: %s.", err)
	}
	if token.Fingerprint != x.config.Authority.Fingerprint() {
		return nil, refusal(http.StatusForbidden, CodeTokenUnknown, "The token is for hosts of another CA.")
	}
	csr, nodes, err := parseRequest(request.CSR, request.Nodes)
	if err != nil {
		return nil, err
	}
	ctx, now := x.R.Context(), x.config.Now()
	unknown := refusal(http.StatusForbidden, CodeTokenUnknown,
		"The token is not known: it was replaced by another one, its host was evicted, or it was never made.")
	e, err := x.config.Store.EnrolmentOfToken(ctx, token.ID)
	if errors.Is(err, apidb.ErrNotFound) {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	if !token.matches(e.Token) {
		return nil, unknown
	}
	x.Caller.Host = &pki.Identity{Kind: pki.Host, Name: e.Host}
	x.Trace(false)
	ctx = x.R.Context()
	cell, err := x.cellOf(e) // before anything is changed
	if err != nil {
		return nil, err
	}
	var certificate []byte
	repeated := false
	e, err = x.config.Store.ChangeEnrolment(ctx, e.Host, func(e *apidb.Enrolment) (err error) {
		switch {
		case !token.matches(e.Token):
			return unknown
		case !now.Before(e.InvitedUntil):
			return refusal(http.StatusForbidden,
				CodeTokenExpired, "The token expired at %s. `compute-agent cells manage add-host` makes another one.",
				e.InvitedUntil.UTC().Format(time.RFC3339))
		case e.CreatedAt.Sub(now) > pki.MaxAhead: // it would be good for longer than an operator can say
			return refusal(http.StatusForbidden, CodeTokenExpired,
				"The token was made at %s by a clock that was ahead. `compute-agent cells manage add-host` makes "+
					"another one.",
				e.CreatedAt.UTC().Format(time.RFC3339))
		case e.State == apidb.Evicted:
			return evicted(*e)
		case e.State == apidb.Enrolled && e.KeyDigest != csr.digest:
			return refusal(http.StatusConflict,
				CodeTokenUsed,
				"The token was used at %s from %s, with another key. If that was not this host, evict it: "+
					"compute-agent cells manage evict-host %s.",
				e.EnrolledAt.UTC().Format(time.RFC3339), e.EnrolledFrom, e.Host)
		}
		repeated = e.State == apidb.Enrolled
		addReported(e, nodes)
		if refused := refusedNodes(*e, nodes); len(refused) > 0 {
			return refusal(http.StatusConflict, CodeNodeTaken, "%s", strings.Join(refused, " "))
		}
		e.State, e.KeyDigest, e.NextKeyDigest, e.EnrolledAt, e.EnrolledFrom =
			apidb.Enrolled, csr.digest, "", now, address
		certificate, err = x.sign(csr.request, e, cell, now)
		return err
	})
	if err != nil {
		return nil, nodeTaken(err)
	}
	x.config.Logger.Info().Str("host", e.Host).Str("address", address).Str("key", e.KeyDigest).
		Strs("nodes", uuidsOf(e)).Bool("repeated", repeated).
		Time("expires", e.ExpiresAt).Msg("A host joined.")
	return x.answer(e, certificate, cell, nil), nil
}

func evicted(e apidb.Enrolment) *Refusal {
	reason := ""
	if e.Reason != "" {
		reason = ": " + e.Reason
	}
	return refusal(http.StatusForbidden, CodeEvicted, "Host %s was evicted at %s%s.", e.Host,
		e.EvictedAt.UTC().Format(time.RFC3339), reason)
}

// certificateRequest is a request for a certificate, and the digest of its key.
type certificateRequest struct {
	request *x509.CertificateRequest
	digest  string
}

// parseRequest reads what a host sends.
func parseRequest(text string, nodes []Node) (csr certificateRequest, out []Node, err error) {
	if csr.request, err = pki.ParseRequest([]byte(text)); err != nil {
		reason := strings.TrimPrefix(err.Error(), pki.ErrInvalid.Error()+": ") // which says the same again
		return csr, nil, badRequest("The request for a certificate cannot be used: %.300s.", reason)
	}
	if csr.digest, err = keyDigest(csr.request.PublicKey); err != nil {
		return csr, nil, badRequest("The key cannot be used: %.300s.", err.Error())
	}
	if len(nodes) > apidb.MaxEnrolledNodes {
		return csr, nil, badRequest("The host names %d nodes, more than %d.", len(nodes), apidb.MaxEnrolledNodes)
	}
	for _, n := range nodes {
		id, err := uuid.Parse(n.UUID)
		if err != nil {
			return csr, nil, badRequest("%.64q is not the uuid of a node.", n.UUID)
		}
		if n.Name != "" && pki.CheckName(n.Name) != nil {
			return csr, nil, badRequest("%.300q cannot be the name of a node in a certificate.", n.Name)
		}
		if n.UUID = id.String(); !slices.ContainsFunc(out, func(other Node) bool { return other.UUID == n.UUID }) {
			out = append(out, n)
		}
	}
	return csr, out, nil
}

// keyDigest is the digest of a public key.
func keyDigest(key any) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// refusedNodes says which nodes are not those of an enrolment.
func refusedNodes(e apidb.Enrolment, nodes []Node) (refused []string) {
	for _, n := range nodes {
		if !slices.ContainsFunc(e.Nodes, func(has apidb.EnrolledNode) bool { return has.UUID == n.UUID }) {
			refused = append(refused,
				fmt.Sprintf(
					"Node %s is not one of host %s; if it is, run: compute-agent cells manage enrol-node %[2]s %[1]s.",
					n.UUID, e.Host))
		}
	}
	return refused
}

// nodeTaken is the refusal for a node of another host; other errors are as they are.
func nodeTaken(err error) error {
	if other := new(apidb.NodeTakenError); errors.As(err, &other) {
		if other.Name != "" {
			return refusal(http.StatusConflict,
				CodeNodeTaken, "The name %s of a node overlaps with those of host %s.", other.Name, other.Host)
		}
		return refusal(http.StatusConflict, CodeNodeTaken,
			"Node %s is that of host %s. If it has moved, evict and delete that host first: compute-agent cells "+
				"manage evict-host %[2]s, compute-agent cells manage delete-host %[2]s.", other.Node, other.Host)
	}
	return err
}

// sign makes the certificate of an enrolment in a cell, and notes it there.
func (x *exchange) sign(
	request *x509.CertificateRequest, e *apidb.Enrolment, cell CellAccess, now time.Time,
) ([]byte, error) {
	if e.CellUUID != cell.uuid { // before this call had read it
		return nil, fmt.Errorf("host %s was invited to another cell meanwhile", e.Host)
	}
	id := pki.Identity{Kind: pki.Host, Name: e.Host, Names: []string{e.Host}, Cell: cell.Name}
	for _, n := range e.Nodes {
		id.Nodes = append(id.Nodes, n.UUID)
		if n.Name != "" && !slices.Contains(id.Names, n.Name) {
			id.Names = append(id.Names, n.Name)
		}
	}
	notBefore, err := x.notBefore(*e, now)
	if err != nil {
		return nil, err
	}
	o := pki.SignOptions{Lifetime: x.config.Lifetime, Now: now, NotBefore: notBefore}
	text, err := x.config.Authority.Sign(request, id, o)
	if err != nil { // of the CA, such as that it has expired: the host can only wait
		return nil, refusal(http.StatusServiceUnavailable, CodeUnavailable,
			"The certificate of host %s cannot be signed: %s.", e.Host, err)
	}
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	e.Serial, e.Issued, e.ExpiresAt = fmt.Sprintf("%x", c.SerialNumber), now, c.NotAfter
	return text, nil
}

// notBefore is when a certificate of a host begins to be valid at the earliest: earlier ones are
// refused. It is an error if that is so far in the future that the host could not use it: a clock
// that was ahead has dated the denial.
func (x *exchange) notBefore(e apidb.Enrolment, now time.Time) (time.Time, error) {
	list := x.config.Denied.Get()
	if err := list.Err(); err != nil {
		return time.Time{}, denyListUnknown(err)
	}
	before, allows := e.DeniedBefore, "compute-agent cells manage allow-host "+e.Host
	if d, denied := list.Denial(e.Host); denied && d.Before.After(before) {
		before, allows = d.Before, "compute-agent ca allow "+d.Host
	}
	if ahead := before.Sub(now); ahead > min(pki.MaxAhead, x.config.Lifetime/2) {
		return before, refusal(http.StatusForbidden, CodeEvicted,
			"Host %s is refused until %s, %s from now: it was denied by a clock that was ahead. "+
				"On the machine of the compute API, `%s` ends that.",
			e.Host, before.UTC().Format(time.RFC3339), ahead.Round(time.Second), allows)
	}
	return before, nil
}

// cellOf is the cell of an enrolment.
func (x *exchange) cellOf(e apidb.Enrolment) (CellAccess, error) {
	known, err := x.config.Store.Cells(x.R.Context())
	if err != nil {
		return CellAccess{}, err
	}
	for _, c := range known {
		if c.UUID == e.CellUUID {
			urls := strings.FieldsFunc(c.URL, func(r rune) bool { return r == ',' || r == ' ' })
			return CellAccess{uuid: c.UUID, Name: c.Name, URLs: urls}, nil
		}
	}
	return CellAccess{}, refusal(http.StatusConflict,
		CodeNoCell, "The cell %s of host %s is not registered any more. Invite the host again, for another cell.",
		e.CellUUID, e.Host)
}

func (x *exchange) answer(e apidb.Enrolment, certificate []byte, cell CellAccess, refused []string) *Answer {
	a := &Answer{
		Host: e.Host, Certificate: string(certificate), CA: string(x.config.Authority.PEM()), Expires: e.ExpiresAt,
		Nodes: []Node{}, Refused: refused, Cell: cell, Placement: x.config.Placement,
	}
	for _, n := range e.Nodes {
		a.Nodes = append(a.Nodes, Node{UUID: n.UUID, Name: n.Name})
	}
	return a
}

func uuidsOf(e apidb.Enrolment) []string {
	out := make([]string, 0, len(e.Nodes))
	for _, n := range e.Nodes {
		out = append(out, n.UUID)
	}
	return out
}
