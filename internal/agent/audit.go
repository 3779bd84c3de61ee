// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// auditor compares the allocations in Placement with the guests of the enabled drivers.
func (a *Agent) auditor() audit.Auditor {
	out := audit.Auditor{Placement: a.placement, Drivers: a.auditedDrivers, Seen: a.state.Seen,
		Discrepancy: a.self.discrepancy, Logger: a.log}
	if a.self.temporary {
		out.NewNode = a.self.uuid
	}
	if a.cell != nil {
		out.Servers = a.cell.servers
	}
	return out
}

// servers returns the servers that the cell has on this host, or why they are not known.
func (c *cellService) servers() (servers map[string]audit.Server, unknown string) {
	all, unknown := c.worker.Servers()
	servers = make(map[string]audit.Server, len(all))
	for uuid, s := range all {
		servers[uuid] = audit.Server{Name: s.Name, Migration: s.Migration, Deleted: s.Want == cellwire.WantGone}
	}
	return servers, unknown
}

func (a *Agent) auditedDrivers() []audit.Driver {
	var out []audit.Driver
	for _, d := range a.drivers.active() {
		out = append(out, audit.Driver{Name: d.name, Guests: d.tracker.Guests})
	}
	return out
}

// differing returns what guests of a node hold that is not what its driver lists of them.
func (a *Agent) differing(ctx context.Context, node plugins.Node, guests []plugins.Guest) ([]string, error) {
	return a.auditor().Differing(ctx, node, guests)
}

// Audit implements [control.Agent].
func (a *Agent) Audit(ctx context.Context, r audit.Request) (audit.Report, error) {
	return a.auditor().Audit(ctx, r)
}

// HealAllocations implements [control.Agent].
func (a *Agent) HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error) {
	return a.auditor().HealAllocations(ctx, r)
}

// AuditOffline is Audit without a running agent. It starts and stops the drivers. The caller has
// locked the state directory.
func AuditOffline(ctx context.Context, cfg *config.Config, log zerolog.Logger, r audit.Request) (audit.Report, error) {
	return auditOffline(ctx, cfg, log, r, (*Agent).Audit)
}

// HealAllocationsOffline is HealAllocations without a running agent, as AuditOffline.
func HealAllocationsOffline(
	ctx context.Context, cfg *config.Config, log zerolog.Logger, r audit.HealRequest,
) (audit.Report, error) {
	return auditOffline(ctx, cfg, log, r, (*Agent).HealAllocations)
}

func auditOffline[R any](ctx context.Context, cfg *config.Config, log zerolog.Logger, r R,
	do func(*Agent, context.Context, R) (audit.Report, error),
) (report audit.Report, err error) {
	failed := withDrivers(ctx, cfg, log, func(ctx context.Context, a *Agent) error {
		report, err = do(a, ctx, r)
		return err
	})
	return report, failed
}
