// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Consumer is one consumer with all that it holds, also on other hosts and on sharing providers.
// Its Generation is nil if Placement does not have it.
type Consumer struct {
	UUID string
	providertree.ConsumerAllocations
	// Written is when its allocations were last written (Placement rewrites all of them each time),
	// to the second; zero if Placement does not say. Age is how long ago that was, by Placement's
	// clock if the answer has its time.
	Written time.Time
	Age     time.Duration
	// Elsewhere says that all it holds is on other hosts, and that Placement does not let this host
	// see what that is.
	Elsewhere bool
}

// Empty reports whether the consumer holds nothing.
func (c Consumer) Empty() bool { return len(c.Resources) == 0 && !c.Elsewhere }

// HeldProvider is one resource provider of a compute node, with its allocations by consumer.
type HeldProvider struct {
	UUID, Name string
	// Sharing says that it shares what it has with hosts outside of the tree
	// (MISC_SHARES_VIA_AGGREGATE): its consumers need not be on this node.
	Sharing     bool
	Inventories providertree.Inventories
	// Allocations are amounts by consumer and by class.
	Allocations map[string]providertree.Resources
}

// Used is how much of each class is allocated.
func (h HeldProvider) Used() providertree.Resources {
	used := providertree.Resources{}
	for _, amounts := range h.Allocations {
		used.Add(amounts)
	}
	return used
}

// Holdings are all allocations on one compute node.
type Holdings struct {
	// Providers are the root and all below it, by name.
	Providers []HeldProvider
	// Consumers are the consumers with allocations of Providers, by uuid. Each has all its
	// allocations, also those of other nodes' providers.
	Consumers map[string]Consumer
}

// Holdings reads all allocations of a compute node, of every resource provider and class. A node
// that Placement does not know has none. A consumer that has no allocations of the node any more
// when it is read is left out. Apart from that the result is not a snapshot: the generation of a
// consumer shows, when its allocations are written, whether they are still as they were read.
//
// Cost: two GETs, two for each provider, and one for each consumer. Nothing is cached.
func (c *Client) Holdings(ctx context.Context, root string) (Holdings, error) {
	out := Holdings{Consumers: map[string]Consumer{}}
	if err := c.placement.CheckVersion(ctx); err != nil {
		return out, err
	}
	list, err := c.placement.ProvidersInTree(ctx, root)
	if err != nil {
		return out, err
	}
	sharing, err := c.placement.Providers(ctx,
		url.Values{"in_tree": {root}, "required": {providertree.TraitSharesViaAggregate}})
	if err != nil {
		return out, err
	}
	found := map[string]bool{}
	for _, rp := range list {
		held, err := c.readHeldProvider(ctx, rp)
		if err != nil {
			return out, err
		}
		held.Sharing = slices.ContainsFunc(sharing, func(s wire.ResourceProvider) bool { return s.UUID == rp.UUID })
		out.Providers = append(out.Providers, held)
		for consumer := range held.Allocations {
			found[consumer] = true
		}
	}
	slices.SortFunc(out.Providers, func(a, b HeldProvider) int { return strings.Compare(a.Name, b.Name) })
	for _, uuid := range slices.Sorted(maps.Keys(found)) {
		consumer, err := c.Consumer(ctx, uuid)
		if err != nil {
			return out, err
		}
		holds := func(p HeldProvider) bool { return len(consumer.Resources[p.UUID]) > 0 }
		if slices.ContainsFunc(out.Providers, holds) {
			out.Consumers[uuid] = consumer
			continue
		}
		for _, p := range out.Providers {
			delete(p.Allocations, uuid)
		}
	}
	return out, nil
}

// readHeldProvider reads one provider's inventories and allocations.
func (c *Client) readHeldProvider(ctx context.Context, rp wire.ResourceProvider) (HeldProvider, error) {
	uuid := canonical(rp.UUID)
	out := HeldProvider{UUID: uuid, Name: rp.Name, Allocations: map[string]providertree.Resources{}}
	var inventories wire.Inventories
	var allocations map[string]wire.HeldAllocation
	err := c.placement.Do(ctx, http.MethodGet, "/resource_providers/"+uuid+"/inventories", nil, &inventories)
	if err == nil {
		allocations, err = c.placement.AllocationsOf(ctx, uuid)
	}
	if errors.Is(err, ErrNotFound) {
		return out, fmt.Errorf("%w: resource provider %s was deleted while its tree was read: %w",
			ErrConflict, rp.Name, err)
	}
	if err != nil {
		return out, err
	}
	out.Inventories = inventoriesFromWire(inventories.Inventories)
	for consumer, a := range allocations {
		out.Allocations[canonical(consumer)] = a.Resources
	}
	return out, nil
}

// Consumer reads all allocations of a consumer. For a consumer that Placement does not know, it
// returns one without allocations, owner and generation, because Placement's answer is the same for
// both. For a consumer on other hosts, a Placement that knows hosts refuses the request; then only
// Elsewhere is set.
//
// Written and Age follow from the header Last-Modified, which Placement sends from microversion
// 1.15 on. One GET.
func (c *Client) Consumer(ctx context.Context, uuid string) (Consumer, error) {
	in, err := c.placement.Allocations(ctx, uuid)
	if errors.Is(err, ErrHostRefused) {
		return Consumer{UUID: uuid, Elsewhere: true}, nil
	}
	if err != nil {
		return Consumer{}, err
	}
	out := Consumer{UUID: uuid}
	out.Resources = allocationsFromWire(in.Allocations)
	if out.Empty() {
		return out, nil
	}
	out.ProjectID, out.UserID, out.Generation, out.Written = in.ProjectID, in.UserID, in.ConsumerGeneration, in.Written
	if !out.Written.IsZero() {
		now := in.Date
		if now.IsZero() {
			now = c.config.Now()
		}
		out.Age = now.Sub(out.Written)
	}
	return out, nil
}

// ConsumerType reads the type of a consumer, such as INSTANCE or MIGRATION; "" if it has none, or
// is gone. One GET.
//
// Errors: [ErrTooOld] if Placement has no types: they came with microversion 1.38, which is newer
// than what this package requires.
func (c *Client) ConsumerType(ctx context.Context, uuid string) (string, error) {
	var in wire.ConsumerAllocations
	call := placementclient.Call{
		Method: http.MethodGet, Path: "/allocations/" +
			uuid, Out: &in, Microversion: wire.Version(wire.ConsumerTypes).String(),
	}
	if err := c.placement.Send(ctx, &call); err != nil {
		return "", err
	}
	if in.ConsumerType == wire.ConsumerTypeUnknown {
		return "", nil
	}
	return in.ConsumerType, nil
}

// DeleteOurPart deletes a consumer's allocations of our providers and keeps all others. A consumer
// without others is deleted. changed is false if it has none of our providers: then no request is
// sent.
//
// Errors: [ErrConflict] if the consumer changed since it was read, [ErrInsufficientCapacity] if its
// other allocations no longer fit.
func (c *Client) DeleteOurPart(ctx context.Context, consumer Consumer, ours []string) (changed bool, err error) {
	rest := maps.Clone(consumer.Resources)
	maps.DeleteFunc(rest,
		func(provider string, _ providertree.Resources) bool { return slices.Contains(ours, provider) })
	switch {
	case len(rest) == len(consumer.Resources):
		return false, nil
	case consumer.Generation == nil:
		return false, fmt.Errorf("%w: consumer %s has no generation, so a concurrent change would not be detected",
			ErrUnexpected, consumer.UUID)
	}
	return true, c.putAllocations(ctx, consumer, rest)
}

// OwnProviders returns those of some resource providers that Placement lets this host read: its
// own, if that Placement knows hosts, and otherwise all that exist. Cost: one GET for each.
func (c *Client) OwnProviders(ctx context.Context, providers []string) ([]string, error) {
	var ours []string
	for _, uuid := range slices.Sorted(slices.Values(providers)) {
		switch _, err := c.Usages(ctx, uuid); {
		case err == nil:
			ours = append(ours, uuid)
		case !errors.Is(err, ErrHostRefused) && !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return ours, nil
}

// CreateAllocations creates the allocations of a consumer that has none: its generation must be
// nil. Placement checks the capacity.
//
// Errors: [ErrConflict] if the consumer has allocations now, [ErrInsufficientCapacity] if the
// capacity is exceeded, [ErrInvalid] for a provider or class that Placement does not know.
func (c *Client) CreateAllocations(ctx context.Context, consumer Consumer) error {
	if consumer.Generation != nil || consumer.Empty() {
		return fmt.Errorf("consumer %s: allocations are created only for consumers without any, and must not be empty",
			consumer.UUID)
	}
	return c.putAllocations(ctx, consumer, consumer.Resources)
}

func (c *Client) putAllocations(ctx context.Context, consumer Consumer, all providertree.ProviderResources) error {
	return c.placement.PutAllocations(ctx, consumer.UUID, wire.ConsumerAllocations{
		Allocations: wire.ProviderResources(all), ProjectID: consumer.ProjectID, UserID: consumer.UserID,
		ConsumerGeneration: consumer.Generation,
	})
}
