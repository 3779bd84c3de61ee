// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
)

// Migrate moves inventory and allocations as the next start of the agent would, while all services
// are down: it opens Placement's database in this process, starts the drivers, and makes one
// start-up pass over each node whose driver needs a reshape, with journal and checks. Other nodes
// are left to the agent. A reshape that a crash interrupted is resolved, and its pass finished.
//
// The plan is made on a private copy of the database, so that a database in which nothing has to
// move, and that of a dry run, is not changed.
//
// Errors: [control.ErrRefused] while an agent uses the state directory, while a server has the
// database open, and for tables of another version; [placement.ErrConfig] if there is no database.
// Problems of a node are in its outcome.
//
// Source: the specification "Handling Reshaped Provider Trees", section "Offline Upgrade Script".
func Migrate(
	ctx context.Context, cfg *config.Config, log zerolog.Logger, opts agent.MigrateOptions,
) (control.Migration, error) {
	out := control.Migration{Nodes: []control.MigratedNode{}}
	name, err := databaseName(opts.Placement)
	if err != nil {
		return out, err
	}
	out.Database = name.String()
	unlock, err := holdState(cfg, opts.DryRun)
	if err != nil {
		return out, err
	}
	defer unlock()
	file, remove, err := copyDatabase(ctx, name, opts.Placement.Database)
	if err != nil {
		return out, err
	}
	defer remove()
	if err := migratable(ctx, out.Database, file); err != nil {
		return out, err
	}
	err = agent.MigrateNodes(ctx, cfg, log, opts, dsn(file), &out)
	return out, err
}

// databaseName returns the configured database. A file has to be there.
func databaseName(cfg placement.Config) (engine.Address, error) {
	name, err := cfg.DatabaseName()
	if err != nil {
		return engine.Address{}, err
	}
	a, err := engine.ParseAddress(name)
	if err != nil || a.Shared() {
		return a, err
	}
	switch info, err := os.Stat(a.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return a, fmt.Errorf("%w: there is no database at %s; --database must name the one that Placement uses",
			placement.ErrConfig, a)
	case err == nil && !info.Mode().IsRegular():
		return a, fmt.Errorf("%w: %s is not a file; --database must name the database that Placement uses",
			placement.ErrConfig, a)
	}
	return a, nil
}

// migratable checks the schema of a database in its copy.
func migratable(ctx context.Context, path, file string) error {
	db, err := placement.ReadDatabase(ctx, placement.Config{Database: dsn(file)})
	var wrong *engine.Error
	if errors.As(err, &wrong) {
		wrong.Database = path
	}
	switch {
	case errors.Is(err, engine.ErrSchema), errors.Is(err, engine.ErrNotDatabase):
		return fmt.Errorf("%w: %w", control.ErrRefused, err)
	case err != nil:
		return err
	case db.Schema.Migration == 0 && db.Schema.Alembic == "":
		return fmt.Errorf("%w: %s has no tables of Placement; --database must name the one that Placement uses",
			control.ErrRefused, path)
	case db.Schema.IsNewer():
		return fmt.Errorf(
			"%w: %s is at migration %d, but this program only supports %d: use the newer version of this program",
			control.ErrRefused, path, db.Schema.Migration, db.Schema.Newest)
	case !db.Schema.CanBeAdopted():
		return fmt.Errorf(
			"%w: the tables of %s have version %s of OpenStack Placement, which is too old; run `placement-manage "+
				"db sync` of OpenStack Placement 6.0.0 or later first", control.ErrRefused, path, db.Schema.Alembic)
	}
	return nil
}

// dsn returns the DSN of an SQLite file.
func dsn(file string) string { return (&url.URL{Scheme: "sqlite", Path: file}).String() }

// holdState locks the state directory. A dry run creates neither the directory nor the lock.
func holdState(cfg *config.Config, dryRun bool) (unlock func(), err error) {
	if dryRun && !statedir.Locked(cfg.Agent.StateDir) {
		return func() {}, nil
	}
	return lockState(cfg.Agent.StateDir)
}
