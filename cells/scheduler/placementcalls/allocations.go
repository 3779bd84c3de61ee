// SPDX-License-Identifier: Apache-2.0

package placementcalls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Allocations reads what a consumer holds. One that Placement does not know holds nothing. One GET.
func (c *Client) Allocations(ctx context.Context, uuid string) (placementclient.ConsumerAllocations, error) {
	held, err := c.Client.Allocations(ctx, uuid)
	if err != nil {
		return held, fmt.Errorf("reading the allocations of consumer %s: %w", uuid, err)
	}
	return held, nil
}

// PutAllocations calls PutAllocations of [placementclient.Client] and counts the call.
func (c *Client) PutAllocations(ctx context.Context, consumer string, all wire.ConsumerAllocations) error {
	err := c.Client.PutAllocations(ctx, consumer, all)
	if err == nil && len(all.Allocations) > 0 {
		c.grants.Add(1)
	}
	return err
}

// PostAllocations calls PostAllocations of [placementclient.Client] and counts the call, which
// always allocates something.
func (c *Client) PostAllocations(ctx context.Context, all map[string]wire.ConsumerAllocations) error {
	err := c.Client.PostAllocations(ctx, all)
	if err == nil {
		c.grants.Add(1)
	}
	return err
}

// Claim gives a candidate to a server, in the place of what it holds, if that is unchanged since it
// was read with this generation; nil: it holds nothing. One PUT, and one GET if it conflicts.
//
// Errors: [ErrConsumerConflict] if it holds something else: see [Client.Allocations];
// otherwise those of [placementclient.Client.PutAllocations].
func (c *Client) Claim(
	ctx context.Context, server cellwire.Server, generation *int64, candidate resourcerequest.Candidate,
) error {
	all := candidate.ConsumerAllocations
	all.ProjectID, all.UserID, all.ConsumerGeneration,
		all.ConsumerType = server.ProjectID, server.UserID, generation, ConsumerType
	err := c.PutAllocations(ctx, server.UUID, all)
	if err == nil {
		return nil
	}
	if errors.Is(err, placementclient.ErrConflict) {
		// Placement has the same code for both conflicts; the consumer's generation says which it
		// was.
		held, readErr := c.Allocations(ctx, server.UUID)
		if readErr != nil {
			return readErr
		}
		if !sameGeneration(held.ConsumerGeneration, generation) {
			err = consumerConflict(err)
		}
	}
	return fmt.Errorf("allocating for server %s: %w", server.UUID, err)
}

func sameGeneration(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// releaseTries is how often Release reads again what others write at the same time.
const releaseTries = 5

// Release removes all allocations of a server; after a conflict it reads them again, and gives up
// after a few times. Nothing there is done. One GET; and one PUT if there is something.
//
// Errors: [ErrConsumerConflict] if others wrote each time; [placementclient.ErrOutcomeUnknown]: do
// it again.
func (c *Client) Release(ctx context.Context, uuid string) error {
	return c.ReleaseIf(ctx, uuid, func(context.Context) error { return nil })
}

// ReleaseIf is Release, if confirm returns no error after the allocations were read and before they
// are removed: a write of another process after confirm was called makes the removal a conflict.
func (c *Client) ReleaseIf(ctx context.Context, uuid string, confirm func(context.Context) error) error {
	var err error
	for range releaseTries {
		var held placementclient.ConsumerAllocations
		if held, err = c.Allocations(ctx, uuid); err != nil {
			return err
		}
		if len(held.Allocations) == 0 {
			return nil
		}
		if err := confirm(ctx); err != nil {
			return err
		}
		held.Allocations, held.Mappings = wire.ProviderResources{}, nil
		if !providertree.IsSymbol(held.ConsumerType) {
			held.ConsumerType = ConsumerType // "unknown", of a consumer from before there were types
		}
		err = c.PutAllocations(ctx, uuid, held.ConsumerAllocations)
		if !errors.Is(err, placementclient.ErrConflict) {
			break
		}
	}
	if errors.Is(err, placementclient.ErrConflict) {
		err = consumerConflict(err)
	}
	if err != nil {
		return fmt.Errorf("removing the allocations of consumer %s: %w", uuid, err)
	}
	return nil
}

// Usages is what a project holds, or a user of it ("": all), by resource class, over all consumer
// types. One GET.
func (c *Client) Usages(ctx context.Context, project, user string) (map[string]int64, error) {
	var answer wire.TypedUsagesReply
	query := url.Values{"project_id": {project}}
	if user != "" {
		query.Set("user_id", user)
	}
	if err := c.Do(ctx, http.MethodGet, "/usages?"+query.Encode(), nil, &answer); err != nil {
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
