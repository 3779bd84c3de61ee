// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
)

// Exit codes of `online-data-migrations` besides exitDone, which means that nothing is left to do.
// 0 and 1 are those of placement-manage; scripts treat every other code as a failure.
const (
	exitMigratedSome    = 1  // some rows were migrated and more may be left: run it again
	exitMigrationFailed = 70 // EX_SOFTWARE of sysexits.h, since 1 is taken
)

// migrating returns the error of a migration. One that a service ran has its exit code already.
func migrating(err error) error {
	var code *exitError
	if err == nil || errors.As(err, &code) {
		return err
	}
	return migrationFailed(err)
}

// showMigrations prints what was done, and returns the command's exit code. some means that more
// may be left.
func (o *options) showMigrations(cmd *cobra.Command, done []migrationView, some bool, err error) error {
	var shown error
	if o.json() {
		shown = printJSON(cmd.OutOrStdout(), map[string]any{"migrations": done})
	} else {
		shown = printMigrations(cmd.OutOrStdout(), done)
	}
	switch {
	case err != nil || shown != nil:
		return migrationFailed(errors.Join(err, shown))
	case some:
		return &exitError{code: exitMigratedSome}
	}
	return nil
}

func migrateConsumers(ctx context.Context, cfg placement.Config, server *placement.Server, most int) (missing, made int, err error) {
	if server != nil {
		return server.MigrateConsumers(ctx, most)
	}
	return placement.MigrateConsumers(ctx, cfg, most)
}

// migrationFailed returns an error with an exit code other than exitMigratedSome.
func migrationFailed(err error) error {
	code := exitCode(err)
	if code == exitFailed {
		code = exitMigrationFailed
	}
	return &exitError{code, err}
}

func newPlacementDB() *cobra.Command {
	return group("db", "Manage the database of Placement", newDBUpgrade(), newDBVersion(), newDBOnlineMigrations(),
		newBackup(placementStored()), newRestore(placementStored()), newCheck(placementStored()))
}

// databaseOptions select the database of a command.
type databaseOptions struct {
	options
	database string
	loaded   *config.Config // by placementConfig
}

func (o *databaseOptions) addFlags(cmd *cobra.Command) {
	o.addDatabaseFlags(cmd)
	o.addOutputFlag(cmd)
}

func (o *databaseOptions) addDatabaseFlags(cmd *cobra.Command) {
	o.service = &installedPlacement
	o.addConfigFlags(cmd)
	addDatabaseFlag(cmd, &o.database)
}

func addDatabaseFlag(cmd *cobra.Command, database *string) {
	cmd.Flags().StringVar(database, "database", "", "`DSN` of the database, such as mysql://USER@HOST/placement?password_file=PATH or sqlite:///PATH (placement.database)")
}

// setDatabase has a flag override the configuration.
func (o *options) setDatabase(dsn string) {
	if dsn != "" {
		o.extra = append(o.extra, config.Override{Key: "placement.database", Value: dsn, Flag: "--database"})
	}
}

func (o *databaseOptions) placementConfig() (placement.Config, error) {
	o.setDatabase(o.database)
	cfg, err := o.load()
	if err != nil {
		return placement.Config{}, err
	}
	o.loaded = cfg
	return placementConfig(cfg, placementFlags{}, nil, zerolog.Nop()), nil
}

// with runs a command on the database: with server nil, or in the service that has it open.
func (o *databaseOptions) with(cmd *cobra.Command, do func(cfg placement.Config, server *placement.Server) error) error {
	if s := servingOf(cmd.Context()); s.placement != nil {
		return do(placement.Config{}, s.placement)
	}
	cfg, err := o.placementConfig()
	if err != nil {
		return err
	}
	path, err := cfg.DatabaseName()
	if err != nil {
		return err
	}
	return onDatabase(cmd, path, func() error { return do(cfg, nil) })
}

// audited runs a command on the database, with one record of what it did.
func (o *databaseOptions) audited(cmd *cobra.Command, cfg placement.Config, server *placement.Server, do func() (any, error)) error {
	if server != nil {
		db, err := server.Database(cmd.Context())
		if err != nil {
			return err
		}
		return auditDatabase(cmd, placement.AuditService, nil, db.Path, do)
	}
	name, err := cfg.DatabaseName()
	if err != nil {
		return err
	}
	return auditDatabase(cmd, placement.AuditService, o.loaded, sqldb.Shown(name), do)
}

// placementStored is the database that flags and configuration select.
func placementStored() stored {
	var opts databaseOptions
	return stored{
		of: "Placement", service: placement.AuditService, addFlags: opts.addDatabaseFlags, options: store.DatabaseOptions, verify: store.Verify,
		where: func() (name string, cfg *config.Config, err error) {
			made, err := opts.placementConfig()
			if err != nil {
				return "", nil, err
			}
			name, err = made.DatabaseName()
			return name, opts.loaded, err
		},
	}
}

// databaseView is a database as JSON.
type databaseView struct {
	Database string `json:"database"`
	Exists   bool   `json:"exists"`
	// Migration is the last migration that was run there, Newest the last one of this program.
	Migration int `json:"migration"`
	Newest    int `json:"newest_migration"`
	// Alembic is the version of OpenStack Placement's tables.
	Alembic       string `json:"alembic_version"`
	UpgradeNeeded bool   `json:"upgrade_needed"`
}

func viewOf(db placement.Database) databaseView {
	return databaseView{db.Path, db.Exists, db.Schema.Migration, db.Schema.Newest, db.Schema.Alembic, !db.Exists || db.Schema.NeedsUpgrade()}
}

// describe describes the schema of a database.
func describe(db placement.Database) string {
	switch {
	case !db.Exists:
		return "no database"
	case db.Schema.Migration > 0:
		return fmt.Sprintf("migration %d", db.Schema.Migration)
	case db.Schema.Alembic != "":
		return "OpenStack Placement's tables at " + db.Schema.Alembic
	}
	return "an empty file"
}

func newDBVersion() *cobra.Command {
	var opts databaseOptions
	cmd := &cobra.Command{
		Use: "version", Short: "Show the schema version of the database", Args: cobra.NoArgs,
		Long: "Show the schema version of the database, the one of this program, and whether `placement db upgrade` is needed. Nothing is\n" +
			"changed, and a server may be running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(cfg placement.Config, server *placement.Server) error {
				db, err := placementDatabase(cmd.Context(), cfg, server)
				if err != nil {
					return err
				}
				if opts.json() {
					return printJSON(cmd.OutOrStdout(), viewOf(db))
				}
				upgrade := "not needed"
				switch {
				case !db.Exists:
					upgrade = "creates it"
				case !db.Schema.CanBeAdopted():
					upgrade = "not possible yet: run `placement-manage db sync` of OpenStack Placement 6.0.0 or later first"
				case db.Schema.NeedsUpgrade():
					upgrade = "needed: compute-agent placement db upgrade"
				case db.Schema.IsNewer():
					upgrade = "not possible: the schema is from a newer version of this program; use that version"
				}
				_, err = fmt.Fprintf(
					cmd.OutOrStdout(),
					"database      %s\nschema        %s\nthis program  migration %d\nupgrade       %s\n",
					db.Path,
					describe(db),
					db.Schema.Newest,
					upgrade,
				)
				return err
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func placementDatabase(ctx context.Context, cfg placement.Config, server *placement.Server) (placement.Database, error) {
	if server != nil {
		return server.Database(ctx)
	}
	return placement.ReadDatabase(ctx, cfg)
}

// upgradePlacement upgrades the schema. A server did that when it started.
func upgradePlacement(ctx context.Context, cfg placement.Config, server *placement.Server) (before, after placement.Database, err error) {
	if server == nil {
		return placement.UpgradeDatabase(ctx, cfg)
	}
	after, err = server.Database(ctx)
	return after, after, err
}

func newDBUpgrade() *cobra.Command {
	var opts databaseOptions
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Create the database, or upgrade its schema", Args: cobra.NoArgs,
		Long: "Create the database if it does not exist, adopt one that OpenStack Placement created, or upgrade the schema, in one\n" +
			"transaction. Running it again changes nothing. Stop OpenStack Placement before adopting its database.\n\n" +
			strings.TrimSpace(endsOlder),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(cfg placement.Config, server *placement.Server) error {
				var before, after placement.Database
				err := working(cmd, "Upgrading the database of Placement", func(*render.Progress) (err error) {
					before, after, err = upgradePlacement(cmd.Context(), cfg, server)
					return err
				})
				if err != nil {
					return besideOlder(err)
				}
				if opts.json() {
					return printJSON(cmd.OutOrStdout(), struct {
						Before databaseView `json:"before"`
						After  databaseView `json:"after"`
					}{viewOf(before), viewOf(after)})
				}
				switch {
				case before == after:
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: up to date at %s\n", after.Path, describe(after))
				case !before.Exists:
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: created at %s\n", after.Path, describe(after))
				default:
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: upgraded from %s to %s\n", after.Path, describe(before), describe(after))
				}
				return err
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newDBOnlineMigrations() *cobra.Command {
	var opts databaseOptions
	var most int
	cmd := &cobra.Command{
		Use: "online-data-migrations", Aliases: []string{"online_data_migrations"}, Short: "Create consumer records that an old Placement did not write", Args: cobra.NoArgs,
		Long: "Create a consumer record for every consumer that holds allocations and has no record, because an old Placement did not write\n" +
			"one. Its owner is [placement] incomplete_consumer_project_id and _user_id. Until then, such a consumer uses resources without\n" +
			"being listed. compute-agent's own servers may be running; running the command again is safe. The schema is upgraded first, as\n" +
			"by `placement db upgrade`: stop OpenStack Placement before.\n\n" +
			"Exit codes: 0 nothing is left to do; 1 at most --max-count records were created, and more may be left: run it again until it\n" +
			"exits with 0 (this is not a failure); 70 it failed, and earlier records stay; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := cmd.Flags().Changed("max-count")
			if limited && most < 1 {
				return &exitError{exitUsage, fmt.Errorf("--max-count %d: must be at least 1", most)}
			}
			return migrating(opts.with(cmd, func(cfg placement.Config, server *placement.Server) error {
				var missing, made int
				err := opts.audited(cmd, cfg, server, func() (did any, err error) {
					err = working(cmd, "Creating consumer records", func(*render.Progress) (err error) {
						missing, made, err = migrateConsumers(cmd.Context(), cfg, server, most)
						return err
					})
					if made > 0 {
						did = map[string]int{"consumers_needed": missing, "consumers_created": made}
					}
					return did, err
				})
				if err != nil && made == 0 && missing == 0 {
					return err
				}
				done := []migrationView{{"create_incomplete_consumers", missing, made}}
				return opts.showMigrations(cmd, done, limited && made > 0, err)
			}))
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().IntVar(&most, "max-count", 0, "create at most `N` records, and exit with 1 if any were created (default: all)")
	return cmd
}

// migrationView is one online migration as JSON, with Placement's name.
type migrationView struct {
	Name      string `json:"migration"`
	Needed    int    `json:"total_needed"`
	Completed int    `json:"completed"`
}

// printMigrations prints the table that placement-manage prints.
func printMigrations(w io.Writer, done []migrationView) error {
	rows := [][]string{{"Migration", "Total Needed", "Completed"}}
	for _, m := range done {
		rows = append(rows, []string{m.Name, strconv.Itoa(m.Needed), strconv.Itoa(m.Completed)})
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	rule := "+"
	for _, width := range widths {
		rule += strings.Repeat("-", width+2) + "+"
	}
	b.WriteString(rule + "\n")
	for n, row := range rows {
		b.WriteByte('|')
		for i, cell := range row {
			left := (widths[i] - len(cell)) / 2
			b.WriteString(" " + strings.Repeat(" ", left) + cell + strings.Repeat(" ", widths[i]-len(cell)-left) + " |")
		}
		b.WriteByte('\n')
		if n == 0 {
			b.WriteString(rule + "\n")
		}
	}
	b.WriteString(rule + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}
