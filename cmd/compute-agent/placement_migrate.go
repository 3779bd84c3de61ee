// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
)

func newPlacementMigrate() *cobra.Command {
	var opts cli.Options
	var database string
	var migrate agent.MigrateOptions
	var all bool
	cmd := &cobra.Command{
		Use: "migrate-compute-inventory", Aliases: []string{"migrate_compute_inventory"}, Args: cobra.NoArgs,
		Short: "Reshape this host's provider trees while all services are down",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all == (len(migrate.Nodes) > 0) {
				return cli.Exit(cli.ExitUsage,
					errors.New("select nodes with --node NAME, which may be repeated, or --all-nodes"))
			}
			setDatabase(&opts, database)
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			if cfg.Placement.Database == "" {
				return cli.Exit(cli.ExitUsage, errors.New(
					"--database is required: the DSN of Placement's database, such as "+
						"mysql://USER@HOST/placement?password_file=PATH"))
			}
			log := cli.NewLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel)
			migrate.Placement = controlplane.Placement(cfg, controlplane.Listening{}, nil, log)
			var done control.Migration
			err = cli.AuditDatabase(cmd, placement.AuditService, cfg, engine.Shown(cfg.Placement.Database),
				func() (did any, err error) {
					const what = "Starting the drivers, and moving what has to move"
					done, err = cli.WithProgressOf(cmd, what, func(*render.Progress) (control.Migration, error) {
						return commands.Migrate(cmd.Context(), cfg, log, migrate)
					})
					if moved := done.Moved(); moved != nil {
						did = map[string]any{"changes_of_nodes": moved}
					}
					return did, err
				})
			if err != nil {
				return err
			}
			err = cli.Print(cmd, &opts, done, render.Migration)
			switch {
			case err != nil:
				return err
			case done.Has(control.MigrationRefused):
				return cli.Exit(cli.ExitProtect, nil)
			case done.Has(control.MigrationFailed):
				return cli.Exit(cli.ExitFailed, nil)
			}
			return nil
		},
	}
	opts.AddFlags(cmd)
	addDatabaseFlag(cmd, &database)
	cmd.Flags().StringArrayVar(&migrate.Nodes, "node", nil, "migrate the node `NAME`; may be repeated")
	cmd.Flags().BoolVar(&all, "all-nodes", false, "migrate all nodes that the drivers name")
	cmd.Flags().BoolVar(&migrate.DryRun, "dry-run", false, "write nothing, and show what would move")
	return cmd
}
