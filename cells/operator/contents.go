// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// contents is what is on a host, as its cell and Placement have it.
type contents struct {
	// Servers has the names of the servers that are on the host, or move from it or to it, by uuid.
	Servers map[string]string
	// Migrations are the consumers that hold the place of a server that moves.
	Migrations map[string]bool
	// Holders are the consumers of its resource providers, with the names of those.
	Holders map[string][]string
	// Providers are its resource providers, from the leaves to the roots.
	Providers []providertree.Provider
	// Reports says that its agent reports to its cell.
	Reports bool
	// Unknown are reasons why the rest is not all, first that of the cell.
	Unknown []string
	// NoPlacement says that Placement did not answer.
	NoPlacement bool
}

// contentsOf looks for what is on a host: in its cell, or in all cells if it is mapped to none, and
// on its nodes in Placement. A host without nodes that are known is looked for there by its name.
func (d *Deployment) contentsOf(ctx context.Context, host string) (c contents, err error) {
	c = contents{Servers: map[string]string{}, Migrations: map[string]bool{}, Holders: map[string][]string{}}
	has, err := d.mappings(ctx)
	if err != nil {
		return c, err
	}
	known := slices.DeleteFunc(has.cells, apidb.Cell.IsCell0)
	if cell, mapped := mappedTo(host, has.hosts); mapped {
		known = slices.DeleteFunc(known, func(c apidb.Cell) bool { return c.UUID != cell })
	}
	unmapped, err := d.Store.UnmappedNodes(ctx)
	if err != nil {
		return c, err
	}
	roots, taken := map[string]bool{}, map[string]bool{}
	for _, n := range slices.Concat(has.nodes, unmapped) {
		if n.Host == host {
			roots[n.UUID] = true
		}
	}
	for _, n := range has.nodes {
		if n.Host != host {
			taken[n.UUID] = true
			delete(roots, n.UUID)
		}
	}
	ask := func(ctx context.Context, client *cellclient.Client) (contents, error) {
		return serversOn(ctx, client, host)
	}
	for _, a := range gather.All(ctx, d.Gatherer, known, ask) {
		if a.Err != nil {
			c.Unknown = append(c.Unknown, fmt.Sprintf("cell %s: %v", a.Cell.Name, a.Err))
			continue
		}
		maps.Copy(c.Servers, a.Value.Servers)
		maps.Copy(c.Migrations, a.Value.Migrations)
		c.Reports = c.Reports || a.Value.Reports
	}
	if err := d.addProviders(ctx, &c, host, roots, taken); err != nil {
		c.NoPlacement = true
		c.Unknown = append(c.Unknown, fmt.Sprintf("Placement: %v", err))
	}
	return c, nil
}

// serversOn returns the servers of a cell that are on a host, or move from there or to there.
func serversOn(ctx context.Context, client *cellclient.Client, host string) (c contents, err error) {
	c = contents{Servers: map[string]string{}, Migrations: map[string]bool{}}
	services, err := client.Services(ctx)
	if err != nil {
		return c, err
	}
	c.Reports = slices.ContainsFunc(services, func(s cellwire.Service) bool { return s.Host == host && s.Up })
	query := cellwire.ServerQuery{Hosts: []string{host}, SoftDeleted: true, Limit: pageSize, Sort: byAge}
	if err := client.EachServer(ctx, query, func(s cellwire.Server) { c.Servers[s.UUID] = s.Name }); err != nil {
		return c, err
	}
	return c, eachMigration(ctx, client, host, func(m cellwire.Migration) {
		if m.Hosts() == nil {
			return
		}
		c.Migrations[m.UUID] = true
		if _, has := c.Servers[m.ServerUUID]; !has {
			c.Servers[m.ServerUUID] = "it moves to or from the host"
		}
	})
}

// addProviders reads the provider trees of a host, and who holds something there. taken are the
// nodes of other hosts.
func (d *Deployment) addProviders(ctx context.Context, c *contents, host string, roots, taken map[string]bool) error {
	client, err := d.providers()
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	if len(roots) == 0 {
		uuid, found, err := client.FindByName(ctx, host)
		if err != nil {
			return err
		}
		if found && !taken[uuid] {
			roots[uuid] = true
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(roots)) {
		tree, err := client.TreeOf(ctx, uuid)
		if errors.Is(err, reportclient.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		root, _ := tree.Provider(uuid)
		if root.ParentUUID != "" || !root.HasTrait(providertree.TraitComputeNode) { // another client's
			continue
		}
		order := tree.Subtree(uuid)
		slices.Reverse(order)
		for _, id := range order {
			p, _ := tree.Provider(id)
			c.Providers = append(c.Providers, p)
			consumers, err := client.ConsumersOf(ctx, id)
			if err != nil && !errors.Is(err, reportclient.ErrNotFound) {
				return err
			}
			for consumer := range consumers {
				c.Holders[consumer] = append(c.Holders[consumer], p.Name)
			}
		}
	}
	return nil
}

// others are the consumers of its providers that are neither servers nor their migrations.
func (c *contents) others() (out []string) {
	for _, uuid := range slices.Sorted(maps.Keys(c.Holders)) {
		if _, server := c.Servers[uuid]; !server && !c.Migrations[uuid] {
			out = append(out, uuid)
		}
	}
	return out
}

// maxNamed is how many servers and consumers a refusal names.
const maxNamed = 10

func joinNames(all []string) string {
	if more := len(all) - maxNamed; more > 0 {
		all = append(slices.Clone(all[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}

// checkEmpty refuses to unmap or rename a host with something on it, unless the operator has given
// its number. hint is the way to go on, with a place for the number.
func (c *contents) checkEmpty(host, given, hint string) error {
	others := c.others()
	n := len(c.Servers) + len(others)
	switch {
	case len(c.Unknown) > 0 && given == identity.UnknownServers:
		return nil
	case len(c.Unknown) > 0:
		return refused("what is on host %s is not known, and nothing was changed: %s. Run the command again when "+
			"they answer; to go on without knowing, add --with-servers %s",
			host, strings.Join(c.Unknown, "; "), identity.UnknownServers)
	case given == strconv.Itoa(n), given == "" && n == 0:
		return nil
	}
	var has []string
	if len(c.Servers) > 0 {
		var names []string
		for _, uuid := range slices.Sorted(maps.Keys(c.Servers)) {
			names = append(names, fmt.Sprintf("%s (%s)", uuid, c.Servers[uuid]))
		}
		has = append(has, fmt.Sprintf("servers (%d): %s", len(names), joinNames(names)))
	}
	if len(others) > 0 {
		has = append(has, fmt.Sprintf("other consumers of its resource providers (%d): %s", len(others),
			joinNames(others)))
	}
	if n == 0 {
		has = []string{"no servers and no other consumers of its resource providers"}
	}
	return refused("host %s has %s; nothing was changed. "+hint, host, strings.Join(has, ", and "), n)
}

// checkRemovable refuses to delete the providers of a host that something holds, or that its agent
// would create again.
func (c *contents) checkRemovable(host string) error {
	reason := ""
	switch {
	case c.NoPlacement:
		reason = c.Unknown[len(c.Unknown)-1]
	case c.Reports:
		reason = "its agent reports to its cell, and would create them again; stop it first"
	case len(c.Holders) > 0:
		var held []string
		for _, consumer := range slices.Sorted(maps.Keys(c.Holders)) {
			providers := strings.Join(c.Holders[consumer], ", ")
			held = append(held, fmt.Sprintf("consumer %s holds some of %s", consumer, providers))
		}
		reason = joinNames(held) + ". `openstack resource provider allocation show UUID` shows a consumer; " +
			"`compute-agent allocations audit` on the host finds those without a guest"
	default:
		return nil
	}
	return refused("the resource providers of host %s are not removed, and nothing was changed: %s", host, reason)
}

// removeProviders deletes the providers, from the leaves to the roots, each if it is as it was. It
// returns the names of those that are deleted, with their uuids.
func (d *Deployment) removeProviders(
	ctx context.Context, providers []providertree.Provider,
) (names []string, err error) {
	client, err := d.providers()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdle()
	for _, p := range providers {
		if err := client.RemoveProvider(ctx, p); err != nil {
			return names, fmt.Errorf("removing resource provider %s (%s): %w; run the same command again: it "+
				"continues where it stopped", p.Name, p.UUID, err)
		}
		names = append(names, fmt.Sprintf("%s (%s)", p.Name, p.UUID))
	}
	return names, nil
}
