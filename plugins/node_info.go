// SPDX-License-Identifier: Apache-2.0

package plugins

import "context"

// CapabilityReporter is implemented by drivers that report what guests can do on a node: the traits
// that Nova calls compute capabilities, by which its scheduler selects hosts.
type CapabilityReporter interface {
	// Capabilities maps traits to whether the node has them now: COMPUTE_NET_ATTACH_INTERFACE,
	// COMPUTE_RESCUE_BFV and the like, standard or CUSTOM_. The agent adds those that are true to
	// the node's root provider, and removes those that are false, whichever client set them, as
	// Nova does. A trait that is not in the map is not changed, unless the agent added it when it
	// was.
	//
	// Traits that UpdateProviderTree sets need not be repeated. COMPUTE_NODE and
	// COMPUTE_STATUS_DISABLED are the agent's and are rejected.
	//
	// It is called right after each successful UpdateProviderTree of the node, before any other
	// call about nodes. It must not block or call the hypervisor. The map is read before the call
	// returns and not kept. nil counts as empty.
	Capabilities(node string) map[string]bool
}

// ProductNamer is implemented by drivers that know what the hardware behind resource providers is
// called.
type ProductNamer interface {
	// ProductNames maps names of the node's resource providers to product names, such as "NVIDIA
	// Corporation TU104GL [Tesla T4]". `compute-agent tree` shows them beside the providers. They
	// are not sent to Placement, and the agent does not act on them.
	//
	// Providers without a name are not in the map. Names of providers that are not in the tree are
	// ignored; a product name of more than 200 characters is truncated.
	//
	// It is called right after each successful UpdateProviderTree of the node, before any other
	// call about nodes, and must not block: it returns what the driver found earlier. The map is
	// read before the call returns and not kept.
	ProductNames(node string) map[string]string
}

// HypervisorReporter is implemented by drivers that know which hypervisor makes the guests of their
// nodes.
type HypervisorReporter interface {
	// Hypervisor returns the hypervisor of a node, which `openstack hypervisor list` shows. It is
	// not sent to Placement, and the agent does not act on it. The zero Hypervisor is one that is
	// not known now.
	//
	// It is called right after each successful UpdateProviderTree of the node, before any other
	// call about nodes, and must not block: it returns what the driver found earlier.
	Hypervisor(node string) Hypervisor
}

// Hypervisor is what makes the guests of a node, as Nova's hypervisor_type and hypervisor_version
// have it.
type Hypervisor struct {
	// Type is what it is called: QEMU, fake. A longer one than 100 characters is truncated.
	Type string
	// Version is its version as one number, as libvirt has it: 7.2.1 is 7002001. 0 is not known; so
	// is one that is negative, or above 2147483647.
	Version int64
}

// NodeChecker is implemented by drivers whose nodes can be removed for good while the agent runs: a
// driver for a cluster or for many machines.
type NodeChecker interface {
	// NodeDeleted reports whether a node was removed for good: true lets the agent delete its
	// resource providers. It is called only for nodes that the agent reported and that
	// AvailableNodes no longer lists, with their uuid in Placement.
	//
	// true needs proof, such as "the manager says that this machine was removed". A machine that is
	// down, unreachable or unknown is not deleted: return false, or an error such as [NotReady] if
	// that cannot be determined. The result must not depend on what this process saw before,
	// because the agent can call again after a restart.
	//
	// It is never called concurrently with Configure, AvailableNodes, UpdateProviderTree or
	// Reshape, and can take as long as AvailableNodes.
	NodeDeleted(ctx context.Context, node Node) (bool, error)
}
