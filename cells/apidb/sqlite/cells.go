// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

const cellColumns = "id, uuid, name, url, disabled"

func scanCell(row scanner) (c apidb.Cell, err error) {
	err = row.Scan(&c.ID, &c.UUID, &c.Name, &c.URL, &c.Disabled)
	return c, err
}

// Cells implements [apidb.Store]. Cost: the table of cells, read.
func (s *Store) Cells(ctx context.Context) ([]apidb.Cell, error) {
	const op = "listing the cells"
	out, err := all(ctx, s.reader, scanCell, "SELECT "+cellColumns+" FROM cell_mappings ORDER BY id")
	return out, failed(ctx, op, s.path, err)
}

// CreateCell implements [apidb.Store].
func (s *Store) CreateCell(ctx context.Context, c apidb.Cell) (apidb.Cell, error) {
	if c.UUID == "" {
		c.UUID = uuid.NewString()
	}
	if err := validCell(c); err != nil {
		return apidb.Cell{}, err
	}
	err := s.write(ctx, "creating cell "+c.Name, func(tx *sql.Tx) (err error) {
		if err := refuseSame(ctx, tx, c, 0); err != nil {
			return err
		}
		c.ID, _, err = one(ctx, tx, value[int64], "INSERT INTO cell_mappings (uuid, name, url, disabled, created_at) VALUES (?, ?, ?, ?, ?) RETURNING id",
			c.UUID, c.Name, c.URL, c.Disabled, timeIn(s.now()))
		return err
	})
	if err != nil {
		return apidb.Cell{}, err
	}
	return c, nil
}

// UpdateCell implements [apidb.Store].
func (s *Store) UpdateCell(ctx context.Context, c apidb.Cell) error {
	if err := validCell(c); err != nil {
		return err
	}
	return s.write(ctx, "updating cell "+c.UUID, func(tx *sql.Tx) error {
		id, err := cellID(ctx, tx, c.UUID)
		if err != nil {
			return err
		}
		if err := refuseSame(ctx, tx, c, id); err != nil {
			return err
		}
		_, err = exec(ctx, tx, "UPDATE cell_mappings SET name = ?, url = ?, disabled = ?, updated_at = ? WHERE id = ?", c.Name, c.URL, c.Disabled, timeIn(s.now()), id)
		return err
	})
}

func validCell(c apidb.Cell) error {
	switch {
	case c.Name == "" || c.URL == "":
		return fmt.Errorf("a cell needs a name and a URL: %w", apidb.ErrInvalid)
	case c.IsCell0() && c.Disabled:
		return fmt.Errorf("cell0 cannot be disabled, nothing is ever scheduled to it: %w", apidb.ErrInvalid)
	}
	return nil
}

// refuseSame refuses a cell that has something in common with another one than that with the id.
func refuseSame(ctx context.Context, tx *sql.Tx, c apidb.Cell, id int64) error {
	other, found, err := one(ctx, tx, scanCell, "SELECT "+cellColumns+" FROM cell_mappings WHERE (uuid = ? OR name = ? OR url = ?) AND id <> ? ORDER BY id LIMIT 1", c.UUID, c.Name, c.URL, id)
	if err != nil || !found {
		return err
	}
	what := "URL " + c.URL
	switch {
	case other.UUID == c.UUID && c.IsCell0():
		return fmt.Errorf("%s, at %s: %w", other.Name, other.URL, apidb.ErrExists)
	case other.UUID == c.UUID:
		what = "uuid " + c.UUID
	case other.Name == c.Name:
		what = "name " + c.Name
	}
	return fmt.Errorf("a cell with the %s (%s, %s): %w", what, other.Name, other.UUID, apidb.ErrExists)
}

// cellName is what people call the cell with the id.
func cellName(ctx context.Context, q querier, id int64) (string, error) {
	name, _, err := one(ctx, q, value[string], "SELECT name FROM cell_mappings WHERE id = ?", id)
	return name, err
}

func cellID(ctx context.Context, q querier, uuid string) (int64, error) {
	id, found, err := one(ctx, q, value[int64], "SELECT id FROM cell_mappings WHERE uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("cell %s", uuid)
	}
	return id, err
}

// DeleteCell implements [apidb.Store]. With force it takes mapped hosts and nodes along, and servers that are queued for delete with their
// specifications; claims stay. Cost: the mappings of the cell, counted.
func (s *Store) DeleteCell(ctx context.Context, uuid string, force bool) error {
	return s.write(ctx, "deleting cell "+uuid, func(tx *sql.Tx) error {
		id, err := cellID(ctx, tx, uuid)
		if err != nil {
			return err
		}
		name, err := cellName(ctx, tx, id)
		if err != nil {
			return err
		}
		var hosts, living, servers int64
		for _, count := range []struct {
			into  *int64
			query string
		}{
			{&hosts, "SELECT COUNT(*) FROM host_mappings WHERE cell_id = ?"},
			{&living, "SELECT COUNT(*) FROM instance_mappings WHERE cell_id = ? AND queued_for_delete IS NOT 1"},
			{&servers, "SELECT COUNT(*) FROM instance_mappings WHERE cell_id = ?"},
		} {
			if err := tx.QueryRowContext(ctx, count.query, id).Scan(count.into); err != nil {
				return err
			}
		}
		switch {
		case force && living > 0:
			return fmt.Errorf("cell %s has %d servers that are not deleted: %w", name, living, apidb.ErrInUse)
		case !force && hosts+servers > 0:
			return fmt.Errorf("cell %s has %d hosts and %d servers, %d of them not deleted: %w", name, hosts, servers, living, apidb.ErrInUse)
		}
		for _, statement := range []string{
			"DELETE FROM instance_mappings WHERE cell_id = ?",
			"DELETE FROM host_mappings WHERE cell_id = ?",
			"DELETE FROM cell_mappings WHERE id = ?",
		} {
			if _, err := exec(ctx, tx, statement, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// MapNodes implements [apidb.Store]. Mapping again what is mapped so is no error; a new name of a node is taken. [apidb.ErrNotFound] for a
// cell that is not there. Cost: three look-ups for each node.
func (s *Store) MapNodes(ctx context.Context, nodes []apidb.Node) error {
	for _, n := range nodes {
		if n.UUID == "" || n.Host == "" || n.CellUUID == "" || n.CellUUID == apidb.Cell0UUID {
			return fmt.Errorf("a node needs a uuid, a host and a cell other than cell0, got %+v: %w", n, apidb.ErrInvalid)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return s.write(ctx, "mapping nodes", func(tx *sql.Tx) error {
		for _, n := range nodes {
			if err := s.mapNode(ctx, tx, n); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) mapNode(ctx context.Context, tx *sql.Tx, n apidb.Node) error {
	cell, err := cellID(ctx, tx, n.CellUUID)
	if err != nil {
		return err
	}
	type idAndCell struct{ id, cell int64 }
	host, found, err := one(ctx, tx, func(row scanner) (h idAndCell, err error) {
		err = row.Scan(&h.id, &h.cell)
		return h, err
	}, "SELECT id, cell_id FROM host_mappings WHERE host = ?", n.Host)
	switch {
	case err != nil:
		return err
	case found && host.cell != cell:
		return hostElsewhere(ctx, tx, n.Host, host.cell, cell)
	case !found:
		host.id, _, err = one(ctx, tx, value[int64], "INSERT INTO host_mappings (host, cell_id, created_at) VALUES (?, ?, ?) RETURNING id", n.Host, cell, timeIn(s.now()))
		if err != nil {
			return err
		}
	}
	owner, found, err := one(ctx, tx, value[int64], "SELECT host_id FROM node_mappings WHERE uuid = ?", n.UUID)
	if err == nil && found && owner != host.id {
		return fmt.Errorf("node %s of another host than %s: %w", n.UUID, n.Host, apidb.ErrExists)
	}
	if err == nil {
		_, err = exec(ctx, tx, "INSERT INTO node_mappings (uuid, name, host_id) VALUES (?, ?, ?) ON CONFLICT (uuid) DO UPDATE SET name = excluded.name", n.UUID, n.Name, host.id)
	}
	return err
}

// hostElsewhere says where a host is mapped that was to be mapped to another cell.
func hostElsewhere(ctx context.Context, q querier, host string, is, wanted int64) error {
	there, err := cellName(ctx, q, is)
	if err != nil {
		return err
	}
	here, err := cellName(ctx, q, wanted)
	if err != nil {
		return err
	}
	return fmt.Errorf("host %s in cell %s, not %s: %w", host, there, here, apidb.ErrExists)
}

// Nodes implements [apidb.Store], by host, name and uuid. Cost: the tables of nodes and hosts, read.
func (s *Store) Nodes(ctx context.Context) ([]apidb.Node, error) {
	out, err := all(ctx, s.reader, func(row scanner) (n apidb.Node, err error) {
		err = row.Scan(&n.UUID, &n.Name, &n.Host, &n.CellUUID)
		return n, err
	}, `SELECT n.uuid, n.name, h.host, c.uuid FROM node_mappings n JOIN host_mappings h ON h.id = n.host_id JOIN cell_mappings c ON c.id = h.cell_id
		ORDER BY h.host, n.name, n.uuid`)
	return out, failed(ctx, "listing the nodes", s.path, err)
}

// Hosts implements [apidb.Store]. Cost: the table of hosts, read.
func (s *Store) Hosts(ctx context.Context) ([]apidb.HostMapping, error) {
	out, err := all(ctx, s.reader, func(row scanner) (h apidb.HostMapping, err error) {
		err = row.Scan(&h.Host, &h.CellUUID)
		return h, err
	}, "SELECT h.host, c.uuid FROM host_mappings h JOIN cell_mappings c ON c.id = h.cell_id ORDER BY h.host")
	return out, failed(ctx, "listing the hosts", s.path, err)
}

// DeleteHost implements [apidb.Store]. [apidb.ErrNotFound] for a host that is not mapped.
func (s *Store) DeleteHost(ctx context.Context, host string) error {
	return s.write(ctx, "unmapping host "+host, func(tx *sql.Tx) error {
		n, err := exec(ctx, tx, "DELETE FROM host_mappings WHERE host = ?", host) // its nodes go with it
		if err == nil && n == 0 {
			err = notFound("host %s", host)
		}
		return err
	})
}
