// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// serveUntil answers requests on the listener until ctx ends, and returns nil then. Requests under
// way have the grace to end; their context is requests. The first request of a connection that was
// accepted before the end is answered. The error of a listener that fails is returned as it is.
func serveUntil(ctx, requests context.Context, server *http.Server, l net.Listener, grace time.Duration) error {
	server.BaseContext = func(net.Listener) context.Context { return requests }
	first := newDrain(server)
	l = &closedOnce{Listener: l, close: sync.OnceValue(l.Close)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return errors.Join(err, server.Close()) // the listener failed
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := l.Close()
	if e := <-served; !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	first.wait(end)
	if server.Shutdown(end) != nil {
		_ = server.Close() // what is left is cut
	}
	return err
}

// closedOnce is a listener that net/http may close again.
type closedOnce struct {
	net.Listener
	close func() error
}

// Close implements net.Listener.
func (c *closedOnce) Close() error { return c.close() }
