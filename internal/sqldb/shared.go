// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

const (
	// sharedReaders is how many queries a database of servers is asked at the same time.
	sharedReaders = 8
	// maxTries is how often a transaction is run that others are in the way of.
	maxTries = 20
	// failover is Options.Failover if it is not set.
	failover = 5 * time.Second
	// idleTime is how long a connection stays open without use.
	idleTime = 5 * time.Minute
)

// retryPause is how long to wait before another try: 2 ms on average before the second one, and
// 250 ms at most, each up to a half shorter or longer by chance.
var retryPause = wait.Backoff{Min: 3 * time.Millisecond, Max: 375 * time.Millisecond, Jitter: 2.0 / 3}

// openShared connects to a database of servers, and brings its schema up to date where that is
// safe beside older programs.
func (db *DB) openShared(ctx context.Context, a engine.Address, o Options) error {
	longest := time.Duration(0)
	if o.Patient {
		longest = engine.Patience
	}
	var err error
	if db.connector, err = a.Connect(longest); err != nil {
		return err
	}
	db.Writer = db.pool(1)
	if o.Readers == 0 {
		o.Readers = sharedReaders
	}
	db.Reader = db.pool(o.Readers)
	if err := db.Writer.PingContext(ctx); err != nil {
		return err
	}
	want, err := o.requiredSteps()
	if err != nil {
		return err
	}
	db.schema, db.schemaSteps = o.Schema, o.Schema.Newest()
	if err := db.migrateShared(ctx, a, o, want); err != nil {
		return err
	}
	db.files = watch(ctx, db.path, o.Logger, func(ctx context.Context) error {
		return db.Write(ctx, "probing", func(*sql.Tx) error { return nil })
	})
	if o.Schema.Processes == "" || want < db.schemaSteps { // with fewer steps that table may not be there
		return nil
	}
	return db.announce(ctx, o.Exclusive)
}

// migrateShared brings the schema up to date. The statements of its steps may take long, and have a
// connection of their own.
func (db *DB) migrateShared(ctx context.Context, a engine.Address, o Options, want int) error {
	connector, err := a.Connect(engine.Patience)
	if err != nil {
		return err
	}
	m := &migration{schema: o.Schema, d: db.Dialect, db: db.Writer, slow: sql.OpenDB(connector),
		token: uuid.NewString(), log: o.Logger, progress: o.Progress}
	defer func() { _ = m.slow.Close() }() // one that was lost cannot be closed
	db.stepsBefore, db.stepsAfter, err = m.run(ctx, want, o.Steps != 0)
	// Processes that start at once are in each other's way: on a Galera cluster one of them is
	// undone.
	for r := db.retries(); err != nil && db.Dialect.Is(err, engine.Retry) && r.wait(ctx, err); {
		_, db.stepsAfter, err = m.run(ctx, want, o.Steps != 0) // what it has done counts as done, or as its own
	}
	return err
}

// pool makes connections to the servers.
func (db *DB) pool(maxConns int) *sql.DB {
	pool := sql.OpenDB(db.connector)
	pool.SetMaxOpenConns(maxConns)
	pool.SetMaxIdleConns(maxConns)
	pool.SetConnMaxIdleTime(idleTime)
	db.extra = append(db.extra, pool)
	return pool
}

// CloseIdle closes the connections that are not in use, so that the next ones are made to a server
// that takes writes.
func (db *DB) CloseIdle() {
	for _, pool := range db.extra {
		maxConns := pool.Stats().MaxOpenConnections
		pool.SetMaxIdleConns(-1)
		pool.SetMaxIdleConns(maxConns)
	}
}

// sharedWrite runs f in a transaction that has no other writer beside it: all transactions begin
// with changing one row, which they hold until their end. On a Galera cluster, of two transactions
// that changed it on two nodes one fails. So f sees all that was committed before, and runs again
// when another transaction was in the way.
//
// A commit whose outcome is not known is looked for by its token in that row.
func (db *DB) sharedWrite(ctx context.Context, on *sql.DB, f func(*sql.Tx) error) error {
	w := &sharedTx{db: db, on: on, f: f, token: rand.Text()}
	done, err := w.run(ctx)
	if !done && w.unknown != 0 && !errors.Is(err, engine.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", engine.ErrOutcomeUnknown, err)
	}
	return err
}

// run tries the transaction until there is an outcome or no more hope. done is whether err is the
// outcome.
func (s *sharedTx) run(ctx context.Context) (done bool, err error) {
	r := s.db.retries()
	for {
		done, err := s.tryOnce(ctx)
		if done || !r.wait(ctx, err) {
			return done, err
		}
	}
}

// conflictPatience is how long a change that other transactions undo is tried again. While all
// nodes of a Galera cluster are written to, one writer may lose maxTries times in a row.
const conflictPatience = 15 * time.Second

// retries counts the tries of one change.
type retries struct {
	dialect   *engine.Dialect
	failover  time.Duration // that of Options
	tries     int
	until     time.Time // when waiting for a server ends; zero before the first failure
	conflicts time.Time // when conflicts end the tries; zero before the first one
}

func (db *DB) retries() retries { return retries{dialect: db.Dialect, failover: db.Failover()} }

// wait reports whether a change that failed with an error may succeed when it is tried again, and
// waits before that.
func (r *retries) wait(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	r.tries++
	//nolint:errorlint // one of these values, never wrapped
	switch kind, _ := r.dialect.Kind(err); {
	case r.dialect.Is(err, engine.Retry):
		if r.conflicts.IsZero() {
			r.conflicts = time.Now().Add(max(conflictPatience, r.failover))
		}
		if r.tries >= maxTries && time.Now().After(r.conflicts) {
			return false
		}
	case kind == engine.ErrUnreachable || kind == engine.ErrReadOnly:
		if r.until.IsZero() {
			r.until = time.Now().Add(r.failover)
		}
		if time.Now().After(r.until) {
			return false
		}
	default:
		return false
	}
	Pause(ctx, r.tries)
	return true
}

// Pause waits before a transaction is tried again, longer each time and with jitter, so that two
// processes do not stay in step.
func Pause(ctx context.Context, try int) {
	wait.For(ctx, retryPause.Delay(try, mathrand.Float64())) // the next try finds that ctx has ended
}

// sharedTx is one transaction, however often it is tried.
type sharedTx struct {
	db    *DB
	on    *sql.DB
	f     func(*sql.Tx) error
	token string // the same in all tries: whichever was committed, it was f's
	// unknown: COMMIT of the write with this number was sent, and no answer came.
	unknown int64
	// found: that commit happened. It has to be confirmed.
	found bool
}

// tryOnce runs the transaction once. done is whether err is the outcome.
func (s *sharedTx) tryOnce(ctx context.Context) (done bool, err error) {
	tx, err := s.on.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if s.unknown != 0 {
		if !s.found {
			if s.found, err = s.find(ctx, tx); err != nil {
				return false, err
			}
		}
		if s.found {
			err := s.confirm(ctx, tx)
			return err == nil, err
		}
	}
	number, found, err := s.db.Dialect.Servers.Bump(ctx, tx, s.db.schema.Table, s.token, s.db.schemaSteps)
	if err != nil {
		return false, err
	}
	if !found {
		if err := s.db.schema.CheckUse(ctx, tx); err != nil {
			return errors.Is(err, engine.ErrSchema), err
		}
		return true, &engine.Error{Kind: engine.ErrSchema,
			Hint: fmt.Sprintf("the table %s has no row 0; restore a backup", s.db.schema.Table)}
	}
	if err := s.f(tx); err != nil {
		// An error of f's own is final. One of the database may be that of another transaction.
		kind, _ := s.db.Dialect.Kind(err)
		return kind == nil && !s.db.Dialect.Is(err, engine.Retry), err
	}
	err = tx.Commit()
	if err != nil && s.db.Dialect.Is(err, engine.CommitUnknown) {
		s.unknown = number
		if !errors.Is(err, driver.ErrBadConn) {
			err = errors.Join(err, driver.ErrBadConn)
		}
		return false, err
	}
	return err == nil, err
}

// find says whether the commit that had no answer happened. The transaction then has the row, so
// that a commit that is still on its way cannot happen any more once this one did. On a Galera
// cluster it can until then, on another node: the next try looks again.
func (s *sharedTx) find(ctx context.Context, tx *sql.Tx) (happened bool, err error) {
	var tokens string
	var number int64
	if err := tx.QueryRowContext(ctx, "SELECT token, beat FROM "+s.db.schema.Table+" WHERE number = 0 FOR UPDATE").
		Scan(&tokens, &number); err != nil {
		return false, err
	}
	for ; len(tokens) >= engine.TokenSize; tokens = tokens[engine.TokenSize:] {
		if tokens[:engine.TokenSize] == s.token {
			return true, nil
		}
	}
	if number-s.unknown >= engine.KeptTokens {
		return false, engine.ErrOutcomeUnknown
	}
	return false, nil
}

// confirm commits after a commit that is there. The server may have restarted, and show what its
// standby does not have: what is committed after that has waited for it.
func (s *sharedTx) confirm(ctx context.Context, tx *sql.Tx) error {
	if !s.db.Dialect.Unconfirmed {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+s.db.schema.Table+" SET beat = beat WHERE number = 0"); err != nil {
		return err
	}
	return tx.Commit()
}
