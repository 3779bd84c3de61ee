// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// RenameHost implements [Store]. It also changes the host's name in deleted servers and past
// migrations, so that everything that was on the machine is found by its present name. Actions of
// clients keep the name that was recorded.
//
// Cost: the rows of the host, written.
func (d *DB) RenameHost(
	ctx context.Context, id string, r cellwire.RenameRequest, m Moment,
) (service cellwire.Service, err error) {
	if err := checkRename(r); err != nil {
		return service, err
	}
	err = d.write(ctx, "renaming a host in", func(tx *writeTx) error {
		before, err := readService(ctx, tx, id, m)
		if service = before; err != nil || before.Host == r.To {
			return err
		}
		var revision int64
		if !r.Check { // from here on no other process begins something on the host
			if revision, err = tx.nextRevision(ctx); err != nil {
				return err
			}
			if before, err = readService(ctx, tx, id, m); err != nil {
				return err
			}
		}
		if before.Host != r.From {
			return serverstate.Conflict("service %s is that of host %s, not of %s", id, before.Host, r.From)
		}
		if err := d.checkRenamable(ctx, tx, before, r, m); err != nil || r.Check {
			return err
		}
		if err := rename(ctx, tx, r, revision); err != nil {
			return err
		}
		service, err = readService(ctx, tx, id, m)
		tx.onDurable(func(w *Watch) { w.Service(&before, &service) })
		return err
	})
	return service, err
}

func checkRename(r cellwire.RenameRequest) error {
	if err := errors.Join(serverstate.CheckHost(r.From), serverstate.CheckHost(r.To),
		serverstate.CheckUUIDs(slices.Collect(maps.Keys(r.Nodes)), maxNodesPerRequest)); err != nil {
		return err
	}
	for _, name := range r.Nodes {
		if err := serverstate.CheckName("node", name); err != nil {
			return err
		}
	}
	return nil
}

const (
	presentOn = "SELECT EXISTS (SELECT 1 FROM services WHERE host = ?) OR EXISTS (SELECT 1 FROM compute_nodes WHERE " +
		"host = ?) OR EXISTS (SELECT 1 FROM migrations WHERE is_open = 1 AND source_host = ?) OR EXISTS (SELECT 1 " +
		"FROM migrations WHERE is_open = 1 AND dest_host = ?)"
	hiddenOn = "SELECT uuid FROM instances i WHERE i.hidden = 1 AND i.inserted_at >= 0 AND i.host = ? ORDER BY uuid"
)

// tasksOn are the servers of a host with a task, and what that is.
func (e *dbEngine) tasksOn() string {
	return "SELECT i.uuid, i.task_state FROM instances i WHERE " + e.present +
		" AND i.gone + 0 < 2 AND i.task_state <> '' ORDER BY i.uuid"
}

// checkRenamable refuses to rename a host whose agent lives, that is in use by something that has
// begun, or to a name that there is.
func (d *DB) checkRenamable(
	ctx context.Context, tx *writeTx, service cellwire.Service, r cellwire.RenameRequest, m Moment,
) error {
	var stopped, taken bool
	if err := tx.QueryRowContext(ctx, "SELECT stopped FROM services WHERE host = ?",
		r.From).Scan(&stopped); err != nil {
		return err
	}
	if !stopped && service.LastSeenUp != nil && m.Alive(*service.LastSeenUp) {
		return serverstate.Conflict("the agent of host %s reports to this cell, or did less than %v ago; stop it, "+
			"and wait until it counts as down", r.From, m.DownTime)
	}
	var living bool
	if err := tx.QueryRowContext(ctx, presentOn, r.To, r.To, r.To, r.To).Scan(&taken); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, d.engine.livingOf(), r.To, r.To).Scan(&living); err != nil {
		return err
	}
	if taken || living {
		return serverstate.Conflict("the cell has a host %s already", r.To)
	}
	busy, err := d.busyOn(ctx, tx, r.From)
	if err == nil && len(busy) > 0 {
		err = inUse("host %s has begun what is not finished (%d): %s",
			r.From, len(busy), textutil.Truncate(strings.Join(busy, ", "), maxBusy))
	}
	return err
}

// maxBusy bounds the text about that, in bytes.
const maxBusy = 2000

// busyOn is what has begun on a host and is not finished, as texts for people.
func (d *DB) busyOn(ctx context.Context, db sqldb.Querier, host string) (busy []string, err error) {
	hidden, err := sqldb.All(ctx, db, sqldb.Value[string], hiddenOn, host)
	if err != nil {
		return nil, err
	}
	for _, uuid := range hidden {
		busy = append(busy, fmt.Sprintf("server %s is being placed", uuid))
	}
	err = sqldb.Each(ctx, db, d.engine.tasksOn(), []any{host}, func(row sqldb.Row) error {
		var uuid, task string
		err := row.Scan(&uuid, &task)
		busy = append(busy, fmt.Sprintf("server %s is %s", uuid, task))
		return err
	})
	if err != nil {
		return nil, err
	}
	moves, err := migrationsOf(ctx, db, host)
	for _, uuid := range slices.Sorted(maps.Keys(moves)) {
		for _, m := range moves[uuid] {
			busy = append(busy, fmt.Sprintf("migration %s of server %s is %s", m.UUID, uuid, m.Status))
		}
	}
	return busy, err
}

// rename gives a host its new name wherever the old one is. Claims of nodes and processes of agents
// are those of the agent that is stopped.
func rename(ctx context.Context, tx *writeTx, r cellwire.RenameRequest, revision int64) error {
	var all statements
	all.add("DELETE FROM node_claims WHERE host = ?", r.From)
	all.add("DELETE FROM host_agents WHERE host = ?", r.From)
	all.add("UPDATE services SET host = ?, revision = ? WHERE host = ?", r.To, revision, r.From)
	all.add("UPDATE compute_nodes SET host = ? WHERE host = ?", r.To, r.From)
	for _, uuid := range slices.Sorted(maps.Keys(r.Nodes)) {
		name := r.Nodes[uuid]
		all.add("UPDATE compute_nodes SET hypervisor_hostname = ? WHERE uuid = ? AND host = ?", name, uuid, r.To)
		all.add("UPDATE instances SET node = ? WHERE hidden = 0 AND host <> '' AND host = ? AND node_uuid = ?",
			name, r.From, uuid)
		all.add("UPDATE migrations SET source_node = ? WHERE is_open = 0 AND source_host = ? AND source_node_uuid = ?",
			name, r.From, uuid)
		all.add("UPDATE migrations SET dest_node = ? WHERE is_open = 0 AND dest_host = ? AND dest_node_uuid = ?",
			name, r.From, uuid)
	}
	all.add("UPDATE instances SET host = ? WHERE hidden = 0 AND host <> '' AND host = ?", r.To, r.From)
	all.add("UPDATE migrations SET source_host = ? WHERE is_open = 0 AND source_host = ?", r.To, r.From)
	all.add("UPDATE migrations SET dest_host = ? WHERE is_open = 0 AND dest_host = ?", r.To, r.From)
	return all.run(ctx, tx)
}

// statements are run one after another, with their arguments.
type statements []struct {
	query string
	args  []any
}

func (s *statements) add(query string, args ...any) {
	*s = append(*s, struct {
		query string
		args  []any
	}{query, args})
}

func (s statements) run(ctx context.Context, tx *writeTx) error {
	for _, one := range s {
		if _, err := tx.ExecContext(ctx, one.query, one.args...); err != nil {
			return err
		}
	}
	return nil
}
