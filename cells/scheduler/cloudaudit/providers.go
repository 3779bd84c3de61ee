// SPDX-License-Identifier: Apache-2.0

package cloudaudit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// aggregatesAsked is how many aggregates one request for their resource providers names.
const aggregatesAsked = 50

// auditProviders finds resource providers whose host is neither mapped nor known to a cell. Cost:
// some requests for each provider outside the trees of known nodes.
func (a *audit) auditProviders(ctx context.Context) error {
	if !a.placement || !a.complete() {
		return nil // it may be of a host of a cell that was not asked
	}
	a.c.Progress("the providers without a host")
	consumers := map[string]int{}
	for _, on := range a.held {
		for place := range on {
			consumers[place]++
		}
	}
	trees := map[string][]string{}
	for provider, place := range a.places {
		trees[place] = append(trees[place], provider)
	}
	for _, place := range slices.Sorted(maps.Keys(a.names)) {
		if a.hasHost(place) || a.hasHost(a.roots[place]) {
			continue
		}
		f, err := a.checkProvider(ctx, place, trees[place], consumers[place])
		if err != nil {
			return a.placementUnavailable(ctx, err)
		}
		if f != nil {
			a.addFinding(*f)
		}
	}
	return nil
}

// hasHost reports whether a resource provider is the node of a host that is mapped, or that a cell
// knows.
func (a *audit) hasHost(uuid string) bool {
	_, mapped := a.mapped[uuid]
	_, reported := a.reported[uuid]
	return mapped || reported
}

// checkProvider returns what is wrong with a tree outside those of known nodes; nil: nothing. A
// compute node is always reported. Any other tree is right if it is in an aggregate with a node of
// a host, or has no inventory and no consumers.
func (a *audit) checkProvider(ctx context.Context, place string, tree []string, consumers int) (*Finding, error) {
	f := &Finding{Kind: FindingNoHost, Provider: place}
	remove := "If nothing is held: openstack resource provider delete " + place
	named := fmt.Sprintf("Resource provider %s (%s)", a.names[place], place)
	if a.compute[place] && a.roots[place] == place {
		f.Text = fmt.Sprintf("%s is that of a compute node of no host here; %d consumers hold something of it.",
			named, consumers)
		f.Hint = "It may be the node of an agent without a cell, or of Nova. If its machine is gone: see who holds " +
			"something, with openstack resource provider show --allocations " + place + ". " + remove
		return f, nil
	}
	has := consumers > 0
	for _, provider := range tree {
		if has {
			break
		}
		inventories, err := a.c.Placement.Inventories(ctx, provider)
		if err != nil && !errors.Is(err, placementclient.ErrNotFound) {
			return nil, fmt.Errorf("reading the inventory of resource provider %s: %w", provider, err)
		}
		has = len(inventories) > 0
	}
	if !has {
		return nil, nil
	}
	for _, provider := range tree {
		if used, err := a.aggregated(ctx, provider); used || err != nil {
			return nil, err
		}
	}
	f.Text = fmt.Sprintf(
		"%s is in the tree of no host here, and in no aggregate with a node of one; %d consumers hold something of it.",
		named, consumers)
	f.Hint = "It may be the node of an agent without a cell and of an older " +
		"version, or of another service. If what it is about is gone: " +
		"see who holds something, with openstack resource provider show --allocations " + place + ". " + remove
	if a.sharing[place] {
		f.Text = fmt.Sprintf(
			"%s is shared, and in no aggregate with a node of a host here; %d consumers hold something of it.", named,
			consumers)
		f.Hint = "If hosts here use it: openstack resource provider aggregate set puts it and their nodes into an " +
			"aggregate. It may be for nodes of Nova, or of agents without a cell. " + remove
	}
	return f, nil
}

// aggregated reports whether a resource provider is in an aggregate with one in the tree of a known
// node.
func (a *audit) aggregated(ctx context.Context, provider string) (bool, error) {
	aggregates, err := a.c.Placement.Aggregates(ctx, provider)
	if errors.Is(err, placementclient.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the aggregates of resource provider %s: %w", provider, err)
	}
	for part := range slices.Chunk(aggregates, aggregatesAsked) {
		members, err := a.c.Placement.Providers(ctx, url.Values{"member_of": {"in:" + strings.Join(part, ",")}})
		if err != nil {
			return false, fmt.Errorf("reading which resource providers are in the aggregates of %s: %w", provider, err)
		}
		if slices.ContainsFunc(members, func(m wire.ResourceProvider) bool { return a.hasHost(m.Root) }) {
			return true, nil
		}
	}
	return false, nil
}
