// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/plugins"
)

// migrationColumns are the columns of table migrations without id, in the order of migrationValues.
// migrationReadColumns lacks the ones that only conditions use.
var (
	migrationReadColumns = []string{"uuid", "instance_uuid", "migration_type", "status", "source_host", "source_node",
		"source_node_uuid", "source_zone",
		"dest_host", "dest_node", "dest_node_uuid", "dest_zone", "old_vm_state", "offer", "user_id", "project_id",
		"created_at", "updated_at", "revision",
		"is_open", "give_back", "source_guest"}
	migrationColumns = append(slices.Clone(migrationReadColumns), "due")

	selectMigrations = "SELECT m.id, m." + strings.Join(migrationReadColumns, ", m.") + " FROM migrations m "
	insertMigration  = "INSERT INTO migrations (" + strings.Join(migrationColumns, ", ") + ") VALUES (?" +
		strings.Repeat(", ?", len(migrationColumns)-1) + ")"
	updateMigration = "UPDATE migrations SET " + strings.Join(migrationColumns, " = ?, ") + " = ? WHERE id = ?"
)

func migrationValues(m *serverstate.Migration) []any {
	due := m.Open && (m.GiveBack || m.Status == cellwire.MigrationAccepted)
	return []any{m.UUID, m.ServerUUID, string(m.Type), string(m.Status), m.SourceHost, m.SourceNode,
		m.SourceNodeUUID, m.SourceZone,
		m.DestHost, m.DestNode, m.DestNodeUUID, m.DestZone,
		m.OldVMState, m.Offer, m.UserID, m.ProjectID, m.CreatedAt.UnixMicro(), micros(m.UpdatedAt), m.Revision,
		m.Open, m.GiveBack, string(m.SourceGuest), due}
}

func scanMigration(row sqldb.Row) (*serverstate.Migration, error) {
	var (
		m                serverstate.Migration
		created, updated int64
	)
	err := row.Scan(&m.ID, &m.UUID, &m.ServerUUID, &m.Type,
		&m.Status, &m.SourceHost, &m.SourceNode, &m.SourceNodeUUID, &m.SourceZone,
		&m.DestHost, &m.DestNode, &m.DestNodeUUID, &m.DestZone, &m.OldVMState, &m.Offer, &m.UserID, &m.ProjectID,
		&created, &updated, &m.Revision,
		&m.Open, &m.GiveBack, &m.SourceGuest)
	m.CreatedAt, m.UpdatedAt = fromMicros(created), optional(updated)
	return &m, err
}

// readMigrations gives records their open migrations.
func readMigrations(ctx context.Context, db sqldb.Querier, rows map[string]*stored) error {
	uuids := make([]string, 0, len(rows))
	for uuid := range rows {
		uuids = append(uuids, uuid)
	}
	slices.Sort(uuids)
	for part := range slices.Chunk(uuids, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		moves, err := sqldb.All(ctx, db, scanMigration, selectMigrations+"WHERE m.is_open = 1 AND m.instance_uuid IN "+
			parameters+" ORDER BY m.id", args...)
		if err != nil {
			return err
		}
		for _, m := range moves {
			rows[m.ServerUUID].Migrations = append(rows[m.ServerUUID].Migrations, m)
		}
	}
	return nil
}

// writeMigrations writes the migrations of a record that were changed. All that are open get the
// record's revision with it: their hosts have to look at the server.
func writeMigrations(ctx context.Context, tx *writeTx, r *stored) error {
	for _, m := range r.Migrations {
		if !m.Open && !m.Changed {
			continue
		}
		if m.Changed {
			m.UpdatedAt = r.Server.UpdatedAt
		}
		m.Revision, m.Changed = r.Server.Revision, false
		values := migrationValues(m)
		if m.ID > 0 {
			if _, err := tx.ExecContext(ctx, updateMigration, append(values, m.ID)...); err != nil {
				return err
			}
			continue
		}
		m.UpdatedAt = nil
		if _, err := tx.ExecContext(ctx, insertMigration, migrationValues(m)...); err != nil {
			return err
		}
		written, err := scanMigration(tx.QueryRowContext(ctx, selectMigrations+"WHERE m.uuid = ?", m.UUID))
		if err != nil {
			return err
		}
		*m = *written
	}
	return nil
}

// changeMigrating is changeRead of a row with its migrations.
func (d *DB) changeMigrating(
	ctx context.Context, op, uuid string, action cellwire.ActionName, now time.Time,
	transition func(*stored) (bool, error),
) (*stored, error) {
	return d.changeRead(ctx, op, uuid, action, now, func(tx *writeTx, r *stored) error {
		return readMigrations(ctx, tx, map[string]*stored{uuid: r})
	}, transition)
}

// Migrate begins a migration. A repetition answers with the migration as it is, also after its end.
func (d *DB) Migrate(
	ctx context.Context, uuid string, q cellwire.MigrateRequest, m Moment,
) (cellwire.Migration, error) {
	if err := serverstate.CheckUUID(q.UUID); err != nil {
		return cellwire.Migration{}, err
	}
	if q.Host != "" {
		if err := serverstate.CheckHost(q.Host); err != nil {
			return cellwire.Migration{}, err
		}
	}
	by := cellwire.OriginOf(ctx)
	by.UserID, by.ProjectID = storableOr(by.UserID), storableOr(by.ProjectID)
	var (
		tx       *writeTx
		begun    *serverstate.Migration // the one of that uuid, also if it has ended since
		repeated bool
	)
	r, err := d.changeRead(ctx, "migrating a server", uuid, cellwire.ActionName(q.Type.Action()), m.Now,
		func(in *writeTx, r *stored) (err error) {
			tx = in
			begun, repeated, err = sqldb.One(ctx, tx, scanMigration, selectMigrations+"WHERE m.uuid = ?", q.UUID)
			if err != nil {
				return err
			}
			return readMigrations(ctx, tx, map[string]*stored{uuid: r})
		}, func(r *stored) (bool, error) {
			switch {
			case repeated && begun.ServerUUID != uuid:
				return false, serverstate.Conflict("migration %s is one of server %s", q.UUID, begun.ServerUUID)
			case repeated:
				return false, nil
			}
			changed, err := r.Migrate(q, by, r.host.up(m), m.Now)
			if refused := (*cellwire.Error)(nil); errors.As(err, &refused) && refused.Code == cellwire.CodeInUse {
				err = unreported(ctx, tx, &r.Server, refused)
			}
			if err == nil && changed {
				err = checkAbility(ctx, tx, &r.Server, plugins.AbilityMigrate)
			}
			return changed, err
		})
	switch {
	case err != nil:
		return cellwire.Migration{}, err
	case repeated:
		return begun.Migration, nil
	}
	return r.OpenMigration(q.UUID).Migration, nil
}

// unreported adds to the refusal of an evacuation that the host, which is up, does not report the
// node of the server: so it does nothing about it.
func unreported(ctx context.Context, db sqldb.Querier, s *cellwire.Server, refused *cellwire.Error) error {
	_, present, err := sqldb.One(ctx, db, sqldb.Value[int64],
		"SELECT 1 FROM compute_nodes WHERE host = ? AND (uuid = ? OR hypervisor_hostname = ?) AND present = 1",
		s.Host, s.NodeUUID, s.Node)
	if err != nil {
		return err
	}
	if !present {
		withHint := *refused
		withHint.Message += " It does not report the node of the server: `compute-agent status` there says why. " +
			"If none of its guests runs any more, force it down."
		refused = &withHint
	}
	return refused
}

// Step applies one step of the compute API to a migration: a destination, confirm, revert, failed,
// abort, or that its allocations were given back. A repetition of the last changes nothing.
func (d *DB) Step(
	ctx context.Context, uuid string, step cellwire.MigrationStep, m Moment,
) (answer cellwire.Migration, err error) {
	if step.Abort != "" {
		if err := serverstate.CheckUUID(step.Abort); err != nil {
			return answer, err
		}
	}
	err = d.write(ctx, "changing a migration in", func(tx *writeTx) error {
		one, found, err := sqldb.One(ctx, tx, scanMigration, selectMigrations+"WHERE m.uuid = ?", uuid)
		switch {
		case err != nil:
			return err
		case !found:
			return serverstate.NotFound("migration", uuid)
		}
		rows, err := records(ctx, tx, []string{one.ServerUUID})
		if err != nil {
			return err
		}
		r := rows[one.ServerUUID]
		if r == nil {
			return serverstate.NotFound("server", one.ServerUUID)
		}
		if err := readMigrations(ctx, tx, rows); err != nil {
			return err
		}
		if !one.Open && (step.Failed != nil || step.GivenBack) { // a repetition
			answer = one.Migration
			return nil
		}
		was := r.Server
		var unread error
		up := func(host string) bool {
			service, _, err := scanService(tx.QueryRowContext(ctx, selectServices+"WHERE s.host = ?", host), m)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				unread = err
			}
			return service.Up
		}
		changed, err := applyTransition(ctx, tx, r, m.Now, func() (bool, error) {
			changed, err := r.Step(uuid, step, up, m.Now)
			if err == nil {
				err = unread
			}
			if to := step.Destination; err == nil && changed && to != nil {
				there := &cellwire.Server{UUID: r.Server.UUID, Host: to.Host, Node: to.Node, NodeUUID: to.NodeUUID}
				if one.Type != cellwire.MigrationBuild {
					err = checkAbility(ctx, tx, there, plugins.AbilityMigrate)
				}
				if err == nil {
					err = checkNodeFree(ctx, tx, there, m)
				}
			}
			return changed, err
		})
		if err != nil {
			return err
		}
		at := slices.IndexFunc(r.Migrations, func(m *serverstate.Migration) bool { return m.UUID == uuid })
		move := r.Migrations[at]
		if answer = move.Migration; !changed {
			return nil
		}
		switch {
		case step.Confirm:
			err = tx.addAction(ctx, cellwire.ActionConfirm, &r.Server, m.Now)
		case step.Revert:
			err = tx.addAction(ctx, cellwire.ActionRevert, &r.Server, m.Now)
		case step.Destination != nil && one.Type == cellwire.MigrationBuild:
			err = tx.addRepeatedCreate(ctx, &r.Server, m.Now)
		case step.Abort != "" && one.Status == cellwire.MigrationAccepted: // the server has no fault of it
			err = tx.failAction(ctx, r.Server.UUID, serverstate.AbortMessage(r.Server.UUID), m.Now)
		default:
			var ended serverstate.Outcomes
			ended.Add(&was, &r.Server)
			err = tx.writeOutcomes(ctx, &ended, m.Now)
		}
		if err != nil {
			return err
		}
		if err := update(ctx, tx, r); err != nil {
			return err
		}
		answer = move.Migration
		return nil
	})
	return answer, err
}

// MigrationsDue returns the migrations that the compute API has to continue, oldest first and at
// most MaxUnfinished.
func (d *DB) MigrationsDue(ctx context.Context) ([]cellwire.Migration, error) {
	list, err := d.migrations(ctx, d.kit.Reader, fmt.Sprintf("WHERE m.due = 1 ORDER BY m.id LIMIT %d", MaxUnfinished))
	if err == nil {
		var requests map[string]cellwire.Origin
		uuids := make([]string, 0, len(list))
		for i := range list {
			uuids = append(uuids, list[i].ServerUUID)
		}
		requests, err = requestsUnderWay(ctx, d.kit.Reader, uuids)
		for i := range list {
			request := requests[list[i].ServerUUID]
			list[i].RequestID, list[i].Traceparent = request.RequestID, request.Traceparent
		}
	}
	return list, d.kit.Explain(ctx, "reading unfinished migrations from", err)
}

// MigrationsOf returns the open migrations of a server, the oldest first.
func (d *DB) MigrationsOf(ctx context.Context, uuid string) ([]cellwire.Migration, error) {
	list, err := d.migrations(ctx, d.kit.Reader, "WHERE m.instance_uuid = ? AND m.is_open = 1 ORDER BY m.id", uuid)
	return list, d.kit.Explain(ctx, "reading the migrations of a server from", err)
}

// Migrations returns the migrations that match a query.
func (d *DB) Migrations(ctx context.Context, q cellwire.MigrationQuery) ([]cellwire.Migration, error) {
	if q.Limit < 1 || q.Limit > cellwire.MaxLimit {
		return nil, serverstate.Invalid("limit is %d, not 1 to %d", q.Limit, cellwire.MaxLimit)
	}
	conditions, args := []string{"1 = 1"}, []any{}
	addCondition := func(condition string, values ...any) {
		conditions, args = append(conditions, condition), append(args, values...)
	}
	for _, c := range []struct{ column, value string }{
		{"uuid", q.UUID}, {"instance_uuid", q.ServerUUID}, {"source_host", q.SourceHost}, {"status", string(q.Status)},
		{"migration_type", string(q.Type)}, {"project_id", q.ProjectID},
	} {
		if !serverstate.Storable(c.value) {
			return []cellwire.Migration{}, nil
		}
		if c.value != "" {
			addCondition("m."+c.column+" = ?", c.value)
		}
	}
	if q.Type != cellwire.MigrationBuild { // Nova has none
		addCondition("m.migration_type <> ?", string(cellwire.MigrationBuild))
	}
	switch {
	case !serverstate.Storable(q.Host):
		return []cellwire.Migration{}, nil
	case q.Host != "":
		addCondition("(m.source_host = ? OR m.dest_host = ?)", q.Host, q.Host)
	}
	const changed = "CASE WHEN m.updated_at > 0 THEN m.updated_at ELSE m.created_at END"
	for _, c := range []struct {
		condition string
		at        *time.Time
	}{{changed + " >= ?", q.ChangedSince}, {changed + " <= ?", q.ChangedBefore}} {
		if c.at != nil {
			addCondition(c.condition, c.at.UnixMicro())
		}
	}
	if m := q.After; m != nil {
		at := m.CreatedAt.UnixMicro()
		addCondition("(m.created_at < ? OR m.created_at = ? AND (m.id < ? OR m.id = ? AND m.uuid > ?))",
			at, at, m.ID, m.ID, storableOr(m.UUID))
	}
	list, err := d.migrations(
		ctx,
		d.kit.Reader,
		fmt.Sprintf("WHERE %s ORDER BY m.created_at DESC, m.id DESC, m.uuid LIMIT %d",
			strings.Join(conditions, " AND "), q.Limit),
		args...)
	return list, d.kit.Explain(ctx, "reading migrations from", err)
}

func (d *DB) migrations(
	ctx context.Context, db sqldb.Querier, condition string, args ...any,
) ([]cellwire.Migration, error) {
	list := []cellwire.Migration{}
	err := sqldb.Each(ctx, db, selectMigrations+condition, args, func(row sqldb.Row) error {
		m, err := scanMigration(row)
		list = append(list, m.Migration)
		return err
	})
	return list, err
}

// migrationsOf are the open migrations from and to a host, by their servers.
func migrationsOf(ctx context.Context, db sqldb.Querier, host string) (map[string][]*serverstate.Migration, error) {
	moves, err := sqldb.All(ctx, db, scanMigration,
		selectMigrations+"WHERE m.is_open = 1 AND m.source_host = ? UNION "+selectMigrations+
			"WHERE m.is_open = 1 AND m.dest_host = ?", host, host)
	slices.SortFunc(moves, func(a, b *serverstate.Migration) int { return cmp.Compare(a.ID, b.ID) })
	by := map[string][]*serverstate.Migration{}
	for _, m := range moves {
		by[m.ServerUUID] = append(by[m.ServerUUID], m)
	}
	return by, err
}

// items reads what a host has to do after a revision (0: all), by revision, as much as fits into an
// answer, and at least one. more says that there is more.
func (d *DB) items(
	ctx context.Context, db sqldb.Querier, host string, after int64, m Moment,
) (items []cellwire.WorkItem, more bool, err error) {
	moves, err := migrationsOf(ctx, db, host)
	if err != nil {
		return nil, false, err
	}
	until := int64(math.MaxInt64) // more than this revision may not have been read
	read := func(condition string, args ...any) error {
		reader, weight, last := newRecordReader(), 0, int64(0)
		return sqldb.Each(ctx, db, fmt.Sprintf(selectRecords, "")+"WHERE "+condition, args, func(row sqldb.Row) error {
			r, err := reader.read(row)
			if err != nil {
				return err
			}
			r.Migrations = moves[r.Server.UUID]
			want, of := r.WantOn(host)
			if want == "" {
				if !r.IdleOn(host) {
					return nil
				}
				want = cellwire.WantIdle
			}
			server := r.serverFor(host, m)
			if weight += Weight(server); weight > MaxAnswer && last > 0 {
				until = min(until, last)
				return sqldb.ErrEnough
			}
			last = r.Server.Revision
			items = append(items, cellwire.WorkItem{Want: want, Server: server, Migration: of})
			return nil
		})
	}
	if after == 0 {
		err = read(d.engine.allOf(), host)
	} else {
		err = read(changesOf, host, after)
	}
	for part := range slices.Chunk(slices.Sorted(maps.Keys(moves)), sqldb.MaxListed) { // those of other hosts
		if err != nil {
			return nil, false, err
		}
		parameters, args := sqldb.ListParameters(part)
		err = read("i.uuid IN "+parameters+" AND i.host <> ? AND i.revision > ? ORDER BY i.revision",
			append(args, host, after)...)
	}
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(items,
		func(a, b cellwire.WorkItem) int { return cmp.Compare(a.Server.Revision, b.Server.Revision) })
	weight, more := 0, until < math.MaxInt64
	for i := range items {
		if weight += Weight(items[i].Server); items[i].Server.Revision > until || weight > MaxAnswer && i > 0 {
			items, more = items[:i], true
			break
		}
	}
	return items, more, nameRequests(ctx, db, items)
}

// nameRequests gives items the ids of the requests that they come from. Of servers about which
// nothing is under way no action is read.
func nameRequests(ctx context.Context, db sqldb.Querier, items []cellwire.WorkItem) error {
	var uuids []string
	for i := range items {
		if s := &items[i].Server; s.TaskState != "" ||
			s.VMState == cellwire.VMBuilding || s.Deleted || items[i].Migration != nil {
			uuids = append(uuids, s.UUID)
		}
	}
	requests, err := requestsUnderWay(ctx, db, uuids)
	for i := range items {
		request := requests[items[i].Server.UUID]
		items[i].RequestID, items[i].Traceparent = request.RequestID, request.Traceparent
	}
	return err
}
