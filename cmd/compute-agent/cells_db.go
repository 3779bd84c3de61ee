// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
)

func newCellsDB() *cobra.Command {
	return group("db", "Manage the API database", newCellsDBVersion(), newCellsDBUpgrade(), newCellsOnlineMigrations(),
		cli.NewBackup(apiStored()), cli.NewRestore(apiStored()), cli.NewCheck(apiStored()))
}

func newCellsDBVersion() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "version", Short: "Show the schema version of the API database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.onSchema(cmd, func(store apidb.Store, name, shown string) error {
				found, err := operator.APISchema(cmd.Context(), store, name, shown)
				return opts.ShowSchema(cmd, found, err, "creates it")
			})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newCellsDBUpgrade() *cobra.Command {
	var opts manageOptions
	var to int
	cmd := &cobra.Command{
		Use: "upgrade", Aliases: []string{"sync"},
		Short: "Create the API database, or upgrade its schema", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.onSchema(cmd, func(store apidb.Store, name, shown string) error {
				var done *operator.Upgrade
				err := cli.WithProgress(cmd, "Upgrading the API database", func(*render.Progress) (err error) {
					done, err = operator.UpgradeAPI(cmd.Context(), store, name, shown, to)
					return err
				})
				return opts.ShowUpgrade(cmd, done, err)
			})
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "run only the steps up to `N` (default: all)")
	return cmd
}

// onSchema runs a command on the API database, of a name to open it by and one to show: with store
// nil, or in the compute API that has the file open.
func (o *manageOptions) onSchema(cmd *cobra.Command, do func(store apidb.Store, name, shown string) error) error {
	if s := cli.ServingOf(cmd.Context()); s.API != nil {
		return do(s.API.Store(), "", s.API.Database())
	}
	at, _, err := o.location()
	if err != nil {
		return err
	}
	return onAPIDatabase(cmd, at, func() error { return do(nil, at.Name, at.String()) })
}

// apiStored is the API database.
func apiStored() cli.Stored {
	var opts manageOptions
	return cli.Stored{
		Of: "the compute API", Service: cells.AuditService,
		AddFlags: opts.addDatabaseFlags, Options: apidb.DatabaseOptions,
		Where: func() (name string, cfg *config.Config, err error) {
			at, cfg, err := opts.location()
			return at.Name, cfg, err
		},
	}
}

func newCellsOnlineMigrations() *cobra.Command {
	var opts manageOptions
	var limit int
	cmd := &cobra.Command{
		Use: "online-data-migrations", Aliases: []string{"online_data_migrations"},
		Short: "Fill new columns in old rows of the API database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := cmd.Flags().Changed("max-count")
			if limited && limit < 1 {
				return cli.Exit(cli.ExitUsage, fmt.Errorf("--max-count %d: must be at least 1", limit))
			}
			return cli.Migrating(opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				done := cli.Migration{Name: "populate_queued_for_delete"}
				fill := func(*render.Progress) (err error) {
					done.Needed, done.Completed, err = d.MigrateQueued(ctx, limit)
					return err
				}
				const what = "Filling new columns in old rows"
				err := cli.WithProgress(cmd, what, fill) //nolint:contextcheck // it has the command's
				return opts.ShowMigrations(cmd, []cli.Migration{done}, limited && done.Completed > 0, err)
			}))
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().IntVar(&limit, "max-count", 0,
		"migrate at most `N` rows, and exit with 1 if any were migrated (default: all)")
	return cmd
}
