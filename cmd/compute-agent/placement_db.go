// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
)

// Exit codes of `online-data-migrations` besides exitDone, which means that nothing is left to do.
// 0 and 1 are those of placement-manage; scripts treat every other code as a failure.
const (
	exitMigratedSome    = 1  // some rows were migrated and more may be left: run it again
	exitMigrationFailed = 70 // EX_SOFTWARE of sysexits.h, since 1 is taken
)

// migrating returns the error of a migration, with an exit code other than exitMigratedSome. One
// that a service ran has its exit code already.
func migrating(err error) error {
	var has *exitError
	if err == nil || errors.As(err, &has) {
		return err
	}
	code := exitCode(err)
	if code == exitFailed {
		code = exitMigrationFailed
	}
	return &exitError{code, err}
}

// showMigrations prints what was done, and returns the command's exit code. some means that more
// may be left.
func (o *options) showMigrations(cmd *cobra.Command, done []migrationView, some bool, err error) error {
	view := map[string][]migrationView{"migrations": done}
	shown := printResult(cmd, o, view, func(w io.Writer, _ map[string][]migrationView) error {
		rows := [][]string{{"Migration", "Total Needed", "Completed"}}
		for _, m := range done {
			rows = append(rows, []string{m.Name, strconv.Itoa(m.Needed), strconv.Itoa(m.Completed)})
		}
		return render.Ruled(w, rows)
	})
	switch {
	case err != nil || shown != nil:
		return migrating(errors.Join(err, shown))
	case some:
		return &exitError{code: exitMigratedSome}
	}
	return nil
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
	cmd.Flags().StringVar(database, "database", "",
		"`DSN` of the database, such as mysql://USER@HOST/placement?password_file=PATH or sqlite:///PATH "+
			"(placement.database)")
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
	return controlplane.Placement(cfg, controlplane.Listening{}, nil, zerolog.Nop()), nil
}

// with runs a command on the database, or in the service that has it open.
func (o *databaseOptions) with(cmd *cobra.Command, do func(placement.ManagedDatabase) error) error {
	if s := servingOf(cmd.Context()); s.placement != nil {
		return do(placement.ManagedDatabase{Server: s.placement})
	}
	name, made, err := o.location()
	if err != nil {
		return err
	}
	return onDatabase(cmd, name, func() error { return do(placement.ManagedDatabase{Config: made}) })
}

// location is the name of the database (see sqldb.ParseAddress), and how Placement opens it.
func (o *databaseOptions) location() (name string, made placement.Config, err error) {
	if made, err = o.placementConfig(); err == nil {
		name, err = made.DatabaseName()
	}
	return name, made, err
}

// placementStored is the database that flags and configuration select.
func placementStored() stored {
	var opts databaseOptions
	return stored{
		of: "Placement", service: placement.AuditService,
		addFlags: opts.addDatabaseFlags, options: store.DatabaseOptions, verify: store.Verify,
		where: func() (name string, cfg *config.Config, err error) {
			name, _, err = opts.location()
			return name, opts.loaded, err
		},
	}
}

func newDBVersion() *cobra.Command {
	var opts databaseOptions
	cmd := &cobra.Command{
		Use: "version", Short: "Show the schema version of the database", Args: cobra.NoArgs,
		Long: "Show the schema version of the database, the one of this program, " +
			"and whether `placement db upgrade` is needed. Nothing is\n" +
			"changed, and a server may be running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(db placement.ManagedDatabase) error {
				found, err := db.Read(cmd.Context())
				if err != nil {
					return err
				}
				return printResult(cmd, &opts.options, found, render.PlacementSchema)
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newDBUpgrade() *cobra.Command {
	var opts databaseOptions
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Create the database, or upgrade its schema", Args: cobra.NoArgs,
		Long: "Create the database if it does not exist, adopt one that " +
			"OpenStack Placement created, or upgrade the schema, in one\n" +
			"transaction. Running it again changes nothing. Stop " +
			"OpenStack Placement before adopting its database.\n\n" +
			strings.TrimSpace(endsOlder),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(db placement.ManagedDatabase) error {
				var done render.Upgraded
				err := withProgress(cmd, "Upgrading the database of Placement", func(*render.Progress) (err error) {
					done.Before, done.After, err = db.Upgrade(cmd.Context())
					return err
				})
				if err != nil {
					return besideOlder(err)
				}
				return printResult(cmd, &opts.options, done, render.PlacementUpgraded)
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
		Use: "online-data-migrations", Aliases: []string{"online_data_migrations"},
		Short: "Create consumer records that an old Placement did not write", Args: cobra.NoArgs,
		Long: "Create a consumer record for every consumer that holds allocations " +
			"and has no record, because an old Placement did not write\n" +
			"one. Its owner is [placement] incomplete_consumer_project_id and " +
			"_user_id. Until then, such a consumer uses resources without\n" +
			"being listed. compute-agent's own servers may be running; running " +
			"the command again is safe. The schema is upgraded first, as\n" +
			"by `placement db upgrade`: stop OpenStack Placement before.\n\n" +
			"Exit codes: 0 nothing is left to do; 1 at most --max-count records " +
			"were created, and more may be left: run it again until it\n" +
			"exits with 0 (this is not a failure); 70 it failed, and earlier " +
			"records stay; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := cmd.Flags().Changed("max-count")
			if limited && most < 1 {
				return &exitError{exitUsage, fmt.Errorf("--max-count %d: must be at least 1", most)}
			}
			return migrating(opts.with(cmd, func(db placement.ManagedDatabase) error {
				name, err := db.Name(cmd.Context())
				if err != nil {
					return err
				}
				var missing, made int
				err = auditDatabase(cmd, placement.AuditService, opts.loaded, name, func() (did any, err error) {
					err = withProgress(cmd, "Creating consumer records", func(*render.Progress) (err error) {
						missing, made, err = db.MigrateConsumers(cmd.Context(), most)
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
	cmd.Flags().IntVar(&most, "max-count", 0,
		"create at most `N` records, and exit with 1 if any were created (default: all)")
	return cmd
}

// migrationView is one online migration as JSON, with Placement's name.
type migrationView struct {
	Name      string `json:"migration"`
	Needed    int    `json:"total_needed"`
	Completed int    `json:"completed"`
}
