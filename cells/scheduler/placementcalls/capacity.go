// SPDX-License-Identifier: Apache-2.0

package placementcalls

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// Capacity is what a compute node has by Placement, all of its tree together. What is reserved
// counts as used, as in Nova. Disks that are shared with other nodes are not among it.
type Capacity struct {
	CPUs, CPUsUsed         int64 // VCPU and PCPU, without overcommit
	MemoryMB, MemoryMBUsed int64
	DiskGB, DiskGBUsed     int64
}

// ErrCapacityUnknown says that Placement gave no answer.
var ErrCapacityUnknown = errors.New("what compute nodes have is not known, because Placement cannot be used")

// capacityReads is how many nodes are read at the same time.
const capacityReads = 8

// Capacities returns the capacities of compute nodes, by the uuids of their root providers. One
// that Placement does not know has nothing. Cost: for each a GET, and two for each provider of its
// tree.
//
// Errors: [ErrCapacityUnknown].
func (c *Client) Capacities(ctx context.Context, roots []string) ([]Capacity, error) {
	found := make([]Capacity, len(roots))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(capacityReads)
	for i, root := range roots {
		group.Go(func() (err error) {
			found[i], err = c.capacity(ctx, root)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCapacityUnknown, err)
	}
	return found, nil
}

// capacity returns the capacity of one compute node, by the uuid of its root provider.
func (c *Client) capacity(ctx context.Context, root string) (all Capacity, err error) {
	providers, err := c.ProvidersInTree(ctx, root)
	if err != nil {
		return all, err
	}
	for _, p := range providers {
		inventories, err := c.Inventories(ctx, p.UUID)
		if isNotFound(err) {
			continue // since the tree was listed
		}
		if err != nil {
			return all, err
		}
		if len(inventories) == 0 {
			continue
		}
		usages, err := c.ProviderUsages(ctx, p.UUID)
		if err != nil && !isNotFound(err) {
			return all, err
		}
		for class, inventory := range inventories {
			total, used := inventory.Total, inventory.Reserved+usages[class]
			switch class {
			case resourcerequest.ClassVCPU, resourcerequest.ClassPCPU:
				all.CPUs, all.CPUsUsed = all.CPUs+total, all.CPUsUsed+used
			case resourcerequest.ClassMemory:
				all.MemoryMB, all.MemoryMBUsed = all.MemoryMB+total, all.MemoryMBUsed+used
			case resourcerequest.ClassDisk:
				all.DiskGB, all.DiskGBUsed = all.DiskGB+total, all.DiskGBUsed+used
			}
		}
	}
	return all, nil
}

func isNotFound(err error) bool { return errors.Is(err, placementclient.ErrNotFound) }
