// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// dialTimeout bounds the making of a connection to one server, answerTimeout the answer to one
	// statement: a Galera cluster stands still for 6 s when one of its nodes dies.
	dialTimeout   = 5 * time.Second
	answerTimeout = 15 * time.Second
	// Patience bounds one statement of a migration, of a copy of everything and of an adoption: an
	// index of a large table takes minutes. A server that is gone is noticed by TCP's probes.
	Patience = time.Hour
)

// rawConn has the interfaces that the connections of both drivers of servers implement.
type rawConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
	driver.Pinger
	driver.SessionResetter
	driver.NamedValueChecker
}

// conn is a connection to a database server. It takes statements with ? for parameters and booleans
// for columns of numbers, bounds the time of each statement, and is not used again after the server
// turned out to be read-only.
type conn struct {
	rawConn
	dialect *Dialect
	rebind  func(string) string // nil for none
	timeout time.Duration       // that a statement may take
	bad     bool
	// socket is the network connection to PostgreSQL, nil for other servers.
	socket *boundedConn
}

func newConn(raw driver.Conn, d *Dialect, rebind func(string) string, patience time.Duration) *conn {
	return &conn{rawConn: raw.(rawConn), dialect: d,
		rebind: rebind, timeout: max(answerTimeout, patience)} // both drivers implement rawConn
}

func (c *conn) query(text string) string {
	if c.rebind == nil {
		return text
	}
	return c.rebind(text)
}

// markBad has the connection closed after an error of the server that others would get, too.
func (c *conn) markBad(err error) error {
	if err != nil {
		//nolint:errorlint // one of these values, never wrapped
		if kind, _ := c.dialect.Kind(err); kind == ErrReadOnly || kind == ErrUnreachable {
			c.bad = true
		}
	}
	return err
}

// errSilent is the cause of a statement that was given up because the server did not answer.
var errSilent = errors.New("the server did not answer in time")

// Bounded is a context for one statement, and as long as its answer may take.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout, errSilent)
}

func (c *conn) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, errSilent)
}

// statementError is the error of a statement in a Bounded context.
func statementError(ctx context.Context, err error) error {
	if err != nil && contextEnded(err) && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

func contextEnded(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// PrepareContext implements [driver.ConnPrepareContext].
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	made, err := c.rawConn.PrepareContext(ctx, c.query(query))
	if err != nil {
		return nil, c.markBad(statementError(ctx, err))
	}
	return &stmt{Stmt: made, conn: c}, nil
}

// ExecContext implements [driver.ExecerContext].
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	result, err := c.rawConn.ExecContext(ctx, c.query(query), args)
	return result, c.markBad(statementError(ctx, err))
}

// QueryContext implements [driver.QueryerContext]. The rows may take longer than one answer.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.rawConn.QueryContext(ctx, c.query(query), args)
	return rows, c.markBad(err)
}

// BeginTx implements [driver.ConnBeginTx].
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if c.socket != nil {
		c.socket.committing.Store(false)
	}
	// The driver uses this context for COMMIT and ROLLBACK as well.
	ctx, cancel := context.WithCancelCause(ctx)
	bound := time.AfterFunc(c.timeout, func() { cancel(errSilent) })
	made, err := c.rawConn.BeginTx(ctx, o)
	bound.Stop()
	if err != nil {
		cancel(nil)
		return nil, c.markBad(statementError(ctx, err))
	}
	return &tx{made, c, ctx, cancel}, nil
}

// IsValid implements [driver.Validator].
func (c *conn) IsValid() bool {
	v, ok := c.rawConn.(driver.Validator)
	return !c.bad && (!ok || v.IsValid())
}

// CheckNamedValue implements [driver.NamedValueChecker].
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if b, ok := v.Value.(bool); ok { // columns of yes and no are numbers in all engines
		if v.Value = int64(0); b {
			v.Value = int64(1)
		}
	}
	if err := c.rawConn.CheckNamedValue(v); err != nil {
		return err
	}
	switch v.Value.(type) {
	case nil, int64, float64, bool, []byte, string, time.Time:
		return nil
	}
	return driver.ErrSkip // database/sql makes one of these of it
}

// one is the answer to a query for one value, as text.
func (c *conn) one(ctx context.Context, query string) (string, error) {
	rows, err := c.QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	values := make([]driver.Value, len(rows.Columns()))
	if err := errors.Join(rows.Next(values), rows.Close()); err != nil {
		return "", err
	}
	switch v := values[0].(type) {
	case []byte:
		return string(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	default:
		return fmt.Sprint(v), nil
	}
}

// tx bounds the time of the end of a transaction.
type tx struct {
	driver.Tx
	conn   *conn
	ctx    context.Context // the driver keeps it for the end of the transaction
	cancel context.CancelCauseFunc
}

// Commit implements [driver.Tx].
func (t *tx) Commit() error {
	if t.conn.socket != nil {
		t.conn.socket.committing.Store(true)
	}
	return t.end(t.Tx.Commit)
}

// Rollback implements [driver.Tx].
func (t *tx) Rollback() error { return t.end(t.Tx.Rollback) }

func (t *tx) end(how func() error) error {
	bound := time.AfterFunc(t.conn.timeout, func() { t.cancel(errSilent) })
	err := statementError(t.ctx, how())
	bound.Stop()
	t.cancel(nil)
	return t.conn.markBad(err)
}

// stmt is a prepared statement of a conn.
type stmt struct {
	driver.Stmt
	conn *conn
}

// ExecContext implements [driver.StmtExecContext].
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := s.conn.bounded(ctx)
	defer cancel()
	result, err := s.Stmt.(driver.StmtExecContext).
		ExecContext(ctx, args) // both drivers have it
	return result, s.conn.markBad(statementError(ctx, err))
}

// QueryContext implements [driver.StmtQueryContext].
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.Stmt.(driver.StmtQueryContext).
		QueryContext(ctx, args) // both drivers have it
	return rows, s.conn.markBad(err)
}

// boundedConn bounds the wait for the next part of an answer, as the MySQL driver does by itself.
type boundedConn struct {
	net.Conn
	timeout  time.Duration
	mu       sync.Mutex
	deadline time.Time // that the driver has set
	// committing: the last statement is COMMIT, which is never cancelled.
	committing atomic.Bool
}

// notCancelled is the remote address of a connection during a COMMIT. It keeps the driver from
// cancelling one that times out: a COMMIT that waits for the standby would end the wait and show
// changes that are lost when the standby is promoted.
type notCancelled struct{}

// Network implements [net.Addr].
func (notCancelled) Network() string { return "none" }

// String implements [net.Addr].
func (notCancelled) String() string { return "a COMMIT is not cancelled" }

// RemoteAddr implements [net.Conn].
func (c *boundedConn) RemoteAddr() net.Addr {
	if c.committing.Load() {
		return notCancelled{}
	}
	return c.Conn.RemoteAddr()
}

// Read implements [net.Conn].
func (c *boundedConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	deadline := time.Now().Add(c.timeout)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	err := c.Conn.SetReadDeadline(deadline)
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// SetDeadline implements [net.Conn].
func (c *boundedConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (c *boundedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
