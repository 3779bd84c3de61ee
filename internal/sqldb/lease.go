// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// ErrLeaseLost says that this process does not hold a lease, or not any more: another one may have
// taken it over.
var ErrLeaseLost = errors.New("another process has taken over")

// LeaseOptions describe a lease. Table and Name are required.
type LeaseOptions struct {
	// Table has a row for each lease:
	//
	//	name VARCHAR(64) PRIMARY KEY, token VARCHAR(36), beat BIGINT, holder VARCHAR(255)
	Table string
	// Name is what is held: which work one process at a time does.
	Name string
	// Holder is this process, for people.
	Holder string
	// Beat is the time between two signs of life of the holder, and between two looks of another
	// process. 0: a second.
	Beat time.Duration
	// Silent is how many looks in a row find no sign of life before another process takes over.
	// 0: 8.
	Silent int
	// Logger gets a line when this process gets the lease or loses it, and when another one has it.
	Logger zerolog.Logger
}

// Lease is work in a database that one process at a time does. The holder raises a number now and
// then; a process that sees it stand still takes over. No clocks are compared, and it does not
// matter whether the earlier holder has ended, was stopped, or is cut off: its transactions that
// call Check fail from then on. A file belongs to one process, which holds all its leases.
type Lease struct {
	db *DB
	on *sql.DB
	o  LeaseOptions

	mu     sync.Mutex
	token  string // "" while it is not held
	term   int64  // of this process's holding; 0 without servers
	holder string // who holds it, as this process knows
}

// NewLease returns a lease that is not held yet. It must be called before the database is used by
// several goroutines.
func (db *DB) NewLease(o LeaseOptions) *Lease {
	if o.Beat == 0 {
		o.Beat = time.Second
	}
	if o.Silent == 0 {
		o.Silent = 8
	}
	l := &Lease{db: db, o: o}
	if db.Dialect.Shared() {
		l.on = db.pool(1) // signs of life do not queue behind other writes
	}
	return l
}

// Held reports whether this process holds the lease, as far as it knows.
func (l *Lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token != ""
}

// Holder is the process that holds the lease, as far as is known; "": none.
func (l *Lease) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// Term is a number that is higher than that of each earlier holder of the lease: what is written to
// elsewhere can refuse those by it. 0 for a file, which has no other process; ErrLeaseLost while
// this process does not hold the lease, as far as it knows.
func (l *Lease) Term() (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == "" {
		return 0, ErrLeaseLost
	}
	return l.term, nil
}

// maxTerm bounds terms, so that no database cannot count on.
const maxTerm = 1 << 60

// RaiseTerm makes the term higher than a number that was seen elsewhere, if this process holds the
// lease: after an older copy of the database was restored, terms begin again below those that were
// used before.
func (l *Lease) RaiseTerm(ctx context.Context, above int64) error {
	if !l.db.Dialect.Shared() {
		return nil
	}
	if above >= maxTerm {
		return fmt.Errorf("a term of %d was seen, which no lease has had", above)
	}
	token, term := l.heldToken(), int64(0)
	err := l.db.WriteOn(ctx, l.on, "raising the term of a lease in", func(tx *sql.Tx) error {
		row, _, err := l.read(ctx, tx)
		if err != nil {
			return err
		}
		if token == "" || row.token != token {
			return ErrLeaseLost
		}
		term = max(row.beat, above) + 1
		_, err = Exec(ctx, tx, "UPDATE "+l.o.Table+" SET beat = ? WHERE name = ?", term, l.o.Name)
		return err
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == token {
		l.term = max(l.term, term)
	}
	return nil
}

// setHolder sets the token, the term and the holder, as they were read.
func (l *Lease) setHolder(token string, term int64, holder string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = holder != l.holder
	l.token, l.term, l.holder = token, term, holder
	return changed
}

func (l *Lease) heldToken() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Run runs f whenever this process holds the lease, until the context ends; then it gives the lease
// up, so that another process need not wait. The context of f ends when the lease is lost; f has to
// return soon then.
func (l *Lease) Run(ctx context.Context, f func(ctx context.Context)) {
	if !l.db.Dialect.Shared() {
		l.setHolder("file", 0, l.o.Holder)
		defer l.setHolder("", 0, "")
		f(ctx)
		return
	}
	for ctx.Err() == nil {
		token := uuid.NewString()
		before, term, err := l.acquire(ctx, token)
		if err != nil {
			continue // the context has ended
		}
		l.setHolder(token, term, l.o.Holder)
		l.o.Logger.Info().Str("lease", l.o.Name).Str("before", before).Msg("This process is the active one now.")
		err = l.runHolding(ctx, token, f)
		l.setHolder("", 0, "")
		if ctx.Err() == nil {
			l.o.Logger.Warn().Err(err).Str("lease", l.o.Name).
				Msg("This process is not the active one any more. It stands by.")
		}
	}
}

// leaseRow is a lease as the database has it.
type leaseRow struct {
	token  string
	beat   int64
	holder string
}

func (l *Lease) read(ctx context.Context, q Querier) (leaseRow, bool, error) {
	return One(ctx, q, func(row Row) (r leaseRow, err error) {
		err = row.Scan(&r.token, &r.beat, &r.holder)
		return r, err
	}, "SELECT token, beat, holder FROM "+l.o.Table+" WHERE name = ?", l.o.Name)
}

// acquire waits for the lease; the error is that of the context.
func (l *Lease) acquire(ctx context.Context, token string) (before string, term int64, err error) {
	var last leaseRow
	still, failed := 0, false
	for {
		row, found, err := l.read(ctx, l.on)
		switch {
		case err != nil:
			if !failed && ctx.Err() == nil {
				l.o.Logger.Warn().Err(l.db.Explain(ctx, "reading a lease in", err)).Str("lease", l.o.Name).
					Msg("Cannot see which process is the active one. Retrying.")
			}
			still, failed = 0, true
		case !found || row.token == "" || still >= l.o.Silent && row == last:
			term, err := l.claim(ctx, token, row, found)
			if err == nil && term != 0 {
				return row.holder, term, nil
			}
			last, still = leaseRow{}, 0 // another process was first, or it is not known
		case row == last:
			still++
		default:
			if l.setHolder("", 0, row.holder) {
				l.o.Logger.Info().Str("lease", l.o.Name).
					Str("active", row.holder).Msg("Another process is the active one. This one stands by.")
			}
			last, still, failed = row, 0, false
		}
		if !wait.For(ctx, l.o.Beat) {
			return "", 0, ctx.Err()
		}
	}
}

// claim takes the lease if it is as it was seen, and returns its term; 0 if it is not. That it has
// no other writer beside it keeps the transactions of the earlier holder apart: they are before it,
// or see it.
func (l *Lease) claim(ctx context.Context, token string, seen leaseRow, found bool) (term int64, err error) {
	err = l.db.WriteOn(ctx, l.on, "taking a lease in", func(tx *sql.Tx) error {
		term = 0
		if !found {
			if _, err := Exec(ctx, tx, "INSERT INTO "+l.o.Table+" (name, token, beat, holder) VALUES (?, '', 0, '')"+
				l.db.Dialect.Upsert("name"), l.o.Name); err != nil {
				return err
			}
			seen = leaseRow{}
		}
		n, err := Exec(ctx, tx, "UPDATE "+l.o.Table+
			" SET token = ?, beat = beat + 1, holder = ? WHERE name = ? AND token = ? AND beat = ?",
			token, l.o.Holder, l.o.Name, seen.token, seen.beat)
		if n == 1 {
			term = seen.beat + 1
		}
		return err
	})
	return term, err
}

// runHolding runs f while the lease is held, and gives it up in the end. The error says why it was
// lost.
func (l *Lease) runHolding(ctx context.Context, token string, f func(context.Context)) error {
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(held)
	}()
	lost := l.renew(context.WithoutCancel(ctx), ended, token) // also while f comes to its end
	lose(lost)
	<-ended
	if lost != nil {
		return lost
	}
	late, cancel := engine.Bounded(context.WithoutCancel(ctx))
	defer cancel()
	_, err := l.on.ExecContext(late, "UPDATE "+
		l.o.Table+" SET token = '', beat = beat + 1 WHERE name = ? AND token = ?", l.o.Name, token)
	if err != nil {
		l.o.Logger.Warn().Err(l.db.Explain(late, "giving up a lease in", err)).Str("lease", l.o.Name).
			Msg("Another process takes over later.")
	}
	return nil
}

// renew shows signs of life until f has ended or the lease is lost.
func (l *Lease) renew(ctx context.Context, ended <-chan struct{}, token string) error {
	shown := time.Now()
	for {
		select {
		case <-ended:
			return nil
		case <-time.After(l.o.Beat):
		}
		within, cancel := context.WithTimeout(ctx, time.Duration(l.o.Silent)*l.o.Beat)
		result, err := l.on.ExecContext(within, "UPDATE "+
			l.o.Table+" SET beat = beat + 1 WHERE name = ? AND token = ?", l.o.Name, token)
		var n int64
		if err == nil {
			n, err = result.RowsAffected()
		}
		err = l.db.Explain(within, "renewing a lease in", err)
		cancel()
		switch {
		case err == nil && n != 1:
			return ErrLeaseLost
		case err == nil:
			shown = time.Now()
		case time.Since(shown) > time.Duration(l.o.Silent)*l.o.Beat:
			return fmt.Errorf("no sign of life could be shown, so that another process may have taken over: %w", err)
		}
	}
}

// Check returns ErrLeaseLost unless this process holds the lease in a transaction of Write: then no
// other process has it before the transaction has ended.
func (l *Lease) Check(ctx context.Context, tx *sql.Tx) error {
	if !l.db.Dialect.Shared() {
		return nil
	}
	return l.check(ctx, tx)
}

// Confirm returns ErrLeaseLost unless this process holds the lease at this moment. It costs a query
// on a database of servers.
func (l *Lease) Confirm(ctx context.Context) error {
	if !l.db.Dialect.Shared() {
		return nil
	}
	return l.db.Explain(ctx, "confirming a lease in", l.check(ctx, l.db.Reader))
}

func (l *Lease) check(ctx context.Context, q Querier) error {
	token := l.heldToken()
	row, _, err := l.read(ctx, q)
	if err == nil && (token == "" || row.token != token) {
		err = ErrLeaseLost
	}
	return err
}
