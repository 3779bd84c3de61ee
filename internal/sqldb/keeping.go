// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
)

const (
	// keptStatements is how many statements each connection to a file keeps prepared, keptText how
	// long their texts may be: a long one is a list of rows, and hardly comes again.
	keptStatements = 100
	keptText       = 8 << 10
)

// keptVerbs begin statements that may be prepared ahead of their use: a pragma does some of its
// work when it is prepared.
var keptVerbs = []string{"SELECT", "WITH", "INSERT", "UPDATE", "DELETE"}

// fileConn has the interfaces that the connections of SQLite's driver implement.
type fileConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// keepingConn is a connection to a file that keeps statements prepared, by their text: SQLite takes
// longer to parse the text of a list of ten servers than to find them. It prepares one again itself
// when the schema has changed. [database/sql] calls a connection and what it made from one
// goroutine at a time.
type keepingConn struct {
	fileConn
	kept          map[string]*keptStatement
	maxStatements int
	clock         uint64 // counts uses
}

type keptStatement struct {
	driver.Stmt
	text string
	used uint64 // by the clock
	busy bool   // rows of it are being read
}

func withKeptStatements(conn driver.Conn, maxStatements int) *keepingConn {
	return &keepingConn{fileConn: conn.(fileConn), kept: map[string]*keptStatement{},
		maxStatements: maxStatements} // the driver implements fileConn
}

// isKept reports whether the statement of a text is kept.
func isKept(text string) bool {
	words := strings.Fields(text[:min(len(text), 64)])
	return len(words) > 0 && slices.Contains(keptVerbs, words[0]) && len(text) <= keptText
}

// statement is one that is not in use, nil for a text that is not kept or whose rows are being
// read.
func (c *keepingConn) statement(ctx context.Context, text string) (*keptStatement, error) {
	c.clock++
	if st := c.kept[text]; st != nil {
		if st.busy {
			return nil, nil
		}
		st.used = c.clock
		return st, nil
	}
	if !isKept(text) {
		return nil, nil
	}
	made, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if len(c.kept) >= c.maxStatements {
		c.dropOldest()
	}
	st := &keptStatement{Stmt: made, text: text, used: c.clock}
	c.kept[text] = st
	return st, nil
}

// dropOldest closes the statement that was not used for longest, but for those in use.
func (c *keepingConn) dropOldest() {
	var oldest *keptStatement
	for _, st := range c.kept {
		if !st.busy && (oldest == nil || st.used < oldest.used) {
			oldest = st
		}
	}
	if oldest != nil {
		_ = c.closeStatement(oldest) // its error is that of its last use
	}
}

func (c *keepingConn) closeStatement(st *keptStatement) error {
	delete(c.kept, st.text)
	return st.Close()
}

// ExecContext implements [driver.ExecerContext].
func (c *keepingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	st, err := c.statement(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case st == nil:
		return c.fileConn.ExecContext(ctx, query, args)
	}
	result, err := st.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) // the driver has it
	if err != nil {
		_ = c.closeStatement(st) // the error above is the one that matters
	}
	return result, err
}

// QueryContext implements [driver.QueryerContext].
func (c *keepingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	st, err := c.statement(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case st == nil:
		return c.fileConn.QueryContext(ctx, query, args)
	}
	rows, err := st.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) // the driver has it
	if err != nil {
		_ = c.closeStatement(st) // the error above is the one that matters
		return nil, err
	}
	st.busy = true
	return &keptRows{rows, c, st}, nil
}

// Close implements [driver.Conn].
func (c *keepingConn) Close() error {
	var errs []error
	for _, st := range c.kept {
		if !st.busy {
			errs = append(errs, c.closeStatement(st))
		}
	}
	return errors.Join(append(errs, c.fileConn.Close())...)
}

// keptRows are the rows of a statement that is kept.
type keptRows struct {
	driver.Rows
	conn *keepingConn
	st   *keptStatement
}

// Close implements [driver.Rows].
func (r *keptRows) Close() error {
	err := r.Rows.Close()
	if r.st.busy = false; err != nil {
		_ = r.conn.closeStatement(r.st) // the error above is the one that matters
	}
	return err
}
