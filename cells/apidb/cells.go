// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

const cellColumns = "id, uuid, name, url, disabled"

func scanCell(row sqldb.Row) (c Cell, err error) {
	err = row.Scan(&c.ID, &c.UUID, &c.Name, &c.URL, &c.Disabled)
	return c, err
}

// Cells implements [Store]. Cost: the table of cells, read.
func (db *DB) Cells(ctx context.Context) ([]Cell, error) {
	const op = "listing the cells"
	out, err := sqldb.All(ctx, db.kit.Reader, scanCell, "SELECT "+cellColumns+" FROM cell_mappings ORDER BY id")
	return out, db.failed(ctx, op, err)
}

// CreateCell implements [Store].
func (db *DB) CreateCell(ctx context.Context, c Cell) (Cell, error) {
	if c.UUID == "" {
		c.UUID = uuid.NewString()
	}
	if err := checkCell(c); err != nil {
		return Cell{}, err
	}
	err := db.write(ctx, "creating cell "+c.Name, func(tx *sql.Tx) (err error) {
		if err := checkUnique(ctx, tx, c, 0); err != nil {
			return err
		}
		c.ID, err = db.kit.Dialect.Insert(ctx, tx,
			"INSERT INTO cell_mappings (uuid, name, url, disabled, created_at) VALUES (?, ?, ?, ?, ?)",
			c.UUID, c.Name, c.URL, c.Disabled, micros(db.now()))
		return err
	})
	if err != nil {
		return Cell{}, err
	}
	return c, nil
}

// UpdateCell implements [Store].
func (db *DB) UpdateCell(ctx context.Context, c Cell) error {
	if err := checkCell(c); err != nil {
		return err
	}
	return db.write(ctx, "updating cell "+c.UUID, func(tx *sql.Tx) error {
		id, err := cellID(ctx, tx, c.UUID)
		if err != nil {
			return err
		}
		if err := checkUnique(ctx, tx, c, id); err != nil {
			return err
		}
		_, err = sqldb.Exec(ctx, tx,
			"UPDATE cell_mappings SET name = ?, url = ?, disabled = ?, updated_at = ? WHERE id = ?", c.Name, c.URL,
			c.Disabled, micros(db.now()), id)
		return err
	})
}

// How long the texts of a cell may be, in bytes.
const (
	maxUUID = 36
	maxName = 255
	maxURL  = 512
)

func checkCell(c Cell) error {
	switch {
	case c.Name == "" || c.URL == "":
		return fmt.Errorf("a cell needs a name and a URL: %w", ErrInvalid)
	case len(c.UUID) > maxUUID || len(c.Name) > maxName || len(c.URL) > maxURL:
		return fmt.Errorf("a cell has a uuid of at most %d bytes, a name of at most %d, and a URL of at most %d: %w",
			maxUUID, maxName, maxURL, ErrInvalid)
	case c.IsCell0() && c.Disabled:
		return fmt.Errorf("cell0 cannot be disabled, nothing is ever scheduled to it: %w", ErrInvalid)
	}
	return nil
}

// checkUnique refuses a cell that has something in common with another one than that with the id.
func checkUnique(ctx context.Context, tx *sql.Tx, c Cell, id int64) error {
	other, found, err := sqldb.One(ctx, tx, scanCell, "SELECT "+cellColumns+
		" FROM cell_mappings WHERE (uuid = ? OR name = ? OR url = ?) AND id <> ? ORDER BY id LIMIT 1",
		c.UUID, c.Name, c.URL, id)
	if err != nil || !found {
		return err
	}
	what := "URL " + c.URL
	switch {
	case other.UUID == c.UUID && c.IsCell0():
		return fmt.Errorf("%s, at %s: %w", other.Name, other.URL, ErrExists)
	case other.UUID == c.UUID:
		what = "uuid " + c.UUID
	case other.Name == c.Name:
		what = "name " + c.Name
	}
	return fmt.Errorf("a cell with the %s (%s, %s): %w", what, other.Name, other.UUID, ErrExists)
}

// cellName is what people call the cell with the id.
func cellName(ctx context.Context, q sqldb.Querier, id int64) (string, error) {
	name, _, err := sqldb.One(ctx, q, sqldb.Value[string], "SELECT name FROM cell_mappings WHERE id = ?", id)
	return name, err
}

func cellID(ctx context.Context, q sqldb.Querier, uuid string) (int64, error) {
	id, found, err := sqldb.One(ctx, q, sqldb.Value[int64], "SELECT id FROM cell_mappings WHERE uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("cell %s", uuid)
	}
	return id, err
}

// DeleteCell implements [Store]. With force it takes mapped hosts and nodes along, and servers that
// are queued for delete with their specifications; claims stay. Cost: the mappings of the cell,
// counted.
func (db *DB) DeleteCell(ctx context.Context, uuid string, force bool) error {
	return db.write(ctx, "deleting cell "+uuid, func(tx *sql.Tx) error {
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
			{&living, "SELECT COUNT(*) FROM instance_mappings WHERE cell_id = ? AND (queued_for_delete IS NULL OR " +
				"queued_for_delete = 0)"},
			{&servers, "SELECT COUNT(*) FROM instance_mappings WHERE cell_id = ?"},
		} {
			if err := tx.QueryRowContext(ctx, count.query, id).Scan(count.into); err != nil {
				return err
			}
		}
		switch {
		case force && living > 0:
			return fmt.Errorf("cell %s has %d servers that are not deleted: %w", name, living, ErrInUse)
		case !force && hosts+servers > 0:
			return fmt.Errorf("cell %s has %d hosts and %d servers, %d of them not deleted: %w",
				name, hosts, servers, living, ErrInUse)
		}
		for _, statement := range []string{
			"DELETE FROM instance_mappings WHERE cell_id = ?",
			"DELETE FROM host_mappings WHERE cell_id = ?",
			"DELETE FROM cell_mappings WHERE id = ?",
		} {
			if _, err := sqldb.Exec(ctx, tx, statement, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (n Node) check() error {
	if n.UUID == "" || n.Host == "" || n.CellUUID == "" || n.CellUUID == Cell0UUID {
		return fmt.Errorf("a node needs a uuid, a host and a cell other than cell0, got %+v: %w", n, ErrInvalid)
	}
	return nil
}

// MapNodes implements [Store]. Mapping again what is mapped so is no error; a new name of a node is
// taken. [ErrNotFound] for a cell that is not there. Cost: three look-ups for each node.
func (db *DB) MapNodes(ctx context.Context, nodes []Node) error {
	for _, n := range nodes {
		if err := n.check(); err != nil {
			return err
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return db.write(ctx, "mapping nodes", func(tx *sql.Tx) error {
		for _, n := range nodes {
			if err := db.mapNode(ctx, tx, n, ""); err != nil {
				return err
			}
		}
		return nil
	})
}

// RemapNode implements [Store]. Cost: four look-ups.
func (db *DB) RemapNode(ctx context.Context, n Node, from string) error {
	if err := n.check(); err != nil {
		return err
	}
	return db.write(ctx, "mapping node "+n.UUID+" to another host",
		func(tx *sql.Tx) error { return db.mapNode(ctx, tx, n, from) })
}

// mapNode maps a node that is not mapped, or mapped to its host or the host from.
func (db *DB) mapNode(ctx context.Context, tx *sql.Tx, n Node, from string) error {
	cell, err := cellID(ctx, tx, n.CellUUID)
	if err != nil {
		return err
	}
	type idAndCell struct{ id, cell int64 }
	host, found, err := sqldb.One(ctx, tx, func(row sqldb.Row) (h idAndCell, err error) {
		err = row.Scan(&h.id, &h.cell)
		return h, err
	}, "SELECT id, cell_id FROM host_mappings WHERE host = ?", n.Host)
	switch {
	case err != nil:
		return err
	case found && host.cell != cell:
		return otherCellError(ctx, tx, n.Host, host.cell, cell)
	case !found:
		host.id, err = db.kit.Dialect.Insert(ctx, tx,
			"INSERT INTO host_mappings (host, cell_id, created_at) VALUES (?, ?, ?)", n.Host, cell, micros(db.now()))
		if err != nil {
			return err
		}
	}
	owner, found, err := sqldb.One(ctx, tx, sqldb.Value[string],
		"SELECT h.host FROM node_mappings n JOIN host_mappings h ON h.id = n.host_id WHERE n.uuid = ?", n.UUID)
	if err == nil && found && owner != n.Host && owner != from {
		return fmt.Errorf("node %s of another host than %s: %w", n.UUID, n.Host, ErrExists)
	}
	if err == nil {
		_, err = sqldb.Exec(ctx, tx, "INSERT INTO node_mappings (uuid, name, host_id) VALUES (?, ?, ?)"+
			db.kit.Dialect.Upsert("uuid", "name", "host_id"), n.UUID, n.Name, host.id)
	}
	if err == nil && !found { // its provider is looked at with all others again
		_, err = sqldb.Exec(ctx, tx, "DELETE FROM unmapped_nodes WHERE uuid = ?", n.UUID)
	}
	return err
}

// otherCellError says where a host is mapped that was to be mapped to another cell.
func otherCellError(ctx context.Context, q sqldb.Querier, host string, is, wanted int64) error {
	there, err := cellName(ctx, q, is)
	if err != nil {
		return err
	}
	here, err := cellName(ctx, q, wanted)
	if err != nil {
		return err
	}
	return fmt.Errorf("host %s in cell %s, not %s: %w", host, there, here, ErrExists)
}

// Nodes implements [Store], by host, name and uuid. Cost: the tables of nodes and hosts, read.
func (db *DB) Nodes(ctx context.Context) ([]Node, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, func(row sqldb.Row) (n Node, err error) {
		err = row.Scan(&n.UUID, &n.Name, &n.Host, &n.CellUUID)
		return n, err
	}, `SELECT n.uuid, n.name, h.host, c.uuid FROM node_mappings n JOIN host_mappings h ON h.id = n.host_id JOIN cell_mappings c ON c.id = h.cell_id
		ORDER BY h.host, n.name, n.uuid`)
	return out, db.failed(ctx, "listing the nodes", err)
}

// Hosts implements [Store]. Cost: the table of hosts, read.
func (db *DB) Hosts(ctx context.Context) ([]HostMapping, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, func(row sqldb.Row) (h HostMapping, err error) {
		err = row.Scan(&h.Host, &h.CellUUID)
		return h, err
	}, "SELECT h.host, c.uuid FROM host_mappings h JOIN cell_mappings c ON c.id = h.cell_id ORDER BY h.host")
	return out, db.failed(ctx, "listing the hosts", err)
}

// DeleteHost implements [Store]. [ErrNotFound] for a host that is not mapped and has no nodes from
// before its eviction.
func (db *DB) DeleteHost(ctx context.Context, host string) error {
	return db.write(ctx, "unmapping host "+host, func(tx *sql.Tx) error {
		_, err := sqldb.Exec(ctx, tx,
			"DELETE FROM unmapped_nodes WHERE uuid IN (SELECT n.uuid FROM node_mappings n JOIN host_mappings h ON "+
				"h.id = n.host_id WHERE h.host = ?)", host)
		if err == nil {
			_, err = sqldb.Exec(ctx, tx,
				"INSERT INTO unmapped_nodes (uuid, host) SELECT n.uuid, h.host FROM node_mappings n JOIN "+
					"host_mappings h ON h.id = n.host_id WHERE h.host = ?", host)
		}
		if err != nil {
			return err
		}
		n, err := sqldb.Exec(ctx, tx, "DELETE FROM host_mappings WHERE host = ?", host) // its nodes go with it
		var freed int64
		if err == nil {
			freed, err = freeNodes(ctx, tx, host)
		}
		if err == nil {
			var name int64
			name, err = freeFormerName(ctx, tx, host)
			freed += name
		}
		if err == nil && n+freed == 0 {
			err = notFound("host %s", host)
		}
		if err == nil {
			_, err = sqldb.Exec(ctx, tx, "DELETE FROM aggregate_hosts WHERE host = ?", host)
		}
		return err
	})
}

// UnmapNodes implements [Store]. Cost: a few look-ups for each node.
func (db *DB) UnmapNodes(ctx context.Context, cellUUID string, uuids []string) error {
	const ofCell = "SELECT n.uuid, h.host FROM node_mappings n JOIN host_mappings h ON h.id = n.host_id JOIN " +
		"cell_mappings c ON c.id = h.cell_id WHERE n.uuid = ? AND c.uuid = ?"
	return db.write(ctx, "unmapping nodes of cell "+cellUUID, func(tx *sql.Tx) error {
		for _, uuid := range uuids {
			host, found, err := sqldb.One(ctx, tx, func(row sqldb.Row) (host string, err error) {
				err = row.Scan(new(string), &host)
				return host, err
			}, ofCell, uuid, cellUUID)
			if err != nil {
				return err
			}
			if !found {
				continue
			}
			for _, step := range []struct {
				query string
				args  []any
			}{
				{"DELETE FROM unmapped_nodes WHERE uuid = ?", []any{uuid}},
				{"INSERT INTO unmapped_nodes (uuid, host) VALUES (?, ?)", []any{uuid, host}},
				{"DELETE FROM node_mappings WHERE uuid = ?", []any{uuid}},
			} {
				if _, err := sqldb.Exec(ctx, tx, step.query, step.args...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// CellOf is the cell that a server or a host is mapped to. Without one the database is damaged: the
// error is no [ErrNotFound].
func CellOf(ctx context.Context, store interface {
	Cells(ctx context.Context) ([]Cell, error)
}, uuid string) (Cell, error) {
	all, err := store.Cells(ctx)
	if err != nil {
		return Cell{}, err
	}
	for _, c := range all {
		if c.UUID == uuid {
			return c, nil
		}
	}
	return Cell{}, fmt.Errorf("a server is mapped to the cell %s, which does not exist", uuid)
}
