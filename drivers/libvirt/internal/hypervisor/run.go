// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// explainTimeout bounds the search for the cause of a failed connection.
const explainTimeout = 2 * time.Second

// run is the goroutine that owns the connection.
func (l *Link) run() {
	defer close(l.ended)
	var (
		conn    Conn
		number  int // of the connection, so that late news about a former one are told apart
		backoff = firstPause
		retry   = time.NewTimer(longestPause)
	)
	retry.Stop()
	defer retry.Stop()
	drop := func(cause error) {
		if conn != nil {
			l.begin("closing a broken connection")
			l.close(conn)
			conn = nil
		}
		l.finish(cause)
		retry.Reset(backoff)
		backoff = min(2*backoff, longestPause)
	}
	connect := func() {
		number++
		c, err := l.connect(number)
		if err != nil {
			drop(err)
			return
		}
		conn, backoff = c, firstPause
		l.finish(nil)
		if l.settings.Up != nil {
			l.settings.Up()
		}
	}
	for connect(); ; {
		select {
		case <-l.stop:
			if conn != nil {
				l.begin("closing the connection")
				l.close(conn)
			}
			l.finish(errors.New("the connection was closed for good"))
			return
		case <-retry.C:
			connect()
		case n := <-l.lost:
			if conn != nil && n.conn == number {
				drop(fmt.Errorf("the connection broke (%s); connecting again", n.reason))
			}
		case c := <-l.calls:
			l.serve(c, conn, drop)
		}
	}
}

// serve makes one call and drops the connection if it did not survive it.
func (l *Link) serve(c call, conn Conn, drop func(error)) {
	if conn == nil {
		l.mu.Lock()
		cause := l.cause
		l.mu.Unlock()
		c.fail(l.unavailable(cause))
		return
	}
	if !conn.Alive() {
		err := errors.New("the connection broke; connecting again")
		drop(err)
		c.fail(l.unavailable(err))
		return
	}
	l.begin(c.what)
	broken := c.runOn(conn, l)
	if broken != nil {
		drop(broken)
		return
	}
	l.finish(nil)
}

// runOn runs the call; if the connection died under it, its caller learns that rather than libvirt's words for it.
func (c call) runOn(conn Conn, l *Link) (broken error) {
	watched := &watchedConn{Conn: conn, link: l, what: c.what}
	c.run(watched)
	return watched.broken
}

func (l *Link) connect(number int) (Conn, error) {
	l.begin("connecting")
	l.mu.Lock()
	l.attempts++
	l.mu.Unlock()
	closed := func(reason string) {
		select {
		case l.lost <- loss{conn: number, reason: reason}:
		default: // So many news are unread that one of them will do; Alive tells in any case.
		}
	}
	conn, err := l.settings.Open(l.settings.URI, closed)
	if err == nil {
		return conn, nil
	}
	if l.settings.Explain != nil {
		ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
		defer cancel()
		err = l.settings.Explain(ctx, l.settings.URI, err)
	}
	return nil, err
}

func (l *Link) close(conn Conn) {
	if err := conn.Close(); err != nil {
		l.mu.Lock()
		l.leak = errors.Join(l.leak, fmt.Errorf("closing the connection to libvirt: %w", err))
		l.mu.Unlock()
	}
}

// watchedConn makes an [*Unavailable] of every error that comes from a dead connection.
type watchedConn struct {
	Conn
	link   *Link
	what   string
	broken error
}

func (w *watchedConn) check(err error) error {
	if err == nil || errors.Is(err, ErrUnsupported) || w.Alive() {
		return err
	}
	w.broken = fmt.Errorf("the connection broke during a call (%s): %w", w.what, err)
	return w.link.unavailable(w.broken)
}

func (w *watchedConn) Type() (string, error) { v, err := w.Conn.Type(); return v, w.check(err) }

func (w *watchedConn) Hostname() (string, error) { v, err := w.Conn.Hostname(); return v, w.check(err) }

func (w *watchedConn) NodeInfo() (NodeInfo, error) {
	v, err := w.Conn.NodeInfo()
	return v, w.check(err)
}

func (w *watchedConn) CPUMap() ([]bool, error) { v, err := w.Conn.CPUMap(); return v, w.check(err) }

func (w *watchedConn) Capabilities() (string, error) {
	v, err := w.Conn.Capabilities()
	return v, w.check(err)
}

func (w *watchedConn) ExpandCPU(cpu string) (string, error) {
	v, err := w.Conn.ExpandCPU(cpu)
	return v, w.check(err)
}

func (w *watchedConn) Guests() ([]Guest, error) {
	v, err := w.Conn.Guests()
	return v, w.check(err)
}
