// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// EnrolmentState is how far the enrolment of a host is.
type EnrolmentState string

// The states.
const (
	// Invited hosts have a token, and no certificate that counts.
	Invited EnrolmentState = "invited"
	// Enrolled hosts have a certificate, and may renew it.
	Enrolled EnrolmentState = "enrolled"
	// Evicted hosts are refused until they are invited again.
	Evicted EnrolmentState = "evicted"
)

// Enrolment is which certificates a host may have.
type Enrolment struct {
	Host     string
	CellUUID string
	State    EnrolmentState
	// Nodes are the compute nodes of its certificates, by uuid. None: the first that it names.
	Nodes []EnrolledNode
	// CreatedBy is the user of the machine who invited it, at CreatedAt. The token is good until
	// InvitedUntil.
	CreatedBy               string
	CreatedAt, InvitedUntil time.Time
	Token                   TokenDigest
	// KeyDigest is the digest of the public key of its certificate, NextKeyDigest that of a renewed
	// one which was not shown yet; "": none.
	KeyDigest, NextKeyDigest string
	// EnrolledAt is when it joined last, EnrolledFrom from which address.
	EnrolledAt   time.Time
	EnrolledFrom string
	// RenewedFrom is the address of its last renewal, at Issued; "": there was none.
	RenewedFrom string
	// Conflict is the last use of a key that was the host's before; nil: there was none since the
	// host was invited.
	Conflict *KeyConflict
	// Agents are the processes that have renewed its certificate, or confirmed or tried that.
	Agents agentruns.Agents
	// Serial is the serial number of its last certificate, in hexadecimal digits.
	Serial            string
	Issued, ExpiresAt time.Time
	// DeniedBefore: certificates that were issued before are refused; zero: none are.
	DeniedBefore, EvictedAt time.Time
	// Reason is why it was evicted, one line.
	Reason string
}

// KeyConflict is a key of the host that was refused after another one was confirmed, or was
// replaced before it was confirmed: another machine has a copy of its identity, or its own was
// restored from one.
type KeyConflict struct {
	At time.Time
	// From is the address, Key the digest of the public key.
	From, Key string
}

// EnrolledNode is a compute node of a host. Name is its hypervisor_hostname; "": that of the host.
type EnrolledNode struct {
	UUID, Name string
}

// OwnName is a name that a host gives one of its nodes, or "" if it may not: it may choose its own
// name, and that with a domain. Others may be those of other hosts: only operators give them.
func OwnName(host, name string) string {
	if name == host || strings.HasPrefix(name, host+".") {
		return name
	}
	return ""
}

// TokenDigest is what is kept of a token: who reads the database has no token.
type TokenDigest struct {
	ID, Salt, Digest string
}

// Denial is what the deny list has of the host, if anything.
func (e Enrolment) Denial() (d pki.Denial, denied bool) {
	reason := e.Reason
	if e.State != Evicted {
		reason = "enrolled again"
	}
	return pki.Denial{Host: e.Host, Before: e.DeniedBefore, Reason: reason}, !e.DeniedBefore.IsZero()
}

// NodeTakenError says that a compute node is that of another host or, with a Name, that a name of a
// certificate overlaps with one of that host ([pki.NamesOverlap]). It is an ErrExists.
type NodeTakenError struct{ Node, Host, Name string }

func (e *NodeTakenError) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("the name %s overlaps with those of host %s and its compute nodes", e.Name, e.Host)
	}
	return fmt.Sprintf("node %s is that of host %s", e.Node, e.Host)
}

// Is makes it an ErrExists.
func (e *NodeTakenError) Is(target error) bool { return target == ErrExists }

// Bounds of an enrolment.
const (
	// MaxEnrolledNodes is how many compute nodes a host may have: its certificate has all of them,
	// and shows them in each handshake.
	MaxEnrolledNodes = 256
	maxReason        = 1000
)

const enrolments = `SELECT host, cell_uuid, state, created_by, created_at, invited_until, token_id, token_salt, token_digest, key_digest, next_key_digest,
	enrolled_at, enrolled_from, serial, issued_at, expires_at, denied_before, evicted_at, reason, renewed_from, conflict_at, conflict_from, conflict_key, agents FROM enrolments`

func scanEnrolment(row sqldb.Row) (e Enrolment, err error) {
	var times [7]int64
	var conflictAt int64
	var conflict KeyConflict
	var agents string
	err = row.Scan(&e.Host, &e.CellUUID, &e.State, &e.CreatedBy, &times[0], &times[1], &e.Token.ID, &e.Token.Salt,
		&e.Token.Digest, &e.KeyDigest, &e.NextKeyDigest,
		&times[2], &e.EnrolledFrom, &e.Serial, &times[3], &times[4], &times[5], &times[6], &e.Reason,
		&e.RenewedFrom, &conflictAt, &conflict.From, &conflict.Key, &agents)
	if conflictAt != 0 {
		conflict.At = fromMicros(conflictAt)
		e.Conflict = &conflict
	}
	for i, into := range e.times() {
		if times[i] != 0 {
			*into = fromMicros(times[i])
		}
	}
	if err == nil && agents != "" {
		if err = json.Unmarshal([]byte(agents), &e.Agents); err != nil {
			err = fmt.Errorf("the agents of host %s: %w", e.Host, err)
		}
	}
	return e, err
}

// times returns the addresses of an enrolment's times, in the order of the columns.
func (e *Enrolment) times() [7]*time.Time {
	return [...]*time.Time{&e.CreatedAt, &e.InvitedUntil,
		&e.EnrolledAt, &e.Issued, &e.ExpiresAt, &e.DeniedBefore, &e.EvictedAt}
}

// Enrolments implements [Store]. Cost: the tables of enrolments and their nodes, read.
func (db *DB) Enrolments(ctx context.Context) ([]Enrolment, error) {
	var all []Enrolment
	err := db.read(ctx, "listing the enrolments", func(tx *sql.Tx) (err error) {
		all, err = allEnrolments(ctx, tx, enrolments+" ORDER BY host",
			"SELECT host, uuid, name FROM enrolled_nodes ORDER BY uuid")
		return err
	})
	return all, err
}

// EnrolmentOfToken implements [Store]. Cost: two look-ups.
func (db *DB) EnrolmentOfToken(ctx context.Context, id string) (e Enrolment, err error) {
	err = db.read(ctx, "looking for the enrolment of a token", func(tx *sql.Tx) error {
		all, err := allEnrolments(ctx, tx, enrolments+" WHERE token_id = ?",
			"SELECT host, uuid, name FROM enrolled_nodes WHERE host IN (SELECT host FROM enrolments WHERE token_id "+
				"= ?) ORDER BY uuid", id)
		switch {
		case err != nil:
			return err
		case id == "" || len(all) != 1:
			return notFound("the token")
		}
		e = all[0]
		return nil
	})
	return e, err
}

// Enrolment implements [Store]. Cost: two look-ups.
func (db *DB) Enrolment(ctx context.Context, host string) (e Enrolment, err error) {
	err = db.read(ctx, "looking for the enrolment of host "+host, func(tx *sql.Tx) error {
		e, err = enrolmentOf(ctx, tx, host)
		return err
	})
	return e, err
}

// enrolmentOf reads the enrolment of a host; without a state if it has none.
func enrolmentOf(ctx context.Context, tx *sql.Tx, host string) (Enrolment, error) {
	all, err := allEnrolments(ctx, tx, enrolments+" WHERE host = ?",
		"SELECT host, uuid, name FROM enrolled_nodes WHERE host = ? ORDER BY uuid", host)
	if len(all) == 1 {
		return all[0], err
	}
	return Enrolment{Host: host}, err
}

// allEnrolments reads enrolments and their nodes.
func allEnrolments(ctx context.Context, tx *sql.Tx, query, nodes string, args ...any) ([]Enrolment, error) {
	all, err := sqldb.All(ctx, tx, scanEnrolment, query, args...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	at := make(map[string]int, len(all))
	for i, e := range all {
		at[e.Host] = i
	}
	return all, sqldb.Each(ctx, tx, nodes, args, func(row sqldb.Row) error {
		var host string
		var n EnrolledNode
		err := row.Scan(&host, &n.UUID, &n.Name)
		if i, found := at[host]; err == nil && found {
			all[i].Nodes = append(all[i].Nodes, n)
		}
		return err
	})
}

// ChangeEnrolment implements [Store]. change must not use the store: it runs under the write lock,
// in a database of servers perhaps more than once, each time on what is there. Cost: one fsync, and
// two look-ups for each node that is new. For a new host, or a new name of a node that is not the
// host's, it reads the names of all hosts.
func (db *DB) ChangeEnrolment(
	ctx context.Context, host string, change func(*Enrolment) error,
) (e Enrolment, err error) {
	err = db.write(ctx, "changing the enrolment of host "+host, func(tx *sql.Tx) error {
		if e, err = enrolmentOf(ctx, tx, host); err != nil {
			return err
		}
		before, state := slices.Clone(e.Nodes), e.State
		if err := change(&e); err != nil {
			return err
		}
		e.Host = host
		if err := e.normalize(); err != nil {
			return err
		}
		if err := checkNames(ctx, tx, e, before, state); err != nil {
			return err
		}
		if err := putEnrolment(ctx, tx, db.kit.Dialect, e); err != nil || slices.Equal(before, e.Nodes) {
			return err
		}
		return putNodes(ctx, tx, e, before)
	})
	return e, err
}

// normalize checks what the columns can hold, and sorts the nodes.
func (e *Enrolment) normalize() error {
	if err := pki.CheckName(e.Host); err != nil {
		return fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	if !slices.Contains([]EnrolmentState{Invited, Enrolled, Evicted}, e.State) ||
		e.CellUUID == "" || e.CellUUID == Cell0UUID {
		return fmt.Errorf("an enrolment needs a state and a cell other than cell0, got %q and %q: %w",
			e.State, e.CellUUID, ErrInvalid)
	}
	if len(e.Nodes) > MaxEnrolledNodes {
		return fmt.Errorf("host %s has %d nodes, more than %d: %w", e.Host, len(e.Nodes), MaxEnrolledNodes, ErrInvalid)
	}
	if len(e.Reason) > maxReason || len(e.CreatedBy) > maxName ||
		max(len(e.EnrolledFrom), len(e.RenewedFrom)) > maxName {
		return fmt.Errorf("the reason of an enrolment has at most %d bytes, a user and an address %d: %w",
			maxReason, maxName, ErrInvalid)
	}
	slices.SortFunc(e.Nodes, func(a, b EnrolledNode) int { return strings.Compare(a.UUID, b.UUID) })
	for i, n := range e.Nodes {
		parsed, err := uuid.Parse(n.UUID)
		switch {
		case err != nil || parsed.String() != n.UUID:
			return fmt.Errorf("%.64q is not the uuid of a node: %w", n.UUID, ErrInvalid)
		case i > 0 && e.Nodes[i-1].UUID == n.UUID:
			return fmt.Errorf("node %s is there twice: %w", n.UUID, ErrInvalid)
		case n.Name != "" && pki.CheckName(n.Name) != nil:
			return fmt.Errorf("%.300q is not the name of a node: %w", n.Name, ErrInvalid)
		}
	}
	return nil
}

func putEnrolment(ctx context.Context, tx *sql.Tx, d *engine.Dialect, e Enrolment) error {
	var times [7]int64
	for i, t := range e.times() {
		if !t.IsZero() {
			times[i] = micros(*t)
			*t = fromMicros(times[i])
		}
	}
	var conflict KeyConflict
	var conflictAt int64
	if e.Conflict != nil {
		conflict, conflictAt = *e.Conflict, micros(e.Conflict.At)
	}
	var agents strings.Builder
	if e.Agents.Turn != 0 {
		encoder := json.NewEncoder(&agents)
		encoder.SetEscapeHTML(false) // the column is for what the host chose, not for six times as much
		if err := encoder.Encode(e.Agents); err != nil {
			return err
		}
	}
	_, err := sqldb.Exec(
		ctx,
		tx,
		`INSERT INTO enrolments (host, cell_uuid, state, created_by, created_at, invited_until, token_id, token_salt, token_digest, key_digest,
		next_key_digest, enrolled_at, enrolled_from, serial, issued_at, expires_at, denied_before, evicted_at, reason,
		renewed_from, conflict_at, conflict_from, conflict_key, agents) VALUES (`+sqldb.Placeholders(24)+")"+
			d.Upsert("host", "cell_uuid", "state", "created_by", "created_at", "invited_until", "token_id",
				"token_salt", "token_digest", "key_digest",
				"next_key_digest", "enrolled_at", "enrolled_from", "serial", "issued_at", "expires_at",
				"denied_before", "evicted_at", "reason",
				"renewed_from", "conflict_at", "conflict_from", "conflict_key", "agents"),
		e.Host,
		e.CellUUID,
		string(e.State),
		e.CreatedBy,
		times[0],
		times[1],
		e.Token.ID,
		e.Token.Salt,
		e.Token.Digest,
		e.KeyDigest,
		e.NextKeyDigest,
		times[2],
		e.EnrolledFrom,
		e.Serial,
		times[3],
		times[4],
		times[5],
		times[6],
		e.Reason,
		e.RenewedFrom,
		conflictAt,
		conflict.From,
		conflict.Key,
		agents.String(),
	)
	return err
}

// putNodes writes the nodes of an enrolment. One that is enrolled for another host, or mapped to
// one, is a NodeTakenError.
func putNodes(ctx context.Context, tx *sql.Tx, e Enrolment, before []EnrolledNode) error {
	rows := make([][]any, 0, len(e.Nodes))
	for _, n := range e.Nodes {
		rows = append(rows, []any{n.UUID, e.Host, n.Name})
		if slices.ContainsFunc(before, func(b EnrolledNode) bool { return b.UUID == n.UUID }) {
			continue
		}
		for _, query := range []string{
			"SELECT host FROM enrolled_nodes WHERE uuid = ?",
			"SELECT h.host FROM node_mappings n JOIN host_mappings h ON h.id = n.host_id WHERE n.uuid = ?",
		} {
			owner, found, err := sqldb.One(ctx, tx, sqldb.Value[string], query, n.UUID)
			if err != nil {
				return err
			}
			if found && owner != e.Host {
				return &NodeTakenError{Node: n.UUID, Host: owner}
			}
		}
	}
	_, err := sqldb.Exec(ctx, tx, "DELETE FROM enrolled_nodes WHERE host = ?", e.Host)
	if err == nil && len(rows) > 0 {
		err = insertAll(ctx, tx, "enrolled_nodes (uuid, host, name)", rows)
	}
	return err
}

// checkNames refuses, with a NodeTakenError, new names of a host that overlap with those of another
// one: Placement lets a host change the trees of all names in its certificate. Those of others are
// the names of hosts, enrolled or mapped, and of their enrolled nodes. New are the name of a host
// that is invited, and other names of its nodes. An eviction is never refused, and an evicted host
// that is not mapped has no name. There is no other writer meanwhile: all wait for one row.
func checkNames(ctx context.Context, tx *sql.Tx, e Enrolment, before []EnrolledNode, state EnrolmentState) error {
	if e.State == Evicted {
		return nil
	}
	var names []string
	if state == "" || state == Evicted {
		names = append(names, e.Host)
	}
	for _, n := range e.Nodes {
		if n.Name != "" && n.Name != e.Host && !slices.Contains(before, n) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	var taken *NodeTakenError
	err := sqldb.Each(ctx, tx, othersNames, []any{e.Host, string(Evicted), e.Host, e.Host}, func(row sqldb.Row) error {
		var host, name string
		err := row.Scan(&host, &name)
		for _, one := range names {
			if err == nil && taken == nil && pki.NamesOverlap(one, name) {
				taken = &NodeTakenError{Host: host, Name: one}
			}
		}
		return err
	})
	if err == nil && taken != nil {
		return taken
	}
	return err
}

const othersNames = `SELECT host, host FROM enrolments WHERE host <> ? AND state <> ? UNION SELECT host, host FROM host_mappings WHERE host <> ?
	UNION SELECT host, name FROM enrolled_nodes WHERE host <> ? AND name <> '' ORDER BY 1, 2`

// freeNodes gives up the nodes of an evicted host, so that another one can have them.
func freeNodes(ctx context.Context, tx *sql.Tx, host string) (freed int64, err error) {
	return sqldb.Exec(ctx, tx,
		"DELETE FROM enrolled_nodes WHERE host = ? AND host IN (SELECT host FROM enrolments WHERE state = ?)", host,
		string(Evicted))
}
