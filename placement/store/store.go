// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// shard is the counter that all commits share. The column is there so that
// trees can be spread over several one day.
const shard = 0

const versionQuery = "SELECT version FROM ledger_version WHERE shard = ?"

// Config of a Store.
type Config struct {
	// Writer commits; it must be limited to one connection. Reader reads;
	// both may be the same.
	Writer, Reader *sql.DB
	Dialect        Dialect
	// Where names the database in errors, without secrets.
	Where string
	// Exclusive: no other process can commit. ledger_changes is not written.
	Exclusive bool
	// OnCommit runs after each commit of this store, with the version that it
	// made; nil does nothing.
	OnCommit func(version int64)
	// Mark reads what every commit, of any server, changes to what it never was
	// before, no later than when the commit returns. It is not ok when it
	// cannot be read now; nil says that there is none.
	Mark func() (mark Mark, ok bool)
	// Check returns an error if what is committed now would not be in the
	// database that the store was made for; nil checks nothing. OnFail runs
	// with the error of each commit that failed.
	Check  func() error
	OnFail func(error)
	// OnClose runs after the connections are closed.
	OnClose func() error
}

// Mark is something by which two states of a database can be told apart.
type Mark [48]byte

// seen is the version that was the newest, or newer, when the mark was read.
type seen struct {
	mark    Mark
	version int64
}

// Store is a ledger.Store on an SQL database. It is safe for concurrent use.
type Store struct {
	cfg Config

	// committing is held by whoever uses the writing session.
	committing sync.Mutex
	writer     *session
	// reserved is the transaction that Reserve began; its goroutine holds committing.
	reserved *sql.Tx
	closed   bool

	version *sql.Stmt // on Reader
	seen    atomic.Pointer[seen]
}

var (
	_ ledger.Store    = (*Store)(nil)
	_ ledger.Reserver = (*Store)(nil)
)

// New makes a Store and brings the schema up to date. It owns the connections
// from here on, also when it fails.
func New(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	var err error
	if s.version, err = cfg.Reader.PrepareContext(ctx, cfg.Dialect.rebind(versionQuery)); err != nil {
		return nil, errors.Join(s.failed("opening", err), s.Close())
	}
	return s, nil
}

// Exclusive implements ledger.Store.
func (s *Store) Exclusive() bool { return s.cfg.Exclusive }

// Version implements ledger.Store. Cost: one query by key, about 20 µs on
// SQLite; 1 µs when the mark says that nobody has committed since the last.
func (s *Store) Version(ctx context.Context) (int64, error) {
	// The mark before the version: whoever commits between the two has
	// changed the mark by the next call.
	mark, marked := s.mark()
	if last := s.seen.Load(); marked && last != nil && last.mark == mark {
		return last.version, nil
	}
	var version int64
	if err := s.version.QueryRowContext(ctx, shard).Scan(&version); err != nil {
		return 0, s.failed("reading the version of", err)
	}
	if marked {
		s.seen.Store(&seen{mark, version})
	}
	return version, nil
}

func (s *Store) mark() (mark Mark, ok bool) {
	if s.cfg.Mark == nil {
		return mark, false
	}
	return s.cfg.Mark()
}

// failed classifies a driver's error.
func (s *Store) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	classified, _ := s.cfg.Dialect.Classify(op, err)
	return classified
}

// Close implements ledger.Store. Closing again does nothing.
func (s *Store) Close() error {
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.version != nil {
		errs = append(errs, s.version.Close())
	}
	errs = append(errs, s.cfg.Writer.Close())
	if s.cfg.Reader != s.cfg.Writer {
		errs = append(errs, s.cfg.Reader.Close())
	}
	if s.cfg.OnClose != nil {
		errs = append(errs, s.cfg.OnClose())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing %s: %w", s.cfg.Where, err)
	}
	return nil
}
