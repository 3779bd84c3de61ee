// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
)

func newPlacementDB() *cobra.Command {
	return group("db", "Manage the database of Placement", newDBUpgrade(), newDBVersion(), newDBOnlineMigrations(),
		cli.NewBackup(placementStored()), cli.NewRestore(placementStored()), cli.NewCheck(placementStored()))
}

// databaseOptions select the database of a command.
type databaseOptions struct {
	cli.Options
	database string
	loaded   *config.Config // by placementConfig
}

func (o *databaseOptions) AddFlags(cmd *cobra.Command) {
	o.addDatabaseFlags(cmd)
	o.AddOutputFlag(cmd)
}

func (o *databaseOptions) addDatabaseFlags(cmd *cobra.Command) {
	o.Service = &cli.InstalledPlacement
	o.AddConfigFlags(cmd)
	addDatabaseFlag(cmd, &o.database)
}

func addDatabaseFlag(cmd *cobra.Command, database *string) {
	cmd.Flags().StringVar(database, "database", "",
		"`DSN` of the database, such as mysql://USER@HOST/placement?password_file=PATH or sqlite:///PATH "+
			"(placement.database)")
}

// setDatabase has a flag override the configuration.
func setDatabase(o *cli.Options, dsn string) {
	if dsn != "" {
		o.Extra = append(o.Extra, config.Override{Key: "placement.database", Value: dsn, Flag: "--database"})
	}
}

func (o *databaseOptions) placementConfig() (placement.Config, error) {
	setDatabase(&o.Options, o.database)
	cfg, err := o.Load()
	if err != nil {
		return placement.Config{}, err
	}
	o.loaded = cfg
	return controlplane.Placement(cfg, controlplane.Listening{}, nil, zerolog.Nop()), nil
}

// with runs a command on the database, or in the service that has it open.
func (o *databaseOptions) with(cmd *cobra.Command, do func(placement.ManagedDatabase) error) error {
	if s := cli.ServingOf(cmd.Context()); s.Placement != nil {
		return do(placement.ManagedDatabase{Server: s.Placement})
	}
	name, made, err := o.location()
	if err != nil {
		return err
	}
	return cli.OnDatabase(cmd, name, func() error { return do(placement.ManagedDatabase{Config: made}) })
}

// location is the name of the database (see engine.ParseAddress), and how Placement opens it.
func (o *databaseOptions) location() (name string, made placement.Config, err error) {
	if made, err = o.placementConfig(); err == nil {
		name, err = made.DatabaseName()
	}
	return name, made, err
}

// placementStored is the database that flags and configuration select.
func placementStored() cli.Stored {
	var opts databaseOptions
	return cli.Stored{
		Of: "Placement", Service: placement.AuditService,
		AddFlags: opts.addDatabaseFlags, Options: store.DatabaseOptions, Verify: store.Verify,
		Where: func() (name string, cfg *config.Config, err error) {
			name, _, err = opts.location()
			return name, opts.loaded, err
		},
	}
}

func newDBVersion() *cobra.Command {
	var opts databaseOptions
	cmd := &cobra.Command{
		Use: "version", Short: "Show the schema version of the database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(db placement.ManagedDatabase) error {
				found, err := db.Read(cmd.Context())
				if err != nil {
					return err
				}
				return cli.Print(cmd, &opts.Options, found, render.PlacementSchema)
			})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newDBUpgrade() *cobra.Command {
	var opts databaseOptions
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Create the database, or upgrade its schema", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(db placement.ManagedDatabase) error {
				var done render.Upgraded
				err := cli.WithProgress(cmd, "Upgrading the database of Placement", func(*render.Progress) (err error) {
					done.Before, done.After, err = db.Upgrade(cmd.Context())
					return err
				})
				if err != nil {
					return cli.BesideOlder(err)
				}
				return cli.Print(cmd, &opts.Options, done, render.PlacementUpgraded)
			})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newDBOnlineMigrations() *cobra.Command {
	var opts databaseOptions
	var limit int
	cmd := &cobra.Command{
		Use: "online-data-migrations", Aliases: []string{"online_data_migrations"},
		Short: "Create consumer records that an old Placement did not write", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limited := cmd.Flags().Changed("max-count")
			if limited && limit < 1 {
				return cli.Exit(cli.ExitUsage, fmt.Errorf("--max-count %d: must be at least 1", limit))
			}
			return cli.Migrating(opts.with(cmd, func(db placement.ManagedDatabase) error {
				name, err := db.Name(cmd.Context())
				if err != nil {
					return err
				}
				var missing, made int
				err = cli.AuditDatabase(cmd, placement.AuditService, opts.loaded, name, func() (did any, err error) {
					err = cli.WithProgress(cmd, "Creating consumer records", func(*render.Progress) (err error) {
						missing, made, err = db.MigrateConsumers(cmd.Context(), limit)
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
				done := []cli.Migration{{Name: "create_incomplete_consumers", Needed: missing, Completed: made}}
				return opts.ShowMigrations(cmd, done, limited && made > 0, err)
			}))
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().IntVar(&limit, "max-count", 0,
		"create at most `N` records, and exit with 1 if any were created (default: all)")
	return cmd
}
