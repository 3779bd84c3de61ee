// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
)

// standaloneSections are what the services of a standalone process read, of which none is the
// enrolment service.
func standaloneSections() []string {
	all := config.SectionsOf(config.AgentService, config.PlacementService, config.ComputeAPIService, config.CellService)
	return slices.DeleteFunc(all, func(section string) bool { return section == "enrolment" })
}

// newStandalone runs Placement, the compute API, a cell and the agent in one process, and libvirt
// if no daemon runs.
func newStandalone() *cobra.Command {
	opts := cli.Options{Uses: standaloneSections()}
	var listen, computeListen, pluginDir string
	var withoutCells bool
	cmd := &cobra.Command{
		Use: "standalone", Short: "Run the agent with its own Placement and compute API on this machine",
		Args: cobra.NoArgs,
		RunE: withSockets(func(cmd *cobra.Command, sockets controlplane.Sockets) error {
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			listener, _, err := controlplane.PlacementListener(cmd.Context(), sockets, listen,
				cli.NewLogger(cfg, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			defer func() { _ = listener.Close() }() // once more than the server does, or alone on an error
			scheme := "http://"
			if cfg.PlacementTLS.CertFile != "" {
				scheme = "https://"
			}
			opts.Extra = []config.Override{{Key: "placement_client.url", Value: scheme +
				listener.Addr().String(), Flag: "--listen"}}
			if !withoutCells {
				opts.Extra = append(opts.Extra,
					config.Override{Key: "cell_client.url",
						Value: controlplane.CellURL(cfg), Flag: "standalone's own cell"})
			}
			if pluginDir != "" {
				dir, err := filepath.Abs(pluginDir)
				if err != nil {
					return fmt.Errorf("--plugin-dir: %w", err)
				}
				opts.Extra = append(opts.Extra, config.Override{Key: "plugins.dir", Value: dir, Flag: "--plugin-dir"})
			}
			compute := controlplane.ComputeAddress(computeListen, listener.Addr())
			if withoutCells {
				compute = ""
			}
			return runStandalone(cmd.Context(), &opts, listener, compute, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	opts.AddConfigFlags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8778", "`ADDRESS` of Placement")
	cmd.Flags().StringVar(&computeListen, "compute-listen",
		"", "`ADDRESS` of the compute API (default 127.0.0.1:8774 if Placement uses port 8778, else a random port)")
	cmd.Flags().BoolVar(&withoutCells, "without-cells", false,
		"run no compute API and no cell: the agent creates no guests")
	cmd.Flags().StringVar(&pluginDir, "plugin-dir", "", "`DIR` of the driver plugins (plugins.dir)")
	return cmd
}

// runStandalone runs all services; compute is the address of the compute API, "" for none.
func runStandalone(
	ctx context.Context, opts *cli.Options, listener net.Listener, compute string, stdout, stderr io.Writer,
) error {
	cfg, err := opts.Load()
	if err != nil {
		return err
	}
	log, guests := cli.NewLogger(cfg, stderr), false
	if len(cfg.Drivers) == 0 {
		opts.Extra = append(opts.Extra,
			config.Override{Key: "drivers.libvirt.enabled", Value: "true", Flag: "standalone's default driver"})
		guests = compute != ""
	}
	libvirt, err := controlplane.FindLibvirt(ctx, cfg, guests, log)
	if err != nil {
		return err
	}
	defer libvirt.Stop(ctx)
	if libvirt != nil {
		opts.Adjust = libvirt.Configure
	}
	if cfg, err = opts.Load(); err != nil {
		return err
	}
	audit, err := controlplane.OpenAudit(cfg, false, log)
	if err != nil {
		return err
	}
	defer controlplane.CloseAudit(audit, log)
	process := controlplane.ProcessOf(cfg, log.Level(zerolog.WarnLevel))
	on := controlplane.Listening{Address: listener.Addr().String(), Auth: string(placement.NoAuth)}
	made := controlplane.Placement(cfg, on, process.Connections, log.Level(zerolog.WarnLevel))
	made.Audit = audit
	return controlplane.RunStandalone(ctx, controlplane.StandaloneOptions{
		Config: cfg, Process: process, Audit: audit, Placement: made, PlacementListener: listener, Compute: compute,
		Libvirt: libvirt, Logger: log,
		PlacementAdmin: func(server *placement.Server) osapi.Admin { return watchPlacement(cfg, server) },
		ComputeAdmin:   func(api *cells.API) osapi.Admin { return watchComputeAPI(cfg, api) },
		RunAgent: func(ctx context.Context, ready func(context.Context)) error {
			shown := func(ctx context.Context, a *agent.Agent) {
				tree, err := a.Tree(ctx, control.TreeOptions{})
				_ = render.StandaloneTree(cli.Screen(stdout),
					tree, err, cfg.PlacementClient.URL, cfg.Agent.RuntimeDir, os.Args[0])
				ready(ctx)
			}
			return runAgent(ctx, cfg, agent.Options{Load: opts.Load, Configuration: opts.Configuration, Logger: log,
				Bundled: true, OnReady: shown})
		},
		ComputeReady: func(url string) { _ = render.StandaloneCompute(stdout, url) },
	})
}
