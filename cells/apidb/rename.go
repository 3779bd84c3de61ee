// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// HostRename is a host that gets another name, in its cell.
//
// The database has three states of it, so that what was begun can be gone on with:
//
//	before  From is mapped
//	begun   From is mapped, and To is the name of an evicted host: nothing else takes it
//	done    To is mapped, and From is the name of an evicted host: it does not come back
type HostRename struct {
	From, To, CellUUID string
	// Nodes are the new names of compute nodes, by uuid; others keep theirs.
	Nodes map[string]string
	// By is the user of the machine who renames it.
	By string
}

// The reasons of evicted names: To of a rename that is begun, and From of one that is done.
const (
	renamingFrom = "host %s is being renamed to it"
	renamedTo    = "renamed to "
	// formerName is the reason of From after the name is freed: its certificates stay refused.
	formerName = "the former name of a renamed host"
)

// RenamedTo is the name that a host has now whose enrolment says that it was renamed.
func (e Enrolment) RenamedTo() (host string, renamed bool) {
	host, renamed = strings.CutPrefix(e.Reason, renamedTo)
	return host, renamed && e.State == Evicted
}

// Renaming reports whether the enrolment keeps the new name of a host whose rename is begun.
func (e Enrolment) Renaming() bool {
	before, after, _ := strings.Cut(renamingFrom, "%s")
	return e.State == Evicted && strings.HasPrefix(e.Reason, before) && strings.HasSuffix(e.Reason, after)
}

// Renames says whether the enrolment is that of the new name of a host whose rename is begun.
func (e Enrolment) Renames(from string) bool {
	return e.State == Evicted && e.Reason == fmt.Sprintf(renamingFrom, from)
}

// Deny refuses all certificates that were issued until now. They begin to be valid at a full
// second, at the earliest at that of the last denial. The clock of the issuing machine may be
// ahead.
func (e *Enrolment) Deny(now time.Time) {
	if e.Issued.After(now) {
		now = e.Issued
	}
	before := now.Truncate(time.Second).Add(time.Second)
	if !before.After(e.DeniedBefore) {
		before = e.DeniedBefore.Add(time.Second)
	}
	e.DeniedBefore = before
}

// mappedTo is the uuid of the cell of a host, "" if it is not mapped.
func mappedTo(ctx context.Context, tx *sql.Tx, host string) (string, error) {
	cell, _, err := sqldb.One(ctx, tx, sqldb.Value[string],
		"SELECT c.uuid FROM host_mappings h JOIN cell_mappings c ON c.id = h.cell_id WHERE h.host = ?", host)
	return cell, err
}

// BeginRename implements [Store]. Cost: the names of all hosts, read, and one fsync.
func (db *DB) BeginRename(ctx context.Context, r HostRename) error {
	return db.write(ctx, "beginning to rename host "+r.From, func(tx *sql.Tx) error {
		cell, err := mappedTo(ctx, tx, r.From)
		switch {
		case err != nil:
			return err
		case cell == "":
			return notFound("host %s", r.From)
		case cell != r.CellUUID:
			return fmt.Errorf("host %s is in another cell: %w", r.From, ErrExists)
		}
		to, err := enrolmentOf(ctx, tx, r.To)
		if err != nil || to.Renames(r.From) {
			return err
		}
		from, err := enrolmentOf(ctx, tx, r.From)
		switch {
		case err != nil:
			return err
		case from.State == Evicted:
			return fmt.Errorf(
				"host %s is evicted; if it may come back, invite it first (cells manage add-host %s --again): %w",
				r.From, r.From, ErrInUse)
		case from.State == "" && !to.InvitedUntil.IsZero():
			return fmt.Errorf(
				"a host %s had certificates, which stay refused, and host %s has none; choose another name: %w", r.To,
				r.From, ErrInUse)
		}
		if err := db.checkNameFree(ctx, tx, r, to); err != nil {
			return err
		}
		now := db.now()
		to.CellUUID, to.State, to.Reason, to.CreatedBy, to.CreatedAt, to.EvictedAt = r.CellUUID, Evicted,
			fmt.Sprintf(renamingFrom, r.From), r.By, now, now
		if err := to.normalize(); err != nil {
			return err
		}
		return putEnrolment(ctx, tx, db.kit.Dialect, to)
	})
}

// checkNameFree refuses a name that is, or could be in the way of, that of another host, and a
// second new name of a host.
func (db *DB) checkNameFree(ctx context.Context, tx *sql.Tx, r HostRename, to Enrolment) error {
	other, begun, err := sqldb.One(ctx, tx, sqldb.Value[string],
		"SELECT host FROM enrolments WHERE state = ? AND reason = ?", string(Evicted),
		fmt.Sprintf(renamingFrom, r.From))
	if err != nil {
		return err
	}
	if begun {
		return fmt.Errorf("the rename of host %s to %s is begun, and is to be finished first: %w",
			r.From, other, ErrInUse)
	}
	cell, err := mappedTo(ctx, tx, r.To)
	if err != nil {
		return err
	}
	now, former := to.RenamedTo()
	former = former && now == r.From || to.State == Evicted && to.Reason == formerName
	if cell != "" || to.State != "" && !former {
		return fmt.Errorf("a host %s: %w", r.To, ErrExists)
	}
	aggregate, in, err := sqldb.One(ctx, tx, sqldb.Value[string],
		"SELECT a.name FROM aggregate_hosts h JOIN aggregates a ON a.id = h.aggregate_id WHERE h.host = ?", r.To)
	if err != nil {
		return err
	}
	if in {
		return fmt.Errorf("a host %s in aggregate %s: %w", r.To, aggregate, ErrExists)
	}
	var taken *NodeTakenError
	err = sqldb.Each(ctx, tx, othersNames, []any{r.From, string(Evicted), r.From, r.From}, func(row sqldb.Row) error {
		var host, name string
		err := row.Scan(&host, &name)
		if err == nil && taken == nil && pki.NamesOverlap(r.To, name) {
			taken = &NodeTakenError{Host: host, Name: r.To}
		}
		return err
	})
	if err == nil && taken != nil {
		return taken
	}
	return err
}

// FinishRename implements [Store]. Cost: a few rows for each node and aggregate of the host.
func (db *DB) FinishRename(ctx context.Context, r HostRename) (to Enrolment, err error) {
	err = db.write(ctx, "renaming host "+r.From, func(tx *sql.Tx) error {
		if to, err = enrolmentOf(ctx, tx, r.To); err != nil {
			return err
		}
		from, err := enrolmentOf(ctx, tx, r.From)
		if err != nil {
			return err
		}
		if name, renamed := from.RenamedTo(); renamed && name == r.To {
			return nil
		}
		if !to.Renames(r.From) {
			return notFound("the rename of host %s to %s", r.From, r.To)
		}
		if from.State == Evicted {
			return fmt.Errorf(
				"host %s was evicted meanwhile; if it may come back, invite it first (cells manage add-host %s "+
					"--again): %w", r.From, r.From, ErrInUse)
		}
		if err := db.renameEnrolment(ctx, tx, r, from, to); err != nil {
			return err
		}
		if err := renameMappings(ctx, tx, r); err != nil {
			return err
		}
		to, err = enrolmentOf(ctx, tx, r.To)
		return err
	})
	return to, err
}

// renameEnrolment gives the enrolment of a host, if it has one, another name; then the host needs a
// new certificate. The old name is evicted.
func (db *DB) renameEnrolment(ctx context.Context, tx *sql.Tx, r HostRename, from, to Enrolment) error {
	now := db.now()
	enrolled := from.State == Enrolled || from.State == Invited
	next := Enrolment{Host: r.To}
	if enrolled {
		state := Invited
		if from.State == Enrolled && from.KeyDigest == "" { // a person has named it; it has other credentials
			state, next.EnrolledAt = Enrolled, now
		}
		next.CellUUID, next.State, next.CreatedBy, next.CreatedAt, next.InvitedUntil, next.DeniedBefore = r.CellUUID,
			state, r.By, now, now, to.DeniedBefore
		for _, n := range from.Nodes {
			if name, renamed := r.Nodes[n.UUID]; renamed {
				n.Name = name
			}
			next.Nodes = append(next.Nodes, n)
		}
	}
	if from.State == "" {
		from.CellUUID, from.CreatedBy, from.CreatedAt = r.CellUUID, r.By, now
	}
	from.Deny(now)
	from.State, from.EvictedAt, from.Reason, from.Token, from.Nodes = Evicted, now, renamedTo+r.To, TokenDigest{}, nil
	if err := from.normalize(); err != nil {
		return err
	}
	for _, statement := range []string{"DELETE FROM enrolled_nodes WHERE host = ?",
		"DELETE FROM enrolments WHERE host = ?"} {
		for _, host := range []string{r.From, r.To} {
			if _, err := sqldb.Exec(ctx, tx, statement, host); err != nil {
				return err
			}
		}
	}
	if err := putEnrolment(ctx, tx, db.kit.Dialect, from); err != nil || !enrolled {
		return err
	}
	if err := next.normalize(); err != nil {
		return err
	}
	if err := putEnrolment(ctx, tx, db.kit.Dialect, next); err != nil || len(next.Nodes) == 0 {
		return err
	}
	rows := make([][]any, 0, len(next.Nodes))
	for _, n := range next.Nodes {
		rows = append(rows, []any{n.UUID, next.Host, n.Name})
	}
	return insertAll(ctx, tx, "enrolled_nodes (uuid, host, name)", rows)
}

// renameMappings gives a host and its nodes their new names wherever hosts are named.
func renameMappings(ctx context.Context, tx *sql.Tx, r HostRename) error {
	for _, statement := range []string{
		"UPDATE host_mappings SET host = ? WHERE host = ?",
		"UPDATE unmapped_nodes SET host = ? WHERE host = ?",
		"UPDATE aggregate_hosts SET host = ? WHERE host = ?",
	} {
		if _, err := sqldb.Exec(ctx, tx, statement, r.To, r.From); err != nil {
			return err
		}
	}
	for uuid, name := range r.Nodes {
		if _, err := sqldb.Exec(ctx, tx, "UPDATE node_mappings SET name = ? WHERE uuid = ?", name, uuid); err != nil {
			return err
		}
	}
	return nil
}

// freeFormerName frees the name of a host which has another one now. If it had certificates, it
// stays evicted, so that they stay refused, until a host of that name is invited.
func freeFormerName(ctx context.Context, tx *sql.Tx, host string) (freed int64, err error) {
	e, err := enrolmentOf(ctx, tx, host)
	if _, renamed := e.RenamedTo(); err != nil || !renamed {
		return 0, err
	}
	if !e.InvitedUntil.IsZero() {
		return sqldb.Exec(ctx, tx, "UPDATE enrolments SET reason = ? WHERE host = ?", formerName, host)
	}
	return sqldb.Exec(ctx, tx, "DELETE FROM enrolments WHERE host = ?", host)
}
