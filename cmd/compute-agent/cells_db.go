// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

func newCellsDB() *cobra.Command {
	return group("db", "Manage the API database", newCellsDBVersion(), newCellsDBUpgrade(), newCellsOnlineMigrations(),
		newBackup(apiStored()), newRestore(apiStored()), newCheck(apiStored()))
}

// showSchema prints the schema of a database, or returns its error. missing is what an upgrade does
// to one that does not exist.
func (o *options) showSchema(cmd *cobra.Command, s *operator.Schema, err error, missing string) error {
	if err != nil {
		return err
	}
	return printResult(cmd, o, s, func(w io.Writer, s *operator.Schema) error {
		return render.Schema(w, s, missing, strings.TrimSuffix(cmd.CommandPath(), "version")+"upgrade")
	})
}

// showUpgrade prints what an upgrade of a schema did, or returns its error.
func (o *options) showUpgrade(cmd *cobra.Command, u *operator.Upgrade, err error) error {
	if err != nil {
		return besideOlder(err)
	}
	return printResult(cmd, o, u, render.SchemaUpgrade)
}

// endsOlder says what the upgrade of a schema does to older versions.
const endsOlder = "In a database of servers, this also runs the steps that take away " +
	"what older versions of this program use. While one of those\n" +
	"serves, they are refused with its name (exit code 3); the servers of this version need not be stopped.\n"

// besideOlder gives the refusal to end the use by older programs its exit code.
func besideOlder(err error) error {
	if errors.Is(err, sqldb.ErrInUse) {
		return &exitError{exitProtect, err}
	}
	return err
}

func newCellsDBVersion() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "version", Short: "Show the schema version of the API database", Args: cobra.NoArgs,
		Long: "Show the schema version of the API database, and the one of this program. Nothing is changed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.onSchema(cmd, func(store apidb.Store, name, shown string) error {
				found, err := operator.APISchema(cmd.Context(), store, name, shown)
				return opts.showSchema(cmd, found, err, "creates it")
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newCellsDBUpgrade() *cobra.Command {
	var opts manageOptions
	var to int
	cmd := &cobra.Command{
		Use: "upgrade", Aliases: []string{"sync"},
		Short: "Create the API database, or upgrade its schema", Args: cobra.NoArgs,
		Long: "Create the API database if it does not exist, and upgrade its " +
			"schema; in a file, in one transaction. Running it again changes\n" +
			"nothing. On database servers, the database itself has to exist, and compute APIs may serve " +
			"meanwhile.\n\n" + endsOlder +
			"Afterwards, `db online-data-migrations` fills new columns in old rows while the API serves.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.onSchema(cmd, func(store apidb.Store, name, shown string) error {
				var done *operator.Upgrade
				err := withProgress(cmd, "Upgrading the API database", func(*render.Progress) (err error) {
					done, err = operator.UpgradeAPI(cmd.Context(), store, name, shown, to)
					return err
				})
				return opts.showUpgrade(cmd, done, err)
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "run only the steps up to `N` (default: all)")
	return cmd
}

// onSchema runs a command on the API database, of a name to open it by and one to show: with store
// nil, or in the compute API that has the file open.
func (o *manageOptions) onSchema(cmd *cobra.Command, do func(store apidb.Store, name, shown string) error) error {
	if s := servingOf(cmd.Context()); s.api != nil {
		return do(s.api.Store(), "", s.api.Database())
	}
	at, _, err := o.location()
	if err != nil {
		return err
	}
	return at.run(cmd, func() error { return do(nil, at.name, at.String()) })
}

// apiStored is the API database.
func apiStored() stored {
	var opts manageOptions
	return stored{
		of: "the compute API", service: cells.AuditService,
		addFlags: opts.addDatabaseFlags, options: apidb.DatabaseOptions,
		where: func() (name string, cfg *config.Config, err error) {
			at, cfg, err := opts.location()
			return at.name, cfg, err
		},
	}
}

func newCellsOnlineMigrations() *cobra.Command {
	var opts manageOptions
	var most int
	cmd := &cobra.Command{
		Use: "online-data-migrations", Aliases: []string{"online_data_migrations"},
		Short: "Fill new columns in old rows of the API database", Args: cobra.NoArgs,
		Long: "Fill new columns in old rows of the API database: queued_for_delete " +
			"of servers from before it existed, which the cells are\n" +
			"asked for. Until then, such a server counts as active while its " +
			"cell is down. The compute API may be running; running the\n" +
			"command again is safe. A cell that is down does not prevent the migration of others.\n\n" +
			"Exit codes: 0 nothing is left to do; 1 at most --max-count rows " +
			"were migrated, and more may be left: run it again until it\n" +
			"exits with 0 (this is not a failure); 70 it failed, or a cell did " +
			"not answer, and earlier rows stay migrated; 64 wrong usage;\n" +
			"78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := cmd.Flags().Changed("max-count")
			if limited && most < 1 {
				return &exitError{exitUsage, fmt.Errorf("--max-count %d: must be at least 1", most)}
			}
			return migrating(opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				done := migrationView{Name: "populate_queued_for_delete"}
				fill := func(*render.Progress) (err error) {
					done.Needed, done.Completed, err = d.MigrateQueued(ctx, most)
					return err
				}
				const what = "Filling new columns in old rows"
				err := withProgress(cmd, what, fill) //nolint:contextcheck // it has the command's
				return opts.showMigrations(cmd, []migrationView{done}, limited && done.Completed > 0, err)
			}))
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().IntVar(&most, "max-count", 0,
		"migrate at most `N` rows, and exit with 1 if any were migrated (default: all)")
	return cmd
}
