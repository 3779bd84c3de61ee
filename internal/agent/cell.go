// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// cellSource is the source of the reason with which the cell disables this host's service. Only the
// cell removes it.
const cellSource = "cell"

// cellService is the agent's connection to its cell.
type cellService struct {
	url    string
	client *cellclient.Client
	worker *worker.Worker
}

// newCell returns the service for the cell of [cell_client], nil if none is configured. It makes no
// requests.
func (a *Agent) newCell(c config.CellClient) (*cellService, error) {
	if c.URL == "" {
		return nil, nil // none is configured
	}
	cfg, err := access.CellOf(c).Cell(c.URL, a.log)
	if err != nil {
		return nil, err
	}
	client, err := cellclient.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("cell_client.url: %w", err)
	}
	return &cellService{url: c.URL, client: client, worker: worker.New(worker.Config{
		Host: a.settings.current().Agent.Host, Version: version.Number(), Process: a.run.own, Cell: client,
		Timeout: c.Timeout, BuildTimeout: c.BuildTimeout, Logger: a.log,
		Address: a.settings.current().Agent.MyIP, Guests: guests{a}, Allocations: grants{a.placement},
		Disable: a.cellDisables, Tracing: a.telemetry.Spans,
	})}, nil
}

// bootIDFile has the id of this boot of the kernel.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// process identifies this run of the agent. Boot and machine are informational, and stay empty if
// they cannot be read.
func process() agentruns.Process {
	p := agentruns.Process{Token: uuid.NewString(), Started: time.Now()}
	if boot, err := os.ReadFile(bootIDFile); err == nil {
		p.Boot = strings.TrimSpace(string(boot))
	}
	p.Machine, _ = identity.Machine(identity.MachineFile)
	return p
}

// thisRun is how this run of the agent makes itself known, so that another machine with the
// identity of this host is found: own to the cell, with each heartbeat, and to the others with each
// request from begin on.
type thisRun struct {
	own                  agentruns.Process
	placement, enrolment agentruns.ProcessSender
}

// begin says that this is the only agent of the state directory.
func (t *thisRun) begin(host, identity string) {
	t.placement.Begin(t.own, host, identity)
	t.enrolment.Begin(t.own, host, identity)
}

// serveCell runs the cell's worker until ctx ends. Without a cell, it removes the reason of a
// previous one.
func (a *Agent) serveCell(ctx context.Context) {
	if a.cell == nil {
		if err := a.cellDisables(false, ""); err != nil {
			a.log.Warn().Err(err).
				Msg("Failed to remove the reason with which a previous cell disabled this host. The agent retries " +
					"at its next start.")
		}
		return
	}
	defer a.cell.client.CloseIdle()
	a.cell.worker.Run(ctx)
}

// reportedBy asks the cell which other host reports a node. known is false without a cell, and with
// one of a version without this call.
//
// Errors: [resourcetracker.ErrNotNamed] if the certificate of this host is for other nodes.
func (a *Agent) reportedBy(ctx context.Context, node string) (host string, known bool, err error) {
	if a.cell == nil {
		return "", false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.settings.current().CellClient.Timeout)
	defer cancel()
	answer, err := a.cell.client.NodeReporter(ctx, a.settings.current().Agent.Host, node)
	switch {
	case cellclient.IsNoCall(err):
		return "", false, nil
	case cellclient.IsNotFound(err):
		return "", true, resourcetracker.ErrNotNamed
	case err != nil:
		return "", false, fmt.Errorf("the cell cannot be asked whether another host reports it: %w", err)
	}
	return answer.Host, true, nil
}

// instanceChanged notifies the worker of a change of an instance, or of a driver's process.
func (a *Agent) instanceChanged(node, uuid string) {
	if a.cell != nil {
		a.cell.worker.Changed(node, uuid)
	}
}

// cellDisables records that the cell disabled or enabled this host's service, and updates
// Placement.
func (a *Agent) cellDisables(isDisabled bool, why string) error {
	before, was := a.disabledByCell()
	switch {
	case !isDisabled && !was:
		return nil
	case !isDisabled:
		if err := a.state.Disabled.Withdraw(cellSource, ""); err != nil {
			return err
		}
		a.log.Info().Msg("The cell enabled this host's service again.")
	default:
		reason := oneLine(why)
		if was && before == reason {
			return nil
		}
		if err := a.state.Disabled.Disable(statedir.Reason{Source: cellSource, Reason: reason}); err != nil {
			return err
		}
		a.log.Warn().Str("reason", reason).
			Msg("The cell disabled this host's service: no new instances are scheduled to this host. Running guests " +
				"are not affected.")
	}
	for _, d := range a.drivers.active() {
		d.tracker.Refresh("the cell disabled or enabled the host")
	}
	return nil
}

// disabledByCell returns the cell's reason, if any.
func (a *Agent) disabledByCell() (reason string, is bool) {
	for _, r := range a.state.Disabled.Reasons("") {
		if r.Source == cellSource {
			return r.Reason, true
		}
	}
	return "", false
}

// oneLine converts a reason from the compute API to a valid one.
func oneLine(text string) string {
	text = strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "�")))
	for statedir.CheckReason(text) != nil && text != "" { // too long
		text = string([]rune(text)[:min(utf8.RuneCountInString(text)-1, 500)])
	}
	if strings.TrimSpace(text) == "" {
		return "disabled through the compute API, without a reason"
	}
	return text
}

// guests provides the nodes of all drivers to the worker.
type guests struct{ agent *Agent }

// Nodes implements [worker.Guests].
func (g guests) Nodes(context.Context) (out []worker.Node, complete bool) {
	drivers := g.agent.drivers.active()
	complete = len(drivers) > 0 && len(drivers) >= len(g.agent.settings.current().EnabledDrivers())
	for _, d := range drivers {
		status := d.tracker.Status()
		complete = complete && status.Named
		for _, n := range status.Nodes {
			reported := !n.LastSuccess.IsZero()
			if n.State == resourcetracker.Orphaned || n.UUID == "" {
				continue
			}
			if n.Cause == resourcetracker.CauseIdentity && !reported { // it may be another host's
				out = append(out,
					worker.Node{UUID: n.UUID, Name: n.Name, Held: "its identity is refused (" + n.Error + ")"})
				continue
			}
			node := worker.Node{UUID: n.UUID, Name: n.Name, Manager: manager{d.plugin}, Abilities: d.plugin.Abilities(),
				Tree: func() *providertree.Tree {
					if !reported { // a reshape may still have to move allocations
						return nil
					}
					tree, _ := g.agent.placement.Known(n.UUID)
					return tree
				}}
			if h, asked := d.plugin.Hypervisor(n.Name); asked {
				node.Hypervisor = &h
			}
			out = append(out, node)
		}
	}
	return out, complete
}

// manager is a driver's process with the worker's errors.
type manager struct{ *pluginhost.Plugin }

// Spawn implements [plugins.InstanceManager].
func (m manager) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	is, err := m.Plugin.Spawn(ctx, node, spec, tree)
	return is, impossible(err)
}

// CheckSpawn implements [plugins.SpawnChecker].
func (m manager) CheckSpawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	return impossible(m.Plugin.CheckSpawn(ctx, node, spec, tree))
}

// Restore implements [plugins.InstanceRestorer].
func (m manager) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	is, err := m.Plugin.Restore(ctx, node, spec, tree)
	return is, impossible(err)
}

func impossible(err error) error {
	if errors.Is(err, driverclient.ErrBadRequest) {
		return fmt.Errorf("%w: %w", worker.ErrImpossible, err)
	}
	return err
}

// cellView returns the cell for the status, nil if none is configured.
func (a *Agent) cellView() *health.Cell {
	if a.cell == nil {
		return nil
	}
	return &health.Cell{URL: a.cell.url, Status: a.cell.worker.Status()}
}
