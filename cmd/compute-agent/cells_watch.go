// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
)

// computeAdminSocket and cellAdminSocket are the sockets of a compute API and of a cell for their administrators, below the runtime directory.
const computeAdminSocket = "compute-api.sock"

func cellAdminSocket(name string) string { return "cell-" + url.PathEscape(name) + ".sock" }

// watched is a process that those who watch it can ask.
type watched struct {
	what string // in words: "The compute API", "Cell cell1"
	// socket is the path of its admin socket; listen is where it is asked too, "" for nowhere, as the key of the configuration says.
	socket, listen, key string
	serve               func(context.Context, net.Listener) error
}

// serveWatched answers Prometheus and probes on the admin socket and, where that is configured, at an address, until ctx ends or stop is called,
// which returns when nothing of it is left. As with Placement, a socket that cannot be made is no error, and an address that somebody asked for is.
func serveWatched(ctx context.Context, w watched, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	serve := func(what string, l net.Listener) {
		log.Info().Str("address", l.Addr().String()).Msg(w.what + ": the " + what + " is served.")
		group.Go(func() {
			if err := w.serve(ctx, l); err != nil {
				log.Error().Err(err).Msg(w.what + ": the " + what + " is served no more. Requests are still answered; restart the service to get it back.")
			}
		})
	}
	if w.listen != "" {
		l, err := cells.Listen(ctx, onLoopback(w.listen))
		if err != nil {
			stop()
			return nil, fmt.Errorf("%s: %w; choose another address, or none", w.key, err)
		}
		serve("metrics page", l)
	}
	l, err := adminListener(ctx, w.socket)
	if err != nil {
		log.Warn().Err(err).Str("socket", w.socket).Msg(w.what + " has no admin socket: its metrics cannot be read there. Give each service a runtime directory of its own that it can write to (--runtime-dir).")
		return stop, nil
	}
	serve("admin socket", l)
	return stop, nil
}

// onLoopback is the address, of this machine alone if it says no host.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// watchComputeAPI and watchCell say how a compute API and a cell are watched.
func watchComputeAPI(runtimeDir, listen string, api *cells.API) watched {
	return watched{what: "The compute API", socket: filepath.Join(runtimeDir, computeAdminSocket), listen: listen, key: "compute_api.metrics_listen", serve: api.ServeMetrics}
}

func watchCell(runtimeDir, name, listen string, c *cells.Cell) watched {
	return watched{what: "Cell " + name, socket: filepath.Join(runtimeDir, cellAdminSocket(name)), listen: listen, key: "cell.metrics_listen", serve: c.ServeMetrics}
}
