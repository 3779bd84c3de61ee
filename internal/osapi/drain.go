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
	next  func(net.Conn, http.ConnState) // nil for none
	mu    sync.Mutex
	fresh map[net.Conn]struct{}
	none  chan struct{} // closed when fresh is empty; nil as long as nothing waits
}

// newDrain follows the connections of a server that does not serve yet.
func newDrain(server *http.Server) *drain {
	d := &drain{next: server.ConnState, fresh: map[net.Conn]struct{}{}}
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
		d.fresh[c] = struct{}{}
		return
	}
	delete(d.fresh, c)
	if d.none != nil && len(d.fresh) == 0 {
		close(d.none)
		d.none = nil
	}
}

// wait returns when the first requests of all connections have arrived, and after a second at the
// latest. Nothing may be accepted any more: the server's Serve has returned.
func (d *drain) wait(ctx context.Context) {
	d.mu.Lock()
	if len(d.fresh) == 0 {
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
