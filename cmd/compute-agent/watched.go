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
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
)

// The sockets of Placement, of a compute API and of a cell for their administrators, below the runtime directory.
const (
	placementAdminSocket = "placement-admin.sock"
	computeAdminSocket   = "compute-api.sock"
)

func cellAdminSocket(name string) string { return "cell-" + url.PathEscape(name) + ".sock" }

// watched is a service that those who watch it can ask.
type watched struct {
	what string // in words: "Placement", "Cell cell1"
	// socket is the path of its admin socket, admin answers there, and tells what asked says in words.
	socket, asked string
	admin         func(context.Context, net.Listener) error
	// listen is where metrics answers too, "" for nowhere, as the key of the configuration says.
	listen, key string
	metrics     func(context.Context, net.Listener) error
}

// watchPlacement, watchComputeAPI and watchCell say how services are watched.
func watchPlacement(cfg *config.Config, server *placement.Server) watched {
	return watched{
		what: "Placement", socket: filepath.Join(cfg.Agent.RuntimeDir, placementAdminSocket), asked: "status, metrics and profiles",
		admin: func(ctx context.Context, l net.Listener) error {
			return server.ServeAdmin(ctx, l, serving{cfg: cfg, placement: server}.commands("placement", "db"))
		},
		listen: cfg.PlacementMetrics.Listen, key: "placement_metrics.listen", metrics: server.ServeMetrics,
	}
}

func watchComputeAPI(cfg *config.Config, api *cells.API) watched {
	return watched{
		what: "The compute API", socket: filepath.Join(cfg.Agent.RuntimeDir, computeAdminSocket), asked: "metrics",
		admin: func(ctx context.Context, l net.Listener) error {
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

// serveWatched answers administrators, Prometheus and probes on the admin socket and, where that is configured, at an address, until ctx ends or stop is
// called, which returns when nothing of it is left. A service without an admin socket is as good as one with it for all but its administrators, so that
// one that cannot be made is no error. An address that somebody asked for is.
func serveWatched(ctx context.Context, w watched, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	serve := func(what string, l net.Listener, on func(context.Context, net.Listener) error) {
		log.Info().Str("address", l.Addr().String()).Msg(w.what + ": the " + what + " is served.")
		group.Go(func() {
			if err := on(ctx, l); err != nil {
				log.Error().Err(err).Msg(w.what + ": the " + what + " is served no more. Requests are still answered; restart the service to get it back.")
			}
		})
	}
	if w.listen != "" {
		l, err := osapi.Listen(ctx, onLoopback(w.listen))
		if err != nil {
			stop()
			return nil, fmt.Errorf("%s: %w; choose another address, or none", w.key, err)
		}
		serve("metrics page", l, w.metrics)
	}
	l, err := adminListener(ctx, w.socket)
	if err != nil {
		log.Warn().Err(err).Str("socket", w.socket).Msg(w.what + " has no admin socket: its " + w.asked + " cannot be read there, and commands on its database need it stopped. Give each service a runtime directory of its own that it can write to (--runtime-dir).")
		return stop, nil
	}
	serve("admin socket", l, w.admin)
	return stop, nil
}

// onLoopback is the address, of this machine alone if it says no host.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

func adminListener(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return control.Listen(ctx, path)
}
