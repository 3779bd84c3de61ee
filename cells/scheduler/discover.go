// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// DiscoverReport says what Discover found.
type DiscoverReport struct {
	// Mapped are nodes that are mapped now, with their hosts.
	Mapped []apidb.Node
	// Conflicts are nodes that are not, because their host or node belongs to another cell or host.
	Conflicts []DiscoverConflict
	// Down are cells that could not be asked.
	Down []apidb.Cell
}

// DiscoverConflict is a node that cannot be mapped. Err wraps [apidb.ErrExists].
type DiscoverConflict struct {
	Node apidb.Node
	Err  error
}

func (s *Scheduler) discoverAndLog(ctx context.Context) {
	cells, err := s.o.Store.Cells(ctx)
	if err == nil {
		var report DiscoverReport
		report, err = Discover(ctx, s.o.Fenced, s.o.Gatherer, cells)
		for _, n := range report.Mapped {
			s.o.Logger.Info().
				Str("host", n.Host).
				Str("node", n.Name).
				Str("uuid", n.UUID).
				Str("cell", nameOf(cells, n.CellUUID)).
				Str("cell_uuid", n.CellUUID).
				Msg("Mapped a new host to its cell.")
		}
		for _, c := range s.newConflicts(report.Conflicts) {
			s.o.Logger.Error().Err(c.Err).Str("host", c.Node.Host).Str("node", c.Node.Name).Str("cell", nameOf(cells, c.Node.CellUUID)).Str("cell_uuid", c.Node.CellUUID).
				Msg("Cannot map a host, so it gets no servers: its name or node is mapped to another cell or host. Unmap it there (compute-agent cells manage), or have it report to that cell.")
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

// Discover maps the nodes that cells have and the API database does not: Nova's discover_hosts.
// Cells that are down are left out, and those of the nodes that conflict. What the cells have noted
// of it is not believed: a host may have been unmapped since, or the API database be an older one.
// One request to each cell, of the size of its nodes, and one more to those with new ones.
func Discover(ctx context.Context, store apidb.Store, g *gather.Gatherer, cells []apidb.Cell) (DiscoverReport, error) {
	var report DiscoverReport
	var with []apidb.Cell
	for _, c := range cells {
		if !c.IsCell0() {
			with = append(with, c)
		}
	}
	mapped, err := store.Nodes(ctx)
	if err != nil {
		return report, fmt.Errorf("reading the mapped nodes: %w", err)
	}
	known := make(map[apidb.Node]bool, len(mapped))
	for _, n := range mapped {
		known[n] = true
	}
	answers := gather.All(ctx, g, with, func(ctx context.Context, c *cellclient.Client) ([]cellwire.ComputeNode, error) {
		return c.ComputeNodes(ctx, false)
	})
	var errs []error
	for _, a := range answers {
		switch {
		case a.Down():
			report.Down = append(report.Down, a.Cell)
		case a.Err != nil:
			errs = append(errs, fmt.Errorf("asking cell %s for new nodes: %w", a.Cell.Name, a.Err))
		default:
			var nodes []apidb.Node
			for _, n := range a.Value {
				if node := (apidb.Node{UUID: n.UUID, Name: n.Name, Host: n.Host, CellUUID: a.Cell.UUID}); !n.Mapped || !known[node] {
					nodes = append(nodes, node)
				}
			}
			if err := discoverIn(ctx, store, g, a.Cell, nodes, &report); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return report, errors.Join(errs...)
}

// discoverIn maps new nodes of one cell.
func discoverIn(ctx context.Context, store apidb.Store, g *gather.Gatherer, cell apidb.Cell, nodes []apidb.Node, report *DiscoverReport) error {
	if len(nodes) == 0 {
		return nil
	}
	err := store.MapNodes(ctx, nodes)
	if errors.Is(err, apidb.ErrExists) { // one by one, so that one does not keep out the others
		all := nodes
		nodes = nil
		for _, n := range all {
			switch err := store.MapNodes(ctx, []apidb.Node{n}); {
			case errors.Is(err, apidb.ErrExists):
				report.Conflicts = append(report.Conflicts, DiscoverConflict{n, err})
			case err != nil:
				return fmt.Errorf("mapping node %s of host %s: %w", n.Name, n.Host, err)
			default:
				nodes = append(nodes, n)
			}
		}
	} else if err != nil {
		return fmt.Errorf("mapping the nodes of cell %s: %w", cell.Name, err)
	}
	if len(nodes) == 0 {
		return nil
	}
	report.Mapped = append(report.Mapped, nodes...)
	uuids := make([]string, 0, len(nodes))
	for _, n := range nodes {
		uuids = append(uuids, n.UUID)
	}
	_, err = gather.One(ctx, g, cell, func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
		return struct{}{}, c.Mapped(ctx, uuids)
	})
	if err != nil && !errors.Is(err, gather.ErrDown) { // one that is down says them once more
		return fmt.Errorf("marking nodes as mapped in cell %s: %w", cell.Name, err)
	}
	return nil
}
