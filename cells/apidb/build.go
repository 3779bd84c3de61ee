// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// CreateServers implements [Store]. All servers are of one project and user. check must not use the
// store: it runs under the write lock, so that what it allows is still allowed when it is written,
// and in a database of servers perhaps more than once.
// Mappings and build requests are of the time that the servers were made at, so that an answer from
// here and one from the cell say the same.
//
// Cost: one fsync; with check the count of a project; three rows for each server, 50 a statement.
func (db *DB) CreateServers(ctx context.Context, servers []RequestSpec, check func(Counts) error) error {
	if len(servers) == 0 {
		return nil
	}
	project, user, group := servers[0].ProjectID, servers[0].UserID, servers[0].Group
	seen := make(map[string]bool, len(servers))
	for _, r := range servers {
		if r.UUID == "" || r.ProjectID != project || project == "" {
			return fmt.Errorf("server %q of project %q among those of project %q: %w",
				r.UUID, r.ProjectID, project, ErrInvalid)
		}
		if r.UserID != user || r.Group != group {
			return fmt.Errorf("server %q of user %q in server group %q among those of user %q in %q: %w",
				r.UUID, r.UserID, r.Group, user, group, ErrInvalid)
		}
		if seen[r.UUID] {
			return fmt.Errorf("server %s, asked for twice: %w", r.UUID, ErrExists)
		}
		seen[r.UUID] = true
	}
	return db.write(ctx, "creating servers", func(tx *sql.Tx) error {
		groupID, members, err := groupOf(ctx, tx, group, user)
		if err != nil {
			return err
		}
		if check != nil {
			has, err := db.countProject(ctx, tx, project, "", nil)
			if err != nil {
				return err
			}
			has.GroupMembers = members
			if err := check(has); err != nil {
				return err
			}
		}
		return db.createServers(ctx, tx, servers, groupID)
	})
}

func (db *DB) createServers(ctx context.Context, tx *sql.Tx, servers []RequestSpec, groupID int64) error {
	uuids := make([]string, 0, len(servers))
	var instances, specs, builds [][]any
	for _, r := range servers {
		spec, err := jsonText(r.Stored())
		if err != nil {
			return fmt.Errorf("the specification of server %s: %w", r.UUID, err)
		}
		instance, err := jsonText(r.Server)
		if err != nil {
			return fmt.Errorf("server %s: %w", r.UUID, err)
		}
		created := db.timeOrNow(r.CreatedAt)
		uuids = append(uuids, r.UUID)
		instances = append(instances, []any{r.UUID, r.ProjectID, r.UserID, false, created})
		specs = append(specs, []any{r.UUID, r.Flavor.VCPUs, r.Flavor.MemoryMB, spec})
		builds = append(builds, []any{r.UUID, r.ProjectID, created, instance})
	}
	taken, found, err := sqldb.One(ctx, tx, sqldb.Value[string],
		"SELECT instance_uuid FROM instance_mappings WHERE instance_uuid IN ("+db.kit.Dialect.Texts+
			") LIMIT 1", sqldb.List(uuids))
	switch {
	case err != nil:
		return err
	case found:
		return fmt.Errorf("server %s: %w", taken, ErrExists)
	}
	if err := insertAll(ctx, tx,
		"instance_mappings (instance_uuid, project_id, user_id, queued_for_delete, created_at)",
		instances); err != nil {
		return err
	}
	if err := insertAll(ctx, tx, "request_specs (instance_uuid, vcpus, memory_mb, spec)", specs); err != nil {
		return err
	}
	if groupID != 0 {
		members := make([][]any, len(servers))
		for i, r := range servers {
			members[i] = []any{groupID, r.UUID}
		}
		if err := insertAll(ctx, tx, "instance_group_member (group_id, instance_uuid)", members); err != nil {
			return err
		}
	}
	return insertAll(ctx, tx, "build_requests (instance_uuid, project_id, created_at, instance)", builds)
}

// buildRequests are the table build_requests: a request has the server, and its specification the
// host and node that are forced.
const buildRequests = `SELECT b.instance_uuid, COALESCE(s.spec, '{}'), b.instance, COALESCE(c.uuid, '') FROM build_requests b
	LEFT JOIN request_specs s ON s.instance_uuid = b.instance_uuid
	JOIN instance_mappings m ON m.instance_uuid = b.instance_uuid LEFT JOIN cell_mappings c ON c.id = m.cell_id `

func (db *DB) scanBuildRequest(row sqldb.Row) (b BuildRequest, err error) {
	var uuid, spec, instance string
	if err := row.Scan(&uuid, &spec, &instance, &b.CellUUID); err != nil {
		return b, err
	}
	if b.RequestSpec, err = db.readSpec(uuid, spec); err != nil {
		return b, err
	}
	if err := json.Unmarshal([]byte(instance), &b.Server); err != nil {
		return b, db.damaged("the build request of server "+uuid, err)
	}
	return b, nil
}

// BuildRequests implements [Store], by created_at, newest first, then uuid. Cost: those that are
// answered, in the order of an index.
func (db *DB) BuildRequests(ctx context.Context, projectID string, limit int) ([]BuildRequest, error) {
	where, args := "", []any{}
	if projectID != "" {
		where, args = "WHERE b.project_id = ? ", append(args, projectID)
	}
	out, err := sqldb.All(ctx, db.kit.Reader, db.scanBuildRequest, buildRequests+where+
		"ORDER BY b.created_at DESC, b.instance_uuid LIMIT ?", append(args, limitOf(limit))...)
	return out, db.failed(ctx, "listing the build requests", err)
}

// PendingBuilds implements [Store], by created_at, then uuid. Cost: three look-ups for each, and no
// server is read.
func (db *DB) PendingBuilds(ctx context.Context) ([]PendingBuild, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, func(row sqldb.Row) (b PendingBuild, err error) {
		err = row.Scan(&b.InstanceUUID, &b.CellUUID)
		return b, err
	}, pendingBuilds)
	return out, db.failed(ctx, "listing what is being built", err)
}

const pendingBuilds = `SELECT b.instance_uuid, COALESCE(c.uuid, '') FROM build_requests b
	JOIN instance_mappings m ON m.instance_uuid = b.instance_uuid LEFT JOIN cell_mappings c ON c.id = m.cell_id
	ORDER BY b.created_at, b.instance_uuid`

// BuildRequest implements [Store]. Cost: three look-ups.
func (db *DB) BuildRequest(ctx context.Context, uuid string) (BuildRequest, error) {
	b, found, err := sqldb.One(ctx, db.kit.Reader, db.scanBuildRequest, buildRequests+"WHERE b.instance_uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("the build request of server %s", uuid)
	}
	return b, db.failed(ctx, "reading the build request of server "+uuid, err)
}

// placement is what decides on a server that is being built: where it is (0: nowhere), and whether
// it is still wanted.
type placement struct {
	cell   int64
	wanted bool
}

func placementOf(ctx context.Context, tx *sql.Tx, uuid string) (placement, error) {
	p, _, err := sqldb.One(ctx, tx, func(row sqldb.Row) (p placement, err error) {
		err = row.Scan(&p.cell, &p.wanted)
		return p, err
	}, `SELECT COALESCE(m.cell_id, 0), CASE WHEN b.id IS NULL THEN 0 ELSE 1 END FROM instance_mappings m LEFT JOIN build_requests b ON b.instance_uuid = m.instance_uuid
		WHERE m.instance_uuid = ?`, uuid)
	return p, err
}

// refusal is the error for what can only be done to a server that is placed nowhere, and wanted.
// Being placed goes first: a caller that gets [ErrGone] removes the server's allocations, and those
// of a placed server belong to its cell.
func (p placement) refusal(uuid string) error {
	switch {
	case p.cell != 0:
		return fmt.Errorf("server %s: %w", uuid, ErrPlaced)
	case !p.wanted:
		return fmt.Errorf("the build request of server %s: %w", uuid, ErrGone)
	}
	return nil
}

// Claim implements [Store]. A server has one claim: a later one takes the place of the earlier.
// [ErrPlaced] goes before [ErrGone]. Cost: one fsync.
func (db *DB) Claim(ctx context.Context, c Claim) error {
	return db.write(ctx, "claiming for server "+c.InstanceUUID, func(tx *sql.Tx) error {
		p, err := placementOf(ctx, tx, c.InstanceUUID)
		if err == nil {
			err = p.refusal(c.InstanceUUID)
		}
		if err != nil {
			return err
		}
		_, err = sqldb.Exec(ctx, tx,
			`INSERT INTO claims (instance_uuid, node_uuid, cell_uuid, created_at) VALUES (?, ?, ?, ?)`+
				db.kit.Dialect.Upsert("instance_uuid", "node_uuid", "cell_uuid", "created_at"),
			c.InstanceUUID, c.NodeUUID, c.CellUUID, db.timeOrNow(c.CreatedAt))
		return err
	})
}

// Claims implements [Store], oldest first. Cost: the table of claims, read: those of servers that
// are being built, and leftovers.
func (db *DB) Claims(ctx context.Context, before time.Time) ([]Claim, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, func(row sqldb.Row) (c Claim, err error) {
		var created int64
		err = row.Scan(&c.InstanceUUID, &c.NodeUUID, &c.CellUUID, &created)
		c.CreatedAt = fromMicros(created)
		return c, err
	}, "SELECT instance_uuid, node_uuid, cell_uuid, created_at FROM claims WHERE created_at < ? ORDER BY "+
		"created_at, instance_uuid", micros(before))
	return out, db.failed(ctx, "listing the claims", err)
}

// Unclaim implements [Store].
func (db *DB) Unclaim(ctx context.Context, uuid string) error {
	return db.execute(ctx, "forgetting the claim of server "+uuid, "DELETE FROM claims WHERE instance_uuid = ?", uuid)
}

// Place implements [Store]. It stays no error to repeat it after [DB.FinishBuild]; [ErrPlaced] goes
// before [ErrGone]. [ErrNotFound] for a cell that is not there. Cost: one fsync.
func (db *DB) Place(ctx context.Context, uuid, cellUUID string) error {
	return db.write(ctx, "placing server "+uuid, func(tx *sql.Tx) error {
		cell, err := cellID(ctx, tx, cellUUID)
		if err != nil {
			return err
		}
		p, err := placementOf(ctx, tx, uuid)
		switch {
		case err != nil:
			return err
		case p.cell == cell:
			return nil
		}
		if err := p.refusal(uuid); err != nil {
			return err
		}
		_, err = sqldb.Exec(ctx, tx, "UPDATE instance_mappings SET cell_id = ?, updated_at = ? WHERE instance_uuid = ?",
			cell, micros(db.now()), uuid)
		return err
	})
}

// FinishBuild implements [Store]. It refuses, with [ErrInvalid], to forget a server that is placed
// nowhere; where there is no build request any more it does nothing but, for one that is placed in
// another cell than cell0, remove the claim. Cost: one fsync.
func (db *DB) FinishBuild(ctx context.Context, uuid string) error {
	return db.write(ctx, "ending the build of server "+uuid, func(tx *sql.Tx) error {
		p, err := placementOf(ctx, tx, uuid)
		switch {
		case err != nil:
			return err
		case p.cell == 0 && p.wanted:
			return fmt.Errorf("server %s has no cell: %w", uuid, ErrInvalid)
		case p.cell == 0:
			return nil // deleted before it was placed: its claim stays until its allocations are removed
		}
		if _, err := sqldb.Exec(ctx, tx, "DELETE FROM build_requests WHERE instance_uuid = ?", uuid); err != nil {
			return err
		}
		_, err = sqldb.Exec(ctx, tx,
			`DELETE FROM claims WHERE instance_uuid = ? AND NOT EXISTS (SELECT 1 FROM cell_mappings WHERE id = ? `+
				`AND uuid = ?)`,
			uuid, p.cell, Cell0UUID)
		return err
	})
}

// AbandonBuild implements [Store]. [ErrPlaced] goes before [ErrNotFound]: a server whose build has
// ended meanwhile is in its cell. Cost: one fsync.
func (db *DB) AbandonBuild(ctx context.Context, uuid string) error {
	return db.write(ctx, "abandoning the build of server "+uuid, func(tx *sql.Tx) error {
		p, err := placementOf(ctx, tx, uuid)
		switch {
		case err != nil:
			return err
		case p.cell != 0:
			return p.refusal(uuid)
		case !p.wanted:
			return notFound("the build request of server %s", uuid)
		}
		if _, err := sqldb.Exec(ctx, tx, "DELETE FROM build_requests WHERE instance_uuid = ?", uuid); err != nil {
			return err
		}
		_, err = sqldb.Exec(ctx, tx,
			"UPDATE instance_mappings SET queued_for_delete = 1, updated_at = ? WHERE instance_uuid = ?",
			micros(db.now()), uuid)
		return err
	})
}

// CountPending counts the servers that are not built to the end, and the claims that are not
// accounted for. It is for metrics. Cost: the number of both, out of indexes.
func (db *DB) CountPending(ctx context.Context) (builds, claims int64, err error) {
	err = db.kit.Reader.QueryRowContext(ctx,
		"SELECT (SELECT COUNT(*) FROM build_requests), (SELECT COUNT(*) FROM claims)").Scan(&builds, &claims)
	return builds, claims, db.failed(ctx, "counting build requests", err)
}
