// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// DiscoverOptions say which hosts are mapped.
type DiscoverOptions struct {
	// Patterns are shell patterns of the names of hosts that are mapped although no person enrolled
	// them.
	Patterns []string
	// Hosts are mapped, and enrolled with the nodes that they report, because the person By named
	// them.
	Hosts []string
	By    string
	// Cell is the uuid of the only one whose hosts are mapped; "": all are.
	Cell string
}

// DiscoverReport says what Discover found.
type DiscoverReport struct {
	// Mapped are nodes that are mapped now, with their hosts.
	Mapped []apidb.Node
	// Remapped are those of Mapped that were mapped to another host, which they are not of.
	Remapped []RemappedNode
	// Conflicts are nodes that are not, or get no new servers, because their host or node belongs
	// to another cell or host. NotEnrolled are those of hosts that no person enrolled.
	Conflicts, NotEnrolled []DiscoverConflict
	// Forgotten are nodes that were unmapped, because their hosts have not reported them for long.
	Forgotten []string
	// Missing are those of DiscoverOptions.Hosts that no cell has.
	Missing []string
	// Down are cells that could not be asked.
	Down []apidb.Cell
}

// RemappedNode is a node that was mapped to the host From.
type RemappedNode struct {
	Node apidb.Node
	From string
}

// DiscoverConflict is a node that cannot be mapped or used. Err wraps [apidb.ErrExists], or
// [ErrNotEnrolled].
type DiscoverConflict struct {
	Node apidb.Node
	Err  error
}

// ErrNotEnrolled says that nothing allows a host to be mapped.
var ErrNotEnrolled = errors.New("the host is not enrolled")

func (s *Scheduler) discoverAndLog(ctx context.Context) {
	cells, err := s.o.Store.Cells(ctx)
	if err == nil {
		var report DiscoverReport
		report, err = Discover(ctx, s.o.Fenced, s.o.Gatherer, cells, DiscoverOptions{Patterns: s.o.DiscoverPatterns})
		for _, n := range report.Mapped {
			s.o.Logger.Info().
				Str("host", n.Host).
				Str("node", n.Name).
				Str("uuid", n.UUID).
				Str("cell", nameOf(cells, n.CellUUID)).
				Str("cell_uuid", n.CellUUID).
				Msg("Mapped a new host to its cell.")
		}
		for _, r := range report.Remapped {
			s.o.Logger.Warn().Str("host", r.Node.Host).Str("from", r.From).Str("node", r.Node.Name).
				Str("uuid", r.Node.UUID).Str("cell", nameOf(cells, r.Node.CellUUID)).
				Msg("Mapped a node to its host, whose certificate or enrolment names it. It was mapped to another " +
					"host, which reported it first: check that host.")
		}
		if len(report.Forgotten) > 0 {
			s.o.Logger.Info().Strs("nodes", report.Forgotten).
				Msg("Unmapped nodes that their hosts have not reported for long.")
		}
		for _, c := range s.newConflicts(slices.Concat(report.Conflicts, report.NotEnrolled)) {
			if errors.Is(c.Err, ErrNotEnrolled) {
				s.o.Logger.Warn().Err(c.Err).Str("host", c.Node.Host).Str("node", c.Node.Name).
					Str("cell", nameOf(cells, c.Node.CellUUID)).
					Msg(
						"Did not map a host: enrol it (compute-agent cells manage add-host), map it by hand (cells " +
							"manage discover-hosts --host), or set [compute_api] discover_hosts_pattern.")
				continue
			}
			s.o.Logger.Error().Err(c.Err).Str("host", c.Node.Host).Str("node", c.Node.Name).
				Str("cell", nameOf(cells, c.Node.CellUUID)).Str("cell_uuid", c.Node.CellUUID).
				Msg("A node gets no new servers: it, or the name of its host, belongs to another host or cell, or " +
					"is reported by several. See `compute-agent cells manage list-hosts`.")
		}
	}
	if err != nil && ctx.Err() == nil {
		s.o.Logger.Warn().Err(err).Msg("Discovering new hosts failed. Retrying.")
	}
}

// nameOf is what people call a cell.
func nameOf(cells []apidb.Cell, uuid string) string {
	for _, c := range cells {
		if c.UUID == uuid {
			return c.Name
		}
	}
	return uuid
}

// newConflicts are those that were not there the last time: each is logged once.
func (s *Scheduler) newConflicts(all []DiscoverConflict) []DiscoverConflict {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[apidb.Node]bool, len(all))
	var fresh []DiscoverConflict
	for _, c := range all {
		if now[c.Node] = true; !s.conflicts[c.Node] {
			fresh = append(fresh, c)
		}
	}
	s.conflicts = now
	return fresh
}
