// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// The policies of server groups. The soft ones are preferences.
const (
	PolicyAffinity         = "affinity"
	PolicyAntiAffinity     = "anti-affinity"
	PolicySoftAffinity     = "soft-affinity"
	PolicySoftAntiAffinity = "soft-anti-affinity"
)

// ServerGroup is a policy about the hosts of its members.
type ServerGroup struct {
	ID        int64
	UUID      string
	Name      string
	ProjectID string
	UserID    string
	Policy    string
	// MaxPerHost is how many members a host has at most, with anti-affinity: the rule
	// max_server_per_host. 0 is no rule, and means one.
	MaxPerHost int64
	// Members are the servers that are not deleted, in the order of their making.
	Members   []string
	CreatedAt time.Time
}

// ErrGroup says that there is no server group as a server was asked for in.
var ErrGroup = errors.New("no such server group")

// CreateServerGroup implements [Store]. check must not use the store: it runs under the write lock,
// in a database of servers perhaps more than once. Cost: one fsync.
func (db *DB) CreateServerGroup(ctx context.Context, g ServerGroup, check func(has int64) error) (ServerGroup, error) {
	if g.Name == "" || g.ProjectID == "" || g.Policy == "" {
		return ServerGroup{}, fmt.Errorf("a server group needs a name, a project and a policy: %w", ErrInvalid)
	}
	now := micros(db.now())
	g.UUID, g.Members, g.CreatedAt = uuid.NewString(), []string{}, fromMicros(now)
	err := db.write(ctx, "creating server group "+g.Name, func(tx *sql.Tx) error {
		if check != nil {
			has, err := countServerGroups(ctx, tx, g.ProjectID, "")
			if err != nil {
				return err
			}
			if err := check(has); err != nil {
				return err
			}
		}
		var err error
		g.ID, err = db.kit.Dialect.Insert(ctx, tx,
			"INSERT INTO instance_groups (uuid, name, project_id, user_id, policy, max_server_per_host, created_at) "+
				"VALUES (?, ?, ?, ?, ?, ?, ?)",
			g.UUID, g.Name, g.ProjectID, g.UserID, g.Policy, g.MaxPerHost, now)
		return err
	})
	if err != nil {
		return ServerGroup{}, err
	}
	return g, nil
}

func countServerGroups(ctx context.Context, q sqldb.Querier, projectID, userID string) (int64, error) {
	query, args := "SELECT COUNT(*) FROM instance_groups WHERE project_id = ?", []any{projectID}
	if userID != "" {
		query, args = query+" AND user_id = ?", append(args, userID)
	}
	n, _, err := sqldb.One(ctx, q, sqldb.Value[int64], query, args...)
	return n, err
}

// CountServerGroups implements [Store].
func (db *DB) CountServerGroups(ctx context.Context, projectID, userID string) (int64, error) {
	n, err := countServerGroups(ctx, db.kit.Reader, projectID, userID)
	return n, db.failed(ctx, "counting the server groups of project "+projectID, err)
}

// ServerGroups implements [Store]. Cost: the groups, and a look-up for each member.
func (db *DB) ServerGroups(ctx context.Context, projectID string) (all []ServerGroup, err error) {
	const op = "listing the server groups"
	err = db.read(ctx, op, func(tx *sql.Tx) (err error) {
		if projectID == "" {
			all, err = serverGroups(ctx, tx, "")
		} else {
			all, err = serverGroups(ctx, tx, " WHERE g.project_id = ?", projectID)
		}
		return err
	})
	return all, db.failed(ctx, op, err)
}

// ServerGroup implements [Store].
func (db *DB) ServerGroup(ctx context.Context, uuid string) (ServerGroup, error) {
	return db.oneGroup(ctx, "server group "+uuid, " WHERE g.uuid = ?", uuid)
}

// ServerGroupOf implements [Store].
func (db *DB) ServerGroupOf(ctx context.Context, server string) (ServerGroup, error) {
	return db.oneGroup(ctx, "the server group of server "+
		server, " WHERE g.id = (SELECT group_id FROM instance_group_member WHERE instance_uuid = ?)", server)
}

func (db *DB) oneGroup(ctx context.Context, what, where, value string) (g ServerGroup, err error) {
	op := "reading " + what
	err = db.read(ctx, op, func(tx *sql.Tx) error {
		found, err := serverGroups(ctx, tx, where, value)
		if err == nil && len(found) == 0 {
			err = notFound("%s", what)
		}
		if err == nil {
			g = found[0]
		}
		return err
	})
	return g, db.failed(ctx, op, err)
}

// serverGroups returns the server groups that meet a condition on table g, ordered by id.
func serverGroups(ctx context.Context, q sqldb.Querier, where string, args ...any) ([]ServerGroup, error) {
	all, err := sqldb.All(ctx, q, func(row sqldb.Row) (g ServerGroup, err error) {
		var created int64
		err = row.Scan(&g.ID, &g.UUID, &g.Name, &g.ProjectID, &g.UserID, &g.Policy, &g.MaxPerHost, &created)
		g.CreatedAt, g.Members = fromMicros(created), []string{}
		return g, err
	}, "SELECT g.id, g.uuid, g.name, g.project_id, g.user_id, g.policy, g.max_server_per_host, g.created_at FROM "+
		"instance_groups g"+where+" ORDER BY g.id", args...)
	if err != nil || len(all) == 0 {
		return all, err
	}
	at := make(map[int64]*ServerGroup, len(all))
	for i := range all {
		at[all[i].ID] = &all[i]
	}
	err = sqldb.Each(ctx, q, livingMembers+where+" ORDER BY i.id", args, func(row sqldb.Row) error {
		var id int64
		var server string
		if err := row.Scan(&id, &server); err != nil {
			return err
		}
		at[id].Members = append(at[id].Members, server)
		return nil
	})
	return all, err
}

// livingMembers are the members of groups g that are not deleted.
const livingMembers = `SELECT i.group_id, i.instance_uuid FROM instance_groups g JOIN instance_group_member i ON i.group_id = g.id
	JOIN instance_mappings m ON m.instance_uuid = i.instance_uuid AND (m.queued_for_delete IS NULL OR m.queued_for_delete = 0)`

// DeleteServerGroup implements [Store]. Its members stay.
func (db *DB) DeleteServerGroup(ctx context.Context, uuid string) error {
	return db.write(ctx, "deleting server group "+uuid, func(tx *sql.Tx) error {
		n, err := sqldb.Exec(ctx, tx, "DELETE FROM instance_groups WHERE uuid = ?", uuid)
		if err == nil && n == 0 {
			err = notFound("server group %s", uuid)
		}
		return err
	})
}

// groupOf returns the id of a server group (0 for uuid ""), and how many of its members that are
// not deleted belong to a user.
func groupOf(ctx context.Context, tx *sql.Tx, uuid, user string) (id, members int64, err error) {
	if uuid == "" {
		return 0, 0, nil
	}
	id, found, err := sqldb.One(ctx, tx, sqldb.Value[int64], "SELECT id FROM instance_groups WHERE uuid = ?", uuid)
	switch {
	case err != nil:
		return 0, 0, err
	case !found:
		return 0, 0, fmt.Errorf("server group %s: %w", uuid, ErrGroup)
	}
	members, _, err = sqldb.One(ctx, tx, sqldb.Value[int64], `SELECT COUNT(*) FROM instance_group_member i JOIN instance_mappings m ON m.instance_uuid = i.instance_uuid
		WHERE i.group_id = ? AND m.user_id = ? AND (m.queued_for_delete IS NULL OR m.queued_for_delete = 0)`, id, user)
	return id, members, err
}
