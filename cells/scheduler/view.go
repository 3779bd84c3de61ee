// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
)

// viewAge is how long the hosts are as they were seen. A host that dies in the meantime is noticed
// as one that dies afterwards.
const viewAge = 5 * time.Second

// view is how the hosts of all cells are, for all servers that are scheduled together: asked for
// when the first needs it.
type view struct {
	s *Scheduler

	mu         sync.Mutex
	seen       time.Time
	discovered time.Time
	last       *hosts
}

// discover maps new hosts, if that was not done a moment ago, and has the hosts looked at again.
func (v *view) discover(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.s.opts.Now(); v.discovered.IsZero() || now.Sub(v.discovered) >= viewAge {
		v.s.discoverAndLog(ctx)
		v.discovered, v.last = v.s.opts.Now(), nil
	}
}

// hosts are all hosts that could take a server.
type hosts struct {
	cells    map[string]apidb.Cell
	nodes    map[string]apidb.Node // by uuid
	services map[hostKey]cellwire.Service
	down     map[string]bool // cells, by uuid
	suspect  map[string]bool // those with another database than before
	userDataHosts

	aggregates       []apidb.Aggregate
	aggregatesByHost map[string][]string // the uuids of its aggregates
	zones            map[string]string   // by host: those that aggregates give
	zone             string              // of the others
}

// zoneOf is the availability zone of a host.
func (h *hosts) zoneOf(host string) string { return cmp.Or(h.zones[host], h.zone) }

type hostKey struct{ cell, host string }

// hosts asks all cells where servers may be placed, each for its services. A cell that is down has
// none.
func (v *view) hosts(ctx context.Context) (*hosts, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last != nil && v.s.opts.Now().Sub(v.seen) < viewAge {
		return v.last, nil
	}
	cells, err := v.s.opts.Store.Cells(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the cells: %w", err)
	}
	nodes, err := v.s.opts.Store.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the mapped nodes: %w", err)
	}
	databases, err := v.s.opts.Store.CellDatabases(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the recorded databases of the cells: %w", err)
	}
	aggregates, err := v.s.opts.Store.Aggregates(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the host aggregates: %w", err)
	}
	userData, err := v.s.readUserDataHosts(ctx)
	if err != nil {
		return nil, err
	}
	h := &hosts{
		userDataHosts: userData,
		cells:         map[string]apidb.Cell{}, nodes: make(map[string]apidb.Node, len(nodes)),
		services: map[hostKey]cellwire.Service{},
		down:     map[string]bool{}, suspect: map[string]bool{},
		aggregates: aggregates, aggregatesByHost: map[string][]string{},
		zones: apidb.HostZones(aggregates), zone: v.s.opts.Zone,
	}
	for uuid, d := range databases {
		h.suspect[uuid] = d.Suspect != nil
	}
	for _, a := range aggregates {
		for _, host := range a.Hosts {
			h.aggregatesByHost[host] = append(h.aggregatesByHost[host], a.UUID)
		}
	}
	var used []apidb.Cell
	for _, c := range cells {
		h.cells[c.UUID] = c
		if !c.IsCell0() && !c.Disabled {
			used = append(used, c)
		}
	}
	for _, n := range nodes {
		h.nodes[n.UUID] = n
	}
	answers := gather.All(ctx, v.s.opts.Gatherer, used,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.Service, error) { return c.Services(ctx) })
	for _, a := range answers {
		h.down[a.Cell.UUID] = a.Err != nil
		for _, service := range a.Value { // none of a cell that is down
			h.services[hostKey{a.Cell.UUID, service.Host}] = service
		}
	}
	v.last, v.seen = h, v.s.opts.Now()
	return h, ctx.Err()
}

// target is where a server could go.
type target struct {
	candidate resourcerequest.Candidate
	node      apidb.Node
	cell      apidb.Cell
}

// targets are the candidates on hosts that can take the server of a build, the best first: as a
// soft policy of its server group prefers them, then most memory free, as Nova's RAM weigher; among
// equals servers spread by chance, but each time in the same way.
func (h *hosts) targets(candidates []resourcerequest.Candidate, b *build) []target {
	// ways on one node: the others differ in which of several children serve, and would conflict
	// alike
	const perNode = 3
	found := make([]target, 0, len(candidates))
	ways := map[string]int{}
	for _, c := range candidates {
		node, mapped := h.nodes[c.Root]
		if !mapped || ways[c.Root] >= perNode {
			continue
		}
		if h.whyUnfit(node, b) == takes {
			found = append(found, target{candidate: c, node: node, cell: h.cells[node.CellUUID]})
			ways[c.Root]++
		}
	}
	slices.SortStableFunc(found, func(x, y target) int {
		return cmp.Or(
			b.group.compare(x.node.Host, y.node.Host),
			cmp.Compare(y.candidate.FreeMemory, x.candidate.FreeMemory),
			cmp.Compare(y.candidate.FreeCPUs, x.candidate.FreeCPUs),
			cmp.Compare(tieBreak(b.spec.UUID, x.node.UUID), tieBreak(b.spec.UUID, y.node.UUID)),
		)
	})
	return found
}

// forced are the nodes that an administrator chose; nil if none did.
func (h *hosts) forced(spec apidb.RequestSpec) []string {
	if spec.ForcedHost == "" && spec.ForcedNode == "" {
		return nil
	}
	chosen := []string{}
	for _, n := range h.nodes {
		if (spec.ForcedHost == "" || n.Host == spec.ForcedHost) &&
			(spec.ForcedNode == "" || n.Name == spec.ForcedNode) {
			chosen = append(chosen, n.UUID)
		}
	}
	slices.Sort(chosen)
	return chosen
}

func tieBreak(server, node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(server + node)) // never fails
	return h.Sum64()
}
