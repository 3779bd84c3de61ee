// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

func newCellsDB() *cobra.Command {
	return group("db", "Manage the API database", newCellsDBVersion(), newCellsDBUpgrade(), newCellsOnlineMigrations(),
		newBackup(apiStored()), newRestore(apiStored()), newCheck(apiStored()))
}

// schemaView is a database of the compute API or of a cell as JSON.
type schemaView struct {
	Database      string `json:"database"`
	Exists        bool   `json:"exists"`
	Schema        int    `json:"schema"`
	Newest        int    `json:"newest_schema"`
	UpgradeNeeded bool   `json:"upgrade_needed"`
}

// showSchema prints how many steps of its schema a database has had, and which there are. creates
// is what an upgrade does to one that does not exist.
func (o *options) showSchema(cmd *cobra.Command, shown string, has, knows int, err error, creates string) error {
	view := schemaView{Database: shown, Exists: true, Schema: has, Newest: knows, UpgradeNeeded: has < knows}
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && has == 0 && strings.Contains(shown, "://"):
		view.Exists = false
	case err != nil:
		return err
	}
	if o.json() {
		return printJSON(cmd.OutOrStdout(), view)
	}
	upgrade := "not needed"
	switch {
	case !view.Exists:
		upgrade = creates
	case has < knows:
		upgrade = "needed: " + strings.TrimSuffix(cmd.CommandPath(), "version") + "upgrade"
	case has > knows:
		upgrade = "not possible: the schema is from a newer version of this program; use that version"
	}
	schema := fmt.Sprintf("step %d", has)
	if !view.Exists {
		schema = "no database"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "database      %s\nschema        %s\nthis program  step %d\nupgrade       %s\n", shown, schema, knows, upgrade)
	return err
}

// showUpgraded prints what an upgrade of a schema did, or returns its error.
func (o *options) showUpgraded(cmd *cobra.Command, shown string, had, has, knows int, err error) error {
	if err != nil {
		return besideOlder(err)
	}
	if o.json() {
		return printJSON(cmd.OutOrStdout(), map[string]schemaView{
			"before": {shown, had > 0, had, knows, had < knows}, "after": {shown, true, has, knows, has < knows},
		})
	}
	switch had {
	case has:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: up to date at step %d\n", shown, has)
	case 0:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: created at step %d\n", shown, has)
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: upgraded from step %d to %d\n", shown, had, has)
	}
	return err
}

// endsOlder says what the upgrade of a schema does to older versions.
const endsOlder = "In a database of servers, this also runs the steps that take away what older versions of this program use. While one of those\n" +
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
			return opts.onSchema(cmd, func(name, shown string, api *cells.API) (err error) {
				var has, knows int
				if api != nil {
					has, knows, err = api.Store().SchemaVersion(cmd.Context())
				} else {
					has, knows, err = apidb.Version(cmd.Context(), name)
				}
				return opts.showSchema(cmd, shown, has, knows, err, "creates it")
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
		Use: "upgrade", Aliases: []string{"sync"}, Short: "Create the API database, or upgrade its schema", Args: cobra.NoArgs,
		Long: "Create the API database if it does not exist, and upgrade its schema; in a file, in one transaction. Running it again changes\n" +
			"nothing. On database servers, the database itself has to exist, and compute APIs may serve meanwhile.\n\n" + endsOlder +
			"Afterwards, `db online-data-migrations` fills new columns in old rows while the API serves.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.onSchema(cmd, func(name, shown string, api *cells.API) error {
				var had, has, knows int
				err := working(cmd, "Upgrading the API database", func(*render.Progress) (err error) {
					had, has, knows, err = migrateAPIDatabase(cmd.Context(), name, shown, to, api)
					return err
				})
				return opts.showUpgraded(cmd, shown, had, has, knows, err)
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "run only the steps up to `N` (default: all)")
	return cmd
}

// onSchema runs a command on the API database, of a name to open it by and one to show: with api
// nil, or in the compute API that has the file open.
func (o *manageOptions) onSchema(cmd *cobra.Command, do func(name, shown string, api *cells.API) error) error {
	if s := servingOf(cmd.Context()); s.api != nil {
		return do("", s.api.Database(), s.api)
	}
	at, _, err := o.where()
	if err != nil {
		return err
	}
	return at.run(cmd, func() error { return do(at.name, at.String(), nil) })
}

// migrateAPIDatabase upgrades the schema. A running compute API has done so at its start.
func migrateAPIDatabase(ctx context.Context, name, shown string, to int, api *cells.API) (had, has, knows int, err error) {
	if api != nil {
		has, knows, err = api.Store().SchemaVersion(ctx)
		if err == nil && to != 0 && to != has {
			err = fmt.Errorf("%s is at step %d, which the compute API that has it open requires", shown, has)
		}
		return has, has, knows, err
	}
	if had, err = apidb.Migrate(ctx, name, to); err != nil {
		return had, 0, 0, err
	}
	has, knows, err = apidb.Version(ctx, name)
	return had, has, knows, err
}

// apiStored is the API database.
func apiStored() stored {
	var opts manageOptions
	return stored{
		of: "the compute API", service: cells.AuditService, addFlags: opts.addDatabaseFlags, options: apidb.DatabaseOptions,
		where: func() (name string, cfg *config.Config, err error) {
			at, cfg, err := opts.where()
			return at.name, cfg, err
		},
	}
}

func newCellsOnlineMigrations() *cobra.Command {
	var opts manageOptions
	var most int
	cmd := &cobra.Command{
		Use: "online-data-migrations", Aliases: []string{"online_data_migrations"}, Short: "Fill new columns in old rows of the API database", Args: cobra.NoArgs,
		Long: "Fill new columns in old rows of the API database: queued_for_delete of servers from before it existed, which the cells are\n" +
			"asked for. Until then, such a server counts as active while its cell is down. The compute API may be running; running the\n" +
			"command again is safe. A cell that is down does not prevent the migration of others.\n\n" +
			"Exit codes: 0 nothing is left to do; 1 at most --max-count rows were migrated, and more may be left: run it again until it\n" +
			"exits with 0 (this is not a failure); 70 it failed, or a cell did not answer, and earlier rows stay migrated; 64 wrong usage;\n" +
			"78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := cmd.Flags().Changed("max-count")
			if limited && most < 1 {
				return &exitError{exitUsage, fmt.Errorf("--max-count %d: must be at least 1", most)}
			}
			return migrating(opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				var report scheduler.MigrationReport
				err := working(cmd, "Filling new columns in old rows", func(*render.Progress) (err error) {
					report, err = scheduler.MigrateQueued(cmd.Context(), store, newGatherer(cfg), most)
					return err
				})
				for _, f := range report.Failed {
					err = errors.Join(err, fmt.Errorf("cell %s: %w; its rows are unchanged, run this again when the cell answers", f.Cell.Name, f.Err))
				}
				done := []migrationView{{"populate_queued_for_delete", report.Found, report.Migrated}}
				return opts.showMigrations(cmd, done, limited && report.Migrated > 0, err)
			}))
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().IntVar(&most, "max-count", 0, "migrate at most `N` rows, and exit with 1 if any were migrated (default: all)")
	return cmd
}
