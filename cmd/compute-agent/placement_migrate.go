// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
)

func newPlacementMigrate() *cobra.Command {
	var opts options
	var flags placementFlags
	var migrate agent.MigrateOptions
	var all bool
	cmd := &cobra.Command{
		Use: "migrate-compute-inventory", Aliases: []string{"migrate_compute_inventory"}, Args: cobra.NoArgs,
		Short: "Reshape this host's provider trees while all services are down",
		Long: "Move inventory and allocations in Placement's database as the next start of the agent would, while the agent and every\n" +
			"Placement service are down, as in a fast-forward upgrade. The drivers are started for it and ended again. Run it on each\n" +
			"host with the new driver: only that can tell whether something needs to move.\n\n" +
			"For a node whose driver needs a reshape, all that the start of the agent would write is written, with the same checks and\n" +
			"the same journal (`compute-agent reshape history`). For a node that needs none nothing is written, whatever else has\n" +
			"changed: the agent does that when it starts. A run that was killed leaves the old or the new shape; run it again.\n" +
			"A database that OpenStack Placement made is adopted when something has to move (`placement db upgrade`), and can be used\n" +
			"by it afterwards. What has to move is found out on a copy, in the directory that TMPDIR names; without anything to move,\n" +
			"and with --dry-run, the database is not touched.\n\n" +
			"Exit codes: 0 done, or nothing needs to move; 1 some node failed; 3 refused: an agent runs, a Placement\n" +
			"service has the database open, its tables are of another version, or a reshape does not pass the checks; 64 wrong usage;\n" +
			"78 invalid configuration, or no such database.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case flags.database == "":
				return &exitError{exitUsage, errors.New("--database is required: the DSN of Placement's database, such as sqlite:///var/lib/placement/placement.db")}
			case all == (len(migrate.Nodes) > 0):
				return &exitError{exitUsage, errors.New("say which nodes: --node NAME, which may be repeated, or --all-nodes")}
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			log := newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel)
			migrate.Placement = placementConfig(cfg, flags, nil, log)
			done, err := agent.Migrate(cmd.Context(), cfg, log, migrate)
			if err != nil {
				return err
			}
			if opts.json() {
				err = printJSON(cmd.OutOrStdout(), done)
			} else {
				err = render.Migration(cmd.OutOrStdout(), done)
			}
			if err != nil {
				return err
			}
			return migrated(done)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&flags.database, "database", "", "`DSN` of Placement's database, such as sqlite:///var/lib/placement/placement.db")
	cmd.Flags().StringArrayVar(&migrate.Nodes, "node", nil, "migrate the node `NAME`; may be repeated")
	cmd.Flags().BoolVar(&all, "all-nodes", false, "migrate all nodes that the drivers name")
	cmd.Flags().BoolVar(&migrate.DryRun, "dry-run", false, "write nothing, and show what would move")
	return cmd
}

// migrated is the exit code of a migration: the worst of its nodes.
func migrated(done control.Migration) error {
	code := exitDone
	for _, n := range done.Nodes {
		switch n.Outcome {
		case control.MigrationRefused:
			code = exitProtect
		case control.MigrationFailed:
			code = max(code, exitFailed)
		}
	}
	if code == exitDone {
		return nil
	}
	return &exitError{code: code}
}
