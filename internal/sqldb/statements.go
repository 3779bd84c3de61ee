// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// Statements queries a database with statements that are kept prepared, by their text: SQLite takes
// longer to parse the text of a list of ten servers than to find them. A statement is prepared when
// its text comes for the first time, on each connection that it gets to, and closed when so many
// others were used since that there is no more space. It is safe for concurrent use.
type Statements struct {
	db   *sql.DB
	most int

	mu    sync.Mutex
	kept  map[string]*statement // by text
	clock uint64                // counts uses
}

// statement is closed when it is dropped and not in use; rows that are being read keep it alive.
type statement struct {
	*sql.Stmt
	text    string
	users   int
	used    uint64 // by the clock
	dropped bool
}

// NewStatements keeps at most so many statements of a database. The database stays its owner's to
// close, after Close.
func NewStatements(db *sql.DB, most int) *Statements {
	return &Statements{db: db, most: max(most, 1), kept: map[string]*statement{}}
}

// QueryContext asks for rows.
func (s *Statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := s.take(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args...)
	s.giveBack(st)
	return rows, err
}

// QueryRowContext asks for one row.
func (s *Statements) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	st, err := s.take(ctx, query)
	if err != nil {
		return s.db.QueryRowContext(ctx, query, args...) // there is no other way to make a row of an error
	}
	defer s.giveBack(st)
	return st.QueryRowContext(ctx, args...)
}

// take finds or prepares a statement.
func (s *Statements) take(ctx context.Context, query string) (*statement, error) {
	if st := s.find(query); st != nil {
		return st, nil
	}
	made, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if st := s.find(query); st != nil { // another goroutine prepared it meanwhile
		_ = made.Close() // it was not used
		return st, nil
	}
	return s.keep(&statement{Stmt: made, text: query, users: 1}), nil
}

func (s *Statements) find(query string) *statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.kept[query]
	if st != nil {
		s.clock++
		st.users, st.used = st.users+1, s.clock
	}
	return st
}

// keep adds a statement that is in use, and drops the oldest one if there are too many, or one of
// the same text.
func (s *Statements) keep(st *statement) *statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(s.kept[st.text])
	if len(s.kept) >= s.most {
		var oldest *statement
		for _, other := range s.kept {
			if oldest == nil || other.used < oldest.used {
				oldest = other
			}
		}
		s.drop(oldest)
	}
	s.clock++
	st.used = s.clock
	s.kept[st.text] = st
	return st
}

// drop forgets a statement; it does nothing for nil. The lock is held.
func (s *Statements) drop(st *statement) {
	if st == nil {
		return
	}
	delete(s.kept, st.text)
	if st.dropped = true; st.users == 0 {
		_ = st.Close() // its error has no effect
	}
}

func (s *Statements) giveBack(st *statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.users--; st.users == 0 && st.dropped {
		_ = st.Close() // its error has no effect
	}
}

// Close closes the statements that are kept. Those that are asked later are prepared again.
func (s *Statements) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.kept {
		delete(s.kept, st.text)
		if st.dropped = true; st.users == 0 {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(errs...)
}
