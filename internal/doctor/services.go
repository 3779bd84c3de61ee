// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/systemd"
)

const (
	// unitPattern matches the names of the units of this project, computeAPIUnit is the unit of the
	// compute API.
	unitPattern    = "compute-agent*"
	computeAPIUnit = "compute-agent-cells-api.service"
	// systemctlTimeout is how long systemd may take to say how the units are.
	systemctlTimeout = 5 * time.Second
	// cellsTimeout is how long the compute API may take to say how the cells are, which it may have
	// to ask.
	cellsTimeout = 5 * time.Second
)

// Complete adds the services of the control plane, the databases of servers that they and the
// configuration of the agent name, and what the drivers say of this machine.
func (e *Env) Complete(services []Service) {
	e.Services = services
	e.Databases = databasesOf(append([]Service{{Config: e.Config}}, services...))
	e.Examine = func(ctx context.Context) ([]commands.DriverCheck, error) {
		if e.ConfigErr != nil {
			return nil, errors.New("the configuration is invalid")
		}
		return commands.CheckDrivers(ctx, e.Config)
	}
}

// Services are the units of this project on this machine with their configurations; none without
// systemd.
func Services(ctx context.Context) (out []Service) {
	asking, cancel := context.WithTimeout(ctx, systemctlTimeout)
	defer cancel()
	units, err := systemd.UnitStates(asking, unitPattern)
	if err != nil {
		return nil
	}
	for _, u := range units {
		s := Service{UnitState: u}
		environ := append(os.Environ(), "CREDENTIALS_DIRECTORY=/run/credentials/"+u.Name)
		if u.Name == computeAPIUnit {
			environ = append(environ, "RUNTIME_DIRECTORY=/run/"+strings.TrimSuffix(u.Name, ".service"))
		}
		cfg, err := config.Load(config.Options{File: configFileOf(u), Environ: environ, Uses: []string{},
			Unit: u.Name, Overrides: overridesOf(u)})
		if err == nil {
			s.Config = cfg
		}
		s.ConfigErr = err
		if s.Config != nil && u.Active == "active" && u.Name == computeAPIUnit {
			asking, cancel := context.WithTimeout(ctx, cellsTimeout)
			s.Cells, s.CellsErr = cells.AskStates(asking, filepath.Join(s.Config.Agent.RuntimeDir, cells.APISocket))
			cancel()
		}
		out = append(out, s)
	}
	return out
}

// databasesOf are the databases of servers that services are configured with, each once.
func databasesOf(services []Service) (out []Database) {
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
			Database
			options func() sqldb.Options
		}{
			{Database{cfg.Placement.Database, "placement",
				"Placement", "placement.database", nil, "compute-agent placement db upgrade"}, store.DatabaseOptions},
			{Database{cfg.ComputeAPI.Database, "compute_api", "the compute API", "compute_api.database", nil,
				"compute-agent cells manage db upgrade"}, apidb.DatabaseOptions},
			{Database{cfg.Cell.Database, strings.Replace(cell, " ", ".", 1), "the " + cell, "cell.database", nil,
				"systemctl restart 'compute-agent-cell@*'"}, celldb.DatabaseOptions},
		} {
			if a, err := engine.ParseAddress(d.Address); err != nil || !a.Shared() {
				continue // checked by the configuration, or a file that its service protects
			}
			if slices.ContainsFunc(out, func(other Database) bool { return other.Address == d.Address }) {
				continue
			}
			d.Diagnose = func(ctx context.Context) (sqldb.Diagnosis, error) {
				return sqldb.Diagnose(ctx, d.Address, d.options())
			}
			out = append(out, d.Database)
		}
	}
	return out
}
