// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"encoding/json"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/providertree"
)

// Driver is what a driver author implements.
//
// The agent can stop the process at any time and start it again, so a driver keeps no state that it
// cannot find again. The agent can also start a second process beside the first, to replace it
// after an update.
//
// Calls: Configure comes before all calls about nodes: AvailableNodes, UpdateProviderTree, and
// the optional LayoutVersion, Reshape, Capabilities, ProductNames, Hypervisor, ClassRenames, Guests
// and NodeDeleted.
// Configure and these never run concurrently. Info, ConfigSchema, Watch, Health and Warnings can be
// called at any time, concurrently with all others. Every context ends with the deadline of the
// call. A driver that keeps working afterwards delays the next call, and the agent kills a process
// that no longer responds. A panic becomes an error of that call.
//
// Logging: [Logger] returns the logger of any of these contexts. Lines on standard output and
// standard error are also written to the agent's log.
type Driver interface {
	// Info returns the driver's name and version. It must not block or fail, and works before
	// Configure.
	Info() Info

	// ConfigSchema returns a JSON Schema of the driver's configuration (the agent's table
	// [drivers.NAME.config]), or nil if it takes none. It must not block, and works before
	// Configure.
	ConfigSchema() []byte

	// Configure applies the configuration, which is a JSON object, "{}" if there is none. It is
	// called first, and again whenever the configuration may have changed; after an error the
	// former configuration stays in effect.
	//
	// It is strict: an unknown key is an error, as [DecodeConfig] makes it. Return a [*ConfigError]
	// that names the key. Do not fail because of the machine's state (a daemon that does not
	// respond yet): return [NotReady] from the calls for nodes or trees.
	Configure(ctx context.Context, config json.RawMessage, host HostInfo) error

	// AvailableNodes lists the compute nodes that the driver is responsible for: mostly one, the
	// machine itself.
	//
	// Errors: [NotReady] while that is not known yet. Never return an empty list instead: it means
	// that there are no nodes.
	AvailableNodes(ctx context.Context) ([]Node, error)

	// UpdateProviderTree edits tree so that it has the node's inventory. The tree is what Placement
	// has now: the root of that name and all below it, and the sharing providers beside it. The
	// driver edits it in place; after an error it is discarded.
	//
	//   - Change only what is the driver's own: providers, inventories, traits and aggregates that
	//     other clients wrote stay. Use SetInventory and AddTraits instead of replacing everything.
	//   - Be idempotent: called with its own result, it changes nothing.
	//   - Look up a child by its name first: an existing one, of Nova or another agent, keeps its
	//     uuid. Use [providertree.ChildUUID] for new ones, so that they are found after a restart.
	//
	// If inventory that guests use must move to another provider, return [ErrReshapeNeeded] when
	// allocations is nil, as it usually is. The agent then calls again with all allocations of the
	// tree. Edit both, and return the allocations, in which every consumer has the same amounts as
	// before, at their new places. They leave only places whose inventory is removed, shrinks or
	// does not fit them any more, and go to where [GuestLister] lists the guest. Nil stands for the
	// given allocations, as edited.
	//
	// Errors: [ErrReshapeNeeded]; a [*ReshapeFailed] if the given allocations cannot be moved;
	// [NotReady] if the machine's state is not known now. After any error Placement keeps what was
	// last reported.
	UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string,
		allocations providertree.Allocations) (providertree.Allocations, error)
}

// Watcher is implemented by drivers that notice changes (hot-plug, a daemon that came back).
type Watcher interface {
	// Watch calls changed with the name of a node, or "" for all nodes, whenever its tree may have
	// changed, and returns when ctx ends. It can be called before Configure has succeeded. Too many
	// calls do no harm; a missed one delays the change by at most a minute, until the next periodic
	// pass.
	Watch(ctx context.Context, changed func(node string)) error
}

// HealthChecker is implemented by drivers that can report problems of their own.
type HealthChecker interface {
	// Health returns nil, or what keeps the driver from working; other conditions are for a
	// [Warner]. It must return within about a second. The agent shows the driver as degraded
	// meanwhile and does not restart it.
	Health(ctx context.Context) error
}

// Shutdowner is implemented by drivers that must clean up at the end.
type Shutdowner interface {
	// Shutdown is called when all other calls have returned, except Watch and WatchInstances, whose
	// contexts end at the same time. The process ends after it, or at the deadline of ctx.
	Shutdown(ctx context.Context) error
}

// Info describes a driver.
type Info struct {
	// Name is short and lower case, as it appears in the configuration: "libvirt".
	Name string
	// Version is the driver's own.
	Version string
}

// HostInfo describes the host to the driver.
type HostInfo struct {
	// Name is the host's name in the agent's configuration: the usual name of the only node.
	Name string
	// StateDir is an existing directory for the driver's own files, which outlives the process, or
	// "" where there is none. While one process of the driver replaces another, both use it: a lock
	// that a process holds all its life would keep the new one from being configured.
	StateDir string
	// FormerNodes are the names that nodes had before an operator renamed the host, with the names
	// that they have now. What a driver marked with a former name is the node's of the present one:
	// a driver that marks guests or files with the names of nodes looks them up here.
	FormerNodes map[string]string
}

// PresentNode returns the present name of the node that has, or had, a name.
func (h HostInfo) PresentNode(name string) string {
	if present, former := h.FormerNodes[name]; former {
		return present
	}
	return name
}

// Node is one compute node: the root of a provider tree.
type Node struct {
	// Name of the root provider.
	Name string
	// UUID of the root provider; "" stands for the agent's own identity (the file compute_id). At
	// most one node can have that: a driver with several nodes gives the others a permanent uuid,
	// such as the one that a manager has for the machine.
	UUID string
}

// Logger returns the logger of the call that ctx belongs to.
func Logger(ctx context.Context) zerolog.Logger { return *zerolog.Ctx(ctx) }
