// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

func newCellsServe() *cobra.Command {
	opts := options{uses: config.SectionsOf(config.CellService)}
	var name, listen, database, auth, tokenFile string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve one cell", Args: cobra.NoArgs,
		Long: "Serve one cell to the compute API and to the agents of its hosts, as configured in [cell]. Its " +
			"database is cell.db in the state\n" +
			"directory, which is created if it does not exist, or one on " +
			"MariaDB, MySQL or PostgreSQL (--database), which other processes\n" +
			"of the cell may serve at the same time. Cell0, which has no hosts, is served in the same way.",
		Example: "  compute-agent cells serve --name cell1 --state-dir /var/lib/compute-agent-cell1 --listen " +
			"127.0.0.1:8781",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return &exitError{exitUsage,
					errors.New(
						"--name is required: the name of the cell, as in `compute-agent cells manage create --name`")}
			}
			opts.applyFlags(cmd, map[string]string{"listen": "cell.listen", "database": "cell.database",
				"auth": "cell.auth", "token-file": "cell.token_file"})
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			return controlplane.ServeCell(cmd.Context(), cfg, name, newLogger(cfg, cmd.ErrOrStderr()))
		},
	}
	opts.addConfigFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the cell")
	cmd.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to listen on, HOST:PORT or unix:///PATH (cell.listen)")
	cmd.Flags().StringVar(&database, "database", "", "`DSN` of the cell's database (cell.database)")
	cmd.Flags().StringVar(&auth, "auth", "",
		"`METHOD` of authentication: noauth (loopback and unix sockets only), peer (unix sockets only), token or "+
			"mtls (cell.auth)")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`FILE` of the tokens, for --auth token (cell.token_file)")
	return cmd
}

// cellDBOptions select the database of a cell.
type cellDBOptions struct {
	options
	database string
}

func (o *cellDBOptions) addFlags(cmd *cobra.Command) {
	o.addConfigFlags(cmd)
	cmd.Flags().StringVar(&o.database, "database", "", "`DSN` of the cell's database (cell.database)")
	o.addOutputFlag(cmd)
}

// name is the address of the database.
func (o *cellDBOptions) name(cmd *cobra.Command) (string, error) {
	o.applyFlags(cmd, map[string]string{"database": "cell.database"})
	cfg, err := o.load()
	if err != nil {
		return "", err
	}
	return controlplane.CellDatabase(cfg), nil
}

func newCellDB() *cobra.Command {
	return group("db", "Manage the schema of a cell's database", newCellDBVersion(), newCellDBUpgrade())
}

func newCellDBVersion() *cobra.Command {
	var opts cellDBOptions
	cmd := &cobra.Command{
		Use: "version", Short: "Show the schema version of a cell's database", Args: cobra.NoArgs,
		Long: "Show the schema version of a cell's database, and the one of this " +
			"program. Nothing is changed. A file must not be in use: the\n" +
			"process of the cell upgrades it when it starts.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := opts.name(cmd)
			if err != nil {
				return err
			}
			has, knows, err := celldb.Version(cmd.Context(), name)
			found, err := operator.SchemaOf(sqldb.Shown(name), has, knows, err)
			return opts.showSchema(cmd, found, err, "not possible: `compute-agent cells serve` creates it")
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newCellDBUpgrade() *cobra.Command {
	var opts cellDBOptions
	var to int
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Upgrade the schema of a cell's database", Args: cobra.NoArgs,
		Long: "Upgrade the schema of a cell's database. Running it again " +
			"changes nothing. The process of a cell runs most steps when it\n" +
			"starts; of a file, all of them, so that this command is not needed there.\n\n" +
			strings.TrimSpace(endsOlder),
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := opts.name(cmd)
			if err != nil {
				return err
			}
			had, err := celldb.Migrate(cmd.Context(), name, to)
			if err != nil {
				return besideOlder(err)
			}
			has, knows, err := celldb.Version(cmd.Context(), name)
			return opts.showUpgrade(cmd, operator.UpgradeOf(sqldb.Shown(name), had, has, knows), err)
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "run only the steps up to `N` (default: all)")
	return cmd
}

// cellStored is the database of a cell.
func cellStored() stored {
	var opts options
	return stored{
		of: "the cell", service: "cell", addFlags: opts.addConfigFlags, options: celldb.DatabaseOptions,
		where: func() (name string, cfg *config.Config, err error) {
			if cfg, err = opts.load(); err != nil {
				return "", nil, err
			}
			return controlplane.CellDatabase(cfg), cfg, nil
		},
	}
}
