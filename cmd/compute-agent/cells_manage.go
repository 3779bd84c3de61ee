// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
)

func newCellsManage() *cobra.Command {
	return group("manage", "Manage cells, hosts and the database of the compute API",
		newCellsCreate(), newCellsList(), newCellsUpdate(),
		newCellsDelete(), newCellsDisable(), newCellsEnable(), newCellsAccept(),
		newAddHost(), newEnrolNode(), newEvictHost(), newAllowHost(), newAdmitHost(),
		newDiscoverHosts(), newListHosts(), newRenameHost(), newDeleteHost(), newCellsAudit(), newCellsDB())
}

// manageOptions select the API database of a command.
type manageOptions struct {
	cli.Options
	database string
	// create allows the command to create the database; messages gets a notice about it.
	create   bool
	messages io.Writer
}

func (o *manageOptions) AddFlags(cmd *cobra.Command) {
	o.addDatabaseFlags(cmd)
	o.AddOutputFlag(cmd)
}

func (o *manageOptions) addDatabaseFlags(cmd *cobra.Command) {
	o.Service = &cli.InstalledAPI
	o.AddConfigFlags(cmd)
	cmd.Flags().StringVar(&o.database, "database", "", "`DSN` of the API database (compute_api.database)")
}

// location is the API database, and the configuration.
func (o *manageOptions) location() (at controlplane.APIDatabase, cfg *config.Config, err error) {
	if o.database != "" {
		o.Extra = append(o.Extra, config.Override{Key: "compute_api.database", Value: o.database, Flag: "--database"})
	}
	if cfg, err = o.Load(); err == nil {
		at, err = controlplane.APIDatabaseOf(cfg)
	}
	return at, cfg, err
}

// run executes a command on the API database, or in the compute API that has it open. A missing
// database is an error, because a command on the wrong file would appear to work.
func (o *manageOptions) run(cmd *cobra.Command, do func(context.Context, *operator.Deployment) error) error {
	if s := cli.ServingOf(cmd.Context()); s.API != nil {
		return onDeployment(cmd, s.API.Store(), s.Config, s.API.Audit(), do)
	}
	at, cfg, err := o.location()
	if err != nil {
		return err
	}
	return onAPIDatabase(cmd, at, func() error { return o.open(cmd, at, cfg, do) })
}

// onDeployment runs a command, and records what it changes in an audit log.
func onDeployment(
	cmd *cobra.Command, store apidb.Store, cfg *config.Config, audit *auditlog.Log,
	do func(context.Context, *operator.Deployment) error,
) error {
	return controlplane.OnDeployment(cfg, store, func(d *operator.Deployment) error {
		return cli.AuditCommand(cmd, audit, func() error { return do(cmd.Context(), d) })
	})
}

// showOn is run for a command that prints one result.
func showOn[T any](
	cmd *cobra.Command, o *manageOptions, show func(io.Writer, T) error,
	do func(context.Context, *operator.Deployment) (T, error),
) error {
	return o.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
		found, err := do(ctx, d)
		if err != nil {
			return err
		}
		return cli.Print(cmd, &o.Options, found, show)
	})
}

// onAPIDatabase runs direct. On a file that a service has open, that service runs the command; on
// servers, commands run beside services.
func onAPIDatabase(cmd *cobra.Command, d controlplane.APIDatabase, direct func() error) error {
	if d.Shared() {
		return direct()
	}
	return cli.OnDatabase(cmd, d.Path, direct)
}

func (o *manageOptions) open(
	cmd *cobra.Command, at controlplane.APIDatabase, cfg *config.Config,
	do func(context.Context, *operator.Deployment) error,
) (err error) {
	ctx := cmd.Context()
	exists, err := at.Exists(ctx)
	if err != nil {
		return err
	}
	if !exists && !o.create {
		return fmt.Errorf("there is no API database at %s: select that of the compute API with --database or "+
			"--state-dir; if it has never run, `compute-agent cells manage create` and `db upgrade` create one", at)
	}
	store, err := apidb.Open(ctx, at.Name, apidb.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if !exists {
		_, _ = fmt.Fprintf(o.messages,
			"Created a new API database: %s. The compute API must use it and be able to write to it.\n", at)
	}
	audit, err := controlplane.OpenAudit(cfg, true, cli.NewLogger(cfg, cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	err = onDeployment(cmd, cells.AuditedStore(store, audit), cfg, audit, do)
	return errors.Join(err, audit.Close())
}

func newCellsCreate() *cobra.Command {
	var opts manageOptions
	var name, url, uuid string
	var cell0, disabled bool
	cmd := &cobra.Command{
		Use: "create", Short: "Register a cell", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cell0 && (uuid != "" || disabled):
				return cli.Exit(cli.ExitUsage,
					errors.New("--cell0 has a fixed uuid and no hosts: omit --uuid and --disabled"))
			case cell0:
				uuid = apidb.Cell0UUID
				if name == "" {
					name = "cell0"
				}
			case name == "":
				return cli.Exit(cli.ExitUsage, errors.New("--name is required"))
			}
			if url == "" {
				return cli.Exit(cli.ExitUsage, errors.New("--url is required"))
			}
			if err := checkCellURL(url); err != nil {
				return err
			}
			opts.create, opts.messages = true, cmd.ErrOrStderr()
			return showOn(cmd, &opts, render.NewCell,
				func(ctx context.Context, d *operator.Deployment) (operator.Cell, error) {
					return d.CreateCell(ctx, apidb.Cell{UUID: uuid, Name: name, URL: url, Disabled: disabled})
				})
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the cell")
	cmd.Flags().StringVar(&url, "url", "", "`URL` of the cell: http://, https:// or unix:///PATH")
	cmd.Flags().StringVar(&uuid, "uuid", "", "`UUID` of the cell (default: a new one)")
	cmd.Flags().BoolVar(&cell0, "cell0", false, "register cell0, which has no hosts")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "schedule no servers to the cell yet")
	return cmd
}

func checkCellURL(url string) error {
	if _, err := cellclient.New(cellclient.Config{URL: url}); err != nil {
		return cli.Exit(cli.ExitUsage, fmt.Errorf("--url: %w", err))
	}
	return nil
}

func newCellsList() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"list-cells"}, Short: "List the cells and their states", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showOn(cmd, &opts, render.Cells,
				func(ctx context.Context, d *operator.Deployment) ([]operator.Cell, error) {
					return d.ListCells(ctx)
				})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newCellsUpdate() *cobra.Command {
	var opts manageOptions
	var name, url string
	cmd := &cobra.Command{
		Use: "update CELL", Short: "Change the name or the URL of a cell", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" && url == "" {
				return cli.Exit(cli.ExitUsage, errors.New("--name or --url is required"))
			}
			if url != "" {
				if err := checkCellURL(url); err != nil {
					return err
				}
			}
			var former string // its name, if that changes
			err := opts.change(cmd, args[0], func(c *apidb.Cell) {
				if name != "" && name != c.Name {
					former, c.Name = c.Name, name
				}
				if url != "" {
					c.URL = url
				}
			}, "Changed cell %s.\n")
			if err == nil && former != "" {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(),
					"Certificates of hosts name the cell %s until they are renewed, at the latest after [enrolment] "+
						"certificate_lifetime; cell %s refuses these hosts until then. Invite a host that "+
						"must not wait again: compute-agent cells manage add-host HOST --cell %[2]s --again\n",
					former, name)
			}
			return err
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "new `NAME`")
	cmd.Flags().StringVar(&url, "url", "", "new `URL`")
	return cmd
}

// change updates a cell and prints a message.
func (o *manageOptions) change(cmd *cobra.Command, which string, change func(*apidb.Cell), format string) error {
	return showOn(cmd, o, func(w io.Writer, c operator.Cell) error {
		_, err := fmt.Fprintf(w, format, c.Name)
		return err
	}, func(ctx context.Context, d *operator.Deployment) (operator.Cell, error) {
		return d.ChangeCell(ctx, which, change)
	})
}

func newCellsDisable() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "disable CELL", Short: "Stop scheduling new servers to a cell", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.change(cmd, args[0],
				func(c *apidb.Cell) { c.Disabled = true }, "Disabled cell %s: no new servers are scheduled to it.\n")
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newCellsEnable() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "enable CELL", Short: "Resume scheduling new servers to a cell", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.change(cmd, args[0],
				func(c *apidb.Cell) { c.Disabled = false }, "Enabled cell %s: new servers are scheduled to it again.\n")
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newCellsDelete() *cobra.Command {
	var opts manageOptions
	var force bool
	cmd := &cobra.Command{
		Use: "delete CELL", Short: "Remove a cell", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				name, err := d.DeleteCell(ctx, args[0], force)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "Removed cell %s.\n", name)
				}
				return err
			})
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also remove its hosts and the records of its deleted servers")
	return cmd
}

func newCellsAccept() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "accept CELL", Short: "Accept the replaced database of a cell", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return showOn(cmd, &opts, render.CellAcceptance,
				func(ctx context.Context, d *operator.Deployment) (*operator.Acceptance, error) {
					return d.AcceptCell(ctx, args[0])
				})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}
