// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// rowsPerInsert is the number of rows of a multi-row INSERT into a file: enough to make the
// cost of the statement small, few enough for one prepared form.
const rowsPerInsert = 50

// Commit implements ledger.Store. Cost on SQLite: about 20 µs of CPU for each
// row and one fsync.
//
// On a database of servers, what failed because of a lost connection or of
// another transaction is tried again, also when COMMIT itself had no answer: of
// two commits on one base only one can happen, and the row of kindCommit says
// which one did.
func (s *Store) Commit(ctx context.Context, base int64, changes []ledger.Change) (err error) {
	const op = "committing to"
	if s.reserved == nil {
		s.committing.Lock()
		defer s.committing.Unlock()
	}
	if s.exclusive {
		_, err = s.commitOnce(ctx, op, base, "", changes)
		s.db.Failed(err)
		return err
	}
	token, unknown := uuid.NewString(), false
	var patience time.Time
	for try := 1; ; try++ {
		sent, err := s.commitOnce(ctx, op, base, token, changes)
		unknown = unknown || sent && errors.Is(err, ledger.ErrOutcomeUnknown)
		if unknown && errors.Is(err, ledger.ErrVersionConflict) {
			happened, findErr := s.committed(ctx, base+1, token)
			if happened && s.db.Dialect.Unconfirmed {
				findErr = s.confirm(ctx)
			}
			if findErr == nil {
				if happened {
					err = nil
				}
				return err
			}
			err = fmt.Errorf("%w: %w", ledger.ErrOutcomeUnknown, findErr)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, engine.ErrLocked) { // that another transaction was in the way is nothing to report
			s.db.Failed(err)
		}
		if !s.shouldRetry(ctx, &patience, err) {
			if unknown && !errors.Is(err, ledger.ErrOutcomeUnknown) {
				err = fmt.Errorf("%w: %w", ledger.ErrOutcomeUnknown, err)
			}
			return err
		}
		sqldb.Pause(ctx, try)
	}
}

// shouldRetry says whether to try again after an error that can pass, until patience,
// which the first error sets.
func (s *Store) shouldRetry(ctx context.Context, patience *time.Time, err error) bool {
	if patience.IsZero() {
		*patience = time.Now().Add(s.db.Failover())
	}
	passes := errors.Is(err, engine.ErrLocked) || errors.Is(err, engine.ErrUnreachable) ||
		errors.Is(err, engine.ErrReadOnly)
	return passes && ctx.Err() == nil && time.Now().Before(*patience)
}

// committed says whether the commit with a token made a version. Some commit did.
func (s *Store) committed(ctx context.Context, version int64, token string) (bool, error) {
	ctx, cancel := engine.Bounded(ctx)
	defer cancel()
	var made string
	err := s.db.Reader.QueryRowContext(ctx,
		"SELECT uuid FROM ledger_changes WHERE shard = ? AND version = ? AND kind = ?", shard,
		version, kindCommit).Scan(&made)
	return made == token, s.failed(ctx, "reading the last change of", err)
}

// confirm commits after a commit that is there. The server may have restarted, and
// show what its standby does not have: what is committed after that has waited for
// it. The caller holds s.committing.
func (s *Store) confirm(ctx context.Context) error {
	const op = "confirming a commit to"
	tx, err := s.begin(ctx)
	if err != nil {
		return s.failed(ctx, op, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	_, err = tx.ExecContext(ctx, "UPDATE ledger_version SET version = version WHERE shard = ?", shard)
	if err == nil {
		err = tx.Commit()
	}
	s.dropLost(err)
	return s.failed(ctx, op, err)
}

// commitOnce writes the changes in one transaction, the reserved one if there is
// one. sent is whether COMMIT was. The caller holds s.committing.
func (s *Store) commitOnce(
	ctx context.Context, op string, base int64, token string, changes []ledger.Change,
) (sent bool, err error) {
	if err := s.db.Check(); err != nil {
		return false, s.failed(ctx, op, err)
	}
	tx := s.reserved
	if s.reserved = nil; tx == nil {
		if tx, err = s.begin(ctx); err != nil {
			return false, s.failed(ctx, op, err)
		}
	}
	w := &commitWriter{ctx: ctx, session: s.writer, store: s, token: token}
	if err := w.write(base, changes); err != nil {
		_ = tx.Rollback() // the transaction has no effect in any case
		s.dropLost(err)
		return false, s.commitFailed(ctx, op, err)
	}
	if err := tx.Commit(); err != nil {
		s.dropLost(err)
		if s.db.Dialect.Is(err, engine.CommitUnknown) {
			return true, fmt.Errorf("%w: %w", ledger.ErrOutcomeUnknown, s.failed(ctx, op, err))
		}
		return true, s.commitFailed(ctx, op, err)
	}
	if err := s.db.Check(); err != nil {
		return true, fmt.Errorf("%w: %w", ledger.ErrOutcomeUnknown, s.failed(ctx, op, err))
	}
	s.db.RecordVersion(base + 1)
	return true, nil
}

// probe runs a function in a transaction of the writing session and commits it,
// to find out whether that works.
func (s *Store) probe(ctx context.Context, do func(context.Context, *sql.Tx) error) error {
	const op = "probing"
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.closed {
		return s.failed(ctx, op, sql.ErrConnDone)
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return s.failed(ctx, op, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	err = do(ctx, tx)
	if err == nil {
		err = tx.Commit()
	}
	s.dropLost(err)
	return s.failed(ctx, op, err)
}

// begin begins a transaction in the writing session.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	session, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := session.conn.BeginTx(ctx, nil)
	if err != nil {
		s.dropLost(err)
	}
	return tx, err
}

// Reserve implements ledger.Reserver, by beginning the transaction of the
// next Commit now, with the row that all commits change.
func (s *Store) Reserve(ctx context.Context) (release func(), err error) {
	s.committing.Lock()
	var tx *sql.Tx
	var patience time.Time
	for try := 1; ; try++ {
		if tx, err = s.lockVersion(ctx); err == nil {
			break
		}
		if err = s.failed(ctx, "reserving", err); !s.shouldRetry(ctx, &patience, err) {
			s.committing.Unlock()
			return nil, err
		}
		sqldb.Pause(ctx, try)
	}
	s.reserved = tx
	var once sync.Once
	return func() {
		once.Do(func() {
			s.reserved = nil
			_ = tx.Rollback() // does nothing after Commit
			s.committing.Unlock()
		})
	}, nil
}

// lockVersion begins a transaction with the row that all commits change.
func (s *Store) lockVersion(ctx context.Context) (*sql.Tx, error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	var version int64
	if err := tx.QueryRowContext(ctx, versionQuery+" FOR UPDATE", shard).Scan(&version); err != nil {
		_ = tx.Rollback() // nothing was written
		s.dropLost(err)
		return nil, err
	}
	return tx, nil
}

// commitFailed maps a conflict of rows to ledger.ErrReload: another program wrote
// to the database without changing ledger_version.
func (s *Store) commitFailed(ctx context.Context, op string, err error) error {
	explained := s.failed(ctx, op, err)
	if s.db.Dialect.Is(err, engine.Conflict) {
		if s.db.Dialect.Is(err, engine.Duplicate) {
			explained = fmt.Errorf("%w: %w", ledger.ErrDuplicate, explained)
		}
		return fmt.Errorf("%w: %w", ledger.ErrReload, explained)
	}
	if s.db.Dialect.Is(err, engine.Unfit) {
		return fmt.Errorf("%w: %w", ledger.ErrRow, explained)
	}
	return explained
}

// commitWriter writes one commit.
type commitWriter struct {
	ctx     context.Context
	session *session // in a transaction
	store   *Store
	token   string // of the commit
}

// write begins with the version: other servers wait for its row, and hold nothing
// meanwhile that this one needs.
func (w *commitWriter) write(base int64, changes []ledger.Change) error {
	moved, err := w.exec("UPDATE ledger_version SET version = version + 1 WHERE shard = ? AND version = ?", shard, base)
	if err != nil {
		return err
	}
	if moved != 1 {
		return fmt.Errorf("the version is not %d: %w", base, ledger.ErrVersionConflict)
	}
	if w.store.exclusive {
		for rest := changes; len(rest) > 0; {
			n := sameKindPrefix(rest)
			if err := w.apply(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	}
	for _, g := range grouped(changes) {
		if err := w.apply(g.changes); err != nil {
			return err
		}
	}
	return w.recordChanges(base+1, append([]object{{kind: kindCommit, uuid: w.token}}, objects(changes)...))
}

// recordChanges writes what the new version changed, and prunes old versions.
func (w *commitWriter) recordChanges(version int64, named []object) error {
	err := w.insert(ledgerChanges, len(named), func(i int, args []any) []any {
		var uuid any
		if named[i].uuid != "" {
			uuid = named[i].uuid
		}
		return append(args, shard, version, i, named[i].kind, named[i].id, uuid)
	})
	if err == nil && version%pruneEvery == 0 {
		_, err = w.exec("DELETE FROM ledger_changes WHERE shard = ? AND version <= ?", shard, version-keepVersions)
	}
	return err
}

// The tables of rows that are inserted many at a time.
var (
	allocations = table{"allocations",
		"created_at, updated_at, resource_provider_id, consumer_id, resource_class_id, used",
		[]columnType{moment, moment, number, text, number, number}}
	consumers = table{"consumers",
		"created_at, updated_at, id, uuid, project_id, user_id, generation, consumer_type_id",
		[]columnType{moment, moment, number, text, number, number, number, number}}
	inventories = table{"inventories",
		"created_at, updated_at, resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, " +
			"step_size, allocation_ratio",
		[]columnType{moment, moment, number, number, number, number, number, number, number, ratio}}
	providerTraits = table{"resource_provider_traits",
		"created_at, trait_id, resource_provider_id", []columnType{moment, number, number}}
	providerAggregates = table{"resource_provider_aggregates", "created_at, aggregate_id, resource_provider_id",
		[]columnType{moment, number, number}}
	ledgerChanges = table{"ledger_changes", "shard, version, seq, kind, id, uuid",
		[]columnType{number, number, number, number, number, text}}
	ledgerHosts = table{"ledger_hosts", "id, kind, name, amount", []columnType{number, number, text, number}}
)

// sameKindPrefix returns the number of changes at the start that are of one kind.
func sameKindPrefix(changes []ledger.Change) int {
	kind := reflect.TypeOf(changes[0])
	for i, c := range changes {
		if reflect.TypeOf(c) != kind {
			return i
		}
	}
	return len(changes)
}

// apply writes changes that are all of one kind.
func (w *commitWriter) apply(changes []ledger.Change) error {
	at := timeArg(w.store.db.Dialect)
	switch changes[0].(type) {
	case ledger.InsertAllocation:
		return w.insert(allocations, len(changes),
			func(i int, args []any) []any {
				r := changes[i].(ledger.InsertAllocation).Row
				return append(args, at(r.CreatedAt), at(r.UpdatedAt), r.Provider, r.Consumer, r.Class, r.Used)
			})
	case ledger.InsertConsumer:
		return w.insert(consumers, len(changes),
			func(i int, args []any) []any {
				r := changes[i].(ledger.InsertConsumer).Row
				return append(args, at(r.CreatedAt), at(r.UpdatedAt), r.ID, r.UUID, r.Project,
					r.User, r.Generation, nullIfZero(r.Type))
			})
	case ledger.InsertInventory:
		return w.insert(inventories, len(changes),
			func(i int, args []any) []any {
				r := changes[i].(ledger.InsertInventory).Row
				return append(args, at(r.CreatedAt), at(r.UpdatedAt), r.Provider, r.Class, r.Total, r.Reserved,
					r.MinUnit, r.MaxUnit, r.StepSize, r.AllocationRatio)
			})
	case ledger.AddTrait:
		return w.insert(providerTraits, len(changes),
			func(i int, args []any) []any {
				c := changes[i].(ledger.AddTrait)
				return append(args, at(c.CreatedAt), c.Link.Target, c.Link.Provider)
			})
	case ledger.AddAggregate:
		return w.insert(providerAggregates, len(changes),
			func(i int, args []any) []any {
				c := changes[i].(ledger.AddAggregate)
				return append(args, at(c.CreatedAt), c.Link.Target, c.Link.Provider)
			})
	case ledger.InsertHostRow:
		return w.insert(ledgerHosts, len(changes),
			func(i int, args []any) []any {
				r := changes[i].(ledger.InsertHostRow).Row
				return append(args, r.ID, r.Kind, r.Name, r.Amount)
			})
	case ledger.DeleteAllocations:
		return w.deleteKeys("DELETE FROM allocations WHERE consumer_id IN ", len(changes),
			func(i int) any { return changes[i].(ledger.DeleteAllocations).Consumer })
	case ledger.DeleteConsumer:
		return w.deleteKeys("DELETE FROM consumers WHERE id IN ",
			len(changes), func(i int) any { return changes[i].(ledger.DeleteConsumer).ID })
	}
	if done, err := w.update(changes); done || err != nil {
		return err
	}
	for _, c := range changes {
		if err := w.writeOne(c); err != nil {
			return err
		}
	}
	return nil
}

// writeOne writes a change of a kind that is not batched.
func (w *commitWriter) writeOne(change ledger.Change) error {
	at := timeArg(w.store.db.Dialect)
	switch c := change.(type) {
	case ledger.InsertNamed:
		t := tableOf(c.Table)
		return w.execOne("INSERT INTO "+t.name+" (created_at, id, "+t.column+") VALUES (?, ?, ?)",
			at(c.Row.CreatedAt), c.Row.ID, c.Row.Name)
	case ledger.RenameNamed:
		t := tableOf(c.Table)
		return w.execOne("UPDATE "+t.name+" SET "+t.column+" = ?, updated_at = ? WHERE id = ?", c.Row.Name,
			at(c.Row.UpdatedAt), c.Row.ID)
	case ledger.DeleteNamed:
		return w.execOne("DELETE FROM "+tableOf(c.Table).name+" WHERE id = ?", c.ID)
	case ledger.InsertProvider:
		r := c.Row
		return w.execOne("INSERT INTO resource_providers (created_at, updated_at, id, uuid, name, generation, "+
			"root_provider_id, parent_provider_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			at(r.CreatedAt), at(r.UpdatedAt), r.ID, r.UUID, r.Name, r.Generation, r.Root, nullIfZero(r.Parent))
	case ledger.UpdateProvider:
		r := c.Row
		return w.execOne("UPDATE resource_providers SET name = ?, root_provider_id = ?, parent_provider_id = ?, "+
			"updated_at = ? WHERE id = ?",
			r.Name, r.Root, nullIfZero(r.Parent), at(r.UpdatedAt), r.ID)
	case ledger.UpdateProviderUUID:
		return w.execOne("UPDATE resource_providers SET uuid = ?, updated_at = ? WHERE id = ?",
			c.UUID, at(c.UpdatedAt), c.ID)
	case ledger.BumpProvider:
		return w.execOne("UPDATE resource_providers SET generation = ?, updated_at = ? WHERE id = ? AND "+
			"COALESCE(generation, 0) = ?", c.To, at(c.UpdatedAt), c.ID, c.From)
	case ledger.DeleteProvider:
		for _, table := range []string{"inventories", "resource_provider_traits", "resource_provider_aggregates"} {
			if _, err := w.exec("DELETE FROM "+table+" WHERE resource_provider_id = ?", c.ID); err != nil {
				return err
			}
		}
		if !w.store.exclusive {
			// MariaDB can refuse to delete a row that refers to itself, as a root does.
			if _, err := w.exec("UPDATE resource_providers SET root_provider_id = NULL WHERE id = ?",
				c.ID); err != nil {
				return err
			}
		}
		return w.execOne("DELETE FROM resource_providers WHERE id = ?", c.ID)
	case ledger.UpdateInventory:
		r := c.Row
		return w.execOne(
			"UPDATE inventories SET total = ?, reserved = ?, min_unit = ?, max_unit = ?, step_size = ?, "+
				"allocation_ratio = ?, updated_at = ? WHERE resource_provider_id = ? AND resource_class_id = ?",
			r.Total,
			r.Reserved,
			r.MinUnit,
			r.MaxUnit,
			r.StepSize,
			r.AllocationRatio,
			at(r.UpdatedAt),
			r.Provider,
			r.Class,
		)
	case ledger.DeleteInventory:
		return w.execOne("DELETE FROM inventories WHERE resource_provider_id = ? AND resource_class_id = ?",
			c.Provider, c.Class)
	case ledger.RemoveTrait:
		return w.execOne("DELETE FROM resource_provider_traits WHERE resource_provider_id = ? AND trait_id = ?",
			c.Link.Provider, c.Link.Target)
	case ledger.RemoveAggregate:
		return w.execOne("DELETE FROM resource_provider_aggregates WHERE resource_provider_id = ? AND aggregate_id = ?",
			c.Link.Provider, c.Link.Target)
	case ledger.UpdateConsumer:
		r := c.Row
		return w.execOne("UPDATE consumers SET project_id = ?, user_id = ?, generation = ?, consumer_type_id = ?, "+
			"updated_at = ? WHERE id = ?",
			r.Project, r.User, r.Generation, nullIfZero(r.Type), at(r.UpdatedAt), r.ID)
	case ledger.BumpConsumer:
		return w.execOne("UPDATE consumers SET generation = ?, updated_at = ? WHERE id = ?", c.To, at(c.UpdatedAt),
			c.ID)
	case ledger.UpdateHostRow:
		r := c.Row
		return w.execOne("UPDATE ledger_hosts SET amount = ? WHERE id = ? AND kind = ? AND name = ?",
			r.Amount, r.ID, r.Kind, r.Name)
	case ledger.DeleteHostRow:
		r := c.Row
		return w.execOne("DELETE FROM ledger_hosts WHERE id = ? AND kind = ? AND name = ?", r.ID, r.Kind, r.Name)
	}
	panic(fmt.Sprintf("store: no such change %T", change))
}

// nullIfZero is NULL for the number 0.
func nullIfZero(id int64) any {
	if id == 0 {
		return nil
	}
	return id
}

// stmt returns a prepared statement on the connection of the transaction.
func (w *commitWriter) stmt(query string) (*sql.Stmt, error) {
	return w.session.prepared(w.ctx, query)
}

// exec runs a statement and returns the number of changed rows.
func (w *commitWriter) exec(query string, args ...any) (int64, error) {
	stmt, err := w.stmt(query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(w.ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// execOne runs a statement that must change one row; otherwise the rows differ from
// the ledger's.
func (w *commitWriter) execOne(query string, args ...any) error {
	n, err := w.exec(query, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf(
			"%q changed %d rows instead of 1: a program that does not update ledger_version wrote to the database: %w",
			query, n, ledger.ErrReload)
	}
	return err
}

// insert inserts n rows, many in each statement.
func (w *commitWriter) insert(t table, n int, row func(i int, args []any) []any) error {
	if !w.store.exclusive && n > 1 {
		return w.insertList(t, n, row)
	}
	head, group := "INSERT INTO "+t.name+" ("+t.columns+") VALUES ", "("+sqldb.Placeholders(len(t.types))+")"
	for done := 0; done < n; {
		size := w.rowsAtOnce(n - done)
		query := head + group + strings.Repeat(", "+group, size-1)
		args := make([]any, 0, size*len(t.types))
		for i := range size {
			args = row(done+i, args)
		}
		if _, err := w.exec(query, args...); err != nil {
			return err
		}
		done += size
	}
	return nil
}

// deleteKeys runs a DELETE by keys, many in each statement. If there are fewer keys than a
// statement has, the last one stands in it several times.
func (w *commitWriter) deleteKeys(head string, n int, key func(int) any) error {
	for done := 0; done < n; {
		size := w.rowsAtOnce(n - done)
		args := make([]any, size)
		for i := range args {
			args[i] = key(min(done+i, n-1))
		}
		if _, err := w.exec(head+"("+sqldb.Placeholders(size)+")", args...); err != nil {
			return err
		}
		done += size
	}
	return nil
}

// timeArg is the value of a time column: NULL for the zero time.
func timeArg(d *engine.Dialect) func(time.Time) any {
	return func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return d.TimeArg(t)
	}
}
