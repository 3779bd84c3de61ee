// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// CompareReshape finds out whether a reshape has happened that had no answer, or that a journal has
// from before a restart. r must have the generations that were sent.
//
// Placement carries out a reshape as a whole or not at all. So one provider or consumer that the
// reshape changes is enough: it is as the reshape would make it, or still as it was. If it is
// neither, another client has changed it since, and it decides nothing. The outcome is
// [ReshapeUnknown] if nothing decides, or if two of them contradict each other.
//
// [ReshapeRefused] means that the reshape has not happened so far: a request that is still on its
// way can yet be carried out. [Client.ResolveReshape] prevents that.
//
// Cost: one GET for each provider and each consumer of the reshape.
func (c *Client) CompareReshape(ctx context.Context, r *Reshape) (ReshapeOutcome, error) {
	found, err := c.compareReshape(ctx, r)
	return found.outcome(), err
}

// signs are what a comparison found.
type signs struct {
	happened, not int
	// moved: some provider has another generation than the request carries, so that it can no
	// longer happen.
	moved bool
}

func (s signs) outcome() ReshapeOutcome {
	switch {
	case s.happened > 0 && s.not == 0:
		return ReshapeHappened
	case s.not > 0 && s.happened == 0:
		return ReshapeRefused
	}
	return ReshapeUnknown
}

func (s *signs) count(after, before bool) {
	switch {
	case after && !before:
		s.happened++
	case before && !after:
		s.not++
	}
}

// compareReshape returns no signs beside an error.
func (c *Client) compareReshape(ctx context.Context, r *Reshape) (signs, error) {
	var found signs
	for _, p := range r.Providers {
		var now wire.Inventories
		err := c.placement.Do(ctx, http.MethodGet, "/resource_providers/"+p.UUID+"/inventories", nil, &now)
		// deleted by the rest of the plan, or by another client: it has no inventory
		gone := errors.Is(err, ErrNotFound)
		if err != nil && !gone {
			return signs{}, fmt.Errorf("checking whether the reshape of %s (%s) happened: %w", p.Name, p.UUID, err)
		}
		if !gone && now.Generation == p.Generation {
			found.not++ // no write has reached it
			continue
		}
		found.moved = true
		inventories := inventoriesFromWire(now.Inventories)
		found.count(inventories.Equal(p.After), inventories.Equal(p.Before))
	}
	for _, consumer := range r.Consumers {
		now, err := c.Consumer(ctx, consumer.UUID)
		if err != nil {
			return signs{}, fmt.Errorf("checking whether the reshape of consumer %s happened: %w", consumer.UUID, err)
		}
		if now.Elsewhere {
			continue // another client has moved it: a sign of neither
		}
		found.count(now.Resources.Equal(consumer.After), now.Resources.Equal(consumer.Before))
	}
	return found, nil
}
