// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// explainTimeout bounds the search for the cause of a failed connection, and of missing write
// access.
const explainTimeout = 2 * time.Second

// owner is the state of the link's goroutine, which alone uses it.
type owner struct {
	*Link
	conn    Conn // nil while there is none
	number  int  // of the connection, to recognize late events of an earlier one
	down    bool // watchers know that there is no connection
	backoff time.Duration
	retry   *time.Timer
}

// run is the goroutine that owns the connection.
func (l *Link) run() {
	defer close(l.drained)
	defer l.hanging.Wait()
	defer close(l.ended)
	o := &owner{Link: l, down: true, backoff: firstPause, retry: time.NewTimer(longestPause)}
	o.retry.Stop()
	defer o.retry.Stop()
	for o.connect(); ; {
		select {
		case <-l.stop:
			if o.conn != nil {
				l.begin("closing the connection", l.settings.CallTimeout)
				l.close(o.conn)
			}
			l.finish(errors.New("the connection is closed"))
			return
		case <-o.retry.C:
			o.connect()
		case n := <-l.losses:
			if o.conn != nil && n.conn == o.number {
				o.disconnect(fmt.Errorf("the connection broke (%s); reconnecting", n.reason))
			}
		case c := <-l.calls:
			o.serve(c)
		}
	}
}

// connect makes an attempt.
func (o *owner) connect() {
	o.number++
	c, err := o.open(o.number)
	if err != nil {
		o.disconnect(err)
		if !o.down { // the driver has nothing to report now, which a pass shows
			o.down = true
			o.settings.EventLog.recordLoss()
		}
		return
	}
	o.conn, o.backoff, o.down = c, firstPause, false
	o.finish(nil)
	o.settings.EventLog.recordLoss()
	if o.settings.Connected != nil {
		o.settings.Connected()
	}
}

// disconnect closes the connection, if there is one, and schedules the next attempt.
func (o *owner) disconnect(cause error) {
	if o.conn != nil {
		o.begin("closing a broken connection", o.settings.CallTimeout)
		o.close(o.conn)
		o.conn = nil
	}
	o.finish(cause)
	o.retry.Reset(o.backoff)
	o.backoff = min(2*o.backoff, longestPause)
}

// serve makes one call and closes the connection if the call broke it.
func (o *owner) serve(c call) {
	if o.conn == nil {
		o.mu.Lock()
		cause := o.cause
		o.mu.Unlock()
		c.fail(cause)
		return
	}
	if !o.conn.Alive() {
		err := errors.New("the connection broke; reconnecting")
		o.disconnect(err)
		c.fail(err)
		return
	}
	o.begin(c.what, c.limit)
	conn, done := o.conn, make(chan struct{})
	var broken error // once it is done
	go func() {
		broken = c.run(conn)
		close(done)
	}()
	patience := time.NewTimer(c.limit + o.settings.CallTimeout)
	defer patience.Stop()
	for {
		select {
		case <-done:
			if broken != nil {
				o.disconnect(broken)
				return
			}
			o.finish(nil)
			return
		case <-patience.C:
			if o.abandonConn(conn, done) {
				o.conn = nil
				o.disconnect(fmt.Errorf(
					"a call (%s) does not return; its connection is abandoned, and a new one is opened",
					c.what))
				return
			}
		}
	}
}

// abandonConn leaves a connection to a call that does not return, unless too many are abandoned
// already.
func (l *Link) abandonConn(conn Conn, done <-chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts.Hanging >= maxHanging {
		return false
	}
	l.counts.Hanging++
	l.hanging.Go(func() {
		<-done
		l.close(conn)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.counts.Hanging--
	})
	return true
}

func (l *Link) open(number int) (Conn, error) {
	l.begin("connecting", l.settings.ConnectTimeout)
	l.mu.Lock()
	l.counts.Attempts++
	l.mu.Unlock()
	closed := func(reason string) {
		select {
		case l.losses <- loss{conn: number, reason: reason}:
		default: // Enough reports are unread already; Alive detects it anyway.
		}
	}
	conn, err := l.settings.Open(Request{URI: l.settings.URI, Write: l.settings.Write, Closed: closed,
		Event: l.settings.EventLog.add})
	if err == nil {
		return conn, nil
	}
	if l.settings.Explain != nil {
		ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
		defer cancel()
		err = l.settings.Explain(ctx, l.settings.URI, l.settings.Write, err)
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
