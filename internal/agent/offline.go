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
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// DryRun plans what the next start would write, without a running agent. It starts and stops the
// drivers, and writes nothing to Placement or the state directory.
func DryRun(
	ctx context.Context, cfg *config.Config, log zerolog.Logger, opts resourcetracker.PlanOptions,
) (plan control.Plan, err error) {
	a, closeAll, err := offline(cfg, log, false) //nolint:contextcheck // closing has no time limit
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
	for i := range plan.Nodes { // needs the nodes of all drivers
		n := &plan.Nodes[i]
		if claimed := a.claims.Check(n.Driver, plugins.Node{Name: n.Node, UUID: n.UUID}); n.UUID != "" &&
			claimed != nil {
			refuseClaim(n, claimed)
		}
	}
	return plan, nil
}

// dryDriver starts a driver, plans its nodes, and stops it.
func (a *Agent) dryDriver(
	ctx context.Context, name string, opts resourcetracker.PlanOptions,
) ([]control.NodePlan, error) {
	spec, err := a.spec(a.settings.current(), name)
	if err != nil {
		return nil, err
	}
	plugin, err := a.host.Plugin(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
			a.settings.current().Plugins.ShutdownTimeout+time.Second)
		defer cancel()
		if err := plugin.Stop(stopCtx); err != nil {
			a.log.Warn().Str("driver", name).Err(err).Msg("The driver did not stop in time; its process was killed.")
		}
	}()
	if err := plugin.Start(ctx); err != nil {
		return []control.NodePlan{cannotPlan(name, err)}, nil
	}
	return planDriver(ctx, name, a.newTracker(&driver{name: name, plugin: plugin}, true), opts), nil
}

// UndoReshape undoes a reshape without a running agent. It locks the state directory.
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
	return reshape.Undo(ctx, a.placement, a.state.Journal, a.state.Records, history, id)
}
