// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// ErrAlreadyInvited says that a host has an enrolment already, which inviting it again would end.
var ErrAlreadyInvited = errors.New("the host was invited before")

// ErrAhead says that a host is refused until a time in the future, which a clock that was ahead has
// set: it cannot be enrolled before. ErrNotAhead says that it is not.
var (
	ErrAhead    = errors.New("the host is refused until a time that is in the future")
	ErrNotAhead = errors.New("the host is not refused beyond the present")
)

// Invitation is a request of an operator to enrol a host.
type Invitation struct {
	Host, CellUUID string
	Nodes          []Node
	// By is who invites it: a user of the machine of the compute API.
	By  string
	TTL time.Duration
	// Again invites a host that is enrolled or evicted: its earlier certificates are refused.
	Again bool
	Now   time.Time
}

// Invite makes a token for a host. ErrAlreadyInvited if it is enrolled or evicted, and Again is not
// set; ErrAhead if it could not join with the token. The nodes that it had stay its own; names of
// them that are not of the host only stay if the invitation repeats them.
func Invite(ctx context.Context, store apidb.Store, fingerprint string, i Invitation) (apidb.Enrolment, Token, error) {
	token := NewToken(fingerprint)
	digest := token.digest()
	e, err := store.ChangeEnrolment(ctx, i.Host, func(e *apidb.Enrolment) error {
		if e.Renaming() {
			return renamingError(e)
		}
		if (e.State == apidb.Enrolled || e.State == apidb.Evicted) && !i.Again {
			return fmt.Errorf("%w: %s is %s", ErrAlreadyInvited, i.Host, e.State)
		}
		if e.State == apidb.Enrolled || e.State == apidb.Evicted {
			e.Deny(i.Now)
		}
		if until := e.DeniedBefore; until.Sub(i.Now) > pki.MaxAhead {
			return fmt.Errorf("%w: %s until %s", ErrAhead, i.Host, until.UTC().Format(time.RFC3339))
		}
		e.CellUUID, e.State, e.CreatedBy, e.CreatedAt, e.InvitedUntil, e.Token = i.CellUUID, apidb.Invited, i.By,
			i.Now, i.Now.Add(i.TTL), digest
		e.KeyDigest, e.NextKeyDigest, e.Serial, e.Reason = "", "", "", ""
		e.EnrolledAt, e.EnrolledFrom, e.Issued, e.ExpiresAt, e.EvictedAt = time.Time{},
			"", time.Time{}, time.Time{}, time.Time{}
		e.RenewedFrom, e.Conflict, e.Agents = "", nil, agentruns.Agents{}
		e.Nodes = ownNames(e.Host, e.Nodes)
		addNodes(e, i.Nodes)
		return nil
	})
	return e, token, err
}

// EnrolNode adds a node to a host. Its next certificate has it. apidb.ErrNotFound for a host
// without an enrolment.
func EnrolNode(ctx context.Context, store apidb.Store, host string, node Node) (apidb.Enrolment, error) {
	return store.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
		if e.State == "" {
			return fmt.Errorf("the enrolment of host %s: %w", host, apidb.ErrNotFound)
		}
		addNodes(e, []Node{node})
		return nil
	})
}

// renamingError is the refusal of what would end the rename of a host in the middle.
func renamingError(e *apidb.Enrolment) error {
	return fmt.Errorf("%s; finish that first (cells manage rename-host): %w", e.Reason, apidb.ErrInUse)
}

// Evict refuses a host from now on, until it is invited again. A host that was never invited, whose
// agent has other credentials, needs its cell; apidb.ErrNotFound without one. Evicting it again
// only changes the reason, if there is one.
func Evict(
	ctx context.Context, store apidb.Store, host, cellUUID, reason string, now time.Time,
) (apidb.Enrolment, error) {
	reason = strings.Join(strings.Fields(reason), " ")
	if len(reason) > pki.MaxReason {
		return apidb.Enrolment{}, fmt.Errorf("the reason has %d bytes, more than %d: %w",
			len(reason), pki.MaxReason, apidb.ErrInvalid)
	}
	own := apidb.Enrolment{State: apidb.Evicted, Reason: reason}
	if _, former := own.RenamedTo(); former || own.Renaming() {
		return apidb.Enrolment{},
			fmt.Errorf("the reason %q is one of cells manage rename-host: %w", reason, apidb.ErrInvalid)
	}
	return store.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
		switch {
		case e.State == "" && cellUUID == "":
			return fmt.Errorf("host %s: %w", host, apidb.ErrNotFound)
		case e.Renaming():
			return renamingError(e)
		case e.State == apidb.Evicted:
			if reason != "" {
				e.Reason = reason
			}
			return nil
		case e.State == "":
			e.CellUUID = cellUUID
		}
		e.Deny(now)
		e.State, e.EvictedAt, e.Reason, e.Token = apidb.Evicted, now, reason, apidb.TokenDigest{}
		return nil
	})
}

// Allow ends that a host is refused beyond the present, because it was evicted, or its last
// certificate was issued, while a clock was ahead. Its earlier certificates stay refused, and it
// stays evicted until it is invited again. ahead is the certificate that was issued in the
// future, if there is one: it is accepted when its time comes. apidb.ErrNotFound for a host without
// an enrolment, ErrNotAhead if there is nothing to end.
func Allow(
	ctx context.Context, store apidb.Store, host string, now time.Time,
) (e apidb.Enrolment, ahead Validity, err error) {
	e, err = store.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
		ahead = Validity{}
		switch {
		case e.State == "":
			return fmt.Errorf("the enrolment of host %s: %w", host, apidb.ErrNotFound)
		case max(e.DeniedBefore.Sub(now), e.Issued.Sub(now)) <= pki.MaxAhead:
			return fmt.Errorf("%w: %s", ErrNotAhead, host)
		}
		if e.Issued.After(now) {
			ahead = Validity{e.Issued, e.ExpiresAt}
			e.Issued = now
		}
		if !e.DeniedBefore.IsZero() {
			e.DeniedBefore = time.Time{}
			e.Deny(now)
		}
		if e.EvictedAt.After(now) {
			e.EvictedAt = now
		}
		return nil
	})
	return e, ahead, err
}

// Validity is when a certificate is valid.
type Validity struct{ From, Until time.Time }

// ownNames are nodes without names that the host may not choose itself.
func ownNames(host string, nodes []apidb.EnrolledNode) []apidb.EnrolledNode {
	own := slices.Clone(nodes)
	for i, n := range own {
		own[i].Name = apidb.OwnName(host, n.Name)
	}
	return own
}

// addReported adds the first nodes that a host names itself, if it has none yet.
func addReported(e *apidb.Enrolment, nodes []Node) {
	if len(e.Nodes) == 0 {
		addNodes(e, nodes)
		e.Nodes = ownNames(e.Host, e.Nodes)
	}
}

// addNodes adds nodes, or gives those that are there another name.
func addNodes(e *apidb.Enrolment, nodes []Node) {
	e.Nodes = slices.Clone(e.Nodes)
	for _, n := range nodes {
		one := apidb.EnrolledNode{UUID: n.UUID, Name: n.Name}
		at := slices.IndexFunc(e.Nodes, func(has apidb.EnrolledNode) bool { return has.UUID == n.UUID })
		switch {
		case at < 0:
			e.Nodes = append(e.Nodes, one)
		case n.Name != "":
			e.Nodes[at] = one
		}
	}
}
