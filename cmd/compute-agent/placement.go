// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
)

func newPlacement() *cobra.Command {
	return group("placement", "Serve the OpenStack Placement API", newPlacementServe(), newPlacementDB(),
		newPlacementAdopt(), newPlacementExplain(), newPlacementMigrate())
}

func newPlacementServe() *cobra.Command {
	opts := cli.Options{Uses: config.SectionsOf(config.PlacementService)}
	var on controlplane.Listening
	var metricsListen, database string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the Placement API from a database", Args: cobra.NoArgs,
		RunE: withSockets(func(cmd *cobra.Command, sockets controlplane.Sockets) error {
			if metricsListen != "" {
				opts.Extra = append(opts.Extra,
					config.Override{Key: "placement_metrics.listen", Value: metricsListen, Flag: "--metrics-listen"})
			}
			setDatabase(&opts, database)
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			admin := func(server *placement.Server) osapi.Admin { return watchPlacement(cfg, server) }
			log := cli.NewLogger(cfg, cmd.ErrOrStderr())
			return controlplane.ServePlacement(cmd.Context(), cfg, on, sockets, admin, log)
		}),
	}
	opts.AddConfigFlags(cmd)
	cmd.Flags().StringVar(&metricsListen, "metrics-listen",
		"", "additional `ADDRESS` for metrics, :PORT for loopback (placement_metrics.listen)")
	cmd.Flags().StringVar(&on.Address, "listen", "127.0.0.1:8778", "`ADDRESS` to listen on")
	addDatabaseFlag(cmd, &database)
	cmd.Flags().StringVar(&on.Auth, "auth", "noauth",
		"`METHOD` of authentication: noauth (loopback only), token or keystone ([keystone] in the configuration)")
	cmd.Flags().StringVar(&on.TokenFile, "token-file", "", "`FILE` of the tokens, for --auth token")
	return cmd
}

// withSockets makes the run of a command of a service that gets the sockets that systemd passed.
// systemd starts it again after cli.ExitFailed.
func withSockets(run func(*cobra.Command, controlplane.Sockets) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		return controlplane.WithSockets(cmd.Context(),
			func(sockets controlplane.Sockets) error { return run(cmd, sockets) },
			func(err error) bool { return cli.ExitCode(err) == cli.ExitFailed })
	}
}

// watchPlacement and watchComputeAPI are the admin sockets and metrics of services that run
// commands.
func watchPlacement(cfg *config.Config, server *placement.Server) osapi.Admin {
	commands := cli.Serving{Config: cfg, Placement: server}.Commands(execute, "placement", "db")
	return server.Admin(cfg.Agent.RuntimeDir, cfg.PlacementMetrics.Listen, commands)
}

func watchComputeAPI(cfg *config.Config, api *cells.API) osapi.Admin {
	return api.Admin(cfg.Agent.RuntimeDir, cfg.ComputeAPI.MetricsListen,
		cli.Serving{Config: cfg, API: api}.Commands(execute, "cells", "manage"))
}
