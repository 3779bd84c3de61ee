// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// DryRun is what the next start would write, without an agent that runs: the drivers are started, asked, and ended again.
// It writes nothing to Placement or to the state directory.
func DryRun(ctx context.Context, cfg *config.Config, log zerolog.Logger, opts resourcetracker.PlanOptions) (plan control.Plan, err error) {
	a, closeAll, err := offline(cfg, log, false) //nolint:contextcheck // what is closed has no time limit
	if err != nil {
		return plan, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	plan.Nodes = []control.NodePlan{}
	for _, name := range cfg.EnabledDrivers() {
		nodes, err := a.dryDriver(ctx, name, opts)
		if err != nil {
			return plan, err
		}
		plan.Nodes = append(plan.Nodes, nodes...)
	}
	for i := range plan.Nodes { // now that all drivers have named their nodes
		n := &plan.Nodes[i]
		if claimed := a.claims.Check(n.Driver, plugins.Node{Name: n.Node, UUID: n.UUID}); n.UUID != "" && claimed != nil {
			refuseClaim(n, claimed)
		}
	}
	return plan, nil
}

// dryDriver starts one driver, asks it, and ends it.
func (a *Agent) dryDriver(ctx context.Context, name string, opts resourcetracker.PlanOptions) ([]control.NodePlan, error) {
	spec, err := a.spec(a.cfg, name)
	if err != nil {
		return nil, err
	}
	plugin, err := a.host.Plugin(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Plugins.ShutdownTimeout+time.Second)
		defer cancel()
		if err := plugin.Stop(ending); err != nil {
			a.log.Warn().Str("driver", name).Err(err).Msg("The driver did not end in time: its process was killed.")
		}
	}()
	if err := plugin.Start(ctx); err != nil {
		return []control.NodePlan{cannotPlan(name, err)}, nil
	}
	return planDriver(ctx, name, a.newTracker(&driver{name: name, plugin: plugin}, true), opts), nil
}

// UndoReshape takes back a reshape without an agent that runs. It has the state directory for itself meanwhile.
func UndoReshape(ctx context.Context, cfg *config.Config, log zerolog.Logger, id int64) error {
	history, err := journal.Read(cfg.Agent.StateDir)
	if err != nil {
		return err
	}
	if len(history) == 0 {
		return fmt.Errorf("%w: %d", journal.ErrUnknownEntry, id)
	}
	unlock, err := statedir.Lock(cfg.Agent.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := New(Options{Config: cfg, Logger: log})
	if err != nil {
		return err
	}
	defer a.placement.CloseIdle()
	a.loadJournal()
	return resourcetracker.Undo(ctx, a.placement, a.state.Journal, a.state.Records, history, id)
}
