// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// CreateServers implements [apidb.Store]. All servers are of one project. check must not use the store: it runs while nobody else can write,
// so that what it allows is still allowed when it is written, also against other processes. Mappings and build requests are of the time
// that the servers were made at, so that an answer from here and one from the cell say the same.
//
// Cost: one fsync; with check the count of a project; three rows for each server.
func (s *Store) CreateServers(ctx context.Context, servers []apidb.NewServer, check func(apidb.Counts) error) error {
	if len(servers) == 0 {
		return nil
	}
	project := servers[0].Server.ProjectID
	for _, n := range servers {
		if n.Server.UUID == "" || n.Server.ProjectID != project || project == "" {
			return fmt.Errorf("server %q of project %q among those of project %q: %w", n.Server.UUID, n.Server.ProjectID, project, apidb.ErrInvalid)
		}
	}
	return s.write(ctx, "creating servers", func(tx *sql.Tx) error {
		if check != nil {
			has, err := countProject(ctx, tx, project, nil)
			if err != nil {
				return err
			}
			if err := check(has); err != nil {
				return err
			}
		}
		for _, n := range servers {
			if err := s.createServer(ctx, tx, n); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) createServer(ctx context.Context, tx *sql.Tx, n apidb.NewServer) error {
	spec, err := text(n.Spec())
	if err != nil {
		return fmt.Errorf("the specification of server %s: %w", n.Server.UUID, err)
	}
	instance, err := text(n.Server)
	if err != nil {
		return fmt.Errorf("server %s: %w", n.Server.UUID, err)
	}
	created := s.momentOr(n.Server.CreatedAt)
	made, err := exec(ctx, tx, `INSERT INTO instance_mappings (instance_uuid, project_id, user_id, queued_for_delete, created_at) VALUES (?, ?, ?, 0, ?)
		ON CONFLICT (instance_uuid) DO NOTHING`, n.Server.UUID, n.Server.ProjectID, n.Server.UserID, created)
	if err != nil {
		return err
	}
	if made == 0 {
		return fmt.Errorf("server %s: %w", n.Server.UUID, apidb.ErrExists)
	}
	if _, err := exec(ctx, tx, "INSERT INTO request_specs (instance_uuid, vcpus, memory_mb, spec) VALUES (?, ?, ?, ?)",
		n.Server.UUID, n.Server.Flavor.VCPUs, n.Server.Flavor.MemoryMB, spec); err != nil {
		return err
	}
	_, err = exec(ctx, tx, "INSERT INTO build_requests (instance_uuid, project_id, created_at, instance) VALUES (?, ?, ?, ?)",
		n.Server.UUID, n.Server.ProjectID, created, instance)
	return err
}

const buildRequests = `SELECT b.instance_uuid, b.created_at, b.instance, COALESCE(c.uuid, '') FROM build_requests b
	JOIN instance_mappings m ON m.instance_uuid = b.instance_uuid LEFT JOIN cell_mappings c ON c.id = m.cell_id `

func (s *Store) scanBuildRequest(row scanner) (b apidb.BuildRequest, err error) {
	var uuid, instance string
	var created int64
	if err := row.Scan(&uuid, &created, &instance, &b.CellUUID); err != nil {
		return b, err
	}
	if err := json.Unmarshal([]byte(instance), &b.Server); err != nil {
		return b, s.damaged("the build request of server "+uuid, err)
	}
	b.CreatedAt = timeOut(created)
	return b, nil
}

// BuildRequests implements [apidb.Store], by created_at, newest first, then uuid. Cost: those that are answered, in the order of an index.
func (s *Store) BuildRequests(ctx context.Context, projectID string, limit int) ([]apidb.BuildRequest, error) {
	where, args := "", []any{}
	if projectID != "" {
		where, args = "WHERE b.project_id = ? ", append(args, projectID)
	}
	out, err := all(ctx, s.reader, s.scanBuildRequest, buildRequests+where+"ORDER BY b.created_at DESC, b.instance_uuid LIMIT ?", append(args, limitOf(limit))...)
	return out, failed(ctx, "listing the build requests", s.path, err)
}

// PendingBuilds implements [apidb.Store], by created_at, then uuid. Cost: three look-ups for each, and no server is read.
func (s *Store) PendingBuilds(ctx context.Context) ([]apidb.PendingBuild, error) {
	out, err := all(ctx, s.reader, func(row scanner) (b apidb.PendingBuild, err error) {
		err = row.Scan(&b.InstanceUUID, &b.CellUUID)
		return b, err
	}, pendingBuilds)
	return out, failed(ctx, "listing what is being built", s.path, err)
}

const pendingBuilds = `SELECT b.instance_uuid, COALESCE(c.uuid, '') FROM build_requests b
	JOIN instance_mappings m ON m.instance_uuid = b.instance_uuid LEFT JOIN cell_mappings c ON c.id = m.cell_id
	ORDER BY b.created_at, b.instance_uuid`

// BuildRequest implements [apidb.Store]. Cost: three look-ups.
func (s *Store) BuildRequest(ctx context.Context, uuid string) (apidb.BuildRequest, error) {
	b, found, err := one(ctx, s.reader, s.scanBuildRequest, buildRequests+"WHERE b.instance_uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("the build request of server %s", uuid)
	}
	return b, failed(ctx, "reading the build request of server "+uuid, s.path, err)
}

// placement is what decides on a server that is being built: where it is (0: nowhere), and whether it is still wanted.
type placement struct {
	cell   int64
	wanted bool
}

func placementOf(ctx context.Context, tx *sql.Tx, uuid string) (placement, error) {
	p, _, err := one(ctx, tx, func(row scanner) (p placement, err error) {
		err = row.Scan(&p.cell, &p.wanted)
		return p, err
	}, `SELECT COALESCE(m.cell_id, 0), b.id IS NOT NULL FROM instance_mappings m LEFT JOIN build_requests b ON b.instance_uuid = m.instance_uuid
		WHERE m.instance_uuid = ?`, uuid)
	return p, err
}

// refuse is the error for what can only be done to a server that is placed nowhere, and wanted. Being placed goes first: who is told that
// a server is gone removes its allocations, and those of one that is placed are its cell's.
func (p placement) refuse(uuid string) error {
	switch {
	case p.cell != 0:
		return fmt.Errorf("server %s: %w", uuid, apidb.ErrPlaced)
	case !p.wanted:
		return fmt.Errorf("the build request of server %s: %w", uuid, apidb.ErrGone)
	}
	return nil
}

// Claim implements [apidb.Store]. A server has one claim: a later one takes the place of the earlier. [apidb.ErrPlaced] goes before
// [apidb.ErrGone]. Cost: one fsync.
func (s *Store) Claim(ctx context.Context, c apidb.Claim) error {
	return s.write(ctx, "claiming for server "+c.InstanceUUID, func(tx *sql.Tx) error {
		p, err := placementOf(ctx, tx, c.InstanceUUID)
		if err == nil {
			err = p.refuse(c.InstanceUUID)
		}
		if err != nil {
			return err
		}
		_, err = exec(ctx, tx, `INSERT INTO claims (instance_uuid, node_uuid, cell_uuid, created_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (instance_uuid) DO UPDATE SET node_uuid = excluded.node_uuid, cell_uuid = excluded.cell_uuid, created_at = excluded.created_at`,
			c.InstanceUUID, c.NodeUUID, c.CellUUID, s.momentOr(c.CreatedAt))
		return err
	})
}

// Claims implements [apidb.Store], oldest first. Cost: the table of claims, read: those of servers that are being built, and leftovers.
func (s *Store) Claims(ctx context.Context, before time.Time) ([]apidb.Claim, error) {
	out, err := all(ctx, s.reader, func(row scanner) (c apidb.Claim, err error) {
		var created int64
		err = row.Scan(&c.InstanceUUID, &c.NodeUUID, &c.CellUUID, &created)
		c.CreatedAt = timeOut(created)
		return c, err
	}, "SELECT instance_uuid, node_uuid, cell_uuid, created_at FROM claims WHERE created_at < ? ORDER BY created_at, instance_uuid", timeIn(before))
	return out, failed(ctx, "listing the claims", s.path, err)
}

// Unclaim implements [apidb.Store].
func (s *Store) Unclaim(ctx context.Context, uuid string) error {
	return s.write(ctx, "forgetting the claim of server "+uuid, func(tx *sql.Tx) error {
		_, err := exec(ctx, tx, "DELETE FROM claims WHERE instance_uuid = ?", uuid)
		return err
	})
}

// Place implements [apidb.Store]. It stays no error to repeat it after [Store.Built]; [apidb.ErrPlaced] goes before [apidb.ErrGone].
// [apidb.ErrNotFound] for a cell that is not there. Cost: one fsync.
func (s *Store) Place(ctx context.Context, uuid, cellUUID string) error {
	return s.write(ctx, "placing server "+uuid, func(tx *sql.Tx) error {
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
		if err := p.refuse(uuid); err != nil {
			return err
		}
		_, err = exec(ctx, tx, "UPDATE instance_mappings SET cell_id = ?, updated_at = ? WHERE instance_uuid = ?", cell, timeIn(s.now()), uuid)
		return err
	})
}

// Built implements [apidb.Store]. It refuses, with [apidb.ErrInvalid], to forget a server that is placed nowhere; where there is no build
// request any more it does nothing but, for one that is placed, remove the claim. Cost: one fsync.
func (s *Store) Built(ctx context.Context, uuid string) error {
	return s.write(ctx, "ending the build of server "+uuid, func(tx *sql.Tx) error {
		p, err := placementOf(ctx, tx, uuid)
		switch {
		case err != nil:
			return err
		case p.cell == 0 && p.wanted:
			return fmt.Errorf("server %s is placed nowhere: %w", uuid, apidb.ErrInvalid)
		case p.cell == 0:
			return nil // deleted before it was placed: its claim is still to be seen to
		}
		if _, err := exec(ctx, tx, "DELETE FROM build_requests WHERE instance_uuid = ?", uuid); err != nil {
			return err
		}
		_, err = exec(ctx, tx, "DELETE FROM claims WHERE instance_uuid = ?", uuid)
		return err
	})
}

// AbandonBuild implements [apidb.Store]. [apidb.ErrPlaced] goes before [apidb.ErrNotFound]: a server whose build has ended meanwhile is in
// its cell. Cost: one fsync.
func (s *Store) AbandonBuild(ctx context.Context, uuid string) error {
	return s.write(ctx, "abandoning the build of server "+uuid, func(tx *sql.Tx) error {
		p, err := placementOf(ctx, tx, uuid)
		switch {
		case err != nil:
			return err
		case p.cell != 0:
			return p.refuse(uuid)
		case !p.wanted:
			return notFound("the build request of server %s", uuid)
		}
		if _, err := exec(ctx, tx, "DELETE FROM build_requests WHERE instance_uuid = ?", uuid); err != nil {
			return err
		}
		_, err = exec(ctx, tx, "UPDATE instance_mappings SET queued_for_delete = 1, updated_at = ? WHERE instance_uuid = ?", timeIn(s.now()), uuid)
		return err
	})
}
