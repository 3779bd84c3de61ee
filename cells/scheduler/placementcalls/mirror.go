// SPDX-License-Identifier: Apache-2.0

package placementcalls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Mirror is the mirror of host aggregates in Placement: the root provider of each node of a host is
// in the aggregates of the host, by their uuids. Other aggregates of a provider, and other
// providers in ours, are not touched: agents and operators have their own.
//
// It reads Placement first, then the API database, and writes with the generation that was read:
// whatever order writers come in, the last one to write has read the last change, or its write is a
// conflict and it reads again.
type Mirror struct {
	// Fenced is the Store for what only the process that schedules may write.
	Store, Fenced apidb.Store
	Placement     *Client
}

// writeTries is how often the aggregates of a provider are written while others write to it.
const writeTries = 5

// Node writes the aggregates of one node. A provider that Placement does not have yet has none. It
// costs two requests.
func (m *Mirror) Node(ctx context.Context, node apidb.Node) error {
	path := "/resource_providers/" + url.PathEscape(node.UUID) + "/aggregates"
	var err error
	for range writeTries {
		var is wire.AggregateList
		err = m.Placement.Do(ctx, http.MethodGet, path, nil, &is)
		if errors.Is(err, placementclient.ErrNotFound) {
			return nil
		}
		if err != nil {
			break
		}
		var ours apidb.HostAggregates
		if ours, err = m.Store.HostAggregates(ctx, node.Host); err != nil {
			break
		}
		wanted := slices.DeleteFunc(slices.Clone(is.Aggregates),
			func(uuid string) bool { return slices.Contains(ours.Out, uuid) })
		for _, uuid := range ours.In {
			if !slices.Contains(wanted, uuid) {
				wanted = append(wanted, uuid)
			}
		}
		if sameSet(wanted, is.Aggregates) {
			return nil
		}
		is.Aggregates = wanted
		if err = m.Placement.Do(ctx, http.MethodPut, path, is, nil); !errors.Is(err, placementclient.ErrConflict) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("mirroring the aggregates of host %s to its provider %s: %w", node.Host, node.UUID, err)
	}
	return nil
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))),
		slices.Compact(slices.Sorted(slices.Values(b))))
}

// Round does one round: it asks which providers are in each aggregate, and writes those of our
// nodes that should not be, or are missing. Nodes of hosts that were unmapped are taken out of all
// aggregates first. It costs one request for each aggregate, and two for each node that differs or
// was unmapped.
func (m *Mirror) Round(ctx context.Context) error {
	if err := m.unmapped(ctx); err != nil {
		return err // a deleted aggregate must not be forgotten before
	}
	all, err := m.Store.Aggregates(ctx)
	if err != nil {
		return err
	}
	deleted, err := m.Store.DeletedAggregates(ctx)
	if err != nil || len(all)+len(deleted) == 0 {
		return err
	}
	nodes, err := m.Store.Nodes(ctx)
	if err != nil {
		return err
	}
	differ := map[string]apidb.Node{}
	// members looks at an aggregate with some hosts, and says whether it is as it should be.
	members := func(uuid string, hosts []string) (bool, error) {
		providers, err := m.Placement.Providers(ctx, url.Values{"member_of": {uuid}})
		if err != nil {
			return false, fmt.Errorf("asking for the providers in aggregate %s: %w", uuid, err)
		}
		in, right := make(map[string]bool, len(providers)), true
		for _, p := range providers {
			in[p.UUID] = true
		}
		of := make(map[string]bool, len(hosts))
		for _, h := range hosts {
			of[h] = true
		}
		for _, n := range nodes {
			if in[n.UUID] != of[n.Host] {
				differ[n.UUID], right = n, false
			}
		}
		return right, nil
	}
	for i := range all {
		if _, err := members(all[i].UUID, all[i].Hosts); err != nil {
			return err
		}
	}
	var gone []string
	for _, uuid := range deleted {
		right, err := members(uuid, nil)
		if err != nil {
			return err
		}
		if right {
			gone = append(gone, uuid)
		}
	}
	var errs []error
	for _, uuid := range slices.Sorted(maps.Keys(differ)) {
		errs = append(errs, m.Node(ctx, differ[uuid]))
	}
	for _, uuid := range gone {
		errs = append(errs, m.Fenced.ForgetAggregate(ctx, uuid))
	}
	return errors.Join(errs...)
}

// unmapped takes the nodes of hosts that were unmapped out of the aggregates. One that is mapped
// again meanwhile is compared with all others afterwards.
func (m *Mirror) unmapped(ctx context.Context) error {
	nodes, err := m.Store.UnmappedNodes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range nodes {
		err := m.Node(ctx, node)
		if err == nil {
			err = m.Fenced.ForgetNode(ctx, node.UUID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
