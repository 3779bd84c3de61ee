// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// MigrateOptions configure [Migrate].
type MigrateOptions struct {
	// Nodes are the names of the nodes; empty: all nodes of the drivers.
	Nodes  []string
	DryRun bool
	// Placement has the database.
	Placement placement.Config
}

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
	ctx context.Context, cfg *config.Config, log zerolog.Logger, opts MigrateOptions,
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
	return out, withDrivers(ctx, cfg, log, func(ctx context.Context, a *Agent) error {
		m := migration{agent: a, opts: opts, out: &out}
		if err := m.planNodes(ctx, file); err != nil || opts.DryRun || !slices.ContainsFunc(out.Nodes, needed) {
			return err
		}
		return m.migrateNodes(ctx)
	})
}

func needed(n control.MigratedNode) bool { return n.Outcome == control.MigrationNeeded }

// databaseName returns the configured database. A file has to be there.
func databaseName(cfg placement.Config) (sqldb.Address, error) {
	name, err := cfg.DatabaseName()
	if err != nil {
		return sqldb.Address{}, err
	}
	a, err := sqldb.ParseAddress(name)
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
	var wrong *sqldb.Error
	if errors.As(err, &wrong) {
		wrong.Database = path
	}
	switch {
	case errors.Is(err, sqldb.ErrSchema), errors.Is(err, sqldb.ErrNotDatabase):
		return fmt.Errorf("%w: %w", control.ErrRefused, err)
	case err != nil:
		return err
	case db.Schema.Migration == 0 && db.Schema.Alembic == "":
		return fmt.Errorf("%w: %s has no tables of Placement; --database must name the one that Placement uses",
			control.ErrRefused, path)
	case db.Schema.IsNewer():
		return fmt.Errorf(
			"%w: %s is at migration %d, but this program only supports %d: use the newer version of this program",
			control.ErrRefused,
			path,
			db.Schema.Migration,
			db.Schema.Newest,
		)
	case !db.Schema.CanBeAdopted():
		return fmt.Errorf(
			"%w: the tables of %s have version %s of OpenStack Placement, which is too old; run `placement-manage "+
				"db sync` of OpenStack Placement 6.0.0 or later first",
			control.ErrRefused,
			path,
			db.Schema.Alembic,
		)
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
	return statedir.CreateAndLock(cfg.Agent.StateDir)
}

// migration is one run of Migrate.
type migration struct {
	agent *Agent
	opts  MigrateOptions
	out   *control.Migration
}

// planNodes plans all nodes on a copy of the database.
func (m *migration) planNodes(ctx context.Context, file string) error {
	history, err := journal.Read(m.agent.settings.current().Agent.StateDir)
	if err != nil {
		return err
	}
	return m.withDatabase(ctx, dsn(file), func(ctx context.Context) error {
		for _, d := range m.agent.drivers.active() {
			for _, plan := range planDriver(ctx, d.name, m.tracker(d), resourcetracker.PlanOptions{Reshape: true}) {
				if len(m.opts.Nodes) > 0 && plan.UUID != "" && !slices.Contains(m.opts.Nodes, plan.Node) {
					continue
				}
				unfinished := slices.ContainsFunc(history,
					func(e journal.Entry) bool { return e.Root == plan.UUID && e.Open() })
				m.out.Nodes = append(m.out.Nodes, plannedOutcome(plan, unfinished))
			}
		}
		return m.checkNames(ctx)
	})
}

// plannedOutcome returns the planned outcome of a node.
func plannedOutcome(plan control.NodePlan, unfinished bool) control.MigratedNode {
	n := control.MigratedNode{NodePlan: plan, Unfinished: unfinished}
	switch {
	case plan.Refused:
		n.Outcome = control.MigrationRefused
	case plan.Error != "":
		n.Outcome = control.MigrationFailed
	case plan.Reshape != nil || unfinished:
		n.Outcome = control.MigrationNeeded
	default:
		n.Outcome = control.MigrationNotNeeded
		n.Operations = []reportclient.Operation{} // left to the agent
	}
	return n
}

// checkNames returns an error for a node that no driver reports.
func (m *migration) checkNames(ctx context.Context) error {
	for _, name := range m.opts.Nodes {
		if slices.ContainsFunc(m.out.Nodes, func(n control.MigratedNode) bool { return n.Node == name }) {
			continue
		}
		var names, failed []string
		for _, d := range m.agent.drivers.active() {
			nodes, err := d.plugin.AvailableNodes(ctx)
			if err != nil {
				failed = append(failed, fmt.Sprintf("driver %s failed to list its nodes: %v", d.name, err))
			}
			for _, n := range nodes {
				names = append(names, n.Name)
			}
		}
		err := fmt.Errorf("no driver of this host reports a node %q; the nodes are %q", name, names)
		if len(failed) > 0 {
			return fmt.Errorf("%w; %s", err, strings.Join(failed, "; "))
		}
		return fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	return nil
}

// migrateNodes makes one start-up pass over each node that needs it. A host without an identity
// gets one, because records of nodes without an identity would prevent the agent from starting.
func (m *migration) migrateNodes(ctx context.Context) error {
	if cfg := m.agent.settings.current(); m.agent.self.temporary {
		id, _, err := resourcetracker.LoadIdentity(cfg.Agent.StateDir, filepath.Dir(cfg.File()))
		if err != nil {
			return err
		}
		m.agent.self.uuid, m.agent.self.temporary = id, false
	}
	m.agent.loadJournal()
	return m.withDatabase(ctx, m.opts.Placement.Database, func(ctx context.Context) error {
		for i := range m.out.Nodes {
			n := &m.out.Nodes[i]
			if !needed(*n) {
				continue
			}
			for _, d := range m.agent.drivers.active() {
				if d.name == n.Driver {
					m.pass(ctx, d, n)
				}
			}
		}
		return nil
	})
}

func (m *migration) pass(ctx context.Context, d active, n *control.MigratedNode) {
	tracker := m.tracker(d, n.Node)
	err := tracker.RunOnce(ctx)
	for _, s := range tracker.Status().Nodes {
		if s.UUID == n.UUID {
			n.Changes = s.Changes
		}
	}
	var fatal *resourcetracker.FatalError
	var refused *resourcetracker.ReshapeError
	switch {
	case err == nil:
		n.Outcome = control.MigrationDone
		return
	case errors.As(err, &refused):
		n.Outcome = control.MigrationRefused
		refuse(&n.NodePlan, refused)
	case errors.As(err, &fatal) && fatal.Protects:
		n.Outcome, n.Error, n.Refused = control.MigrationRefused, err.Error(), true
	default:
		n.Outcome, n.Error = control.MigrationFailed, err.Error()
	}
}

// tracker returns a tracker of a driver's nodes, or of some of them. A refused reshape is an error,
// regardless of [reshape] on_failure.
func (m *migration) tracker(d active, only ...string) *resourcetracker.Tracker {
	cfg := m.agent.trackerConfig(&driver{name: d.name, plugin: d.plugin}, true)
	cfg.Hold = false
	if len(only) > 0 {
		cfg.Driver = chosen{d.plugin, only}
	}
	return resourcetracker.New(cfg)
}

// chosen is a driver that lists only some of its nodes.
type chosen struct {
	*pluginhost.Plugin
	names []string
}

// AvailableNodes implements [resourcetracker.Driver].
func (c chosen) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	nodes, err := c.Plugin.AvailableNodes(ctx)
	return slices.DeleteFunc(nodes, func(n plugins.Node) bool { return !slices.Contains(c.names, n.Name) }), err
}

// withDatabase runs f while the agent's Placement is a database that this process has opened.
func (m *migration) withDatabase(ctx context.Context, database string, f func(ctx context.Context) error) (err error) {
	cfg := m.opts.Placement
	cfg.Database, cfg.Logger, cfg.Alone = database, m.agent.log, true
	direct, err := placement.Direct(ctx, cfg)
	if err != nil {
		return refuseDatabase(err, m.out.Database)
	}
	defer func() { err = errors.Join(err, direct.Close()) }()
	client, err := reportclient.New(reportclient.Config{
		Config: placementclient.Config{URL: "http://placement.in.this.process",
			Transport: direct, Logger: m.agent.log},
		ReshapeLog: m.agent.state.Journal,
	})
	if err != nil {
		return err
	}
	previous := m.agent.placement
	m.agent.placement = client
	defer func() { m.agent.placement = previous }()
	return f(ctx)
}

// refuseDatabase converts errors of a database, or of its copy, to refusals.
func refuseDatabase(err error, path string) error {
	var wrong *sqldb.Error
	if errors.As(err, &wrong) {
		wrong.Database = path
	}
	if errors.Is(err, sqldb.ErrLocked) || errors.Is(err, sqldb.ErrInUse) || errors.Is(err, sqldb.ErrSchema) ||
		errors.Is(err, sqldb.ErrLost) {
		return fmt.Errorf("%w: %w", control.ErrRefused, err)
	}
	return err
}
