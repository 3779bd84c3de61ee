// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// maxForgotten bounds the rows that one pass of ForgetNodes looks at.
const maxForgotten = 1000

// ForgottenNodes returns the uuids of the nodes that the cell forgets as soon as the compute API
// has forgotten them, sorted, and at most as many as one request names.
func (d *DB) ForgottenNodes(ctx context.Context) ([]string, error) {
	list, err := sqldb.All(ctx, d.kit.Reader, sqldb.Value[string],
		"SELECT uuid FROM compute_nodes WHERE present = 0 AND forgotten = 1 ORDER BY uuid LIMIT ?", maxNodesPerRequest)
	return list, d.kit.Explain(ctx, "reading forgotten nodes from", err)
}

// absentNodes selects the nodes that a pass looks at. Older programs wrote neither absent_at nor
// forgotten.
const absentNodes = "SELECT uuid, host, hypervisor_hostname, mapped, absent_at, present FROM compute_nodes " +
	"WHERE present = 0 AND forgotten = 0 AND absent_at <= ? OR present = 1 AND absent_at + forgotten > 0 ORDER BY " +
	"absent_at LIMIT ?"

// deadClaims selects the claims to forget: of hosts that have no service or have not reported since
// a time, and of nodes that the cell does not have.
const deadClaims = "SELECT c.uuid, c.host FROM node_claims c LEFT JOIN services s ON s.host = " +
	"c.host LEFT JOIN compute_nodes n ON n.uuid = c.uuid WHERE s.host IS NULL " +
	"OR s.last_seen_up <= ? OR n.uuid IS NULL ORDER BY c.uuid, c.host LIMIT ?"

// ForgetNodes forgets nodes that their hosts do not report for longer than Options.ForgetNodes and
// that have no servers, and claims of hosts that do not report. One that is in the API database
// stays until the compute API has forgotten it. n is how many rows were changed: one pass looks at
// a bounded number.
func (d *DB) ForgetNodes(ctx context.Context, m Moment) (n int, err error) {
	type staleNode struct {
		uuid, host, name string
		mapped, present  bool
		absentAt         int64
	}
	now, until := m.Now.UnixMicro(), m.Now.Add(-d.forget).UnixMicro()
	scan := func(row sqldb.Row) (node staleNode, err error) {
		err = row.Scan(&node.uuid, &node.host, &node.name, &node.mapped, &node.absentAt, &node.present)
		return node, err
	}
	scanClaim := func(row sqldb.Row) (claim staleNode, err error) {
		err = row.Scan(&claim.uuid, &claim.host)
		return claim, err
	}
	const op = "forgetting nodes in"
	absent, err := sqldb.All(ctx, d.kit.Reader, scan, absentNodes, until, maxForgotten)
	if err != nil {
		return 0, d.kit.Explain(ctx, op, err)
	}
	claims, err := sqldb.All(ctx, d.kit.Reader, scanClaim, deadClaims, until, maxForgotten)
	if err != nil || len(absent)+len(claims) == 0 {
		return 0, d.kit.Explain(ctx, op, err)
	}
	err = d.write(ctx, op, func(tx *writeTx) error {
		n = 0
		for _, node := range absent {
			query, args := "UPDATE compute_nodes SET absent_at = ? WHERE uuid = ? AND present = 0 AND absent_at = 0",
				[]any{now, node.uuid}
			switch {
			case node.present:
				query, args = "UPDATE compute_nodes SET absent_at = 0, forgotten = 0 WHERE uuid = ? AND present = 1",
					[]any{node.uuid}
			case node.absentAt > 0:
				var used bool
				if err := tx.QueryRowContext(ctx, d.engine.usedNode(), node.host, node.uuid, node.name,
					node.host, node.uuid, node.name, node.uuid, node.uuid).Scan(&used); err != nil {
					return err
				}
				if used { // it is looked at again after as long
					query, args = "UPDATE compute_nodes SET absent_at = ? WHERE uuid = ? AND present = 0",
						[]any{now, node.uuid}
					break
				}
				query, args = "DELETE FROM compute_nodes WHERE uuid = ? AND host = ? AND present = 0 AND absent_at = ?",
					[]any{node.uuid, node.host, node.absentAt}
				if node.mapped {
					query =
						"UPDATE compute_nodes SET forgotten = 1 WHERE uuid = ? AND host = ? AND present = 0 AND " +
							"absent_at = ?"
				}
			}
			changed, err := sqldb.Exec(ctx, tx.Tx, query, args...)
			if err != nil {
				return err
			}
			n += int(changed)
		}
		for _, c := range claims {
			changed, err := sqldb.Exec(ctx, tx.Tx,
				"DELETE FROM node_claims WHERE uuid = ? AND host = ?", c.uuid, c.host)
			if err != nil {
				return err
			}
			n += int(changed)
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM node_problems WHERE uuid NOT IN (SELECT uuid FROM compute_nodes)")
		return err
	})
	return n, err
}

// usedNode says whether a node has servers, hidden ones and those to be removed among them, or is
// an end of a migration. Its host, uuid and name are asked for twice, then its uuid twice.
func (e *dbEngine) usedNode() string {
	return "SELECT EXISTS (SELECT 1 FROM instances i WHERE " + e.present + " AND (i.node_uuid = ? OR i.node = ?)) OR " +
		"EXISTS (SELECT 1 FROM instances i WHERE i.hidden = 1 AND i.inserted_at >= 0 AND i.host = ? AND " +
		"(i.node_uuid = ? OR i.node = ?)) OR " +
		"EXISTS (SELECT 1 FROM migrations m WHERE m.is_open = 1 AND (m.source_node_uuid = ? OR m.dest_node_uuid = ?))"
}

// NodeCounts are how many nodes the database has.
type NodeCounts struct {
	// Present are reported by their hosts, Absent not any more.
	Present, Absent int64
	// Claimed are nodes that a host reports although the cell has them for another one. The host
	// may be dead.
	Claimed int64
	// Unused are nodes that the compute API does not use, because of a problem.
	Unused int64
}

// CountNodes counts nodes for metrics.
func (d *DB) CountNodes(ctx context.Context) (c NodeCounts, err error) {
	err = d.kit.Reader.QueryRowContext(ctx,
		"SELECT (SELECT COUNT(*) FROM compute_nodes WHERE present = 1), (SELECT COUNT(*) FROM compute_nodes WHERE "+
			"present = 0), (SELECT COUNT(DISTINCT uuid) FROM node_claims), (SELECT COUNT(*) FROM node_problems)").
		Scan(&c.Present, &c.Absent, &c.Claimed, &c.Unused)
	return c, d.kit.Explain(ctx, "counting nodes in", err)
}

// defaultForget is how long nodes are kept that their hosts do not report.
const defaultForget = 24 * time.Hour
