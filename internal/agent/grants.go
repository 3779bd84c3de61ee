// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// consumers is the part of *reportclient.Client that grants uses.
type consumers interface {
	Consumer(ctx context.Context, uuid string) (reportclient.Consumer, error)
	DeleteOurPart(ctx context.Context, consumer reportclient.Consumer, ours []string) (changed bool, err error)
	OwnConsumers(ctx context.Context, providers []string) ([]string, error)
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
			if held, err = g.placement.OwnConsumers(ctx, held); err == nil {
				_, err = g.placement.DeleteOurPart(ctx, c, held)
			}
		}
		if !errors.Is(err, reportclient.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("another client keeps changing the allocations of consumer %s: %w", uuid, err)
}
