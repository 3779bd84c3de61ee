// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/plugins"
)

// hostCell is the name of the cell of the agent's host.
const hostCell = "cell1"

// ownCells are the cells of a standalone agent: cell0, which has no hosts, and the cell of
// the agent's host.
var ownCells = []apidb.Cell{
	{UUID: apidb.Cell0UUID, Name: "cell0"},
	{Name: hostCell},
}

// ownFlavors are created if there are no flavors.
var ownFlavors = []cellwire.Flavor{
	{ID: "1", Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 512, RootGB: 1}},
	{ID: "2", Flavor: plugins.Flavor{Name: "m1.small", VCPUs: 1, MemoryMB: 2048, RootGB: 20}},
	{ID: "3", Flavor: plugins.Flavor{Name: "m1.medium", VCPUs: 2, MemoryMB: 4096, RootGB: 40}},
}

// standaloneServices are the compute API with its cells, in the agent's process.
type standaloneServices struct {
	api       *cells.API
	listener  net.Listener
	cells     []*cells.Cell
	listeners []net.Listener
	stops     []func() // stop admin sockets and metrics
}

// ComputeAddress returns the address of the compute API: the given one, or its default port if
// Placement uses its own default port, else any port.
func ComputeAddress(given string, placement net.Addr) string {
	if given != "" {
		return given
	}
	if at, err := netip.ParseAddrPort(placement.String()); err == nil && at.Port() == 8778 {
		return netip.AddrPortFrom(at.Addr(), 8774).String()
	}
	return "127.0.0.1:0"
}

// CellURL returns the URL of the cell of a standalone agent's host.
func CellURL(cfg *config.Config) string { return cellURL(cfg, hostCell) }

func cellURL(cfg *config.Config, name string) string {
	return "unix://" + filepath.Join(cfg.Agent.RuntimeDir, name+".sock")
}

// newStandaloneServices opens all databases and sockets. Serve serves requests.
func newStandaloneServices(
	ctx context.Context, o StandaloneOptions, log zerolog.Logger,
) (_ *standaloneServices, err error) {
	cfg := o.Config
	s := &standaloneServices{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	spans, err := agent.StartTracing(ctx, cfg, agent.TracedCell, log)
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, func() { spans.Close(ctx) })
	for _, c := range ownCells {
		made, err := cells.NewCell(ctx, cells.CellConfig{
			Name: c.Name, Database: filepath.Join(cfg.Agent.StateDir, c.Name, cells.CellDatabase), Auth: cell.NoAuth(),
			ReportInterval:  cfg.Cell.ReportInterval,
			ServiceDownTime: cfg.Cell.ServiceDownTime, Version: version.Number(),
			Connections: o.Process.Connections, Audit: o.Audit, Tracing: spans,
			Logger: log.With().Str("cell", c.Name).Logger(),
		})
		if err != nil {
			return nil, err
		}
		s.cells = append(s.cells, made)
		l, err := osapi.Listen(ctx, cellURL(cfg, c.Name)) // the database lock also protects the socket
		if err != nil {
			return nil, fmt.Errorf("the socket of %s: %w", c.Name, err)
		}
		s.listeners = append(s.listeners, l)
	}
	made, err := computeAPI(ctx, cfg, o.Process, log)
	if err != nil {
		return nil, err
	}
	made.Audit, made.Upgrade = o.Audit, true
	made.DiscoverHosts = min(made.DiscoverHosts, discovery)
	if made.Tracing, err = agent.StartTracing(ctx, cfg, agent.TracedComputeAPI, log); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, func() { made.Tracing.Close(ctx) })
	if s.listener, err = osapi.Listen(ctx, o.Compute); err != nil {
		return nil, fmt.Errorf("cannot serve the compute API on %s: %w; choose another address with --compute-listen",
			o.Compute, err)
	}
	if s.api, err = cells.NewAPI(ctx, made); err != nil {
		return nil, err
	}
	if err := registerCells(ctx, s.api.Store(), cfg); err != nil {
		return nil, err
	}
	if err := s.watch(ctx, o, log); err != nil {
		return nil, err
	}
	return s, offerFlavors(ctx, s.api.Store())
}

// watch serves the admin sockets of the API and the cells. [cell] metrics_listen is for the cell
// with hosts.
func (s *standaloneServices) watch(ctx context.Context, o StandaloneOptions, log zerolog.Logger) error {
	ctx = context.WithoutCancel(ctx) // until Close
	all := []osapi.Admin{o.ComputeAdmin(s.api)}
	for i, c := range ownCells {
		listen := o.Config.Cell.MetricsListen
		if c.IsCell0() {
			listen = ""
		}
		all = append(all, s.cells[i].Admin(o.Config.Agent.RuntimeDir, listen))
	}
	for _, w := range all {
		stop, err := w.Start(ctx, log)
		if err != nil {
			return err
		}
		s.stops = append(s.stops, stop)
	}
	return nil
}

// registerCells registers the cells with the compute API, at their current sockets.
func registerCells(ctx context.Context, store apidb.Store, cfg *config.Config) error {
	known, err := store.Cells(ctx)
	if err != nil {
		return err
	}
	byName := map[string]apidb.Cell{}
	for _, c := range known {
		byName[c.Name] = c
	}
	for _, c := range ownCells {
		url := cellURL(cfg, c.Name)
		have, there := byName[c.Name]
		switch {
		case !there:
			c.URL = url
			_, err = store.CreateCell(ctx, c)
		case have.URL != url:
			have.URL = url
			err = store.UpdateCell(ctx, have)
		}
		if err != nil {
			return fmt.Errorf("registering %s with the compute API: %w", c.Name, err)
		}
	}
	return nil
}

func offerFlavors(ctx context.Context, store apidb.Store) error {
	there, err := store.Flavors(ctx)
	if err != nil || len(there) > 0 {
		return err
	}
	for _, f := range ownFlavors {
		if err := store.CreateFlavor(ctx, apidb.Flavor{Flavor: f, IsPublic: true, RxTxFactor: 1}); err != nil &&
			!errors.Is(err, apidb.ErrExists) {
			return err
		}
	}
	return nil
}

// discovery is how often the cell, which is in the same process, is asked for new hosts.
const discovery = 500 * time.Millisecond

// awaitHost waits until a host is mapped and its service is up, or until ctx ends. A server that is
// created before finds no host. A former run leaves a mapped host whose service is down.
func (s *standaloneServices) awaitHost(ctx context.Context) error {
	tick := time.NewTicker(discovery / 5)
	defer tick.Stop()
	for {
		if takes, err := s.hasHost(ctx); takes && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// hasHost reports whether a host is mapped and its service is up. One that is forced down stays so,
// which is not waited for.
func (s *standaloneServices) hasHost(ctx context.Context) (bool, error) {
	hosts, err := s.api.Store().Hosts(ctx)
	if err != nil || len(hosts) == 0 {
		return false, err
	}
	for _, c := range s.cells {
		services, err := c.Services(ctx)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(services, func(service cellwire.Service) bool {
			return (service.Up || service.ForcedDown) &&
				slices.ContainsFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == service.Host })
		}) {
			return true, nil
		}
	}
	return false, nil
}

// URL is the endpoint of the compute API.
func (s *standaloneServices) URL() string { return "http://" + s.listener.Addr().String() + "/v2.1" }

// Serve answers requests until the context ends.
func (s *standaloneServices) Serve(ctx context.Context) error {
	// The cells stop after the API, which may still send them requests.
	cellsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range s.cells {
		group.Go(func() error { return c.Serve(cellsCtx, s.listeners[i]) })
	}
	group.Go(func() error {
		defer stop()
		return s.api.Serve(ctx, s.listener)
	})
	return group.Wait()
}

// Close closes the databases and sockets.
func (s *standaloneServices) Close() {
	for _, stop := range s.stops {
		stop()
	}
	for _, l := range s.listeners {
		_ = l.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	if s.api != nil {
		_ = s.api.Close()
	}
	for _, c := range s.cells {
		_ = c.Close()
	}
}
