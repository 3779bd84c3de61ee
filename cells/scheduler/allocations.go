// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Consumer is a server as Placement knows it.
type Consumer struct {
	UUID, ProjectID, UserID string
}

// HeldAllocations is what a consumer holds. Generation is nil, and Allocations empty, of one that
// holds nothing.
type HeldAllocations struct {
	Consumer
	Generation  *int64
	Type        string
	Allocations map[string]wire.ProviderAllocation
}

// Empty says that the consumer holds nothing.
func (h HeldAllocations) Empty() bool { return len(h.Allocations) == 0 }

// Allocations reads what a consumer holds. One that Placement does not know holds nothing. One GET.
func (c *PlacementClient) Allocations(ctx context.Context, uuid string) (HeldAllocations, error) {
	a, err := c.Client.Allocations(ctx, uuid)
	if err != nil {
		return HeldAllocations{}, fmt.Errorf("reading the allocations of server %s: %w", uuid, err)
	}
	return HeldAllocations{
		Consumer:   Consumer{UUID: uuid, ProjectID: a.ProjectID, UserID: a.UserID},
		Generation: a.ConsumerGeneration, Type: a.ConsumerType, Allocations: a.Allocations,
	}, nil
}

// Claim gives a candidate to a server that holds nothing. One PUT, and one GET if it conflicts.
//
// Errors: [ErrConsumerConflict] if it does hold something: see [PlacementClient.Allocations];
// otherwise those of [placementclient.PlacementClient.PutAllocations].
func (c *PlacementClient) Claim(ctx context.Context, consumer Consumer, candidate Candidate) error {
	return c.put(ctx, consumer, nil, candidate)
}

// Move replaces the allocations of a server by a candidate, if they are unchanged since they were
// read. Errors and cost are those of [PlacementClient.Claim].
func (c *PlacementClient) Move(ctx context.Context, consumer Consumer, held HeldAllocations, candidate Candidate) error {
	return c.put(ctx, consumer, held.Generation, candidate)
}

func (c *PlacementClient) put(ctx context.Context, consumer Consumer, generation *int64, candidate Candidate) error {
	err := c.PutAllocations(ctx, consumer.UUID, wire.ConsumerAllocations{
		Allocations: candidate.Allocations, ProjectID: consumer.ProjectID, UserID: consumer.UserID,
		ConsumerGeneration: generation, ConsumerType: ConsumerType, Mappings: candidate.Mappings,
	})
	if err == nil {
		return nil
	}
	if errors.Is(err, placementclient.ErrConflict) {
		// Placement has the same code for both conflicts; the consumer's generation says which it
		// was.
		held, readErr := c.Allocations(ctx, consumer.UUID)
		if readErr != nil {
			return readErr
		}
		if !sameGeneration(held.Generation, generation) {
			err = consumerConflict(err)
		}
	}
	return fmt.Errorf("allocating for server %s: %w", consumer.UUID, err)
}

func sameGeneration(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// releaseTries is how often Release reads again what others write at the same time.
const releaseTries = 5

// Release removes all allocations of a server; after a conflict it reads them again, and gives up
// after a few times. Nothing there is done. One GET; and one PUT if there is something.
//
// Errors: [ErrConsumerConflict] if others wrote each time; [placementclient.ErrOutcomeUnknown]: do
// it again.
func (c *PlacementClient) Release(ctx context.Context, uuid string) error {
	var err error
	for range releaseTries {
		var held HeldAllocations
		if held, err = c.Allocations(ctx, uuid); err != nil {
			return err
		}
		if held.Empty() {
			return nil
		}
		kind := held.Type
		if !providertree.IsSymbol(kind) {
			kind = ConsumerType // "unknown", of a consumer from before there were types
		}
		err = c.PutAllocations(ctx, uuid, wire.ConsumerAllocations{
			Allocations: map[string]wire.ProviderAllocation{}, ProjectID: held.ProjectID, UserID: held.UserID,
			ConsumerGeneration: held.Generation, ConsumerType: kind,
		})
		if !errors.Is(err, placementclient.ErrConflict) {
			break
		}
	}
	if errors.Is(err, placementclient.ErrConflict) {
		err = consumerConflict(err)
	}
	if err != nil {
		return fmt.Errorf("removing the allocations of server %s: %w", uuid, err)
	}
	return nil
}

// Usages is what a project holds, by resource class, over all consumer types. One GET.
func (c *PlacementClient) Usages(ctx context.Context, project string) (map[string]int64, error) {
	var answer wire.TypedUsagesReply
	if err := c.Do(ctx, http.MethodGet, "/usages?"+url.Values{"project_id": {project}}.Encode(), nil, &answer); err != nil {
		return nil, fmt.Errorf("reading the usages of project %s: %w", project, err)
	}
	total := map[string]int64{}
	for _, usages := range answer.Usages {
		for class, n := range usages {
			if class != wire.ConsumerCount {
				total[class] += n
			}
		}
	}
	return total, nil
}
