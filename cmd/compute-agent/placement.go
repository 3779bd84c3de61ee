// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

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
	opts := options{uses: config.SectionsOf(config.PlacementService)}
	var on controlplane.Listening
	var metricsListen, database string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the Placement API from a database", Args: cobra.NoArgs,
		Long: "Serve the Placement API. The state is in placement.db " +
			"below the state directory, or in the given database.\n" +
			"Under systemd, the socket named \"placement\" of a socket unit is used instead of --listen.",
		RunE: withSockets(func(cmd *cobra.Command, sockets controlplane.Sockets) error {
			if metricsListen != "" {
				opts.extra = append(opts.extra,
					config.Override{Key: "placement_metrics.listen", Value: metricsListen, Flag: "--metrics-listen"})
			}
			opts.setDatabase(database)
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			admin := func(server *placement.Server) osapi.Admin { return watchPlacement(cfg, server) }
			log := newLogger(cfg, cmd.ErrOrStderr())
			return controlplane.ServePlacement(cmd.Context(), cfg, on, sockets, admin, log)
		}),
	}
	opts.addConfigFlags(cmd)
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
// systemd starts it again after exitFailed.
func withSockets(run func(*cobra.Command, controlplane.Sockets) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		return controlplane.WithSockets(cmd.Context(),
			func(sockets controlplane.Sockets) error { return run(cmd, sockets) },
			func(err error) bool { return exitCode(err) == exitFailed })
	}
}
