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
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/config"
)

func newCellsManage() *cobra.Command {
	cmd := group("manage", "Tell the compute API which cells there are, and look after its database",
		newCellsCreate(), newCellsList(), newCellsUpdate(), newCellsDelete(), newCellsDisable(), newCellsEnable(), newCellsAccept(),
		newDiscoverHosts(), newListHosts(), newDeleteHost(), newCellsDB())
	cmd.Long = "Tell the compute API which cells and hosts there are, and look after its database. Run the commands on the\n" +
		"machine of the compute API: while that runs it does what they say itself, asked on its admin socket, and otherwise they\n" +
		"open the database."
	return cmd
}

// manageOptions say which API database a command is about.
type manageOptions struct {
	options
	database string
	// mayMake has a database made that is not there; says is where that is told.
	mayMake bool
	says    io.Writer
}

func (o *manageOptions) addFlags(cmd *cobra.Command) {
	o.addDatabaseFlags(cmd)
	o.addOutputFlag(cmd)
}

func (o *manageOptions) addDatabaseFlags(cmd *cobra.Command) {
	o.addConfigFlags(cmd)
	cmd.Flags().StringVar(&o.database, "database", "", "`DSN` of the API database (compute_api.database)")
}

// file is the API database's, and the configuration.
func (o *manageOptions) file() (string, *config.Config, error) {
	if o.database != "" {
		o.extra = append(o.extra, config.Override{Key: "compute_api.database", Value: o.database, Flag: "--database"})
	}
	cfg, err := o.load()
	if err != nil {
		return "", nil, err
	}
	path, err := cells.DatabaseFile(cfg.ComputeAPI.Database, cfg.Agent.StateDir, cells.APIDatabase)
	return path, cfg, err
}

// with runs a command on the API database: here, or in the compute API that has it open. One that is not there is not made: a command on the wrong
// file would look as if it had worked.
func (o *manageOptions) with(cmd *cobra.Command, do func(apidb.Store, *config.Config) error) error {
	if s := servingOf(cmd.Context()); s.api != nil {
		return do(s.api.Store(), s.cfg)
	}
	path, cfg, err := o.file()
	if err != nil {
		return err
	}
	return onDatabase(cmd, path, func() error { return o.open(cmd.Context(), path, cfg, do) })
}

func (o *manageOptions) open(ctx context.Context, path string, cfg *config.Config, do func(apidb.Store, *config.Config) error) (err error) {
	_, err = os.Stat(path)
	anew := errors.Is(err, fs.ErrNotExist)
	if anew && !o.mayMake {
		return fmt.Errorf("there is no API database at %s: name that of the compute API with --database or --state-dir; if it has never run, `compute-agent cells manage create` and `db upgrade` make one", path)
	}
	store, err := apidb.Open(ctx, path, apidb.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if anew {
		_, _ = fmt.Fprintf(o.says, "A new API database was made: %s. It has to be that of the compute API, and writable for it.\n", path)
	}
	return do(store, cfg)
}

// cellView is a cell as it is printed.
type cellView struct {
	Name     string `json:"name"`
	UUID     string `json:"uuid"`
	URL      string `json:"url"`
	Disabled bool   `json:"disabled"`
	// State is up, down or other database, and Cause why it is not up; empty where nobody was asked.
	State string `json:"state,omitempty"`
	Cause string `json:"cause,omitempty"`
	Hosts int    `json:"hosts"`
}

func newCellsCreate() *cobra.Command {
	var opts manageOptions
	var name, url, uuid string
	var cell0, disabled bool
	cmd := &cobra.Command{
		Use: "create", Short: "Make a cell known", Args: cobra.NoArgs,
		Long: "Make a cell known to the compute API, which asks it from then on. Each deployment needs cell0, where servers go that\n" +
			"no host could take, and one cell with hosts.",
		Example: "  compute-agent cells manage create --cell0 --url http://127.0.0.1:8780\n" +
			"  compute-agent cells manage create --name cell1 --url https://cell1.example:8780",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cell0 && (uuid != "" || disabled):
				return &exitError{exitUsage, errors.New("--cell0 has its own uuid and takes no hosts: leave out --uuid and --disabled")}
			case cell0:
				uuid = apidb.Cell0UUID
				if name == "" {
					name = "cell0"
				}
			case name == "":
				return &exitError{exitUsage, errors.New("--name is missing")}
			}
			if url == "" {
				return &exitError{exitUsage, errors.New("--url is missing")}
			}
			if err := checkCellURL(url); err != nil {
				return err
			}
			opts.mayMake, opts.says = true, cmd.ErrOrStderr()
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				made, err := store.CreateCell(cmd.Context(), apidb.Cell{UUID: uuid, Name: name, URL: url, Disabled: disabled})
				if errors.Is(err, apidb.ErrExists) {
					return fmt.Errorf("%w; `compute-agent cells manage list` shows it, and `update` changes its URL or name", err)
				}
				if err != nil {
					return err
				}
				view := cellView{Name: made.Name, UUID: made.UUID, URL: made.URL, Disabled: made.Disabled}
				view.State, view.Cause = askCell(cmd.Context(), cfg, made)
				if opts.json() {
					return printJSON(cmd.OutOrStdout(), view)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Cell %s is known as %s.\n", made.Name, made.UUID)
				if view.Cause != "" {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "It cannot be used yet: %s\n"+
						"If its URL or name is wrong: compute-agent cells manage update %s --url URL --name NAME (the NAME of `cells serve --name`)\n", view.Cause, made.Name)
				}
				return err
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the cell")
	cmd.Flags().StringVar(&url, "url", "", "`URL` where it answers: http://, https:// or unix:///PATH")
	cmd.Flags().StringVar(&uuid, "uuid", "", "`UUID` of the cell (default: a new one)")
	cmd.Flags().BoolVar(&cell0, "cell0", false, "it is cell0, which has no hosts")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "nothing is placed there yet")
	return cmd
}

func checkCellURL(url string) error {
	if _, err := cellclient.New(cellclient.Config{URL: url}); err != nil {
		return &exitError{exitUsage, fmt.Errorf("--url: %w", err)}
	}
	return nil
}

// askCell says how a cell is now.
func askCell(ctx context.Context, cfg *config.Config, c apidb.Cell) (state, cause string) {
	answers := askCells(ctx, cfg, []apidb.Cell{c}, nil)
	return answers[0].state, answers[0].cause
}

type cellAnswer struct{ state, cause string }

// The states of a cell, for an operator.
const (
	cellUp            = "up"
	cellDown          = "down"
	cellOtherDatabase = "other database"
)

// askCells asks all cells how they are, at the same time. databases are what is known of theirs.
func askCells(ctx context.Context, cfg *config.Config, known []apidb.Cell, databases map[string]apidb.CellDatabase) []cellAnswer {
	answers := gather.All(ctx, newGatherer(cfg), known, func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) {
		if _, err := c.ComputeNodes(ctx, true); err != nil { // who it is, the cell tells an agent too: this only the compute API
			return cellwire.CellInfo{}, err
		}
		return c.Cell(ctx)
	})
	out := make([]cellAnswer, len(answers))
	for i, a := range answers {
		out[i] = cellAnswer{state: cellUp}
		seen := apidb.CellMark{Epoch: a.Value.Epoch, Revision: a.Value.Revision}
		if d := databases[a.Cell.UUID]; a.Err == nil && seen.Revision > 0 && !d.Fits(seen) {
			if d.Suspect == nil { // the compute API has not seen it yet
				d.Suspect, d.Since = &seen, a.Value.Now
			}
			out[i] = cellAnswer{cellOtherDatabase, scheduler.SuspectCause(d) + " " + scheduler.SuspectHint(a.Cell)}
		}
		if a.Err != nil {
			cause := a.Err
			if down := new(gather.DownError); errors.As(cause, &down) { // the cell is named beside it
				cause = down.Err
			}
			out[i] = cellAnswer{cellDown, cause.Error()}
		}
	}
	return out
}

// newGatherer asks cells for a command: it says itself what does not answer, so nothing is logged.
func newGatherer(cfg *config.Config) *gather.Gatherer {
	return gather.New(gather.Options{Client: cellClients(cfg), Timeout: cfg.ComputeAPI.CellTimeout, Logger: zerolog.Nop()})
}

func newCellsList() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"list-cells"}, Short: "Show the cells, and which of them answer", Args: cobra.NoArgs,
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
				databases, err := store.CellDatabases(cmd.Context()) // before the cells are asked: revisions go on
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
		_, err := fmt.Fprintln(w, "No cell is known. Make cell0 and a cell known with `compute-agent cells manage create`.")
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
			said := "\n%s is down: %s\n"
			if v.State == cellOtherDatabase {
				said = "\n%s: %s\n"
			}
			if _, err := fmt.Fprintf(w, said, v.Name, v.Cause); err != nil {
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
		return apidb.Cell{}, fmt.Errorf("there is no cell %q: none is known yet", which)
	}
	return apidb.Cell{}, fmt.Errorf("there is no cell %q; there are %s", which, strings.Join(names, ", "))
}

func newCellsUpdate() *cobra.Command {
	var opts manageOptions
	var name, url string
	cmd := &cobra.Command{
		Use: "update CELL", Short: "Change the name or the URL of a cell", Args: cobra.ExactArgs(1),
		Long: "Change the name or the URL of a cell, which is given by name or uuid. The name must be the one that the process of the\n" +
			"cell runs under.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" && url == "" {
				return &exitError{exitUsage, errors.New("nothing to change: give --name or --url")}
			}
			if url != "" {
				if err := checkCellURL(url); err != nil {
					return err
				}
			}
			return opts.change(cmd, args[0], func(c *apidb.Cell) {
				if name != "" {
					c.Name = name
				}
				if url != "" {
					c.URL = url
				}
			}, "Cell %s is changed.\n")
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "new `NAME`")
	cmd.Flags().StringVar(&url, "url", "", "new `URL`")
	return cmd
}

// change changes a cell and says so.
func (o *manageOptions) change(cmd *cobra.Command, which string, change func(*apidb.Cell), said string) error {
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
		_, err = fmt.Fprintf(cmd.OutOrStdout(), said, c.Name)
		return err
	})
}

func newCellsDisable() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "disable CELL", Short: "Place no new servers in a cell", Args: cobra.ExactArgs(1),
		Long: "Place no new servers in a cell. Its servers are listed and can be deleted as before.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.change(cmd, args[0], func(c *apidb.Cell) { c.Disabled = true }, "Nothing new is placed in cell %s.\n")
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newCellsEnable() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "enable CELL", Short: "Place new servers in a cell again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.change(cmd, args[0], func(c *apidb.Cell) { c.Disabled = false }, "New servers are placed in cell %s again.\n")
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newCellsDelete() *cobra.Command {
	var opts manageOptions
	var force bool
	cmd := &cobra.Command{
		Use: "delete CELL", Short: "Forget a cell", Args: cobra.ExactArgs(1),
		Long: "Forget a cell. One with hosts or servers is refused; with --force its hosts and the records of its deleted servers go\n" +
			"with it, and only living servers keep it. The cell's own database is not touched.",
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
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Cell %s is forgotten.\n", c.Name)
				return err
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also with hosts and with the records of deleted servers")
	return cmd
}
