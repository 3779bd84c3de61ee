// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

func newCellsManage() *cobra.Command {
	cmd := group("manage", "Manage cells, hosts and the database of the compute API",
		newCellsCreate(), newCellsList(), newCellsUpdate(), newCellsDelete(), newCellsDisable(), newCellsEnable(), newCellsAccept(),
		newAddHost(), newEnrolNode(), newEvictHost(), newAllowHost(), newAdmitHost(),
		newDiscoverHosts(), newListHosts(), newRenameHost(), newDeleteHost(), newCellsAudit(), newCellsDB())
	cmd.Long = "Manage cells, hosts and the database of the compute API. Run the commands on the machine of the compute API: if it runs, it\n" +
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

// where returns the API database, and the configuration.
func (o *manageOptions) where() (apiDatabase, *config.Config, error) {
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

// with runs a command on the API database, or in the compute API that has it open. A missing
// database is an error, because a command on the wrong file would appear to work.
func (o *manageOptions) with(cmd *cobra.Command, do func(apidb.Store, *config.Config) error) error {
	if s := servingOf(cmd.Context()); s.api != nil {
		return auditCommand(cmd, s.api.Audit(), func() error { return do(s.api.Store(), s.cfg) })
	}
	at, cfg, err := o.where()
	if err != nil {
		return err
	}
	return at.run(cmd, func() error { return o.open(cmd, at, cfg, do) })
}

// on is with for a command of an operator.
func (o *manageOptions) on(cmd *cobra.Command, do func(context.Context, *operator.Deployment) error) error {
	return o.with(cmd, func(store apidb.Store, cfg *config.Config) error {
		gatherer := newGatherer(cfg)
		defer gatherer.CloseIdle()
		return do(cmd.Context(), &operator.Deployment{
			Store: store, Gatherer: gatherer, Placement: cfg.PlacementClient, Enrolment: cfg.Enrolment,
			DiscoverPatterns: cfg.ComputeAPI.DiscoverHostsPattern,
		})
	})
}

// showOn is on for a command that prints one result.
func showOn[T any](
	cmd *cobra.Command, o *manageOptions, show func(io.Writer, T) error, do func(context.Context, *operator.Deployment) (T, error),
) error {
	return o.on(cmd, func(ctx context.Context, d *operator.Deployment) error {
		found, err := do(ctx, d)
		if err != nil {
			return err
		}
		return printed(cmd, &o.options, found, show)
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

func (o *manageOptions) open(cmd *cobra.Command, at apiDatabase, cfg *config.Config, do func(apidb.Store, *config.Config) error) (err error) {
	ctx := cmd.Context()
	exists, err := at.exists(ctx)
	if err != nil {
		return err
	}
	if !exists && !o.create {
		return fmt.Errorf(
			"there is no API database at %s: select that of the compute API with --database or --state-dir; if it has never run, `compute-agent cells manage create` and `db upgrade` create one",
			at,
		)
	}
	store, err := apidb.Open(ctx, at.name, apidb.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if !exists {
		_, _ = fmt.Fprintf(o.messages, "Created a new API database: %s. The compute API must use it and be able to write to it.\n", at)
	}
	audit, err := openCommandAudit(cfg, newLogger(cfg, cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	err = auditCommand(cmd, audit, func() error { return do(cells.AuditedStore(store, audit), cfg) })
	return errors.Join(err, audit.Close())
}

// cellView is a cell, as printed.
type cellView struct {
	Name     string `json:"name"`
	UUID     string `json:"uuid"`
	URL      string `json:"url"`
	Disabled bool   `json:"disabled"`
	// State is up, down or other database, and Cause why it is not up; empty if the cell was not
	// asked.
	State string `json:"state,omitempty"`
	Cause string `json:"cause,omitempty"`
	Hosts int    `json:"hosts"`
}

func newCellsCreate() *cobra.Command {
	var opts manageOptions
	var name, url, uuid string
	var cell0, disabled bool
	cmd := &cobra.Command{
		Use: "create", Short: "Register a cell", Args: cobra.NoArgs,
		Long: "Register a cell with the compute API. Each deployment needs cell0, for servers that could not be scheduled to any host, and one\n" +
			"cell with hosts.",
		Example: "  compute-agent cells manage create --cell0 --url http://127.0.0.1:8780\n" +
			"  compute-agent cells manage create --name cell1 --url https://cell1.example:8780",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cell0 && (uuid != "" || disabled):
				return &exitError{exitUsage, errors.New("--cell0 has a fixed uuid and no hosts: omit --uuid and --disabled")}
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
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				made, err := store.CreateCell(cmd.Context(), apidb.Cell{UUID: uuid, Name: name, URL: url, Disabled: disabled})
				if errors.Is(err, apidb.ErrExists) {
					return fmt.Errorf("%w; `compute-agent cells manage list` shows it, and `cells manage update` changes its URL or name", err)
				}
				if err != nil {
					return err
				}
				view := cellView{Name: made.Name, UUID: made.UUID, URL: made.URL, Disabled: made.Disabled}
				view.State, view.Cause = askCell(cmd.Context(), cfg, made)
				if opts.json() {
					return printJSON(cmd.OutOrStdout(), view)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Registered cell %s with uuid %s.\n", made.Name, made.UUID)
				if view.Cause != "" {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "The cell cannot be used yet: %s\n"+
						"If its URL or name is wrong: compute-agent cells manage update %s --url URL --name NAME (NAME as in `cells serve --name`)\n", view.Cause, made.Name)
				}
				return err
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

// askCell returns the state of a cell.
func askCell(ctx context.Context, cfg *config.Config, c apidb.Cell) (state, cause string) {
	answers := askCells(ctx, cfg, []apidb.Cell{c}, nil)
	return answers[0].state, answers[0].cause
}

type cellAnswer struct{ state, cause string }

// States of a cell.
const (
	cellUp            = "up"
	cellDown          = "down"
	cellOtherDatabase = "other database"
)

// askCells returns the states of all cells, asked concurrently. databases are their recorded
// databases.
func askCells(ctx context.Context, cfg *config.Config, known []apidb.Cell, databases map[string]apidb.CellDatabase) []cellAnswer {
	answers := gather.All(ctx, newGatherer(cfg), known, func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) {
		if _, err := c.ComputeNodes(ctx, true); err != nil { // only the compute API is allowed to do this
			return cellwire.CellInfo{}, err
		}
		return c.Cell(ctx)
	})
	out := make([]cellAnswer, len(answers))
	for i, a := range answers {
		out[i] = cellAnswer{state: cellUp}
		seen := apidb.CellMark{Epoch: a.Value.Epoch, Revision: a.Value.Revision}
		if d := databases[a.Cell.UUID]; a.Err == nil && seen.Revision > 0 && !d.Fits(seen) {
			if d.Suspect == nil { // not detected by the compute API yet
				d.Suspect, d.Since = &seen, a.Value.Now
			}
			out[i] = cellAnswer{cellOtherDatabase, scheduler.SuspectCause(d) + " " + scheduler.SuspectHint(a.Cell)}
		}
		if a.Err != nil {
			cause := a.Err
			if down := new(gather.DownError); errors.As(cause, &down) { // the output names the cell
				cause = down.Err
			}
			out[i] = cellAnswer{cellDown, cause.Error()}
		}
	}
	return out
}

// newGatherer asks cells on behalf of a command, which reports failures itself.
func newGatherer(cfg *config.Config) *gather.Gatherer {
	return gather.New(gather.Options{Client: cellClients(cfg, zerolog.Nop()), Timeout: cfg.ComputeAPI.CellTimeout, Logger: zerolog.Nop()})
}

func newCellsList() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"list-cells"}, Short: "List the cells and their states", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				known, err := store.Cells(cmd.Context())
				if err != nil {
					return err
				}
				hosts, err := store.Hosts(cmd.Context())
				if err != nil {
					return err
				}
				count := map[string]int{}
				for _, h := range hosts {
					count[h.CellUUID]++
				}
				databases, err := store.CellDatabases(cmd.Context()) // before asking the cells, because revisions increase
				if err != nil {
					return err
				}
				views := make([]cellView, len(known))
				for i, a := range askCells(cmd.Context(), cfg, known, databases) {
					c := known[i]
					views[i] = cellView{Name: c.Name, UUID: c.UUID, URL: c.URL, Disabled: c.Disabled, State: a.state, Cause: a.cause, Hosts: count[c.UUID]}
				}
				return printed(cmd, &opts.options, views, printCells)
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func printCells(w io.Writer, views []cellView) error {
	if len(views) == 0 {
		_, err := fmt.Fprintln(w, "No cell is registered. Register cell0 and a cell with `compute-agent cells manage create`.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAME\tUUID\tSTATE\tNEW SERVERS\tHOSTS\tURL")
	for _, v := range views {
		takes := "yes"
		switch {
		case v.UUID == apidb.Cell0UUID:
			takes = "-"
		case v.Disabled:
			takes = "no"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", v.Name, v.UUID, v.State, takes, v.Hosts, v.URL)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, v := range views {
		if v.Cause != "" {
			format := "\n%s is down: %s\n"
			if v.State == cellOtherDatabase {
				format = "\n%s: %s\n"
			}
			if _, err := fmt.Fprintf(w, format, v.Name, v.Cause); err != nil {
				return err
			}
		}
	}
	return nil
}

// findCell finds a cell by its uuid or its name.
func findCell(ctx context.Context, store apidb.Store, which string) (apidb.Cell, error) {
	known, err := store.Cells(ctx)
	if err != nil {
		return apidb.Cell{}, err
	}
	names := make([]string, 0, len(known))
	for _, c := range known {
		if c.UUID == which || c.Name == which {
			return c, nil
		}
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return apidb.Cell{}, fmt.Errorf("there is no cell %q: none is registered", which)
	}
	return apidb.Cell{}, fmt.Errorf("there is no cell %q; there are %s", which, strings.Join(names, ", "))
}

func newCellsUpdate() *cobra.Command {
	var opts manageOptions
	var name, url string
	cmd := &cobra.Command{
		Use: "update CELL", Short: "Change the name or the URL of a cell", Args: cobra.ExactArgs(1),
		Long: "Change the name or the URL of a cell, which is given by name or uuid. The name must be that of `cells serve --name`.",
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
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Certificates of hosts name the cell %s until they are renewed, at the latest after [enrolment] "+
					"certificate_lifetime; cell %s refuses these hosts until then. Invite a host that must not wait again: "+
					"compute-agent cells manage add-host HOST --cell %[2]s --again\n", former, name)
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
	return o.with(cmd, func(store apidb.Store, _ *config.Config) error {
		c, err := findCell(cmd.Context(), store, which)
		if err != nil {
			return err
		}
		change(&c)
		if err := store.UpdateCell(cmd.Context(), c); err != nil {
			return err
		}
		if o.json() {
			return printJSON(cmd.OutOrStdout(), cellView{Name: c.Name, UUID: c.UUID, URL: c.URL, Disabled: c.Disabled})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), format, c.Name)
		return err
	})
}

func newCellsDisable() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "disable CELL", Short: "Stop scheduling new servers to a cell", Args: cobra.ExactArgs(1),
		Long: "Stop scheduling new servers to a cell. Its servers can still be listed and deleted.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.change(cmd, args[0], func(c *apidb.Cell) { c.Disabled = true }, "Disabled cell %s: no new servers are scheduled to it.\n")
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
			return opts.change(cmd, args[0], func(c *apidb.Cell) { c.Disabled = false }, "Enabled cell %s: new servers are scheduled to it again.\n")
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
		Long: "Remove a cell from the compute API. A cell with hosts or servers is refused; with --force its hosts and the records of its\n" +
			"deleted servers are removed too, and only active servers prevent the removal. The cell's own database is not changed.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, _ *config.Config) error {
				c, err := findCell(cmd.Context(), store, args[0])
				if err != nil {
					return err
				}
				if err := store.DeleteCell(cmd.Context(), c.UUID, force); err != nil {
					if errors.Is(err, apidb.ErrInUse) {
						return &exitError{exitProtect, err}
					}
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Removed cell %s.\n", c.Name)
				return err
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also remove its hosts and the records of its deleted servers")
	return cmd
}
