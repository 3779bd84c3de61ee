// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
)

func newPlacementMigrate() *cobra.Command {
	var opts options
	var database string
	var migrate agent.MigrateOptions
	var all bool
	cmd := &cobra.Command{
		Use: "migrate-compute-inventory", Aliases: []string{"migrate_compute_inventory"}, Args: cobra.NoArgs,
		Short: "Reshape this host's provider trees while all services are down",
		Long: "Move inventory and allocations in Placement's database as the " +
			"next start of the agent would, while the agent and all Placement\n" +
			"services are down, as in a fast-forward upgrade. The drivers are " +
			"started for the command and stopped afterwards. Run it on each\n" +
			"host with the new driver, because only the driver knows whether something needs to move.\n\n" +
			"For a node whose driver needs a reshape, the command writes all " +
			"that the start of the agent would write, with the same checks\n" +
			"and the same journal (`compute-agent reshape history`). For other " +
			"nodes it writes nothing, whatever else has changed: the agent\n" +
			"does that when it starts. A run that was killed leaves the old " +
			"or the new layout; run it again. A database that OpenStack\n" +
			"Placement created is adopted if something has to move (`placement " +
			"db upgrade`), and OpenStack Placement can use it afterwards.\n" +
			"The plan is made on a copy, in the directory that TMPDIR names; " +
			"if nothing has to move, and with --dry-run, the database is not\n" +
			"changed.\n\n" +
			"Exit codes: 0 done, or nothing needs to move; 1 a node failed; " +
			"3 refused: an agent runs, a Placement service has the database\n" +
			"open, its tables have another version, or a reshape violates " +
			"a check; 64 wrong usage; 78 invalid configuration, or the\n" +
			"database does not exist.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all == (len(migrate.Nodes) > 0) {
				return &exitError{exitUsage,
					errors.New("select nodes with --node NAME, which may be repeated, or --all-nodes")}
			}
			opts.setDatabase(database)
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			if cfg.Placement.Database == "" {
				return &exitError{exitUsage,
					errors.New(
						"--database is required: the DSN of Placement's database, such as " +
							"mysql://USER@HOST/placement?password_file=PATH")}
			}
			log := newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel)
			migrate.Placement = controlplane.Placement(cfg, controlplane.Listening{}, nil, log)
			var done control.Migration
			err = auditDatabase(cmd, placement.AuditService, cfg, sqldb.Shown(cfg.Placement.Database),
				func() (did any, err error) {
					const what = "Starting the drivers, and moving what has to move"
					done, err = withProgressOf(cmd, what, func(*render.Progress) (control.Migration, error) {
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
			err = printResult(cmd, &opts, done, render.Migration)
			switch {
			case err != nil:
				return err
			case done.Has(control.MigrationRefused):
				return &exitError{code: exitProtect}
			case done.Has(control.MigrationFailed):
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	opts.addFlags(cmd)
	addDatabaseFlag(cmd, &database)
	cmd.Flags().StringArrayVar(&migrate.Nodes, "node", nil, "migrate the node `NAME`; may be repeated")
	cmd.Flags().BoolVar(&all, "all-nodes", false, "migrate all nodes that the drivers name")
	cmd.Flags().BoolVar(&migrate.DryRun, "dry-run", false, "write nothing, and show what would move")
	return cmd
}
