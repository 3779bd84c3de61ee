// SPDX-License-Identifier: Apache-2.0

// Package serve runs HTTP servers: [Server] those that clients on a network reach, with bounds for what they
// may take, and [Until] those on sockets of this machine's administrators.
package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Until answers requests on the listener until the context ends, and returns nil then. Requests under way have the grace to
// end; their contexts end with ctx. The error of a listener that fails is returned as it is.
func Until(ctx context.Context, server *http.Server, l net.Listener, grace time.Duration) error {
	return until(ctx, ctx, server, l, grace)
}

// until is Until with a context of its own for requests.
func until(ctx, requests context.Context, server *http.Server, l net.Listener, grace time.Duration) error {
	server.BaseContext = func(net.Listener) context.Context { return requests }
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(drain) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() { // it runs: Serve returns as soon as that begins
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
