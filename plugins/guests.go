// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"github.com/compute-agent/compute-agent/providertree"
)

// GuestLister is implemented by drivers that can list guests, and at best their resources. The
// agent compares them with the allocations in Placement, to find allocations of removed guests and
// guests without allocations.
//
// Allocations can be deleted because a guest is missing in the list. So the list is complete or an
// error.
type GuestLister interface {
	// Guests lists all guests of a node, running or not: all that the hypervisor or a user can
	// start, whether Nova, an operator or another tool created them. tree is the node's as
	// Placement has it, for the uuids of its providers; edits are discarded.
	//
	// An empty list means that there is no guest. If the list is not known (the daemon does not
	// respond, one guest cannot be read), return an error: [NotReady], or [ErrUnsupported] if it
	// can never be known with this configuration. Return an error also for a node that is not the
	// driver's.
	//
	// Before a reshape is written it is called with the tree that the reshape would make: what
	// moves of a guest must be where its Resources are.
	//
	// It is called rarely, never concurrently with Configure, AvailableNodes, UpdateProviderTree or
	// Reshape, and can take as long as an UpdateProviderTree. It changes nothing. At most 100,000
	// guests.
	Guests(ctx context.Context, tree *providertree.Tree, node string) ([]Guest, error)
}

// Guest is one guest of a node, as the hypervisor knows it.
type Guest struct {
	// UUID is the UUID of the consumer in Placement, which is the instance's. Each is listed once.
	UUID string
	// Name is for display only.
	Name string
	// ProjectID and UserID are the owner's, or "" where the hypervisor does not know.
	ProjectID, UserID string
	// Resources are all resources of the guest, by uuid of a provider in the tree (also a sharing
	// provider) and resource class, at least 1 each, in the class' unit. Nil: not known, which is
	// not the same as none.
	Resources providertree.ProviderResources
	// ResourcesUnknown tells operators why Resources is nil and what to do about it; can be "".
	ResourcesUnknown string
	// FromFlavor says that Resources is what was requested for the guest when it was created, by
	// its flavor. Missing allocations are created from it. Existing allocations are not compared
	// with it.
	FromFlavor bool
}
