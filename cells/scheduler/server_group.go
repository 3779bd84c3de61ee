// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// Server groups. The process that schedules builds the servers of one group one after the other.
// Before each, it asks the cells where the members are that were placed earlier. So two servers
// that are requested at the same time are placed with regard to each other, and a policy needs no
// check after the claim. If the process is stopped in the middle of a build and loses the lease,
// its later writes are refused.

// group is the server group of a build.
type group struct {
	apidb.ServerGroup
	places // of the other members
}

// places are where some servers are.
type places struct {
	// perHost is how many of them each host has or may come to have: a server that moves counts on
	// two.
	perHost map[string]int
	// certain is how many of them each host has that are on no other.
	certain map[string]int
	// unknown says that some are in a cell that is down, or that has lost them.
	unknown bool
}

// errPending says that the host of another server is not known yet: it is not placed, or its cell
// does not show it yet.
var errPending = errors.New("its host depends on that of another server, which is not in its cell yet")

// joinGroup waits until no other server of the group is being built, and finds out where the other
// members are. A deleted group is ignored. Cost: one request to each cell with members.
func (b *build) joinGroup(ctx context.Context) (leave func(), err error) {
	leave = func() {}
	if b.spec.Group == "" {
		return leave, nil
	}
	if leave, err = b.s.groups.lock(ctx, b.spec.Group); err != nil {
		return nil, err
	}
	if err = b.readGroup(ctx); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// queryBeforeGroup asks for candidates before the turn of a server in its group, if that was not
// answered before: if it is not answered again, no other member waits for it. To which hosts the
// policy confines it is not known yet.
func (b *build) queryBeforeGroup(ctx context.Context) error {
	if b.move != nil && b.move.claimed != nil {
		return nil
	}
	stages, err := b.stages(ctx)
	if err == nil && len(stages) > 0 {
		trees, _ := b.trees()
		for i := 0; err == nil && i < len(trees); i++ {
			_, _, err = b.queryCandidates(ctx, stages[0], trees[i])
		}
	}
	if placementclient.Down(err) {
		return err
	}
	return nil // what else is wrong is found again
}

func (b *build) readGroup(ctx context.Context) error {
	store := b.s.opts.Store
	of, err := store.ServerGroupOf(ctx, b.spec.UUID)
	if errors.Is(err, apidb.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	mappings, err := store.MappingsOf(ctx, of.Members)
	if err != nil {
		return err
	}
	delete(mappings, b.spec.UUID)
	g := &group{ServerGroup: of}
	if g.places, err = b.placesOf(ctx, mappings); err != nil {
		return err
	}
	b.group = g
	return nil
}

// placesOf looks where servers are. Those that are not placed, or are being deleted, are nowhere.
// It costs a question to each cell with some.
func (b *build) placesOf(ctx context.Context, mappings map[string]apidb.Mapping) (p places, err error) {
	p.perHost, p.certain = map[string]int{}, map[string]int{}
	members := map[string][]string{} // by cell
	for uuid, m := range mappings {
		if m.CellUUID != "" && m.CellUUID != apidb.Cell0UUID && !m.Queued() {
			members[m.CellUUID] = append(members[m.CellUUID], uuid)
		}
	}
	var cells []apidb.Cell
	var uuids []string
	for uuid, here := range members {
		if cell, known := b.hosts.cells[uuid]; known {
			cells, uuids = append(cells, cell), append(uuids, here...)
		}
	}
	ask := func(ctx context.Context, c *cellclient.Client) ([]cellwire.ServerHosts, error) {
		return c.ServerHosts(ctx, cellwire.HostsRequest{UUIDs: uuids})
	}
	for _, a := range gather.All(ctx, b.s.opts.Gatherer, cells, ask) {
		if a.Err != nil {
			p.unknown = true
			continue
		}
		shown := map[string]bool{}
		for _, server := range a.Value {
			if slices.Contains(members[a.Cell.UUID], server.UUID) && !shown[server.UUID] {
				shown[server.UUID] = true
				p.add(server.Hosts)
			}
		}
		for _, uuid := range members[a.Cell.UUID] {
			if shown[uuid] {
				continue
			}
			switch _, err := b.s.opts.Store.BuildRequest(ctx, uuid); { // it is hidden yet, or lost
			case err == nil:
				return p, fmt.Errorf("%w: %s", errPending, uuid)
			case b.hosts.suspect[a.Cell.UUID] && errors.Is(err, apidb.ErrNotFound):
				p.unknown = true
			case !errors.Is(err, apidb.ErrNotFound):
				return p, err
			}
		}
	}
	return p, ctx.Err()
}

// add counts a server with its hosts.
func (p *places) add(hosts []string) {
	for _, host := range hosts {
		p.perHost[host]++
	}
	if len(hosts) == 1 {
		p.certain[hosts[0]]++
	}
}

// allMigrate reports whether all of the servers migrate, so that no host is certain to have one.
func (p *places) allMigrate() bool { return len(p.perHost) > 0 && len(p.certain) == 0 }

// takes says whether the policy lets a host have one more member.
func (g *group) takes(host string) bool {
	if g == nil {
		return true
	}
	switch g.Policy {
	case apidb.PolicyAffinity:
		return !g.unknown && len(g.perHost) == 0 || g.certain[host] > 0
	case apidb.PolicyAntiAffinity:
		return int64(g.perHost[host]) < max(g.MaxPerHost, 1)
	}
	return true
}

// compare orders hosts as a soft policy prefers them.
func (g *group) compare(host, other string) int {
	if g == nil {
		return 0
	}
	switch fewer := cmp.Compare(g.perHost[host], g.perHost[other]); g.Policy {
	case apidb.PolicySoftAffinity:
		return -fewer
	case apidb.PolicySoftAntiAffinity:
		return fewer
	}
	return 0
}

// nodes are the only ones that can take a server of a group with affinity; nil: any can.
func (g *group) nodes(h *hosts) []string {
	if g == nil || g.Policy != apidb.PolicyAffinity || len(g.perHost) == 0 {
		return nil
	}
	return g.places.nodes(h)
}

// nodes returns the sorted uuids of the nodes whose hosts have servers that certainly stay.
func (p *places) nodes(h *hosts) []string {
	nodes := []string{}
	for _, n := range h.nodes {
		if p.certain[n.Host] > 0 {
			nodes = append(nodes, n.UUID)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// noHost is the fault of a server for which there was no host, with the policy or the hint that may
// be why.
func (b *build) noHost(why string) cellwire.Fault {
	fault := noHost(why)
	fault.Message += b.whyHints()
	switch g := b.group; {
	case g == nil, g.Policy == apidb.PolicySoftAffinity, g.Policy == apidb.PolicySoftAntiAffinity:
	case g.unknown && g.Policy == apidb.PolicyAffinity:
		fault.Message += fmt.Sprintf(
			" Members of the server group %s are in a cell that cannot be used now, and its policy is %s.", g.Name,
			g.Policy)
	case g.allMigrate() && g.Policy == apidb.PolicyAffinity:
		fault.Message += fmt.Sprintf(
			" Members of the server group %s move to another host, or can still go back, and its policy is %s.",
			g.Name, g.Policy)
	case b.refused()[groupPolicy] > 0:
		fault.Message += fmt.Sprintf(" The policy %s of the server group %s rules out others.", g.Policy, g.Name)
	}
	return fault
}
