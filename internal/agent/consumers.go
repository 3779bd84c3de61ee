// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// maxTyped bounds the consumers of one tree whose type is read, each with a GET.
const maxTyped = 100

// guestIndex is what is known of the consumers on this host: the guests that the drivers list, and
// the servers of the cell.
type guestIndex struct {
	guests map[string]listedGuest // by uuid
	// why the guests of a node are unknown, by the name of the node; of a driver by "driver NAME"
	failed map[string]string
	names  map[string]string // of the cell's servers, by uuid
}

// listedGuest is a guest with the name of its node.
type listedGuest struct {
	plugins.Guest
	node string
}

// indexGuests asks every driver for its guests, which waits for its current pass.
//
// Cost: what [resourcetracker.Tracker.Guests] costs, for each driver.
func (a *Agent) indexGuests(ctx context.Context) guestIndex {
	ctx, cancel := context.WithTimeout(ctx, treeTimeout)
	defer cancel()
	out := guestIndex{guests: map[string]listedGuest{}, failed: map[string]string{}}
	if a.cell != nil {
		out.names = a.cell.worker.Names()
	}
	for _, d := range a.drivers.active() {
		nodes, err := d.tracker.Guests(ctx)
		if err != nil {
			out.failed["driver "+d.name] = err.Error() // it may have no node yet
			for _, n := range d.tracker.Status().Nodes {
				out.failed[n.Name] = err.Error()
			}
		}
		for _, n := range nodes {
			if n.Err != nil {
				out.failed[n.Node.Name] = n.Err.Error()
			}
			for _, g := range n.Guests {
				out.guests[g.UUID] = listedGuest{g, n.Node.Name}
			}
		}
	}
	return out
}

// consumer describes a consumer for a node, without its resources.
func (gi guestIndex) consumer(node, uuid string) control.Consumer {
	out := control.Consumer{UUID: uuid, Name: gi.names[uuid]}
	_, server := gi.names[uuid]
	g, listed := gi.guests[uuid]
	switch {
	case listed && g.node == node:
		out.Kind, out.Guest = control.KindGuest, g.Name
	case listed:
		out.Kind, out.Guest, out.GuestOf = control.KindElsewhere, g.Name, g.node
	case len(gi.failed) > 0: // it may be a guest of those
		out.Kind = control.KindUnchecked
	case server:
		out.Kind = control.KindServer
	default:
		out.Kind = control.KindOther
	}
	return out
}

// consumersOf reads the consumers of a provider: the guests first, each in order of names. used is
// the sum of what they hold.
func (a *Agent) consumersOf(
	ctx context.Context, node, uuid string, x guestIndex,
) (list []control.Consumer, used providertree.Resources, err error) {
	held, err := a.placement.ConsumersOf(ctx, uuid)
	if err != nil {
		return nil, nil, err
	}
	used = providertree.Resources{}
	list = []control.Consumer{}
	for consumer, resources := range held {
		c := x.consumer(node, consumer)
		c.Resources = maps.Clone(resources)
		used.Add(resources)
		list = append(list, c)
	}
	slices.SortFunc(list, control.Consumer.Compare)
	return list, used, nil
}

// typeReader is what reads the type of a consumer; *[reportclient.Client] does.
type typeReader interface {
	ConsumerType(ctx context.Context, uuid string) (string, error)
}

// addTypes reads the types of the consumers of a tree that are no guests, such as those of
// migrations, as far as Placement says them. What providers share with other hosts is left out: its
// consumers are mostly theirs.
func addTypes(ctx context.Context, placement typeReader, providers []control.Provider) {
	types := map[string]string{}
	for i := range providers {
		if slices.Contains(providers[i].Traits, providertree.TraitSharesViaAggregate) {
			continue
		}
		for j := range providers[i].Consumers {
			c := &providers[i].Consumers[j]
			if c.Kind == control.KindGuest {
				continue
			}
			kind, known := types[c.UUID]
			if !known && len(types) < maxTyped {
				var err error
				if kind, err = placement.ConsumerType(ctx, c.UUID); err != nil {
					return
				}
				types[c.UUID] = kind
			}
			c.Type = kind
		}
	}
}

// withoutAllocations lists the guests of a node that none of the consumers is.
func (gi guestIndex) withoutAllocations(node string, providers []control.Provider) []control.Consumer {
	holding := map[string]bool{}
	for _, p := range providers {
		for _, c := range p.Consumers {
			holding[c.UUID] = true
		}
	}
	var list []control.Consumer
	for uuid, g := range gi.guests {
		if g.node == node && !holding[uuid] {
			list = append(list, gi.consumer(node, uuid))
		}
	}
	slices.SortFunc(list, func(a, b control.Consumer) int { return strings.Compare(a.UUID, b.UUID) })
	return list
}

// consumers is the part of *reportclient.Client that grants uses.
type consumers interface {
	Consumer(ctx context.Context, uuid string) (reportclient.Consumer, error)
	DeleteOurPart(ctx context.Context, consumer reportclient.Consumer, ours []string) (changed bool, err error)
	OwnProviders(ctx context.Context, providers []string) ([]string, error)
}

// grants provides the allocations of servers to the worker.
type grants struct{ placement consumers }

// grantTries limits attempts after concurrent writes of other clients.
const grantTries = 5

// Granted implements [worker.Allocations]. One GET. A consumer whose allocations are on other hosts
// is an error if Placement does not say which they are.
func (g grants) Granted(ctx context.Context, uuid string) (providertree.ProviderResources, error) {
	c, err := g.placement.Consumer(ctx, uuid)
	if err == nil && c.Elsewhere {
		err = fmt.Errorf("consumer %s has allocations on other hosts only", uuid)
	}
	return c.Resources, err
}

// Remove implements [worker.Allocations]: it removes all allocations of the consumer, on all
// providers, because the server is deleted. Each attempt uses the generation that was read. One
// GET and, if there are allocations, one PUT. What the consumer has on other hosts stays where
// Placement lets a host remove its own part only: the client that moved the server there removes
// it.
func (g grants) Remove(ctx context.Context, uuid string) error {
	var err error
	for range grantTries {
		var c reportclient.Consumer
		if c, err = g.placement.Consumer(ctx, uuid); err != nil {
			return err
		}
		held := slices.Collect(maps.Keys(c.Resources))
		_, err = g.placement.DeleteOurPart(ctx, c, held)
		if errors.Is(err, reportclient.ErrHostRefused) {
			if held, err = g.placement.OwnProviders(ctx, held); err == nil {
				_, err = g.placement.DeleteOurPart(ctx, c, held)
			}
		}
		if !errors.Is(err, reportclient.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("another client keeps changing the allocations of consumer %s: %w", uuid, err)
}
