// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// session is the one connection that commits, with its prepared statements. It is
// opened when it is first needed, and again after it was lost.
type session struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// session returns the writing session. The caller holds s.committing.
func (s *Store) session(ctx context.Context) (*session, error) {
	if s.writer != nil {
		return s.writer, nil
	}
	conn, err := s.db.Writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s.writer = &session{conn: conn, stmts: map[string]*sql.Stmt{}}
	return s.writer, nil
}

// dropLost drops the session if err is that its connection is closed; on a database
// of servers, unless err says that it is of use: prepared statements can be too old,
// and a server can refuse writes.
func (s *Store) dropLost(err error) {
	if err == nil || s.writer == nil {
		return
	}
	d := s.db.Dialect
	ofUse := errors.Is(err, ledger.ErrVersionConflict) ||
		errors.Is(err, ledger.ErrReload) || d.Is(err, sqldb.Retry|sqldb.Conflict|sqldb.Unfit)
	if !s.exclusive && !ofUse || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		_ = s.writer.close() // it is gone already
		s.writer = nil
	}
}

// prepared returns the statement for a query; queries are few and written in
// this package.
func (s *session) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := s.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.stmts[query] = stmt
	return stmt, nil
}

func (s *session) close() error {
	var errs []error
	for _, stmt := range s.stmts {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, s.conn.Close())...)
}
