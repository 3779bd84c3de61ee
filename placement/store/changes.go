// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// The kinds of objects in ledger_changes. They are stored in the database: never
// change their meaning. A program that meets one that it does not know loads
// everything again, so a newer one can add kinds.
const (
	// kindCommit is the first row of each version; its uuid is that of the commit.
	kindCommit       = 0
	kindProvider     = 1
	kindConsumer     = 2
	kindClass        = 3
	kindTrait        = 4
	kindAggregate    = 5
	kindProject      = 6
	kindUser         = 7
	kindConsumerType = 8
	// kindOrphan is a consumer without a record, identified by its uuid.
	kindOrphan = 9
	// kindSchema is a step of the schema after which programs that do not know it
	// cannot use the database; its id is that of the step.
	kindSchema = 10
	// kindProviderUUID is a provider whose uuid changed. All programs load everything then.
	kindProviderUUID = 11
	// kindHost is a row about what a host may report.
	kindHost = 12
)

const (
	// keepVersions is the number of versions in ledger_changes.
	keepVersions = 4096
	// pruneEvery is the number of versions between two prunings.
	pruneEvery = 256
	// maxFollow is the number of changed objects above which loading everything
	// is not more expensive.
	maxFollow = 50_000
)

// object is the identity of a changed object in a row of ledger_changes.
type object struct {
	kind int
	id   int64
	uuid string
}

// objects returns the distinct objects that the changes affect.
func objects(changes []ledger.Change) []object {
	seen := make(map[object]bool, len(changes))
	out := make([]object, 0, len(changes))
	add := func(kind int, id int64, uuid string) {
		t := object{kind, id, uuid}
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	for _, c := range changes {
		switch o := ledger.ObjectOf(c); o.Table {
		case ledger.Providers:
			kind := kindProvider
			if _, ok := c.(ledger.UpdateProviderUUID); ok {
				kind = kindProviderUUID
			}
			add(kind, o.ID, "")
		case ledger.Consumers:
			if _, ok := c.(ledger.InsertAllocation); ok {
				continue // its consumer is inserted or updated in the same commit
			}
			if o.ID != 0 {
				add(kindConsumer, o.ID, "")
			} else {
				add(kindOrphan, 0, o.UUID)
			}
		case ledger.Hosts:
			add(kindHost, o.ID, "")
		default:
			add(tableOf(o.Table).kind, o.ID, "")
		}
	}
	return out
}

// fenceOlder makes a version whose changes programs that do not know a step cannot
// follow: they load everything, and find that they may not use the database any
// more. What they are about to commit is based on an older version.
func fenceOlder(ctx context.Context, tx *sql.Tx, step int) error {
	if _, err := sqldb.Exec(ctx, tx, "UPDATE ledger_version SET version = version + 1 WHERE shard = ?",
		shard); err != nil {
		return err
	}
	var version int64
	if err := tx.QueryRowContext(ctx, versionQuery, shard).Scan(&version); err != nil {
		return err
	}
	const insert = "INSERT INTO ledger_changes (shard, version, seq, kind, id, uuid) VALUES (?, ?, ?, ?, ?, ?)"
	if _, err := sqldb.Exec(ctx, tx, insert, shard, version, 0, kindCommit, 0, uuid.NewString()); err != nil {
		return err
	}
	_, err := sqldb.Exec(ctx, tx, insert, shard, version, 1, kindSchema, step, nil)
	return err
}

// Changes implements ledger.Store.
func (s *Store) Changes(ctx context.Context, since int64) (*ledger.Delta, error) {
	delta := new(ledger.Delta)
	err := s.reading(ctx, followTime, func(r reader) error {
		if err := r.version(&delta.Version); err != nil {
			return err
		}
		if delta.Version <= since {
			return nil
		}
		named, err := r.changedSince(since)
		if err != nil {
			return err
		}
		return r.readChanged(delta, named)
	})
	if err != nil {
		return nil, s.failed(ctx, "following", err)
	}
	return delta, nil
}

// changedSince returns the objects changed after a version, by kind.
func (r reader) changedSince(since int64) (map[int][]any, error) {
	var count int
	var oldest sql.NullInt64
	query := "SELECT COUNT(*), MIN(version) FROM ledger_changes WHERE shard = ? AND version > ?"
	if err := r.tx.QueryRowContext(r.ctx, query, shard, since).Scan(&count, &oldest); err != nil {
		return nil, err
	}
	if !oldest.Valid || oldest.Int64 != since+1 || count > maxFollow {
		return nil, fmt.Errorf("the changes since version %d are too many, or not all kept: %w",
			since, ledger.ErrReload)
	}
	named := map[int][]any{}
	err := r.query("SELECT DISTINCT kind, id, COALESCE(uuid, '') FROM ledger_changes WHERE shard = ? AND version > ?",
		[]any{shard, since}, func(rows *sql.Rows) error {
			var t object
			if err := rows.Scan(&t.kind, &t.id, &t.uuid); err != nil {
				return err
			}
			switch t.kind {
			case kindCommit:
			case kindOrphan:
				named[t.kind] = append(named[t.kind], t.uuid)
			case kindProvider, kindConsumer, kindClass,
				kindTrait, kindAggregate, kindProject, kindUser, kindConsumerType, kindHost:
				named[t.kind] = append(named[t.kind], t.id)
			default: // kindSchema, kindProviderUUID, or one of a newer program
				return fmt.Errorf("changes of kind %d: %w", t.kind, ledger.ErrReload)
			}
			return nil
		})
	return named, err
}

// readChanged reads the current rows of changed objects.
func (r reader) readChanged(delta *ledger.Delta, named map[int][]any) error {
	for _, t := range namedTables {
		if ids := named[t.kind]; len(ids) > 0 {
			if err := r.named(t, t.in(&delta.State), ids); err != nil {
				return err
			}
		}
	}
	delta.ProviderIDs, delta.ConsumerIDs = numbers(named[kindProvider]), numbers(named[kindConsumer])
	delta.ClassIDs, delta.TraitIDs = numbers(named[kindClass]), numbers(named[kindTrait])
	if len(delta.ProviderIDs) > 0 {
		if err := r.providers(&delta.State, named[kindProvider]); err != nil {
			return err
		}
	}
	if delta.HostIDs = numbers(named[kindHost]); len(delta.HostIDs) > 0 {
		if err := r.hosts(&delta.State, named[kindHost]); err != nil {
			return err
		}
	}
	for _, uuid := range named[kindOrphan] {
		delta.ConsumerUUIDs = append(delta.ConsumerUUIDs, uuid.(string))
	}
	if len(delta.ConsumerIDs)+len(delta.ConsumerUUIDs) == 0 {
		return nil
	}
	ids := named[kindConsumer]
	if ids == nil {
		ids = []any{}
	}
	return r.consumers(&delta.State, ids, named[kindOrphan]...)
}

func numbers(ids []any) []int64 {
	var out []int64
	for _, id := range ids {
		out = append(out, id.(int64))
	}
	return out
}
