// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// write runs f in a transaction that is on the disk when it returns nil.
func (d *DB) write(ctx context.Context, op string, f func(*writeTx) error) error {
	watch := watchOf(ctx)
	var w *writeTx // of the last try
	err := d.transaction(ctx, d.kit.Writer, op, func(tx *sql.Tx) error {
		w = &writeTx{Tx: tx}
		if err := w.fence(ctx); err != nil {
			return err
		}
		if err := f(w); err != nil {
			return err
		}
		if err := w.saveMarks(ctx); err != nil {
			return err
		}
		if watch == nil || watch.Before == nil || len(w.calls) == 0 {
			return nil
		}
		return watch.Before(w.notifyWatch)
	})
	if err == nil && watch != nil {
		w.notifyWatch(watch)
	}
	return err
}

// writeTx is the transaction of a change. It has no other writer beside it, so that the row of the
// cell is read once and written once, however much is changed: on servers each statement is a round
// trip.
type writeTx struct {
	*sql.Tx
	read     bool
	was, now marks
	calls    []func(*Watch) // for the watch of the context, when all is durable
}

// marks are what a change raises in the row of the cell.
type marks struct{ revision, term int64 }

func (w *writeTx) loadMarks(ctx context.Context) error {
	if w.read {
		return nil
	}
	err := w.QueryRowContext(ctx, "SELECT revision, term FROM cell").Scan(&w.was.revision, &w.was.term)
	w.read, w.now = err == nil, w.was
	return err
}

// fence refuses (outdated) a change of a compute API after which another one has made changes, and
// keeps the term of one that is later.
func (w *writeTx) fence(ctx context.Context) error {
	term := cellwire.TermOf(ctx)
	if term == 0 {
		return nil
	}
	if err := w.loadMarks(ctx); err != nil {
		return err
	}
	if w.was.term > term {
		return &cellwire.Error{Status: 409, Code: cellwire.CodeOutdated, Message: fmt.Sprintf(
			"another compute API has taken over: it has made changes here in term %d, and the request is of term %d",
			w.was.term, term)}
	}
	w.now.term = term
	return nil
}

// nextRevision raises the cell's revision and returns it.
func (w *writeTx) nextRevision(ctx context.Context) (revision int64, err error) {
	if err := w.loadMarks(ctx); err != nil {
		return 0, err
	}
	w.now.revision++
	return w.now.revision, nil
}

// saveMarks writes the marks that were raised.
func (w *writeTx) saveMarks(ctx context.Context) error {
	if w.now == w.was {
		return nil
	}
	_, err := w.ExecContext(ctx, "UPDATE cell SET revision = ?, term = ?", w.now.revision, w.now.term)
	return err
}

func (d *DB) transaction(ctx context.Context, db *sql.DB, op string, f func(*sql.Tx) error) error {
	select {
	case d.writeSem <- struct{}{}:
		defer func() { <-d.writeSem }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.kit.WriteOn(ctx, db, op, f)
}

// read runs f over one state of the database.
func (d *DB) read(ctx context.Context, op string, f func(sqldb.Querier) error) error {
	return d.kit.Read(ctx, op, func(tx *sql.Tx) error { return f(tx) })
}

// applyTransition runs a transition of a row that is there, and gives it a new revision if that
// changed anything. The row is still to be written.
func applyTransition(
	ctx context.Context, tx *writeTx, r *stored, now time.Time, transition func() (bool, error),
) (changed bool, err error) {
	want := r.DesiredState()
	var was *cellwire.Server
	if watchOf(ctx) != nil {
		was = cloneServer(&r.Server)
	}
	if changed, err = transition(); err != nil || !changed {
		return false, err
	}
	if r.Server.Revision, err = tx.nextRevision(ctx); err != nil {
		return false, err
	}
	if r.DesiredState() != want {
		r.WantRevision = r.Server.Revision
	}
	at := serverstate.TruncateTime(now)
	r.Server.UpdatedAt = &at
	if was != nil {
		tx.transition(was, cloneServer(&r.Server))
	}
	return true, nil
}

// update writes a row that is there.
func update(ctx context.Context, tx *writeTx, r *stored) error {
	values, err := recordValues(&r.Record)
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, updateRecord, append(values, r.Server.ID)...); err != nil {
		return err
	}
	return writeMigrations(ctx, tx, r)
}

// changeOne runs a transition of the server with the uuid in a transaction, and returns the server
// as it is then; a refusal (not found) without one. What it changed is an action with the name,
// unless that is "".
func (d *DB) changeOne(
	ctx context.Context, op, uuid string, action cellwire.ActionName, m Moment,
	transition func(*serverstate.Record) (bool, error),
) (cellwire.Server, error) {
	r, err := d.changeRead(ctx, op, uuid, action, m.Now, nil,
		func(r *stored) (bool, error) { return transition(&r.Record) })
	if err != nil {
		return cellwire.Server{}, err
	}
	return r.server(m), nil
}

// changeRead is changeOne for a row with its host. It first calls more in the same transaction,
// unless more is nil.
func (d *DB) changeRead(
	ctx context.Context, op, uuid string, action cellwire.ActionName, now time.Time, more func(*writeTx, *stored) error,
	transition func(*stored) (bool, error),
) (r *stored, err error) {
	err = d.write(ctx, op+" in", func(tx *writeTx) error {
		if r, err = record(ctx, tx, uuid); err != nil {
			return err
		}
		if r == nil {
			return serverstate.NotFound("server", uuid)
		}
		if more != nil {
			if err := more(tx, r); err != nil {
				return err
			}
		}
		changed, err := applyTransition(ctx, tx, r, now, func() (bool, error) { return transition(r) })
		if err != nil || !changed {
			return err
		}
		if action != "" {
			if err := tx.addAction(ctx, action, &r.Server, now); err != nil {
				return err
			}
		}
		return update(ctx, tx, r)
	})
	return r, err
}

// Info is whose database it is.
func (d *DB) Info(ctx context.Context) (Info, error) {
	info := d.info
	err := d.checkConn.QueryRowContext(ctx, "SELECT revision, term FROM cell").Scan(&info.Revision, &info.Term)
	return info, d.kit.Explain(ctx, "reading", err)
}

// Server is one server.
func (d *DB) Server(ctx context.Context, uuid string, m Moment) (cellwire.Server, error) {
	r, err := record(ctx, d.kit.Reader, uuid)
	if err != nil {
		return cellwire.Server{}, d.kit.Explain(ctx, "reading a server from", err)
	}
	if r == nil {
		return cellwire.Server{}, serverstate.NotFound("server", uuid)
	}
	return r.server(m), nil
}

// Insert makes a hidden row.
func (d *DB) Insert(ctx context.Context, server cellwire.Server, m Moment) (cellwire.Server, error) {
	if err := serverstate.CheckInsert(server); err != nil {
		return cellwire.Server{}, err
	}
	inserted, err := serverstate.NewRecord(server, m.Now)
	if err != nil {
		return cellwire.Server{}, err
	}
	var answer *stored
	err = d.write(ctx, "inserting a server in", func(tx *writeTx) error {
		there, err := record(ctx, tx, server.UUID)
		if err != nil {
			return err
		}
		if answer = there; there != nil {
			return there.CheckRepeatedInsert(inserted)
		}
		if err := checkNodeFree(ctx, tx, &server, m); err != nil {
			return err
		}
		if inserted.Server.Revision, err = tx.nextRevision(ctx); err != nil {
			return err
		}
		inserted.WantRevision = inserted.Server.Revision
		values, err := recordValues(inserted)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertRecord, values...); err != nil {
			return err
		}
		tx.transition(nil, &inserted.Server)
		answer, err = record(ctx, tx, server.UUID)
		return err
	})
	if err != nil {
		return cellwire.Server{}, err
	}
	return answer.server(m), nil
}

// Release shows a hidden row.
func (d *DB) Release(ctx context.Context, uuid string, m Moment) (cellwire.Server, error) {
	return d.changeOne(ctx, "releasing a server", uuid, cellwire.ActionCreate, m,
		func(r *serverstate.Record) (bool, error) { return r.Release(), nil })
}

// Discard erases a hidden row.
func (d *DB) Discard(ctx context.Context, uuid string) error {
	return d.write(ctx, "discarding a server in", func(tx *writeTx) error {
		r, err := record(ctx, tx, uuid)
		if err != nil || r == nil {
			return err
		}
		if err := r.CheckDiscard(); err != nil {
			return err
		}
		tx.transition(&r.Server, nil)
		_, err = tx.ExecContext(ctx, "DELETE FROM instances WHERE id = ?", r.Server.ID)
		return err
	})
}

// Delete asks the host to delete, or deletes.
func (d *DB) Delete(
	ctx context.Context, uuid string, kind cellwire.DeleteKind, m Moment,
) (cellwire.DeleteAnswer, error) {
	if kind != cellwire.DeleteNormal && kind != cellwire.DeleteSoft && kind != cellwire.DeleteReclaim {
		return cellwire.DeleteAnswer{}, serverstate.Invalid("kind is %.64q, not %q, %q or %q",
			kind, cellwire.DeleteNormal, cellwire.DeleteSoft, cellwire.DeleteReclaim)
	}
	var local bool
	r, err := d.changeMigrating(ctx, "deleting a server", uuid, cellwire.ActionDelete, m.Now,
		func(r *stored) (changed bool, err error) {
			if kind == cellwire.DeleteSoft {
				if err := r.CheckSoftDelete(); err != nil {
					return false, err
				}
			}
			if kind == cellwire.DeleteReclaim {
				if err := r.CheckReclaim(); err != nil {
					return false, err
				}
			}
			changed, local = r.Delete(kind, r.host.up(m), m.Now)
			return changed, nil
		})
	if err != nil {
		return cellwire.DeleteAnswer{}, err
	}
	return cellwire.DeleteAnswer{Server: r.server(m), Local: local}, nil
}

// Restore takes a soft delete back.
func (d *DB) Restore(ctx context.Context, uuid string, m Moment) (cellwire.Server, error) {
	return d.changeOne(ctx, "restoring a server", uuid, cellwire.ActionRestore, m, (*serverstate.Record).Restore)
}

// Patch changes what a server is called and marked with.
func (d *DB) Patch(ctx context.Context, uuid string, patch cellwire.ServerPatch, m Moment) (cellwire.Server, error) {
	return d.changeOne(ctx, "changing a server", uuid, "", m,
		func(r *serverstate.Record) (bool, error) { return r.Patch(patch) })
}

// Rebuild begins to make the guest of a server again. What its host cannot do is refused (unable).
func (d *DB) Rebuild(
	ctx context.Context, uuid string, request cellwire.RebuildRequest, m Moment,
) (cellwire.Server, error) {
	server, err := d.Server(ctx, uuid, m)
	if err != nil {
		return cellwire.Server{}, err
	}
	if err := request.Check(&server); err != nil {
		return cellwire.Server{}, err
	}
	if err := d.CheckAbility(ctx, server, plugins.AbilityRebuild); err != nil {
		return cellwire.Server{}, err
	}
	return d.changeOne(ctx, "rebuilding a server", uuid, cellwire.ActionRebuild, m,
		func(r *serverstate.Record) (bool, error) { return r.Rebuild(request) })
}

// Power begins a power action.
func (d *DB) Power(ctx context.Context, uuid string, action cellwire.PowerAction, m Moment) (cellwire.Server, error) {
	return d.changeOne(ctx, "changing the power of a server", uuid, powerActions[action], m,
		func(r *serverstate.Record) (bool, error) { return r.Power(action) })
}

// Reset says in which state a server is.
func (d *DB) Reset(ctx context.Context, uuid string, request cellwire.ResetRequest, m Moment) (cellwire.Server, error) {
	r, err := d.changeMigrating(ctx, "resetting the state of a server", uuid, cellwire.ActionReset, m.Now,
		func(r *stored) (bool, error) { return r.Reset(request) })
	if err != nil {
		return cellwire.Server{}, err
	}
	return r.server(m), nil
}

// MarkFreed records that allocations are gone. It is nothing that an owner or a host sees, and so
// not a change of the server.
func (d *DB) MarkFreed(ctx context.Context, uuid string) error {
	return d.write(ctx, "noting removed allocations in", func(tx *writeTx) error {
		r, err := record(ctx, tx, uuid)
		switch {
		case err != nil:
			return err
		case r == nil:
			return serverstate.NotFound("server", uuid)
		}
		if changed, err := r.MarkFreed(); err != nil || !changed {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE instances SET unfreed = 0 WHERE id = ?", r.Server.ID)
		return err
	})
}

// States returns the states of servers.
func (d *DB) States(ctx context.Context, uuids []string) ([]cellwire.ServerState, error) {
	states := []cellwire.ServerState{}
	err := sqldb.Each(ctx, d.kit.Reader,
		"SELECT uuid, vm_state, task_state, gone = 2, hidden FROM instances WHERE uuid IN ("+
			d.engine.Texts+") ORDER BY uuid",
		[]any{sqldb.List(uuids)}, func(row sqldb.Row) error {
			var one cellwire.ServerState
			if err := row.Scan(&one.UUID, &one.VMState, &one.TaskState, &one.Deleted, &one.Hidden); err != nil {
				return err
			}
			states = append(states, one)
			return nil
		})
	return states, d.kit.Explain(ctx, "reading states from", err)
}

// Unfinished has what the compute API must finish. Each of the three lists has an index of just
// these rows.
func (d *DB) Unfinished(ctx context.Context, hiddenBefore, softBefore time.Time) (u cellwire.Unfinished, err error) {
	err = d.read(ctx, "reading unfinished servers from", func(db sqldb.Querier) error {
		get := func(query string, args ...any) ([]cellwire.UnfinishedServer, error) {
			return sqldb.All(ctx, db, scanUnfinished, query, args...)
		}
		u.Epoch = d.info.Epoch
		if err := db.QueryRowContext(ctx, "SELECT revision FROM cell").Scan(&u.Revision); err != nil {
			return err
		}
		if u.Hidden, err = get(unfinished("inserted_at", hiddenUntil), hiddenBefore.UnixMicro()); err != nil {
			return err
		}
		if u.Unfreed, err = get(unfinished("deleted_at", notFreed)); err != nil || softBefore.IsZero() {
			return err
		}
		u.Reclaimable, err = get(d.engine.softlyDeleted(), softBefore.UnixMicro(), cellwire.TaskDeleting)
		return err
	})
	return u, err
}

func scanUnfinished(row sqldb.Row) (s cellwire.UnfinishedServer, err error) {
	var since int64
	err = row.Scan(&s.UUID, &s.ProjectID, &since)
	s.Since = fromMicros(since)
	return s, err
}

// countStates counts what is in each state. It reads each living row once.
const countStates = "SELECT vm_state, COUNT(*) FROM instances WHERE gone IN (0, 1) AND hidden = 0 GROUP BY vm_state"

// CountStates counts the servers that live, hidden ones not among them, by vm_state. It is for
// metrics: the cost is O(servers), a tenth of a second for 100,000, so a caller that asks often
// should cache the answer.
func (d *DB) CountStates(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{}
	err := sqldb.Each(ctx, d.kit.Reader, countStates, nil, func(row sqldb.Row) error {
		var state string
		var n int64
		err := row.Scan(&state, &n)
		counts[state] = n
		return err
	})
	return counts, d.kit.Explain(ctx, "counting servers in", err)
}
