// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

func newCellsServe() *cobra.Command {
	opts := cli.Options{Uses: config.SectionsOf(config.CellService)}
	var name, listen, database, auth, tokenFile string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve one cell", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return cli.Exit(cli.ExitUsage, errors.New(
					"--name is required: the name of the cell, as in `compute-agent cells manage create --name`"))
			}
			opts.ApplyFlags(cmd, map[string]string{"listen": "cell.listen", "database": "cell.database",
				"auth": "cell.auth", "token-file": "cell.token_file"})
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			return controlplane.ServeCell(cmd.Context(), cfg, name, cli.NewLogger(cfg, cmd.ErrOrStderr()))
		},
	}
	opts.AddConfigFlags(cmd)
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
	cli.Options
	database string
}

func (o *cellDBOptions) AddFlags(cmd *cobra.Command) {
	o.AddConfigFlags(cmd)
	cmd.Flags().StringVar(&o.database, "database", "", "`DSN` of the cell's database (cell.database)")
	o.AddOutputFlag(cmd)
}

// name is the address of the database.
func (o *cellDBOptions) name(cmd *cobra.Command) (string, error) {
	o.ApplyFlags(cmd, map[string]string{"database": "cell.database"})
	cfg, err := o.Load()
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := opts.name(cmd)
			if err != nil {
				return err
			}
			has, knows, err := celldb.Version(cmd.Context(), name)
			found, err := operator.SchemaOf(engine.Shown(name), has, knows, err)
			return opts.ShowSchema(cmd, found, err, "not possible: `compute-agent cells serve` creates it")
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newCellDBUpgrade() *cobra.Command {
	var opts cellDBOptions
	var to int
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Upgrade the schema of a cell's database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := opts.name(cmd)
			if err != nil {
				return err
			}
			had, err := celldb.Migrate(cmd.Context(), name, to)
			if err != nil {
				return cli.BesideOlder(err)
			}
			has, knows, err := celldb.Version(cmd.Context(), name)
			return opts.ShowUpgrade(cmd, operator.UpgradeOf(engine.Shown(name), had, has, knows), err)
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "run only the steps up to `N` (default: all)")
	return cmd
}

// cellStored is the database of a cell.
func cellStored() cli.Stored {
	var opts cli.Options
	return cli.Stored{
		Of: "the cell", Service: "cell", AddFlags: opts.AddConfigFlags, Options: celldb.DatabaseOptions,
		Where: func() (name string, cfg *config.Config, err error) {
			if cfg, err = opts.Load(); err != nil {
				return "", nil, err
			}
			return controlplane.CellDatabase(cfg), cfg, nil
		},
	}
}
