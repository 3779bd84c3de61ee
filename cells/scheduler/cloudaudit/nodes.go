// SPDX-License-Identifier: Apache-2.0

package cloudaudit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
)

// readNodesAgain reads the nodes of the cells once more, and then those that are mapped. It returns
// those that were mapped before.
func (a *audit) readNodesAgain(ctx context.Context) (map[string]apidb.Node, error) {
	for _, cell := range a.cells {
		if !a.checked[cell.UUID] || cell.IsCell0() {
			continue
		}
		answer, err := askCell(ctx, a, cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.NodesAnswer, error) { return c.Nodes(ctx) })
		if err != nil {
			if err := a.cellUnavailable(ctx, cell, err); !errors.Is(err, errNoAnswer) {
				return nil, err
			}
			continue
		}
		maps.DeleteFunc(a.reported, func(_ string, n reportedNode) bool { return n.cell.UUID == cell.UUID })
		for _, n := range answer.Nodes {
			a.reported[n.UUID] = reportedNode{n, cell}
		}
	}
	before := a.mapped
	a.mapped = map[string]apidb.Node{}
	return before, a.readNodes(ctx)
}

// auditNodes compares the nodes of the API database, of the cells and of Placement.
func (a *audit) auditNodes(ctx context.Context) error {
	a.c.Progress("the nodes")
	before, err := a.readNodesAgain(ctx)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, cell := range a.cells {
		names[cell.UUID] = cell.Name
	}
	for _, uuid := range slices.Sorted(maps.Keys(a.mapped)) {
		n := a.mapped[uuid]
		_, was := before[uuid]
		if _, reported := a.reported[uuid]; was && !reported && a.checked[n.CellUUID] {
			hint := "If the host is gone for good: compute-agent cells manage delete-host " + n.Host +
				". A node that the host does not have any more is forgotten after [cell] forget_nodes_after."
			if a.up[hostKey{n.CellUUID, n.Host}] {
				hint = "The agent of the host reports to the cell: `compute-agent status` there says whether the " +
					"node is held, or why else it is not reported. " +
					"A node that the host does not have any more is forgotten after [cell] forget_nodes_after."
			}
			a.addFinding(Finding{
				Kind:     FindingNodeMissing,
				Cell:     names[n.CellUUID],
				Host:     n.Host,
				Provider: uuid,
				Text: fmt.Sprintf("Node %s (%s) of host %s is mapped to cell %s, whose hosts do not report it.",
					n.Name, uuid, n.Host, names[n.CellUUID]),
				Hint: hint,
			})
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(a.reported)) {
		n := a.reported[uuid]
		if !a.checked[n.cell.UUID] {
			continue // since it was read
		}
		if m, mapped := a.mapped[uuid]; !mapped || m.Host != n.Host || m.CellUUID != n.cell.UUID {
			f := Finding{
				Kind: FindingNodeUnmapped, Cell: n.cell.Name, Host: n.Host, Provider: uuid,
				Text: fmt.Sprintf(
					"Host %s of cell %s reports node %s (%s), which is not mapped to it: it gets no servers.",
					n.Host, n.cell.Name, n.Name, uuid),
				Hint: "--repair maps it, or says why not; so does `compute-agent cells manage discover-hosts`.",
			}
			if n.Problem == "" {
				f.repair = a.mapRepair(n)
			} else {
				f.Manual, f.Hint = "the compute API may not map it", n.Problem
			}
			a.addFinding(f)
		}
		if unknown := n.Details.UnknownGuests; unknown > 0 {
			a.addFinding(Finding{
				Kind:     FindingUnknownGuests,
				Cell:     n.cell.Name,
				Host:     n.Host,
				Provider: uuid,
				Text: fmt.Sprintf("Host %s has made guests on node %s that no server of cell %s is about: %d.",
					n.Host, n.Name, n.cell.Name, unknown),
				Hint: "On the host: compute-agent status lists them. They may have a server's only disks: remove " +
					"one with the hypervisor's own tools only if `openstack server show UUID` finds no server, and " +
					"each process of the cell has this version.",
			})
		}
		lacks, err := a.lacksProvider(ctx, uuid)
		if err != nil && !errors.Is(err, errNoAnswer) {
			return err
		}
		if lacks {
			a.addFinding(Finding{
				Kind: FindingNoProvider, Cell: n.cell.Name, Host: n.Host, Provider: uuid,
				Text: fmt.Sprintf("Node %s of host %s has no resource provider in Placement: it gets no servers.",
					n.Name, n.Host),
				Hint: "On the host: compute-agent status",
			})
		}
	}
	return nil
}

// lacksProvider reports whether Placement answers, and has had no resource provider of a node.
func (a *audit) lacksProvider(ctx context.Context, node string) (bool, error) {
	if _, exists := a.places[node]; exists || !a.placement {
		return false, nil
	}
	now, err := a.c.Placement.Providers(ctx, url.Values{"uuid": {node}})
	if err != nil {
		return false, a.placementUnavailable(ctx, fmt.Errorf("reading resource provider %s: %w", node, err))
	}
	return len(now) == 0, nil
}

// mapRepair is the repair of a node that is not mapped. All nodes of a cell are mapped at once.
func (a *audit) mapRepair(n reportedNode) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		all, done := a.discovered[n.cell.UUID]
		if !done {
			all.DiscoverReport, all.err = a.discover(ctx, n.cell)
			a.discovered[n.cell.UUID] = all
		}
		for _, c := range slices.Concat(all.Conflicts, all.NotEnrolled) {
			if c.Node.UUID == n.UUID && c.Node.Host == n.Host {
				return "", c.Err
			}
		}
		for _, r := range all.Remapped {
			if r.Node.UUID == n.UUID && r.Node.Host == n.Host {
				return fmt.Sprintf(
					"mapped it to its host; it was mapped to host %s, which reported it first: check that host",
					r.From), nil
			}
		}
		mapped, err := a.c.Store.Nodes(ctx)
		if err != nil {
			return "", err
		}
		for _, now := range mapped {
			if now.UUID == n.UUID && now.Host == n.Host && now.CellUUID == n.cell.UUID {
				return "mapped it to its host", nil
			}
		}
		switch {
		case all.err != nil:
			return "", all.err
		case len(all.Down) > 0:
			return "", fmt.Errorf("cell %s does not answer", n.cell.Name)
		}
		return "", errors.New("the host does not report it any more")
	}
}

// discoverResult is the outcome of mapping the nodes of a cell.
type discoverResult struct {
	cellmappings.DiscoverReport
	err error
}

// discover maps the nodes of a cell that may be mapped.
func (a *audit) discover(ctx context.Context, cell apidb.Cell) (cellmappings.DiscoverReport, error) {
	if err := a.checkDatabase(ctx, cell); err != nil {
		return cellmappings.DiscoverReport{}, err
	}
	return cellmappings.Discover(ctx, a.c.Store, a.c.Gatherer, a.cells,
		cellmappings.DiscoverOptions{Patterns: a.c.DiscoverPatterns, Cell: cell.UUID})
}
