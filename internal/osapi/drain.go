// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// firstRequest is how long a connection that was accepted right before the end has to send its
// first request.
const firstRequest = time.Second

// drain follows the connections of a server whose first request has not reached its handler yet.
// [http.Server.Shutdown] has such a connection closed without an answer when its request arrives,
// so a client whose connection was accepted right before the end would lose a request. net/http
// looks for the end of the server after it has read a request and called it active, so that the
// state of a connection does not say whether that request is answered.
type drain struct {
	next    func(net.Conn, http.ConnState) // nil for none
	mu      sync.Mutex
	unread  map[net.Conn]struct{}
	drained chan struct{} // closed when unread is empty; nil while no goroutine waits
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// newDrain follows the connections of a server that does not serve yet, and has requests know
// theirs by [connKey]. The server has a handler.
func newDrain(server *http.Server) *drain {
	d := &drain{next: server.ConnState, unread: map[net.Conn]struct{}{}}
	server.ConnState = d.changed
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.read(r.Context().Value(connKey{}).(net.Conn))
		handler.ServeHTTP(w, r)
	})
	return d
}

func (d *drain) changed(c net.Conn, state http.ConnState) {
	if d.next != nil {
		d.next(c, state)
	}
	switch state {
	case http.StateNew:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.unread[c] = struct{}{}
	case http.StateActive: // its request may still be dropped
	default:
		d.read(c)
	}
}

// read notes that the first request of a connection is answered, or that there will be none.
func (d *drain) read(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.unread, c)
	if d.drained != nil && len(d.unread) == 0 {
		close(d.drained)
		d.drained = nil
	}
}

// wait returns when the first requests of all connections have reached the handler, and after a
// second at the latest. Nothing may be accepted any more: the server's Serve has returned.
func (d *drain) wait(ctx context.Context) {
	d.mu.Lock()
	if len(d.unread) == 0 {
		d.mu.Unlock()
		return
	}
	none := make(chan struct{})
	d.drained = none
	d.mu.Unlock()
	late := time.NewTimer(firstRequest)
	defer late.Stop()
	select {
	case <-none:
	case <-late.C:
	case <-ctx.Done():
	}
}
