// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// countLiving counts what a project has; of one user and in cells of a list, with one more
// parameter for each.
func countLiving(d *engine.Dialect, ofUser, inCells bool) string {
	query := `SELECT COUNT(*), COALESCE(SUM(s.vcpus), 0), COALESCE(SUM(s.memory_mb), 0), COUNT(m.queued_for_delete),
	COALESCE(SUM(CASE WHEN m.queued_for_delete IS NULL OR COALESCE(m.user_id, '') = '' THEN 1 ELSE 0 END), 0)
	FROM instance_mappings m LEFT JOIN request_specs s ON s.instance_uuid = m.instance_uuid
	WHERE m.project_id = ? AND (` + strings.Join(livingConditions(d), " OR ") + ")"
	if ofUser {
		query += " AND m.user_id = ?"
	}
	if inCells {
		query += " AND m.cell_id IN (SELECT id FROM cell_mappings WHERE uuid IN (" + d.Texts + "))"
	}
	return query
}

// CountProject implements [Store]. A server without a specification counts as an instance without
// cores and RAM. Cost: two look-ups in indices for each living server of the project (in the
// cells), about 2 µs.
func (db *DB) CountProject(ctx context.Context, projectID, userID string, cellUUIDs []string) (Counts, error) {
	c, err := db.countProject(ctx, db.kit.Reader, projectID, userID, cellUUIDs)
	return c, db.failed(ctx, "counting what project "+projectID+" has", err)
}

func (db *DB) countProject(
	ctx context.Context, q sqldb.Querier, projectID, userID string, cellUUIDs []string,
) (c Counts, err error) {
	query, args := countLiving(db.kit.Dialect, userID != "", cellUUIDs != nil), []any{projectID}
	if userID != "" {
		args = append(args, userID)
	}
	if cellUUIDs != nil {
		args = append(args, sqldb.List(cellUUIDs))
	}
	err = q.QueryRowContext(ctx, query, args...).Scan(&c.Instances, &c.Cores, &c.RAM, &c.Known, &c.Unmigrated)
	return c, err
}

// Quotas implements [Store]; it is never nil.
func (db *DB) Quotas(ctx context.Context, projectID string) (QuotaSet, error) {
	type limit struct {
		resource string
		value    int64
	}
	limits, err := sqldb.All(ctx, db.kit.Reader, func(row sqldb.Row) (l limit, err error) {
		err = row.Scan(&l.resource, &l.value)
		return l, err
	}, "SELECT resource, hard_limit FROM quotas WHERE project_id = ?", projectID)
	if err != nil {
		return nil, db.failed(ctx, "reading the quotas of project "+projectID, err)
	}
	out := QuotaSet{}
	for _, l := range limits {
		out[l.resource] = l.value
	}
	return out, nil
}

// SetQuotas implements [Store]. [ErrInvalid] for a limit below -1.
func (db *DB) SetQuotas(ctx context.Context, projectID string, q QuotaSet) error {
	for resource, limit := range q {
		if resource == "" || limit < -1 {
			return fmt.Errorf("a limit of %d for %q; -1 means unlimited: %w", limit, resource, ErrInvalid)
		}
	}
	return db.write(ctx, "setting the quotas of project "+projectID, func(tx *sql.Tx) error {
		for resource, limit := range q {
			if _, err := sqldb.Exec(ctx, tx, `INSERT INTO quotas (project_id, resource, hard_limit) VALUES (?, ?, ?)`+
				db.kit.Dialect.Upsert("project_id, resource", "hard_limit"), projectID, resource, limit); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteQuotas implements [Store].
func (db *DB) DeleteQuotas(ctx context.Context, projectID string) error {
	return db.execute(ctx, "removing the quotas of project "+projectID,
		"DELETE FROM quotas WHERE project_id = ?", projectID)
}

const flavors = "SELECT flavorid, name, vcpus, memory_mb, root_gb, ephemeral_gb, swap, rxtx_factor, is_public, " +
	"disabled, description, extra_specs FROM flavors "

func (db *DB) scanFlavor(row sqldb.Row) (f Flavor, err error) {
	var extra string
	if err := row.Scan(&f.ID, &f.Name, &f.VCPUs, &f.MemoryMB, &f.RootGB, &f.EphemeralGB, &f.SwapMB, &f.RxTxFactor,
		&f.IsPublic, &f.Disabled, &f.Description, &extra); err != nil {
		return f, err
	}
	if err := json.Unmarshal([]byte(extra), &f.ExtraSpecs); err != nil {
		return f, db.damaged("flavor "+f.ID, err)
	}
	return f, nil
}

// Flavors implements [Store]. Cost: the table of flavors, read.
func (db *DB) Flavors(ctx context.Context) ([]Flavor, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, db.scanFlavor, flavors+"ORDER BY flavorid")
	return out, db.failed(ctx, "listing the flavors", err)
}

// Flavor implements [Store]. Cost: one look-up.
func (db *DB) Flavor(ctx context.Context, id string) (Flavor, error) {
	f, found, err := sqldb.One(ctx, db.kit.Reader, db.scanFlavor, flavors+"WHERE flavorid = ?", id)
	if err == nil && !found {
		err = notFound("flavor %s", id)
	}
	return f, db.failed(ctx, "reading flavor "+id, err)
}

// CreateFlavor implements [Store].
func (db *DB) CreateFlavor(ctx context.Context, f Flavor) error {
	if f.ID == "" || f.Name == "" {
		return fmt.Errorf("a flavor needs a flavorid and a name: %w", ErrInvalid)
	}
	extra, err := jsonText(f.ExtraSpecs)
	if err != nil {
		return fmt.Errorf("the extra specs of flavor %s: %w", f.ID, err)
	}
	return db.write(ctx, "creating flavor "+f.ID, func(tx *sql.Tx) error {
		other, found, err := sqldb.One(ctx, tx, sqldb.Value[string],
			"SELECT flavorid FROM flavors WHERE flavorid = ? OR name = ? ORDER BY flavorid <> ? LIMIT 1",
			f.ID, f.Name, f.ID)
		switch {
		case err != nil:
			return err
		case found && other == f.ID:
			return fmt.Errorf("flavor with ID %s: %w", f.ID, ErrExists)
		case found:
			return fmt.Errorf("flavor with name %s: %w", f.Name, ErrExists)
		}
		_, err = sqldb.Exec(
			ctx,
			tx,
			`INSERT INTO flavors (flavorid, name, vcpus, memory_mb, root_gb, ephemeral_gb, swap, rxtx_factor, is_public, disabled, description, extra_specs, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			f.ID,
			f.Name,
			f.VCPUs,
			f.MemoryMB,
			f.RootGB,
			f.EphemeralGB,
			f.SwapMB,
			f.RxTxFactor,
			f.IsPublic,
			f.Disabled,
			f.Description,
			extra,
			micros(db.now()),
		)
		return err
	})
}

// ChangeFlavor implements [Store]. change must not use the store: it runs under the write lock, in
// a database of servers perhaps more than once, each time on what is there.
func (db *DB) ChangeFlavor(ctx context.Context, id string, change func(*Flavor) error) (f Flavor, err error) {
	err = db.write(ctx, "changing flavor "+id, func(tx *sql.Tx) error {
		var found bool
		if f, found, err = sqldb.One(ctx, tx, db.scanFlavor, flavors+"WHERE flavorid = ?", id); err != nil {
			return err
		}
		if !found {
			return notFound("flavor %s", id)
		}
		changed := f
		if err := change(&changed); err != nil {
			return err
		}
		f.Description, f.ExtraSpecs = changed.Description, changed.ExtraSpecs
		extra, err := jsonText(f.ExtraSpecs)
		if err != nil {
			return fmt.Errorf("the extra specs of flavor %s: %w", id, err)
		}
		_, err = sqldb.Exec(ctx, tx,
			"UPDATE flavors SET description = ?, extra_specs = ?, updated_at = ? WHERE flavorid = ?",
			f.Description, extra, micros(db.now()), id)
		return err
	})
	return f, err
}

// DeleteFlavor implements [Store]. [ErrNotFound].
func (db *DB) DeleteFlavor(ctx context.Context, id string) error {
	return db.write(ctx, "deleting flavor "+id, func(tx *sql.Tx) error {
		n, err := sqldb.Exec(ctx, tx, "DELETE FROM flavors WHERE flavorid = ?", id)
		if err == nil && n == 0 {
			err = notFound("flavor %s", id)
		}
		return err
	})
}
