// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// MigrateOptions configure a migration.
type MigrateOptions struct {
	// Nodes are the names of the nodes; empty: all nodes of the drivers.
	Nodes  []string
	DryRun bool
	// Placement has the database.
	Placement placement.Config
}

// MigrateNodes plans, on a private copy of Placement's database, the nodes whose driver needs a
// reshape, and makes one start-up pass over each unless it is a dry run. copied is the DSN of the
// copy. The caller has locked the state directory. out gets the outcomes, those of failed nodes
// included.
func MigrateNodes(
	ctx context.Context, cfg *config.Config, log zerolog.Logger, opts MigrateOptions, copied string,
	out *control.Migration,
) error {
	return withDrivers(ctx, cfg, log, func(ctx context.Context, a *Agent) error {
		m := migration{agent: a, opts: opts, out: out}
		if err := m.planNodes(ctx, copied); err != nil || opts.DryRun || !slices.ContainsFunc(out.Nodes, needed) {
			return err
		}
		return m.migrateNodes(ctx)
	})
}

func needed(n control.MigratedNode) bool { return n.Outcome == control.MigrationNeeded }

// migration is one run of MigrateNodes.
type migration struct {
	agent *Agent
	opts  MigrateOptions
	out   *control.Migration
}

// planNodes plans all nodes on a copy of the database.
func (m *migration) planNodes(ctx context.Context, copied string) error {
	history, err := journal.Read(m.agent.settings.current().Agent.StateDir)
	if err != nil {
		return err
	}
	return m.withDatabase(ctx, copied, func(ctx context.Context) error {
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
	var refused *reshape.Error
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
	cfg.Database, cfg.Logger, cfg.Exclusive = database, m.agent.log, true
	direct, err := placement.NewDirect(ctx, cfg)
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
	var wrong *engine.Error
	if errors.As(err, &wrong) {
		wrong.Database = path
	}
	if errors.Is(err, engine.ErrLocked) || errors.Is(err, engine.ErrInUse) || errors.Is(err, engine.ErrSchema) ||
		errors.Is(err, engine.ErrLost) {
		return fmt.Errorf("%w: %w", control.ErrRefused, err)
	}
	return err
}
