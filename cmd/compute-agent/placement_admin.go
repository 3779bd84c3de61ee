// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/control"
	"github.com/compute-agent/compute-agent/placement"
)

// placementAdminSocket is the socket of a Placement service for its administrators, below the runtime directory.
const placementAdminSocket = "placement-admin.sock"

// serveBeside answers administrators on the admin socket and, where that is configured, Prometheus, until ctx ends or stop is
// called, which returns when nothing of it is left. A service without an admin socket is as good as one with it for all but its
// administrators, so that one that cannot be made is no error. A metrics address that somebody asked for is.
func serveBeside(ctx context.Context, cfg *config.Config, server *placement.Server, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	serve := func(what string, l net.Listener, on func(context.Context, net.Listener) error) {
		log.Info().Str("address", l.Addr().String()).Msg("Placement's " + what + " is served.")
		group.Go(func() {
			if err := on(ctx, l); err != nil {
				log.Error().Err(err).Msg("Placement's " + what + " is served no more. Requests are still answered; restart the service to get it back.")
			}
		})
	}
	if cfg.PlacementMetrics.Listen != "" {
		l, err := metricsListener(ctx, cfg.PlacementMetrics.Listen)
		if err != nil {
			stop()
			return nil, err
		}
		serve("metrics page", l, server.ServeMetrics)
	}
	path := filepath.Join(cfg.Agent.RuntimeDir, placementAdminSocket)
	l, err := adminListener(ctx, path)
	if err != nil {
		log.Warn().Err(err).Str("socket", path).Msg("Placement has no admin socket: its status, metrics and profiles cannot be read there. Give each service a runtime directory of its own that it can write to (--runtime-dir).")
		return stop, nil
	}
	serve("admin socket", l, server.ServeAdmin)
	return stop, nil
}

func adminListener(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return control.Listen(ctx, path)
}

// metricsListener binds HOST:PORT, or :PORT of loopback.
func metricsListener(ctx context.Context, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("placement_metrics.listen: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("placement_metrics.listen: %w; choose another address, or none", err)
	}
	return l, nil
}
