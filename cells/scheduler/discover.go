// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
)

func (s *Scheduler) discoverAndLog(ctx context.Context) {
	cells, err := s.opts.Store.Cells(ctx)
	if err == nil {
		var report cellmappings.DiscoverReport
		report, err = cellmappings.Discover(ctx, s.opts.Fenced, s.opts.Gatherer, cells,
			cellmappings.DiscoverOptions{Patterns: s.opts.DiscoverPatterns})
		for _, n := range report.Mapped {
			s.opts.Logger.Info().
				Str("host", n.Host).
				Str("node", n.Name).
				Str("uuid", n.UUID).
				Str("cell", cellmappings.CellName(cells, n.CellUUID)).
				Str("cell_uuid", n.CellUUID).
				Msg("Mapped a new host to its cell.")
		}
		for _, r := range report.Remapped {
			s.opts.Logger.Warn().Str("host", r.Node.Host).Str("from", r.From).Str("node", r.Node.Name).
				Str("uuid", r.Node.UUID).Str("cell", cellmappings.CellName(cells, r.Node.CellUUID)).
				Msg("Mapped a node to its host, whose certificate or enrolment names it. It was mapped to another " +
					"host, which reported it first: check that host.")
		}
		if len(report.Forgotten) > 0 {
			s.opts.Logger.Info().Strs("nodes", report.Forgotten).
				Msg("Unmapped nodes that their hosts have not reported for long.")
		}
		for _, c := range s.newConflicts(slices.Concat(report.Conflicts, report.NotEnrolled)) {
			if errors.Is(c.Err, cellmappings.ErrNotEnrolled) {
				s.opts.Logger.Warn().Err(c.Err).Str("host", c.Node.Host).Str("node", c.Node.Name).
					Str("cell", cellmappings.CellName(cells, c.Node.CellUUID)).
					Msg(
						"Did not map a host: enrol it (compute-agent cells manage add-host), map it by hand (cells " +
							"manage discover-hosts --host), or set [compute_api] discover_hosts_pattern.")
				continue
			}
			s.opts.Logger.Error().Err(c.Err).Str("host", c.Node.Host).Str("node", c.Node.Name).
				Str("cell", cellmappings.CellName(cells, c.Node.CellUUID)).Str("cell_uuid", c.Node.CellUUID).
				Msg("A node gets no new servers: it, or the name of its host, belongs to another host or cell, or " +
					"is reported by several. See `compute-agent cells manage list-hosts`.")
		}
	}
	if err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn().Err(err).Msg("Discovering new hosts failed. Retrying.")
	}
}

// newConflicts returns the conflicts that the last pass did not have, so that each is logged once.
func (s *Scheduler) newConflicts(all []cellmappings.Conflict) []cellmappings.Conflict {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[apidb.Node]bool, len(all))
	var fresh []cellmappings.Conflict
	for _, c := range all {
		if now[c.Node] = true; !s.conflicts[c.Node] {
			fresh = append(fresh, c)
		}
	}
	s.conflicts = now
	return fresh
}
