// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// computeBinary is the only one that has services in a cell.
const computeBinary = "nova-compute"

const (
	serviceColumns = "s.id, s.uuid, s.host, s.version, s.disabled_reason, s.updated_at, s.revision, s.twice_until, " +
		hostColumns
	selectServices = "SELECT " + serviceColumns + " FROM services s "
)

// scanService reads a row of selectServices; more is for the columns that the query adds.
func scanService(row sqldb.Row, m Moment, more ...any) (service cellwire.Service, revision int64, err error) {
	var (
		host           hostState
		updated, until int64
	)
	service.Binary = computeBinary
	err = row.Scan(append([]any{
		&service.ID, &service.UUID, &service.Host,
		&service.Version, &service.DisabledReason, &updated, &revision, &until,
		&host.lastSeenUp, &host.forcedDown, &host.stopped, &host.disabled,
	}, more...)...)
	service.Disabled, service.ForcedDown, service.Up = host.disabled.Bool, host.forcedDown.Bool, host.up(m)
	service.LastSeenUp, service.UpdatedAt = optional(host.lastSeenUp.Int64), optional(updated)
	service.SeveralAgents = hasSeveralAgents(until, m)
	return service, revision, err
}

// readService reads the service with the uuid; a refusal (not found) without one.
func readService(ctx context.Context, db sqldb.Querier, uuid string, m Moment) (cellwire.Service, error) {
	service, _, err := scanService(db.QueryRowContext(ctx, selectServices+"WHERE s.uuid = ?", uuid), m)
	if errors.Is(err, sql.ErrNoRows) {
		return service, serverstate.NotFound("service", uuid)
	}
	return service, err
}

// Services returns the services of all hosts.
func (d *DB) Services(ctx context.Context, m Moment) ([]cellwire.Service, error) {
	list, err := services(ctx, d.kit.Reader, m)
	return list, d.kit.Explain(ctx, "reading services from", err)
}

func services(ctx context.Context, db sqldb.Querier, m Moment) ([]cellwire.Service, error) {
	list := []cellwire.Service{}
	err := sqldb.Each(ctx, db, selectServices+"ORDER BY s.id", nil, func(row sqldb.Row) error {
		one, _, err := scanService(row, m)
		list = append(list, one)
		return err
	})
	if err != nil {
		return list, err
	}
	problems, err := readNodeProblems(ctx, db, m)
	for i := range list {
		list[i].Contested = problems.contested(list[i].Host)
	}
	if err != nil || !slices.ContainsFunc(list, func(s cellwire.Service) bool { return s.SeveralAgents }) {
		return list, err
	}
	agents, err := severalAgentsOf(ctx, db, m)
	for i := range list {
		if one := &list[i]; one.SeveralAgents && err == nil {
			one.Agents = agents[one.Host]
			one.Contested, err = nodesOf(ctx, db, one.Host)
		}
	}
	return list, err
}

const usageOf = "SELECT COUNT(*), COALESCE(SUM(vcpus), 0), COALESCE(SUM(memory_mb), 0) FROM instances WHERE hidden " +
	"= 0 AND gone = 0 AND project_id = ?"

// Discovery is what a boot asks. The project's usage comes from an index of just that.
func (d *DB) Discovery(ctx context.Context, projectID string, m Moment) (answer cellwire.Discovery, err error) {
	err = d.read(ctx, "reading usage, hosts and compute nodes from", func(db sqldb.Querier) error {
		if answer.Usage, err = usage(ctx, db, projectID); err != nil {
			return err
		}
		if answer.Services, err = services(ctx, db, m); err != nil {
			return err
		}
		answer.Nodes, err = nodes(ctx, db, false, m)
		return err
	})
	return answer, err
}

// Usage is what a project has, whatever hosts there are.
func (d *DB) Usage(ctx context.Context, projectID string) (cellwire.Usage, error) {
	u, err := usage(ctx, d.kit.Reader, projectID)
	return u, d.kit.Explain(ctx, "reading a project's usage from", err)
}

func usage(ctx context.Context, db sqldb.Querier, projectID string) (u cellwire.Usage, err error) {
	if !serverstate.Storable(projectID) { // no server has it
		return u, nil
	}
	err = db.QueryRowContext(ctx, usageOf, projectID).Scan(&u.Instances, &u.Cores, &u.RAM)
	return u, err
}

// maxReason bounds the reason for disabling a service, as Nova does.
const maxReason = 255

// PatchService changes a service. The reason goes when it is enabled.
func (d *DB) PatchService(
	ctx context.Context, id string, p cellwire.ServicePatch, m Moment,
) (service cellwire.Service, err error) {
	err = d.write(ctx, "changing a service in", func(tx *writeTx) error {
		before, err := readService(ctx, tx, id, m)
		if err != nil {
			return err
		}
		after := before
		if p.Disabled != nil {
			after.Disabled = *p.Disabled
		}
		if p.ForcedDown != nil {
			after.ForcedDown = *p.ForcedDown
		}
		if p.DisabledReason != nil {
			after.DisabledReason = *p.DisabledReason
		}
		if !after.Disabled {
			if p.DisabledReason != nil && *p.DisabledReason != "" {
				return serverstate.Invalid("service %s is enabled, and needs no disabled_reason", id)
			}
			after.DisabledReason = ""
		}
		if len(after.DisabledReason) > maxReason || !serverstate.Storable(after.DisabledReason) {
			return serverstate.Invalid("disabled_reason has more than %d bytes, or is no UTF-8, or has the character 0",
				maxReason)
		}
		if service = before; after.Disabled == before.Disabled && after.DisabledReason == before.DisabledReason &&
			after.ForcedDown == before.ForcedDown {
			return nil
		}
		revision, err := tx.nextRevision(ctx)
		if err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx,
			"UPDATE services SET disabled = ?, disabled_reason = ?, forced_down = ?, updated_at = ?, revision = ? "+
				"WHERE uuid = ?",
			after.Disabled, after.DisabledReason, after.ForcedDown, m.Now.UnixMicro(), revision, id); err != nil {
			return err
		}
		service, err = readService(ctx, tx, id, m)
		tx.onDurable(func(w *Watch) { w.Service(&before, &service) })
		return err
	})
	return service, err
}

// DeleteService implements [Store]. The host still removes the guests of deleted servers if it ever
// comes back.
func (d *DB) DeleteService(ctx context.Context, id string, m Moment) (service cellwire.Service, err error) {
	err = d.write(ctx, "deleting a service from", func(tx *writeTx) (err error) {
		if service, err = readService(ctx, tx, id, m); err != nil {
			return err
		}
		var living, stopped bool
		if err := tx.QueryRowContext(ctx, d.engine.livingOf(), service.Host, service.Host).Scan(&living); err != nil {
			return err
		}
		if living {
			return inUse("host %s has servers that are not deleted", service.Host)
		}
		moves, err := migrationsOf(ctx, tx, service.Host)
		if err != nil {
			return err
		}
		for _, list := range moves {
			for _, m := range list {
				if m.Type == cellwire.MigrationCold || slices.Contains(m.Hosts(), service.Host) {
					return inUse("host %s is in migration %s of server %s, which is %s",
						service.Host, m.UUID, m.ServerUUID, m.Status)
				}
			}
		}
		if err := tx.QueryRowContext(ctx, "SELECT stopped FROM services WHERE uuid = ?",
			id).Scan(&stopped); err != nil {
			return err
		}
		if !stopped && service.LastSeenUp != nil && m.Alive(*service.LastSeenUp) {
			return serverstate.Conflict("the agent of host %s reports to this cell, and would be back at once; stop "+
				"it, or take away its [cell_client], and wait until it counts as down", service.Host)
		}
		tx.onDurable(func(w *Watch) { w.Service(&service, nil) })
		for _, statement := range []string{
			"DELETE FROM node_claims WHERE host = ?",
			"DELETE FROM host_agents WHERE host = ?",
			"DELETE FROM compute_nodes WHERE host = ?",
			"DELETE FROM services WHERE host = ?",
		} {
			if _, err := tx.ExecContext(ctx, statement, service.Host); err != nil {
				return err
			}
		}
		_, err = tx.nextRevision(ctx)
		return err
	})
	return service, err
}

func inUse(format string, args ...any) error {
	return &cellwire.Error{Status: 409, Code: cellwire.CodeInUse, Message: fmt.Sprintf(format, args...)}
}

// Work is what is new for a host, read from an index of its rows.
func (d *DB) Work(
	ctx context.Context, host string, after int64, epoch string, m Moment,
) (work cellwire.Work, changed bool, err error) {
	err = d.read(ctx, "reading the work of a host from", func(db sqldb.Querier) error {
		var revision int64
		work.Service, revision, err = scanService(db.QueryRowContext(ctx, selectServices+"WHERE s.host = ?", host), m)
		if errors.Is(err, sql.ErrNoRows) {
			return serverstate.NotFound("host", host)
		}
		if err != nil {
			return err
		}
		work.Epoch = d.info.Epoch
		if err := db.QueryRowContext(ctx, "SELECT revision FROM cell").Scan(&work.Revision); err != nil {
			return err
		}
		work.Complete = after <= 0 || after > work.Revision || epoch != work.Epoch
		from := after
		if work.Complete {
			from = 0
		}
		if work.Items, work.More, err = d.items(ctx, db, host, from, m); err != nil {
			return err
		}
		if work.More {
			work.Revision = work.Items[len(work.Items)-1].Server.Revision
		}
		changed = work.Complete || revision > after || len(work.Items) > 0
		return nil
	})
	return work, changed, err
}

// Applied is what became of reports.
type Applied struct {
	// Refused says of each report why it is not taken; "": it is.
	Refused []string
	// Movers are the sources and destinations of the migrations of changed servers, with
	// duplicates. They have to ask for work again: a change by one host may be work for the other.
	Movers []string
}

// Apply implements [Store]. A report about a server that is neither on the host nor moves from it
// or to it is refused as one about a server that does not exist. That also applies to late and
// repeated reports, but agents repeat none that was answered.
func (d *DB) Apply(ctx context.Context, host string, reports []cellwire.Report, m Moment) (Applied, error) {
	var uuids []string
	seen := map[string]bool{}
	for _, report := range reports {
		if serverstate.Storable(report.UUID) && !seen[report.UUID] {
			uuids = append(uuids, report.UUID)
		}
		seen[report.UUID] = true
	}
	out := Applied{Refused: make([]string, len(reports))}
	refused := out.Refused
	err := d.write(ctx, "noting reports in", func(tx *writeTx) error {
		out.Movers = nil
		rows, err := records(ctx, tx, uuids)
		if err != nil {
			return err
		}
		moving := map[string]*stored{}
		for i := range reports {
			if r := rows[reports[i].UUID]; r != nil && serverstate.MigrationsMatter(&r.Server, &reports[i]) {
				moving[r.Server.UUID] = r
			}
		}
		if err := readMigrations(ctx, tx, moving); err != nil {
			return err
		}
		changed := map[string]bool{}
		var ended serverstate.Outcomes
		for i, report := range reports {
			refused[i] = ""
			r := rows[report.UUID]
			migration := serverstate.AboutMigration(report.Kind)
			// one answer for both: which servers others have is not for hosts
			if r == nil || !r.MayReport(host, migration) {
				refused[i] = fmt.Sprintf("there is no server %.64q on this host", report.UUID)
				continue
			}
			was := r.Server
			one, err := applyTransition(ctx, tx, r, m.Now, func() (changed bool, err error) {
				if migration {
					changed, refused[i] = r.ApplyMigration(host, report, m.Now)
				} else {
					changed, refused[i] = r.Apply(report, m.Now)
				}
				return changed, nil
			})
			if err != nil {
				return err
			}
			changed[report.UUID] = changed[report.UUID] || one
			ended.Add(&was, &r.Server)
		}
		for _, uuid := range uuids {
			if !changed[uuid] {
				continue
			}
			for _, m := range rows[uuid].Migrations {
				if m.Open || m.Changed {
					out.Movers = append(out.Movers, m.SourceHost, m.DestHost)
				}
			}
			if err := update(ctx, tx, rows[uuid]); err != nil {
				return err
			}
		}
		return tx.writeOutcomes(ctx, &ended, m.Now)
	})
	if err != nil {
		return Applied{}, err
	}
	return out, nil
}

// Changes implements [Store]. It does not return the host of a service that was deleted, because
// there is no row of it: that host notices with its next request.
func (d *DB) Changes(ctx context.Context, after int64) (hosts []string, revision int64, err error) {
	const op = "reading changes from"
	if err := d.kit.Reader.QueryRowContext(ctx, "SELECT revision FROM cell").Scan(&revision); err != nil ||
		revision <= after {
		return nil, revision, d.kit.Explain(ctx, op, err)
	}
	hosts, err = sqldb.All(ctx, d.kit.Reader, sqldb.Value[string], changedHosts, after, after, after, after)
	return hosts, revision, d.kit.Explain(ctx, op, err)
}

// changedHosts selects the hosts with a server, migration or service that was changed after a
// revision.
const changedHosts = "SELECT i.host FROM instances i WHERE i.revision > ? AND i.hidden = 0 AND i.host <> '' UNION " +
	"SELECT s.host FROM services s WHERE s.revision > ? " +
	"UNION SELECT m.source_host FROM migrations m WHERE m.revision > ? UNION SELECT m.dest_host FROM migrations m " +
	"WHERE m.revision > ? AND m.dest_node <> ''"
