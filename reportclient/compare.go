// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// CompareReshape looks whether a reshape of which no answer came, or which a journal holds from
// before a restart, has happened. The generations in it must be those that were sent.
//
// A reshape happens whole or not at all, so one sign is as good as all: a provider with another
// inventory than before, or a consumer with other allocations, that are just as they should become,
// or still just as they were. Providers and consumers that another client has changed since, and
// consumers that are gone, say nothing. The outcome is unknown if nothing says anything, or signs
// contradict each other.
//
// "Refused" means: not until now. A request that is still on its way could yet arrive; Apply makes
// sure that it then comes to nothing.
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
