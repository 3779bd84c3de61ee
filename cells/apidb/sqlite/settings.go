// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

const (
	countLiving = `SELECT COUNT(*), COALESCE(SUM(s.vcpus), 0), COALESCE(SUM(s.memory_mb), 0), COUNT(m.queued_for_delete),
	COALESCE(SUM(m.queued_for_delete IS NULL OR COALESCE(m.user_id, '') = ''), 0)
	FROM instance_mappings m LEFT JOIN request_specs s ON s.instance_uuid = m.instance_uuid
	WHERE m.project_id = ? AND m.queued_for_delete IS NOT 1`
	countCells = " AND m.cell_id IN (SELECT id FROM cell_mappings WHERE uuid IN (SELECT value FROM json_each(?)))"
)

// CountProject implements [apidb.Store]. A server without a specification counts as an instance without cores and RAM.
// Cost: two look-ups in indices for each living server of the project (in the cells), about 2 µs.
func (s *Store) CountProject(ctx context.Context, projectID string, cellUUIDs []string) (apidb.Counts, error) {
	c, err := countProject(ctx, s.reader, projectID, cellUUIDs)
	return c, failed(ctx, "counting what project "+projectID+" has", s.path, err)
}

func countProject(ctx context.Context, q querier, projectID string, cellUUIDs []string) (c apidb.Counts, err error) {
	query, args := countLiving, []any{projectID}
	if cellUUIDs != nil {
		query, args = query+countCells, append(args, list(cellUUIDs))
	}
	err = q.QueryRowContext(ctx, query, args...).Scan(&c.Instances, &c.Cores, &c.RAM, &c.Known, &c.Unmigrated)
	return c, err
}

// Quotas implements [apidb.Store]; it is never nil.
func (s *Store) Quotas(ctx context.Context, projectID string) (apidb.QuotaSet, error) {
	type limit struct {
		resource string
		value    int64
	}
	limits, err := all(ctx, s.reader, func(row scanner) (l limit, err error) {
		err = row.Scan(&l.resource, &l.value)
		return l, err
	}, "SELECT resource, hard_limit FROM quotas WHERE project_id = ?", projectID)
	if err != nil {
		return nil, failed(ctx, "reading the quotas of project "+projectID, s.path, err)
	}
	out := apidb.QuotaSet{}
	for _, l := range limits {
		out[l.resource] = l.value
	}
	return out, nil
}

// SetQuotas implements [apidb.Store]. [apidb.ErrInvalid] for a limit below -1.
func (s *Store) SetQuotas(ctx context.Context, projectID string, q apidb.QuotaSet) error {
	for resource, limit := range q {
		if resource == "" || limit < -1 {
			return fmt.Errorf("a limit of %d for %q; -1 is none: %w", limit, resource, apidb.ErrInvalid)
		}
	}
	return s.write(ctx, "setting the quotas of project "+projectID, func(tx *sql.Tx) error {
		for resource, limit := range q {
			if _, err := exec(ctx, tx, `INSERT INTO quotas (project_id, resource, hard_limit) VALUES (?, ?, ?)
				ON CONFLICT (project_id, resource) DO UPDATE SET hard_limit = excluded.hard_limit`, projectID, resource, limit); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteQuotas implements [apidb.Store].
func (s *Store) DeleteQuotas(ctx context.Context, projectID string) error {
	return s.write(ctx, "removing the quotas of project "+projectID, func(tx *sql.Tx) error {
		_, err := exec(ctx, tx, "DELETE FROM quotas WHERE project_id = ?", projectID)
		return err
	})
}

const flavors = "SELECT flavorid, name, vcpus, memory_mb, root_gb, ephemeral_gb, swap, rxtx_factor, is_public, disabled, description, extra_specs FROM flavors "

func (s *Store) scanFlavor(row scanner) (f apidb.Flavor, err error) {
	var extra string
	if err := row.Scan(&f.ID, &f.Name, &f.VCPUs, &f.MemoryMB, &f.RootGB, &f.EphemeralGB, &f.SwapMB, &f.RxTxFactor, &f.IsPublic, &f.Disabled, &f.Description, &extra); err != nil {
		return f, err
	}
	if err := json.Unmarshal([]byte(extra), &f.ExtraSpecs); err != nil {
		return f, s.damaged("flavor "+f.ID, err)
	}
	return f, nil
}

// Flavors implements [apidb.Store]. Cost: the table of flavors, read.
func (s *Store) Flavors(ctx context.Context) ([]apidb.Flavor, error) {
	out, err := all(ctx, s.reader, s.scanFlavor, flavors+"ORDER BY flavorid")
	return out, failed(ctx, "listing the flavors", s.path, err)
}

// Flavor implements [apidb.Store]. Cost: one look-up.
func (s *Store) Flavor(ctx context.Context, id string) (apidb.Flavor, error) {
	f, found, err := one(ctx, s.reader, s.scanFlavor, flavors+"WHERE flavorid = ?", id)
	if err == nil && !found {
		err = notFound("flavor %s", id)
	}
	return f, failed(ctx, "reading flavor "+id, s.path, err)
}

// CreateFlavor implements [apidb.Store].
func (s *Store) CreateFlavor(ctx context.Context, f apidb.Flavor) error {
	if f.ID == "" || f.Name == "" {
		return fmt.Errorf("a flavor needs a flavorid and a name: %w", apidb.ErrInvalid)
	}
	extra, err := text(f.ExtraSpecs)
	if err != nil {
		return fmt.Errorf("the extra specs of flavor %s: %w", f.ID, err)
	}
	return s.write(ctx, "creating flavor "+f.ID, func(tx *sql.Tx) error {
		other, found, err := one(ctx, tx, value[string], "SELECT flavorid FROM flavors WHERE flavorid = ? OR name = ? ORDER BY flavorid <> ? LIMIT 1", f.ID, f.Name, f.ID)
		switch {
		case err != nil:
			return err
		case found && other == f.ID:
			return fmt.Errorf("flavor with ID %s: %w", f.ID, apidb.ErrExists)
		case found:
			return fmt.Errorf("flavor with name %s: %w", f.Name, apidb.ErrExists)
		}
		_, err = exec(ctx, tx, `INSERT INTO flavors (flavorid, name, vcpus, memory_mb, root_gb, ephemeral_gb, swap, rxtx_factor, is_public, disabled, description, extra_specs, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, f.ID, f.Name, f.VCPUs, f.MemoryMB, f.RootGB, f.EphemeralGB, f.SwapMB, f.RxTxFactor, f.IsPublic, f.Disabled,
			f.Description, extra, timeIn(s.now()))
		return err
	})
}

// ChangeFlavor implements [apidb.Store]. change must not use the store: it runs while nobody else can write, also in other processes.
func (s *Store) ChangeFlavor(ctx context.Context, id string, change func(*apidb.Flavor) error) (f apidb.Flavor, err error) {
	err = s.write(ctx, "changing flavor "+id, func(tx *sql.Tx) error {
		var found bool
		if f, found, err = one(ctx, tx, s.scanFlavor, flavors+"WHERE flavorid = ?", id); err != nil {
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
		extra, err := text(f.ExtraSpecs)
		if err != nil {
			return fmt.Errorf("the extra specs of flavor %s: %w", id, err)
		}
		_, err = exec(ctx, tx, "UPDATE flavors SET description = ?, extra_specs = ?, updated_at = ? WHERE flavorid = ?", f.Description, extra, timeIn(s.now()), id)
		return err
	})
	return f, err
}

// DeleteFlavor implements [apidb.Store]. [apidb.ErrNotFound].
func (s *Store) DeleteFlavor(ctx context.Context, id string) error {
	return s.write(ctx, "deleting flavor "+id, func(tx *sql.Tx) error {
		n, err := exec(ctx, tx, "DELETE FROM flavors WHERE flavorid = ?", id)
		if err == nil && n == 0 {
			err = notFound("flavor %s", id)
		}
		return err
	})
}
