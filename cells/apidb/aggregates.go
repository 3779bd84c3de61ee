// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// ZoneKey is the metadata of an aggregate that names the availability zone of its hosts.
const ZoneKey = "availability_zone"

// Aggregate is a host aggregate.
type Aggregate struct {
	ID   int64
	UUID string // the aggregate in Placement that its hosts' nodes are in
	Name string
	// Hosts are in the order in which they were added.
	Hosts     []string
	Metadata  map[string]string
	CreatedAt time.Time
	UpdatedAt *time.Time
}

// Zone is the availability zone that the aggregate gives to its hosts; "": none.
func (a *Aggregate) Zone() string { return a.Metadata[ZoneKey] }

// HostZones are the availability zones of hosts that aggregates give them.
func HostZones(all []Aggregate) map[string]string {
	zones := map[string]string{}
	for i := range all {
		if zone := all[i].Zone(); zone != "" {
			for _, host := range all[i].Hosts {
				zones[host] = zone
			}
		}
	}
	return zones
}

// HostAggregates says in which aggregates a host is, by their uuids, and in which it is not, those
// that were deleted among them.
type HostAggregates struct{ In, Out []string }

// Aggregates implements [Store]. Cost: the tables of aggregates, read.
func (db *DB) Aggregates(ctx context.Context) (all []Aggregate, err error) {
	const op = "listing the aggregates"
	err = db.read(ctx, op, func(tx *sql.Tx) (err error) {
		all, err = aggregates(ctx, tx, "")
		return err
	})
	return all, db.failed(ctx, op, err)
}

// Aggregate implements [Store]. Cost: its hosts and metadata.
func (db *DB) Aggregate(ctx context.Context, id int64) (a Aggregate, err error) {
	op := fmt.Sprintf("reading aggregate %d", id)
	err = db.read(ctx, op, func(tx *sql.Tx) error {
		found, err := aggregates(ctx, tx, " WHERE a.id = ?", id)
		if err == nil && len(found) == 0 {
			err = notFound("aggregate %d", id)
		}
		if err == nil {
			a = found[0]
		}
		return err
	})
	return a, db.failed(ctx, op, err)
}

// aggregates returns the host aggregates that meet a condition on table a, ordered by id.
func aggregates(ctx context.Context, q sqldb.Querier, where string, args ...any) ([]Aggregate, error) {
	all, err := sqldb.All(ctx, q, func(row sqldb.Row) (a Aggregate, err error) {
		var created int64
		var updated *int64
		err = row.Scan(&a.ID, &a.UUID, &a.Name, &created, &updated)
		a.CreatedAt, a.Hosts, a.Metadata = fromMicros(created), []string{}, map[string]string{}
		if updated != nil {
			a.UpdatedAt = new(fromMicros(*updated))
		}
		return a, err
	}, "SELECT a.id, a.uuid, a.name, a.created_at, a.updated_at FROM aggregates a"+where+" ORDER BY a.id", args...)
	if err != nil || len(all) == 0 {
		return all, err
	}
	at := make(map[int64]*Aggregate, len(all))
	for i := range all {
		at[all[i].ID] = &all[i]
	}
	err = sqldb.Each(ctx, q,
		"SELECT h.aggregate_id, h.host FROM aggregate_hosts h JOIN aggregates a ON a.id = h.aggregate_id"+where+
			" ORDER BY h.id",
		args, func(row sqldb.Row) error {
			var id int64
			var host string
			if err := row.Scan(&id, &host); err != nil {
				return err
			}
			at[id].Hosts = append(at[id].Hosts, host)
			return nil
		})
	if err != nil {
		return nil, err
	}
	err = sqldb.Each(ctx, q,
		"SELECT m.aggregate_id, m.name, m.value FROM aggregate_metadata m JOIN aggregates a ON a.id = m.aggregate_id"+
			where, args, func(row sqldb.Row) error {
			var id int64
			var name, value string
			if err := row.Scan(&id, &name, &value); err != nil {
				return err
			}
			at[id].Metadata[name] = value
			return nil
		})
	return all, err
}

// CreateAggregate implements [Store]. Cost: one fsync.
func (db *DB) CreateAggregate(ctx context.Context, name string, metadata map[string]string) (Aggregate, error) {
	if name == "" {
		return Aggregate{}, fmt.Errorf("an aggregate needs a name: %w", ErrInvalid)
	}
	now := db.now()
	a := Aggregate{UUID: uuid.NewString(), Name: name, Hosts: []string{}, Metadata: map[string]string{},
		CreatedAt: fromMicros(micros(now))}
	maps.Copy(a.Metadata, metadata)
	err := db.write(ctx, "creating aggregate "+name, func(tx *sql.Tx) (err error) {
		if err := checkAggregateName(ctx, tx, name); err != nil {
			return err
		}
		a.ID, err = db.kit.Dialect.Insert(ctx, tx,
			"INSERT INTO aggregates (uuid, name, created_at) VALUES (?, ?, ?)", a.UUID, name, micros(now))
		if err != nil {
			return err
		}
		return writeMetadata(ctx, tx, db.kit.Dialect, a.ID, nil, a.Metadata)
	})
	if err != nil {
		return Aggregate{}, err
	}
	return a, nil
}

func checkAggregateName(ctx context.Context, tx *sql.Tx, name string) error {
	_, found, err := sqldb.One(ctx, tx, sqldb.Value[int64], "SELECT id FROM aggregates WHERE name = ?", name)
	if err == nil && found {
		err = fmt.Errorf("aggregate with name %s: %w", name, ErrExists)
	}
	return err
}

// ChangeAggregate implements [Store]. change must not use the store: it runs under the write lock,
// in a database of servers perhaps more than once, each time on what is there. Cost: the tables of
// aggregates, read, and one fsync.
func (db *DB) ChangeAggregate(
	ctx context.Context, id int64, change func(a *Aggregate, others []Aggregate) error,
) (changed Aggregate, err error) {
	err = db.write(ctx, fmt.Sprintf("changing aggregate %d", id), func(tx *sql.Tx) error {
		all, err := aggregates(ctx, tx, "")
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(a Aggregate) bool { return a.ID == id })
		if at < 0 {
			return notFound("aggregate %d", id)
		}
		was := all[at]
		changed = was
		changed.Hosts, changed.Metadata = slices.Clone(was.Hosts), maps.Clone(was.Metadata)
		if err := change(&changed, slices.Delete(all, at, at+1)); err != nil {
			return err
		}
		changed.ID, changed.UUID, changed.CreatedAt, changed.UpdatedAt = was.ID, was.UUID, was.CreatedAt, was.UpdatedAt
		return db.writeAggregate(ctx, tx, was, &changed)
	})
	if err != nil {
		return Aggregate{}, err
	}
	return changed, nil
}

// writeAggregate writes what has changed of an aggregate.
func (db *DB) writeAggregate(ctx context.Context, tx *sql.Tx, was Aggregate, is *Aggregate) error {
	if is.Name != was.Name {
		if err := checkAggregateName(ctx, tx, is.Name); err != nil {
			return err
		}
	}
	if is.Name != was.Name || !maps.Equal(is.Metadata, was.Metadata) {
		now := db.now()
		is.UpdatedAt = new(fromMicros(micros(now)))
		if _, err := sqldb.Exec(ctx, tx, "UPDATE aggregates SET name = ?, updated_at = ? WHERE id = ?", is.Name,
			micros(now), is.ID); err != nil {
			return err
		}
	}
	if err := writeMetadata(ctx, tx, db.kit.Dialect, is.ID, was.Metadata, is.Metadata); err != nil {
		return err
	}
	for _, host := range was.Hosts {
		if !slices.Contains(is.Hosts, host) {
			if _, err := sqldb.Exec(ctx, tx, "DELETE FROM aggregate_hosts WHERE host = ? AND aggregate_id = ?", host,
				is.ID); err != nil {
				return err
			}
		}
	}
	for _, host := range is.Hosts {
		if !slices.Contains(was.Hosts, host) {
			if _, err := sqldb.Exec(ctx, tx,
				"INSERT INTO aggregate_hosts (host, aggregate_id) VALUES (?, ?)", host, is.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeMetadata(ctx context.Context, tx *sql.Tx, d *engine.Dialect, id int64, was, is map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, kept := is[name]; !kept {
			if _, err := sqldb.Exec(ctx, tx, "DELETE FROM aggregate_metadata WHERE aggregate_id = ? AND name = ?", id,
				name); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if old, there := was[name]; there && old == is[name] {
			continue
		}
		if _, err := sqldb.Exec(ctx, tx, "INSERT INTO aggregate_metadata (aggregate_id, name, value) VALUES (?, ?, ?)"+
			d.Upsert("aggregate_id, name", "value"), id, name, is[name]); err != nil {
			return err
		}
	}
	return nil
}

// DeleteAggregate implements [Store]. Cost: one fsync.
func (db *DB) DeleteAggregate(ctx context.Context, id int64) error {
	return db.write(ctx, fmt.Sprintf("deleting aggregate %d", id), func(tx *sql.Tx) error {
		found, err := aggregates(ctx, tx, " WHERE a.id = ?", id)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return notFound("aggregate %d", id)
		case len(found[0].Hosts) > 0:
			return fmt.Errorf("aggregate %d has %d hosts: %w", id, len(found[0].Hosts), ErrInUse)
		}
		if _, err := sqldb.Exec(ctx, tx, "INSERT INTO deleted_aggregates (uuid) VALUES (?)",
			found[0].UUID); err != nil {
			return err
		}
		_, err = sqldb.Exec(ctx, tx, "DELETE FROM aggregates WHERE id = ?", id)
		return err
	})
}

// HostAggregates implements [Store]. Cost: two queries, which read an index for all aggregates.
func (db *DB) HostAggregates(ctx context.Context, host string) (h HostAggregates, err error) {
	op := "reading the aggregates of host " + host
	err = db.read(ctx, op, func(tx *sql.Tx) (err error) {
		h.In, err = sqldb.All(ctx, tx, sqldb.Value[string],
			"SELECT a.uuid FROM aggregate_hosts h JOIN aggregates a ON a.id = h.aggregate_id WHERE h.host = ? "+
				"ORDER BY a.id", host)
		if err != nil {
			return err
		}
		h.Out, err = sqldb.All(ctx, tx, sqldb.Value[string],
			"SELECT uuid FROM aggregates WHERE id NOT IN (SELECT aggregate_id FROM aggregate_hosts WHERE host = ?) "+
				"UNION ALL SELECT uuid FROM deleted_aggregates", host)
		slices.Sort(h.Out)
		return err
	})
	return h, db.failed(ctx, op, err)
}

// DeletedAggregates implements [Store].
func (db *DB) DeletedAggregates(ctx context.Context) ([]string, error) {
	uuids, err := sqldb.All(ctx, db.kit.Reader, sqldb.Value[string],
		"SELECT uuid FROM deleted_aggregates ORDER BY uuid")
	return uuids, db.failed(ctx, "listing the deleted aggregates", err)
}

// ForgetAggregate implements [Store].
func (db *DB) ForgetAggregate(ctx context.Context, uuid string) error {
	return db.execute(ctx, "forgetting the deleted aggregate "+uuid,
		"DELETE FROM deleted_aggregates WHERE uuid = ?", uuid)
}

// UnmappedNodes implements [Store].
func (db *DB) UnmappedNodes(ctx context.Context) ([]Node, error) {
	nodes, err := sqldb.All(ctx, db.kit.Reader, func(row sqldb.Row) (n Node, err error) {
		err = row.Scan(&n.UUID, &n.Host)
		return n, err
	}, "SELECT uuid, host FROM unmapped_nodes WHERE uuid NOT IN (SELECT uuid FROM node_mappings) ORDER BY uuid")
	return nodes, db.failed(ctx, "listing the nodes of unmapped hosts", err)
}

// ForgetNode implements [Store].
func (db *DB) ForgetNode(ctx context.Context, uuid string) error {
	return db.execute(ctx, "forgetting the unmapped node "+uuid, "DELETE FROM unmapped_nodes WHERE uuid = ?", uuid)
}
