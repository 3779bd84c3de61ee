// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// The mirror of host aggregates in Placement: the root provider of each node of a host is in the
// aggregates of the host, by their uuids. Other aggregates of a provider, and other providers in
// ours, are not touched: agents and operators have their own.
//
// A change is written at once by the process that was asked for it, and what is left of it after an
// outage by the rounds of the process that schedules. Both read Placement first, then the API
// database, and write with the generation that was read: whatever order writers come in, the last
// one to write has read the last change, or its write is a conflict and it reads again.

// mirrorWait is how long a request that changes an aggregate waits for Placement at most.
const mirrorWait = 5 * time.Second

// mirrorTries is how often the aggregates of a provider are written while others write to it.
const mirrorTries = 5

// MirrorHost writes the aggregates of a host to Placement, if it can be done at once; if not, the
// log says so, and a round of [Scheduler.Run] does it. It costs two requests for each node of the
// host.
func (s *Scheduler) MirrorHost(ctx context.Context, host string) {
	// the change is made: a client that goes does not undo it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mirrorWait)
	defer cancel()
	nodes, err := s.o.Store.Nodes(ctx)
	for _, node := range nodes {
		if node.Host == host {
			err = errors.Join(err, s.mirrorNode(ctx, node))
		}
	}
	if err != nil {
		s.o.Logger.Warn().Err(err).Str("host", host).
			Msg("Could not write the aggregates of a host to Placement. Servers may be refused there until the next " +
				"round writes them.")
	}
}

// mirrorNode writes the aggregates of one node. A provider that Placement does not have yet has
// none.
func (s *Scheduler) mirrorNode(ctx context.Context, node apidb.Node) error {
	path := "/resource_providers/" + url.PathEscape(node.UUID) + "/aggregates"
	var err error
	for range mirrorTries {
		var is wire.AggregateList
		err = s.o.Placement.Do(ctx, http.MethodGet, path, nil, &is)
		if errors.Is(err, placementclient.ErrNotFound) {
			return nil
		}
		if err != nil {
			break
		}
		var ours apidb.HostAggregates
		if ours, err = s.o.Store.HostAggregates(ctx, node.Host); err != nil {
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
		if err = s.o.Placement.Do(ctx, http.MethodPut, path, is, nil); !errors.Is(err, placementclient.ErrConflict) {
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

// mirrorAndLog does one round, and logs the first failure in a row.
func (s *Scheduler) mirrorAndLog(ctx context.Context) {
	switch err := s.mirror(ctx); {
	case ctx.Err() != nil:
	case err == nil && s.mirrorFails.Swap(false):
		s.o.Logger.Info().Msg("The host aggregates are in Placement again as they should be.")
	case err != nil && !s.mirrorFails.Swap(true):
		s.o.Logger.Warn().Err(err).
			Msg("Could not compare the host aggregates with those in Placement. Servers may be refused where they " +
				"should fit. Retrying.")
	}
}

// mirror does one round: it asks which providers are in each aggregate, and writes those of our
// nodes that should not be, or are missing. Nodes of hosts that were unmapped are taken out of all
// aggregates first. It costs one request for each aggregate, and two for each node that differs or
// was unmapped.
func (s *Scheduler) mirror(ctx context.Context) error {
	if err := s.mirrorUnmapped(ctx); err != nil {
		return err // a deleted aggregate must not be forgotten before
	}
	all, err := s.o.Store.Aggregates(ctx)
	if err != nil {
		return err
	}
	deleted, err := s.o.Store.DeletedAggregates(ctx)
	if err != nil || len(all)+len(deleted) == 0 {
		return err
	}
	nodes, err := s.o.Store.Nodes(ctx)
	if err != nil {
		return err
	}
	differ := map[string]apidb.Node{}
	// members looks at an aggregate with some hosts, and says whether it is as it should be.
	members := func(uuid string, hosts []string) (bool, error) {
		providers, err := s.o.Placement.Providers(ctx, url.Values{"member_of": {uuid}})
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
		errs = append(errs, s.mirrorNode(ctx, differ[uuid]))
	}
	for _, uuid := range gone {
		errs = append(errs, s.o.Fenced.ForgetAggregate(ctx, uuid))
	}
	return errors.Join(errs...)
}

// mirrorUnmapped takes the nodes of hosts that were unmapped out of the aggregates. One that is
// mapped again meanwhile is compared with all others afterwards.
func (s *Scheduler) mirrorUnmapped(ctx context.Context) error {
	nodes, err := s.o.Store.UnmappedNodes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range nodes {
		err := s.mirrorNode(ctx, node)
		if err == nil {
			err = s.o.Fenced.ForgetNode(ctx, node.UUID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
