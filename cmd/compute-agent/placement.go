// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
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

func newPlacementExplain() *cobra.Command {
	var opts cli.Options
	var address, version string
	cmd := &cobra.Command{
		Use: "explain QUERY", Short: "Explain why a request for allocation candidates finds no hosts, or few",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := placementclient.CleanQuery(args[0])
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			if address != "" {
				opts.Extra = append(opts.Extra,
					config.Override{Key: "placement_client.url", Value: address, Flag: "--url"})
			}
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cli.AskTimeout)
			defer cancel()
			client, err := access.ForCommand(cfg.PlacementClient, version)
			if err != nil {
				return err
			}
			defer client.CloseIdle()
			raw, err := client.Explain(ctx, query)
			if err != nil {
				return err
			}
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), raw)
			}
			var e candidates.Explanation
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("cannot decode Placement's answer: %w", err)
			}
			return render.Explanation(cli.Screen(cmd.OutOrStdout()), &e)
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&address, "url", "", "`URL` of the Placement to ask (placement_client.url)")
	cmd.Flags().StringVar(&version, "microversion", wire.Version(wire.RequestedExtensions).String(),
		"microversion `1.N` of the query")
	return cmd
}
