// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/doctor"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/systemd"
)

// newDoctor checks the host. It works without a running agent, and without a valid configuration.
func newDoctor() *cobra.Command {
	var opts options
	var user string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this host, and suggest fixes", Args: cobra.NoArgs,
		Long: "Check this host, and print a command that fixes each problem. Nothing is changed. The exit code is 1 if something keeps the\n" +
			"agent from working, and 0 otherwise.\n\n" +
			"The services of the control plane that are enabled on this machine are checked as well: their units, the files that they\n" +
			"read, as their users, and their databases, and whether the cells answer the compute API. On a machine without an agent\n" +
			"that is all. Run the command as root there: the files of services are theirs.\n\n" +
			"The command checks the running agent's configuration, from the files as they are now, unless --config names another file. If no\n" +
			"agent runs, it checks the file of --config or the default file. The drivers are started to check the machine, and stopped\n" +
			"afterwards.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, running, cfgErr := opts.loadJudged(cmd.Context())
			env, err := doctor.Host(cfg, cfgErr, user)
			if err != nil {
				return err
			}
			env.Judged = judgedBy(running)
			env.Examine = func(ctx context.Context) ([]doctor.Examined, error) { return examine(ctx, cfg, cfgErr) }
			env.Services = services(cmd.Context(), opts.file)
			env.Databases = databases(append([]doctor.Service{{Config: cfg}}, env.Services...))
			var results []doctor.Result
			_ = working(cmd, "Checking this host", func(*render.Progress) error {
				results = doctor.Run(cmd.Context(), env)
				return nil
			})
			return printResults(cmd, &opts, results)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&user, "user", "", "`USER` that the agent runs as (default: that of the service, or the current user)")
	cmd.AddCommand(newDoctorDevices())
	return cmd
}

// printResults prints results, and fails if one is an error.
func printResults(cmd *cobra.Command, o *options, results []doctor.Result) error {
	var err error
	if o.json() {
		err = doctor.WriteJSON(cmd.OutOrStdout(), results)
	} else {
		err = render.Doctor(screen(cmd.OutOrStdout()), results)
	}
	if code := doctor.ExitStatus(results); err == nil && code != exitDone {
		return &exitError{code: code}
	}
	return err
}

// services are the units of this project on this machine with their configurations; none without
// systemd, or if the command is about a file that an operator names.
func services(ctx context.Context, file string) (out []doctor.Service) {
	if file != "" {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, systemctlTimeout)
	defer cancel()
	units, err := systemd.UnitStates(asking, doctor.UnitPattern)
	if err != nil {
		return nil
	}
	for _, u := range units {
		s := doctor.Service{UnitState: u}
		environ := append(os.Environ(), "CREDENTIALS_DIRECTORY=/run/credentials/"+u.Name)
		if u.Name == doctor.ComputeAPIUnit {
			environ = append(environ, "RUNTIME_DIRECTORY=/run/"+strings.TrimSuffix(u.Name, ".service"))
		}
		cfg, err := config.Load(config.Options{File: doctor.ConfigFile(u), Environ: environ, Uses: []string{}, Unit: u.Name, Overrides: doctor.Overrides(u)})
		if err == nil {
			s.Config = cfg
		}
		s.ConfigErr = err
		if s.Config != nil && u.Active == "active" && u.Name == doctor.ComputeAPIUnit {
			s.Cells, s.CellsErr = cellStates(ctx, filepath.Join(s.Config.Agent.RuntimeDir, computeAdminSocket))
		}
		out = append(out, s)
	}
	return out
}

// systemctlTimeout is how long systemd may take to say how the units are.
const systemctlTimeout = 5 * time.Second

// cellsTimeout is how long the compute API may take to say how the cells are, which it may have to
// ask.
const cellsTimeout = 5 * time.Second

// cellStates are the cells as a compute API has them.
func cellStates(ctx context.Context, socket string) (out []doctor.Cell, err error) {
	ctx, cancel := context.WithTimeout(ctx, cellsTimeout)
	defer cancel()
	states, err := cells.AskStates(ctx, socket)
	for _, s := range states {
		out = append(out, doctor.Cell{Name: s.Name, URL: s.URL, Cell0: s.UUID == apidb.Cell0UUID, Up: s.Up, Since: s.Since, Cause: s.Cause})
	}
	return out, err
}

// databases are the databases of servers that services are configured with, each once.
func databases(services []doctor.Service) (out []doctor.Database) {
	for _, s := range services {
		if s.Config == nil {
			continue
		}
		cell := "cell"
		if _, name, is := strings.Cut(strings.TrimSuffix(s.Name, ".service"), "-cell@"); is {
			cell += " " + name
		}
		cfg := s.Config
		for _, d := range []struct {
			name, of, address, key, upgrade string
			options                         func() sqldb.Options
		}{
			{"placement", "Placement", cfg.Placement.Database, "placement.database", "compute-agent placement db upgrade", store.DatabaseOptions},
			{"compute_api", "the compute API", cfg.ComputeAPI.Database, "compute_api.database", "compute-agent cells manage db upgrade", apidb.DatabaseOptions},
			{strings.Replace(cell, " ", ".", 1), "the " + cell, cfg.Cell.Database, "cell.database", "systemctl restart 'compute-agent-cell@*'", celldb.DatabaseOptions},
		} {
			if a, err := sqldb.ParseAddress(d.address); err != nil || !a.Shared() {
				continue // checked by the configuration, or a file that its service protects
			}
			if slices.ContainsFunc(out, func(other doctor.Database) bool { return other.Address == d.address }) {
				continue
			}
			out = append(out, doctor.Database{
				Address: d.address, Name: d.name, Of: d.of, Key: d.key, Upgrade: d.upgrade,
				Diagnose: func(ctx context.Context) (sqldb.Diagnosis, error) { return sqldb.Diagnose(ctx, d.address, d.options()) },
			})
		}
	}
	return out
}

// examine lets the drivers check the machine.
func examine(ctx context.Context, cfg *config.Config, cfgErr error) ([]doctor.Examined, error) {
	if cfgErr != nil {
		return nil, errors.New("the configuration is invalid")
	}
	checks, err := agent.CheckDrivers(ctx, cfg)
	var out []doctor.Examined
	for _, c := range checks {
		e := doctor.Examined{Driver: c.Driver, Warnings: map[string]string{}, Problem: cmp.Or(strings.Join(c.Problems, "; "), c.Unchecked, c.Unseen)}
		for _, w := range c.Warnings {
			e.Warnings[w.Name] = w.Text
		}
		out = append(out, e)
	}
	return out, err
}
