// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

func newCellsManage() *cobra.Command {
	cmd := group("manage", "Manage cells, hosts and the database of the compute API",
		newCellsCreate(), newCellsList(), newCellsUpdate(),
		newCellsDelete(), newCellsDisable(), newCellsEnable(), newCellsAccept(),
		newAddHost(), newEnrolNode(), newEvictHost(), newAllowHost(), newAdmitHost(),
		newDiscoverHosts(), newListHosts(), newRenameHost(), newDeleteHost(), newCellsAudit(), newCellsDB())
	cmd.Long = "Manage cells, hosts and the database of the compute API. Run " +
		"the commands on the machine of the compute API: if it runs, it\n" +
		"executes them, requested on its admin socket; otherwise they open the database."
	return cmd
}

// manageOptions select the API database of a command.
type manageOptions struct {
	options
	database string
	// create allows the command to create the database; messages gets a notice about it.
	create   bool
	messages io.Writer
}

func (o *manageOptions) addFlags(cmd *cobra.Command) {
	o.addDatabaseFlags(cmd)
	o.addOutputFlag(cmd)
}

func (o *manageOptions) addDatabaseFlags(cmd *cobra.Command) {
	o.service = &installedAPI
	o.addConfigFlags(cmd)
	cmd.Flags().StringVar(&o.database, "database", "", "`DSN` of the API database (compute_api.database)")
}

// apiDatabase is which database a command is for.
type apiDatabase struct {
	sqldb.Address
	name string // to open it by; it may have a password
}

// location is the API database, and the configuration.
func (o *manageOptions) location() (apiDatabase, *config.Config, error) {
	if o.database != "" {
		o.extra = append(o.extra, config.Override{Key: "compute_api.database", Value: o.database, Flag: "--database"})
	}
	cfg, err := o.load()
	if err != nil {
		return apiDatabase{}, nil, err
	}
	address, name, err := cells.DatabaseOf(cfg.ComputeAPI.Database, cfg.Agent.StateDir, cells.APIDatabase)
	return apiDatabase{address, name}, cfg, err
}

// run executes a command on the API database, or in the compute API that has it open. A missing
// database is an error, because a command on the wrong file would appear to work.
func (o *manageOptions) run(cmd *cobra.Command, do func(context.Context, *operator.Deployment) error) error {
	if s := servingOf(cmd.Context()); s.api != nil {
		return onDeployment(cmd, s.api.Store(), s.cfg, s.api.Audit(), do)
	}
	at, cfg, err := o.location()
	if err != nil {
		return err
	}
	return at.run(cmd, func() error { return o.open(cmd, at, cfg, do) })
}

// onDeployment runs a command, and records what it changes in an audit log.
func onDeployment(
	cmd *cobra.Command, store apidb.Store, cfg *config.Config, audit *auditlog.Log,
	do func(context.Context, *operator.Deployment) error,
) error {
	gatherer := gather.New(gather.Options{ // the command reports failures itself
		Client:  controlplane.CellClients(cfg, zerolog.Nop()),
		Timeout: cfg.ComputeAPI.CellTimeout, Logger: zerolog.Nop(),
	})
	defer gatherer.CloseIdle()
	return auditCommand(cmd, audit, func() error {
		return do(cmd.Context(), &operator.Deployment{
			Store: store, Gatherer: gatherer, Placement: cfg.PlacementClient, Enrolment: cfg.Enrolment,
			DiscoverPatterns: cfg.ComputeAPI.DiscoverHostsPattern,
		})
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
		return printResult(cmd, &o.options, found, show)
	})
}

// run runs direct. On a file that a service has open, that service runs the command; on servers,
// commands run beside services.
func (d apiDatabase) run(cmd *cobra.Command, direct func() error) error {
	if d.Shared() {
		return direct()
	}
	return onDatabase(cmd, d.Path, direct)
}

// exists says whether there is an API database: a file, or tables on the servers.
func (d apiDatabase) exists(ctx context.Context) (bool, error) {
	if d.Shared() {
		has, _, err := apidb.Version(ctx, d.name)
		return has > 0, err
	}
	_, err := os.Stat(d.Path)
	return !errors.Is(err, fs.ErrNotExist), nil
}

func (o *manageOptions) open(
	cmd *cobra.Command, at apiDatabase, cfg *config.Config, do func(context.Context, *operator.Deployment) error,
) (err error) {
	ctx := cmd.Context()
	exists, err := at.exists(ctx)
	if err != nil {
		return err
	}
	if !exists && !o.create {
		return fmt.Errorf(
			"there is no API database at %s: select that of the compute API with --database or --state-dir; if it "+
				"has never run, `compute-agent cells manage create` and `db upgrade` create one",
			at,
		)
	}
	store, err := apidb.Open(ctx, at.name, apidb.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if !exists {
		_, _ = fmt.Fprintf(o.messages,
			"Created a new API database: %s. The compute API must use it and be able to write to it.\n", at)
	}
	audit, err := controlplane.OpenAudit(cfg, true, newLogger(cfg, cmd.ErrOrStderr()))
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
		Long: "Register a cell with the compute API. Each deployment needs cell0, " +
			"for servers that could not be scheduled to any host, and one\n" +
			"cell with hosts.",
		Example: "  compute-agent cells manage create --cell0 --url http://127.0.0.1:8780\n" +
			"  compute-agent cells manage create --name cell1 --url https://cell1.example:8780",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cell0 && (uuid != "" || disabled):
				return &exitError{exitUsage,
					errors.New("--cell0 has a fixed uuid and no hosts: omit --uuid and --disabled")}
			case cell0:
				uuid = apidb.Cell0UUID
				if name == "" {
					name = "cell0"
				}
			case name == "":
				return &exitError{exitUsage, errors.New("--name is required")}
			}
			if url == "" {
				return &exitError{exitUsage, errors.New("--url is required")}
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
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the cell")
	cmd.Flags().StringVar(&url, "url", "", "`URL` of the cell: http://, https:// or unix:///PATH")
	cmd.Flags().StringVar(&uuid, "uuid", "", "`UUID` of the cell (default: a new one)")
	cmd.Flags().BoolVar(&cell0, "cell0", false, "register cell0, which has no hosts")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "schedule no servers to the cell yet")
	return cmd
}

func checkCellURL(url string) error {
	if _, err := cellclient.New(cellclient.Config{URL: url}); err != nil {
		return &exitError{exitUsage, fmt.Errorf("--url: %w", err)}
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
	opts.addFlags(cmd)
	return cmd
}

func newCellsUpdate() *cobra.Command {
	var opts manageOptions
	var name, url string
	cmd := &cobra.Command{
		Use: "update CELL", Short: "Change the name or the URL of a cell", Args: cobra.ExactArgs(1),
		Long: "Change the name or the URL of a cell, which is given by name or uuid. The name must be that of " +
			"`cells serve --name`.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" && url == "" {
				return &exitError{exitUsage, errors.New("--name or --url is required")}
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
	opts.addFlags(cmd)
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
		Long: "Stop scheduling new servers to a cell. Its servers can still be listed and deleted.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.change(cmd, args[0],
				func(c *apidb.Cell) { c.Disabled = true }, "Disabled cell %s: no new servers are scheduled to it.\n")
		},
	}
	opts.addFlags(cmd)
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
	opts.addFlags(cmd)
	return cmd
}

func newCellsDelete() *cobra.Command {
	var opts manageOptions
	var force bool
	cmd := &cobra.Command{
		Use: "delete CELL", Short: "Remove a cell", Args: cobra.ExactArgs(1),
		Long: "Remove a cell from the compute API. A cell with hosts or servers " +
			"is refused; with --force its hosts and the records of its\n" +
			"deleted servers are removed too, and only active servers " +
			"prevent the removal. The cell's own database is not changed.",
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
	opts.addFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also remove its hosts and the records of its deleted servers")
	return cmd
}

func newCellsAccept() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "accept CELL", Short: "Accept the replaced database of a cell", Args: cobra.ExactArgs(1),
		Long: "Accept the database that a cell has now, after it was lost or " +
			"restored from an older copy. Until then, the compute API does not\n" +
			"reconcile anything with this cell. The command compares all servers " +
			"of the cell and prints the differences: look for a better\n" +
			"copy before accepting. Servers that the cell does not have return " +
			"404; servers that were deleted after the copy was made are\n" +
			"listed and counted again, and have to be deleted again. The exit " +
			"code is 3, and nothing is accepted, if the database changes\n" +
			"again meanwhile.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return showOn(cmd, &opts, render.CellAcceptance,
				func(ctx context.Context, d *operator.Deployment) (*operator.Acceptance, error) {
					return d.AcceptCell(ctx, args[0])
				})
		},
	}
	opts.addFlags(cmd)
	return cmd
}
