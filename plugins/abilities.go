// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"github.com/compute-agent/compute-agent/providertree"
)

// CapabilityReporter is implemented by drivers that tell what guests can do on a node, beside what they can have: the traits that
// Nova calls compute capabilities, by which its scheduler keeps a guest that needs something from a host that lacks it.
type CapabilityReporter interface {
	// Capabilities maps traits to whether the node has them now: COMPUTE_NET_ATTACH_INTERFACE, COMPUTE_RESCUE_BFV and the
	// like, standard or CUSTOM_. The agent puts those that are true on the node's root provider, and takes those that are false off it,
	// whoever put them there, as Nova does. One that is not named is left alone, unless the agent put it there when it was named.
	//
	// Traits that UpdateProviderTree itself sets need not be repeated. COMPUTE_NODE and COMPUTE_STATUS_DISABLED are the agent's own and
	// refused.
	//
	// It is called right after each UpdateProviderTree that succeeded, in the same turn, and speaks of that node at that time; it must not
	// block or ask the hypervisor anything. The map is read before the call returns and not kept. nil is an empty one.
	Capabilities(node string) map[string]bool
}

// GuestLister is implemented by drivers that know which guests there are, and at best what each of them has. The agent compares that with the
// allocations in Placement, on request: allocations of guests that are no more, and guests without allocations.
//
// Allocations can be deleted because a guest is missing in the list. So the list is all or an error.
type GuestLister interface {
	// Guests lists all guests of a node, running or not: everything that the hypervisor would start again or that somebody could
	// start, whether Nova, a person or another tool made it. tree is the node's as Placement has it, by which a driver finds the uuids of
	// its providers; edits of it are lost.
	//
	// An empty list says that there is no guest. Whoever cannot tell (the daemon does not answer, one of several guests cannot be read)
	// returns an error: [NotReady], or [ErrUnsupported] if it can never tell with this configuration. So does who is asked about a node that
	// is none of its own.
	//
	// It is called seldom, never beside Configure, AvailableNodes, UpdateProviderTree or Reshape, and may take as long as an
	// UpdateProviderTree. It changes nothing. At most 100,000 guests.
	Guests(ctx context.Context, tree *providertree.Tree, node string) ([]Guest, error)
}

// Guest is one guest of a node, as the hypervisor knows it.
type Guest struct {
	// UUID is that of the consumer in Placement, which is the instance's. Each is in the list once.
	UUID string
	// Name is for people.
	Name string
	// ProjectID and UserID are the owner's, or "" where the hypervisor does not know.
	ProjectID, UserID string
	// Resources are what the guest has: by the uuid of a provider in the tree (not necessarily the driver's: a sharing
	// provider too) and resource class, at least 1 each, in the class' unit. Nil: not known, which is not the same as nothing. It is
	// all of it or nil.
	Resources providertree.ProviderResources
	// Unknown is why Resources is nil and what to do about it, for people; may be "".
	Unknown string
	// Requested says that Resources is what was requested for the guest when it was created, by its flavor. Missing allocations are
	// created from it. Existing allocations are not compared with it: whoever made them may know more.
	Requested bool
}

// NodeChecker is implemented by drivers whose nodes can be gone for good while the agent lives on: a driver in front of a
// cluster or of many machines.
type NodeChecker interface {
	// NodeDeleted reports whether a node is gone for good: true lets the agent delete its resource providers. It is asked only about nodes
	// that the agent reported once and that AvailableNodes names no longer, with the uuid that they have in Placement.
	//
	// true needs proof, such as "the manager says that this machine was removed". A machine that is down, cannot be reached or
	// is not known is not deleted: false, or an error if it cannot be found out, [NotReady] for instance. The answer may be given again
	// after the agent has restarted, so it must not depend on what this process saw before.
	//
	// It is called never beside Configure, AvailableNodes, UpdateProviderTree or Reshape, and may take as long as AvailableNodes.
	NodeDeleted(ctx context.Context, node Node) (bool, error)
}
