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

// drain follows the connections of a server from which nothing has been read yet.
// [http.Server.Shutdown] closes such a connection without an answer when its request arrives, so a
// client whose connection was accepted right before the end would lose a request.
type drain struct {
	next   func(net.Conn, http.ConnState) // nil for none
	mu     sync.Mutex
	unread map[net.Conn]struct{}
	none   chan struct{} // closed when unread is empty; nil while no goroutine waits
}

// newDrain follows the connections of a server that does not serve yet.
func newDrain(server *http.Server) *drain {
	d := &drain{next: server.ConnState, unread: map[net.Conn]struct{}{}}
	server.ConnState = d.changed
	return d
}

func (d *drain) changed(c net.Conn, state http.ConnState) {
	if d.next != nil {
		d.next(c, state)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if state == http.StateNew {
		d.unread[c] = struct{}{}
		return
	}
	delete(d.unread, c)
	if d.none != nil && len(d.unread) == 0 {
		close(d.none)
		d.none = nil
	}
}

// wait returns when the first requests of all connections have arrived, and after a second at the
// latest. Nothing may be accepted any more: the server's Serve has returned.
func (d *drain) wait(ctx context.Context) {
	d.mu.Lock()
	if len(d.unread) == 0 {
		d.mu.Unlock()
		return
	}
	none := make(chan struct{})
	d.none = none
	d.mu.Unlock()
	late := time.NewTimer(firstRequest)
	defer late.Stop()
	select {
	case <-none:
	case <-late.C:
	case <-ctx.Done():
	}
}
