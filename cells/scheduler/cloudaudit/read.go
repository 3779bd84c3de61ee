// SPDX-License-Identifier: Apache-2.0

package cloudaudit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// auditPage is how many servers are asked for at once.
const auditPage = 1000

// providerReads is how many resource providers are read at the same time.
const providerReads = 8

// readNodes reads which nodes are mapped.
func (a *audit) readNodes(ctx context.Context) error {
	nodes, err := a.c.Store.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("reading the mapped nodes: %w", err)
	}
	for _, n := range nodes {
		a.mapped[n.UUID] = n
	}
	return nil
}

// readPlacement reads all resource providers, and who holds something of them.
func (a *audit) readPlacement(ctx context.Context) error {
	err := a.readProviders(ctx)
	if a.placement = err == nil; !a.placement {
		a.auditProviderSet, a.report.Providers, a.report.Consumers = auditProviderSet{}, 0, 0
	}
	return a.placementUnavailable(ctx, err)
}

func (a *audit) readProviders(ctx context.Context) error {
	a.c.Progress("the resource providers")
	all, err := a.c.Placement.Providers(ctx, url.Values{})
	if err != nil {
		return fmt.Errorf("reading the resource providers: %w", err)
	}
	a.auditProviderSet = auditProviderSet{
		places: map[string]string{}, names: map[string]string{}, roots: map[string]string{},
		compute: map[string]bool{}, sharing: map[string]bool{},
		held: map[string]map[string]bool{},
	}
	for trait, note := range map[string]func(wire.ResourceProvider){
		providertree.TraitComputeNode:        func(p wire.ResourceProvider) { a.compute[p.Root] = true },
		providertree.TraitSharesViaAggregate: func(p wire.ResourceProvider) { a.sharing[p.UUID] = true },
	} {
		with, err := a.c.Placement.Providers(ctx, url.Values{"required": {trait}})
		if err != nil {
			return fmt.Errorf("reading the resource providers with the trait %s: %w", trait, err)
		}
		for _, p := range with {
			note(p)
		}
	}
	for _, p := range all {
		place := p.Root
		if a.sharing[p.UUID] {
			place = p.UUID
		}
		a.places[p.UUID] = place
		if p.UUID == place {
			a.names[place], a.roots[place] = p.Name, p.Root
		}
	}
	a.report.Providers = len(all)
	a.c.Progress("the allocations")
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(providerReads)
	for _, p := range all {
		group.Go(func() error {
			held, err := a.c.Placement.AllocationsOf(ctx, p.UUID)
			if errors.Is(err, placementclient.ErrNotFound) {
				return nil // since the list
			}
			if err != nil {
				return fmt.Errorf("reading the allocations of resource provider %s: %w", p.UUID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for consumer := range held {
				if a.held[consumer] == nil {
					a.held[consumer] = map[string]bool{}
				}
				a.held[consumer][a.places[p.UUID]] = true
			}
			return nil
		})
	}
	err = group.Wait()
	a.report.Consumers = len(a.held)
	return err
}

// readDatabase reads what the API database has of servers. Claims are read before builds: a build
// that ends in between is in its cell.
func (a *audit) readDatabase(ctx context.Context) (err error) {
	a.c.Progress("the API database")
	if a.cells, err = a.c.Store.Cells(ctx); err != nil {
		return fmt.Errorf("reading the cells: %w", err)
	}
	claims, err := a.c.Store.Claims(ctx, time.Now().AddDate(1, 0, 0)) // all
	if err != nil {
		return fmt.Errorf("reading the claims: %w", err)
	}
	for _, c := range claims {
		a.pending[c.InstanceUUID] = true
	}
	builds, err := a.c.Store.PendingBuilds(ctx)
	if err != nil {
		return fmt.Errorf("reading the servers that are built: %w", err)
	}
	for _, b := range builds {
		a.pending[b.InstanceUUID] = true
	}
	mappings, err := a.c.Store.Mappings(ctx, apidb.MappingFilter{Living: true})
	if err != nil {
		return fmt.Errorf("reading the mappings of servers: %w", err)
	}
	for _, m := range mappings {
		a.living[m.InstanceUUID] = m
	}
	return nil
}

// readCells reads what the cells have.
func (a *audit) readCells(ctx context.Context) error {
	for _, cell := range a.cells {
		a.c.Progress("cell " + cell.Name)
		err := a.checkDatabase(ctx, cell)
		if err == nil {
			err = a.readCell(ctx, cell)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if a.cellUnavailable(ctx, cell, err) == nil {
			a.checked[cell.UUID] = true
		}
	}
	slices.Sort(a.report.HostsDown)
	a.report.Nodes, a.report.Servers = len(a.reported), len(a.servers)
	return nil
}

// cellParts are the nodes and services of a cell.
type cellParts struct {
	nodes    []cellwire.ComputeNode
	services []cellwire.Service
}

// readCell reads one cell whole, or nothing of it counts.
func (a *audit) readCell(ctx context.Context, cell apidb.Cell) error {
	parts, err := gather.One(ctx, a.c.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (p cellParts, err error) {
			answer, err := c.Nodes(ctx)
			if p.nodes = answer.Nodes; err == nil {
				p.services, err = c.Services(ctx)
			}
			return p, err
		})
	if err != nil {
		return err
	}
	q := cellwire.ServerQuery{SoftDeleted: true, Limit: auditPage}
	var rows []cellwire.Server
	for more := true; more; {
		page, err := gather.One(ctx, a.c.Gatherer, cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.ServerPage, error) { return c.Servers(ctx, q) })
		if err != nil {
			return err
		}
		for _, row := range page.Rows {
			rows, q.After = append(rows, row.Server), row.Key
		}
		more = page.More && len(page.Rows) > 0
	}
	for _, n := range parts.nodes {
		a.reported[n.UUID] = reportedNode{n, cell}
	}
	for _, service := range parts.services {
		a.up[hostKey{cell.UUID, service.Host}] = service.Up
		if !service.Up {
			a.report.HostsDown = append(a.report.HostsDown, service.Host)
		}
	}
	for _, row := range rows {
		row.UserData = "" // it can be large
		a.servers[row.UUID] = auditServer{row, cell}
	}
	return nil
}
