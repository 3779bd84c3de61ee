// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
)

// Names of the admin sockets below the runtime directory.
const (
	placementAdminSocket = "placement-admin.sock"
	computeAdminSocket   = "compute-api.sock"
)

func cellAdminSocket(name string) string { return "cell-" + url.PathEscape(name) + ".sock" }

// watched describes the admin socket and metrics of a service.
type watched struct {
	what string // for messages: "Placement", "Cell cell1"
	// socket is the path of the admin socket, where admin serves; asked describes what it serves.
	socket, asked string
	admin         func(context.Context, *osapi.KeySocket) error
	// listen is an additional address for metrics, "" for none; key is its configuration key.
	listen, key string
	metrics     func(context.Context, net.Listener) error
}

// watchPlacement, watchComputeAPI and watchCell describe the services.
func watchPlacement(cfg *config.Config, server *placement.Server) watched {
	return watched{
		what: "Placement", socket: filepath.Join(cfg.Agent.RuntimeDir, placementAdminSocket), asked: "status, metrics and profiles",
		admin: func(ctx context.Context, l *osapi.KeySocket) error {
			return server.ServeAdmin(ctx, l, serving{cfg: cfg, placement: server}.commands("placement", "db"))
		},
		listen: cfg.PlacementMetrics.Listen, key: "placement_metrics.listen", metrics: server.ServeMetrics,
	}
}

func watchComputeAPI(cfg *config.Config, api *cells.API) watched {
	return watched{
		what: "The compute API", socket: filepath.Join(cfg.Agent.RuntimeDir, computeAdminSocket), asked: "metrics",
		admin: func(ctx context.Context, l *osapi.KeySocket) error {
			return api.ServeAdmin(ctx, l, serving{cfg: cfg, api: api}.commands("cells", "manage"))
		},
		listen: cfg.ComputeAPI.MetricsListen, key: "compute_api.metrics_listen", metrics: api.ServeMetrics,
	}
}

func watchCell(runtimeDir, name, listen string, c *cells.Cell) watched {
	return watched{
		what: "Cell " + name, socket: filepath.Join(runtimeDir, cellAdminSocket(name)), asked: "metrics", admin: c.ServeAdmin,
		listen: listen, key: "cell.metrics_listen", metrics: c.ServeMetrics,
	}
}

// serveWatched serves the admin socket and, if configured, metrics at an address, until ctx ends or
// stop is called; stop waits. Failure to create the admin socket is logged only, because clients of
// the service do not need it. Failure to listen on a configured address is an error.
func serveWatched(ctx context.Context, w watched, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	serve := func(what string, l net.Listener, on func() error) {
		log.Info().Str("address", l.Addr().String()).Msg(w.what + ": serving the " + what + ".")
		group.Go(func() {
			if err := on(); err != nil {
				log.Error().Err(err).Msg(w.what + ": the " + what + " has failed. Requests are still served; restart the service to restore it.")
			}
		})
	}
	if w.listen != "" {
		l, err := osapi.Listen(ctx, onLoopback(w.listen))
		if err != nil {
			stop()
			return nil, fmt.Errorf("%s: %w; choose another address, or none", w.key, err)
		}
		serve("metrics page", l, func() error { return w.metrics(ctx, l) })
	}
	l, err := adminListener(ctx, w.socket)
	if err != nil {
		log.Warn().
			Err(err).
			Str("socket", w.socket).
			Msg(w.what + " has no admin socket: its " + w.asked + " are not available there, and commands on its database require that it is stopped. Give each service its own writable runtime directory (--runtime-dir).")
		return stop, nil
	}
	serve("admin socket", l, func() error { return w.admin(ctx, l) })
	return stop, nil
}

// onLoopback returns the address, on loopback if it has no host.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

func adminListener(ctx context.Context, path string) (*osapi.KeySocket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return osapi.ListenWithKey(ctx, path)
}
