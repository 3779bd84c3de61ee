// SPDX-License-Identifier: Apache-2.0

package cellmappings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Discover maps the nodes that cells have and the API database does not: Nova's discover_hosts, for
// hosts that may be mapped. A node is mapped only to the host that it was enrolled for; one that
// hosts of several cells report, and that was enrolled for none, gets no new servers. The cells are
// asked to have both agents say so. Cells that are down are left out. What the cells have noted
// of it is not believed: a host may have been unmapped since, or the API database be an older one.
// One request to each cell, of the size of its nodes, and one more to those with new ones.
func Discover(
	ctx context.Context, store apidb.Store, g *gather.Gatherer, cells []apidb.Cell, o DiscoverOptions,
) (DiscoverReport, error) {
	var with []apidb.Cell
	for _, c := range cells {
		if !c.IsCell0() {
			with = append(with, c)
		}
	}
	d := discovery{store: store, gatherer: g, o: o, cells: with, reached: map[string]bool{},
		seen: map[string][]seenNode{}}
	if err := d.read(ctx); err != nil {
		return d.report, err
	}
	answers := gather.All(ctx, g, with,
		func(ctx context.Context, c *cellclient.Client) (cellwire.NodesAnswer, error) { return c.Nodes(ctx) })
	var errs []error
	for _, a := range answers {
		d.reached[a.Cell.UUID] = a.Err == nil
		for _, n := range a.Value.Nodes {
			d.seen[n.UUID] = append(d.seen[n.UUID], seenNode{n, a.Cell})
		}
	}
	for _, a := range answers {
		chosen := o.Cell == "" || o.Cell == a.Cell.UUID
		switch {
		case a.Down():
			if chosen {
				d.report.Down = append(d.report.Down, a.Cell)
			}
		case a.Err != nil:
			errs = append(errs, fmt.Errorf("asking cell %s for new nodes: %w", a.Cell.Name, a.Err))
		default:
			errs = append(errs, d.mapCell(ctx, a.Cell, a.Value, chosen))
		}
	}
	for _, host := range o.Hosts {
		if !d.found[host] {
			d.report.Missing = append(d.report.Missing, host)
		}
	}
	return d.report, errors.Join(errs...)
}

// seenNode is a node as a cell has it.
type seenNode struct {
	cellwire.ComputeNode
	cell apidb.Cell
}

// discovery is one call of Discover.
type discovery struct {
	store    apidb.Store
	gatherer *gather.Gatherer
	o        DiscoverOptions
	cells    []apidb.Cell
	report   DiscoverReport

	known      map[apidb.Node]bool
	owners     map[string]string // the mapped hosts of nodes
	hosts      map[string]string // the cells of mapped hosts
	enrolments map[string]apidb.Enrolment
	enrolled   map[string]apidb.Enrolment // by node
	reached    map[string]bool            // cells that have answered
	seen       map[string][]seenNode      // by node, in the order of the cells
	found      map[string]bool            // of DiscoverOptions.Hosts
}

// read reads what the API database has.
func (d *discovery) read(ctx context.Context) error {
	mapped, err := d.store.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("reading the mapped nodes: %w", err)
	}
	hosts, err := d.store.Hosts(ctx)
	if err != nil {
		return fmt.Errorf("reading the mapped hosts: %w", err)
	}
	enrolments, err := d.store.Enrolments(ctx)
	if err != nil {
		return fmt.Errorf("reading the enrolments: %w", err)
	}
	d.known, d.hosts, d.found = make(map[apidb.Node]bool, len(mapped)),
		make(map[string]string, len(hosts)), map[string]bool{}
	d.owners = make(map[string]string, len(mapped))
	for _, n := range mapped {
		d.known[n], d.owners[n.UUID] = true, n.Host
	}
	for _, h := range hosts {
		d.hosts[h.Host] = h.CellUUID
	}
	d.enrolments, d.enrolled = map[string]apidb.Enrolment{}, map[string]apidb.Enrolment{}
	for _, e := range enrolments {
		d.enrolments[e.Host] = e
		for _, n := range e.Nodes {
			d.enrolled[n.UUID] = e
		}
	}
	return nil
}

// mapCell maps the new nodes of one cell, and has it know which of its nodes are not used.
func (d *discovery) mapCell(ctx context.Context, cell apidb.Cell, answer cellwire.NodesAnswer, chosen bool) error {
	var added []apidb.Node
	problems, listed := map[string]string{}, map[string]string{}
	refuse := func(node apidb.Node, err error) {
		// Invalid bytes would each become three on the way, and the text too long for the cell.
		problems[node.UUID] = textutil.Truncate(strings.ToValidUTF8(err.Error(), "?"), cellwire.MaxProblem)
		if conflict := (Conflict{node, err}); !chosen {
			return
		} else if errors.Is(err, ErrNotEnrolled) {
			d.report.NotEnrolled = append(d.report.NotEnrolled, conflict)
		} else {
			d.report.Conflicts = append(d.report.Conflicts, conflict)
		}
	}
	for _, n := range answer.Nodes {
		node := apidb.Node{UUID: n.UUID, Name: n.Name, Host: n.Host, CellUUID: cell.UUID}
		if n.Problem != "" {
			listed[n.UUID] = n.Problem
		}
		err := d.checkOwner(n, cell)
		if err == nil && !d.known[node] {
			err = d.checkHost(n, cell)
		}
		if err == nil && chosen && !d.known[node] {
			err = d.remap(ctx, n, node)
		}
		switch {
		case errors.Is(err, apidb.ErrExists), errors.Is(err, ErrNotEnrolled):
			refuse(node, err)
			continue
		case err != nil:
			return err
		case chosen && slices.Contains(d.o.Hosts, n.Host):
			if err := d.enrol(ctx, n, cell); errors.Is(err, apidb.ErrExists) { // another host has the name
				refuse(node, err)
				continue
			} else if err != nil {
				return err
			}
		}
		if chosen && (!n.Mapped || !d.known[node]) {
			added = append(added, node)
		}
	}
	err := d.mapNodes(ctx, cell, added, refuse)
	if answer.TakesState() {
		err = errors.Join(err, d.sendState(ctx, cell, answer, problems, listed))
	}
	return err
}

// checkOwner returns an error if a node is certainly not that of the host which has it in a cell,
// or if that is not certain.
func (d *discovery) checkOwner(n cellwire.ComputeNode, cell apidb.Cell) error {
	e, enrolled := d.enrolled[n.UUID]
	switch {
	case enrolled && e.State != apidb.Evicted && e.Host != n.Host:
		return fmt.Errorf("node %s is enrolled for host %s: %w", n.UUID, e.Host, apidb.ErrExists)
	case enrolled && e.State != apidb.Evicted && e.CellUUID != cell.UUID:
		return fmt.Errorf("node %s is enrolled in cell %s: %w", n.UUID, CellName(d.cells, e.CellUUID), apidb.ErrExists)
	case enrolled && e.State != apidb.Evicted:
		return nil
	}
	for _, other := range d.seen[n.UUID] {
		if other.cell.UUID != cell.UUID && (other.Named || !n.Named) {
			return fmt.Errorf("host %s of cell %s reports node %s too: %w",
				other.Host, other.cell.Name, n.UUID, apidb.ErrExists)
		}
	}
	return nil
}

// checkHost returns an error if the host of a node is not to be mapped in a cell.
func (d *discovery) checkHost(n cellwire.ComputeNode, cell apidb.Cell) error {
	e, known := d.enrolments[n.Host]
	switch {
	case known && e.State == apidb.Evicted:
		return fmt.Errorf("host %s is evicted: %w", n.Host, ErrNotEnrolled)
	case slices.Contains(d.o.Hosts, n.Host):
		return nil
	case known && e.State == apidb.Enrolled && e.CellUUID != cell.UUID:
		return fmt.Errorf("host %s is enrolled in cell %s: %w", n.Host, CellName(d.cells, e.CellUUID), apidb.ErrExists)
	case known && e.State == apidb.Enrolled && len(e.Nodes) > 0 && d.enrolled[n.UUID].Host != n.Host:
		return fmt.Errorf("host %s is enrolled for other nodes than %s: %w", n.Host, n.UUID, ErrNotEnrolled)
	case known && e.State == apidb.Enrolled, n.Named, n.Auth == cellwire.HostAuthNone, d.hosts[n.Host] == cell.UUID,
		MatchesAny(d.o.Patterns, n.Host):
		return nil
	}
	return fmt.Errorf("host %s: %w, and discover_hosts_pattern does not match its name", n.Host, ErrNotEnrolled)
}

// enrol keeps that a person named the host of a node.
func (d *discovery) enrol(ctx context.Context, n cellwire.ComputeNode, cell apidb.Cell) error {
	e, err := d.store.ChangeEnrolment(ctx, n.Host, func(e *apidb.Enrolment) error {
		if e.State == "" {
			now := time.Now()
			e.State, e.CellUUID, e.CreatedBy, e.CreatedAt, e.EnrolledAt = apidb.Enrolled, cell.UUID, d.o.By, now, now
		}
		if !slices.ContainsFunc(e.Nodes, func(known apidb.EnrolledNode) bool { return known.UUID == n.UUID }) {
			e.Nodes = append(e.Nodes, apidb.EnrolledNode{UUID: n.UUID, Name: apidb.OwnName(n.Host, n.Name)})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("enrolling host %s: %w", n.Host, err)
	}
	d.found[n.Host], d.enrolments[n.Host], d.enrolled[n.UUID] = true, e, e
	return nil
}

// remap takes a node from the host that it is mapped to, if its own shows that it is the right one:
// by its certificate, or because it is enrolled for the node. Nothing is taken from a host whose
// certificate names the node too, whose cell is down so that this is not known, or that was
// enrolled for the node and evicted.
func (d *discovery) remap(ctx context.Context, n cellwire.ComputeNode, node apidb.Node) error {
	from, mapped := d.owners[n.UUID]
	e, enrolled := d.enrolled[n.UUID]
	switch {
	case !mapped || from == n.Host, enrolled && e.Host != n.Host, !n.Named &&
		(!enrolled || e.State != apidb.Enrolled), !d.reached[d.hosts[from]]:
		return nil
	}
	for _, seen := range d.seen[n.UUID] {
		if seen.Host == from && seen.Named ||
			slices.ContainsFunc(seen.Claims, func(c cellwire.NodeClaim) bool { return c.Host == from && c.Named }) {
			return nil
		}
	}
	err := d.store.RemapNode(ctx, node, from)
	switch {
	case errors.Is(err, apidb.ErrExists):
		return err
	case err != nil:
		return fmt.Errorf("mapping node %s of host %s, which was mapped to host %s: %w", n.Name, n.Host, from, err)
	}
	d.owners[n.UUID] = n.Host
	d.report.Remapped = append(d.report.Remapped, RemappedNode{node, from})
	return nil
}

// mapNodes maps new nodes of one cell.
func (d *discovery) mapNodes(
	ctx context.Context, cell apidb.Cell, nodes []apidb.Node, refuse func(apidb.Node, error),
) error {
	if len(nodes) == 0 {
		return nil
	}
	err := d.store.MapNodes(ctx, nodes)
	if errors.Is(err, apidb.ErrExists) { // one by one, so that one does not keep out the others
		all := nodes
		nodes = nil
		for _, n := range all {
			switch err := d.store.MapNodes(ctx, []apidb.Node{n}); {
			case errors.Is(err, apidb.ErrExists):
				refuse(n, err)
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
	d.report.Mapped = append(d.report.Mapped, nodes...)
	uuids := make([]string, 0, len(nodes))
	for _, n := range nodes {
		uuids = append(uuids, n.UUID)
	}
	return d.send(ctx, cell, "marking nodes as mapped in",
		func(ctx context.Context, c *cellclient.Client) error { return c.MarkMapped(ctx, uuids) })
}

// sendState has a cell know which of its nodes are not used, and forgets those that it asks to.
func (d *discovery) sendState(
	ctx context.Context, cell apidb.Cell, answer cellwire.NodesAnswer, problems, listed map[string]string,
) error {
	request := cellwire.NodesRequest{Forgotten: answer.Forgotten}
	if !maps.Equal(problems, listed) {
		request.Problems = problems
	}
	if len(request.Forgotten) > 0 {
		if err := d.store.UnmapNodes(ctx, cell.UUID, request.Forgotten); err != nil {
			return fmt.Errorf("unmapping nodes of cell %s: %w", cell.Name, err)
		}
		d.report.Forgotten = append(d.report.Forgotten, request.Forgotten...)
	} else if request.Problems == nil {
		return nil
	}
	return d.send(ctx, cell, "noting which nodes are not used in",
		func(ctx context.Context, c *cellclient.Client) error { return c.NodesState(ctx, request) })
}

// send sends something to a cell; one that is down gets it the next time.
func (d *discovery) send(
	ctx context.Context, cell apidb.Cell, doing string, send func(context.Context, *cellclient.Client) error,
) error {
	_, err := gather.One(ctx, d.gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (struct{}, error) { return struct{}{}, send(ctx, c) })
	if err != nil && !errors.Is(err, gather.ErrDown) {
		return fmt.Errorf("%s cell %s: %w", doing, cell.Name, err)
	}
	return nil
}
