// SPDX-License-Identifier: Apache-2.0

// Package serve runs the small HTTP servers beside the main ones: control and admin sockets, metrics.
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
	server.BaseContext = func(net.Listener) context.Context { return ctx }
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
