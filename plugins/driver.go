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
// The agent may end the process at any moment and start it again: a driver keeps nothing that it could not find out
// anew. It may also start a second process beside the first, to replace it after an update.
//
// Calls: Configure comes before all that are about nodes (AvailableNodes, UpdateProviderTree, and of the optional interfaces
// ShapeVersion, Reshape, Capabilities, ClassRenames, Guests and NodeDeleted), and none of these ever runs beside another: each waits for
// the one before. Info, ConfigSchema, Watch, Health and Warnings may be called at any time and beside anything. Every context ends with the deadline of the call; a driver that goes on afterwards holds up the next
// call, and the agent ends a process that has stopped answering. A panic becomes an error of that call.
//
// Logging: [Logger] gives a logger from any of these contexts. Whatever is written to standard output or standard error
// also ends up in the agent's log, line by line.
type Driver interface {
	// Info is who this driver is. It must not block or fail, and works before Configure.
	Info() Info

	// ConfigSchema is a JSON Schema of the driver's configuration (the table [drivers.NAME.config] of the agent's), or
	// nil if it takes none. It must not block, and works before Configure.
	ConfigSchema() []byte

	// Configure takes the configuration as JSON, "{}" if there is none. It is called first of all, and again whenever
	// the configuration may have changed; on an error the former configuration stays in force.
	//
	// It is strict: an unknown key is an error ([DecodeConfig] sees to that). Return a [*ConfigError] that names the
	// key. What depends on the state of the machine (a daemon that does not answer yet) is no error of Configure:
	// answer [NotReady] when asked for nodes or trees.
	Configure(ctx context.Context, config json.RawMessage, host HostInfo) error

	// AvailableNodes lists the compute nodes that the driver is responsible for: mostly one, the machine itself.
	//
	// Errors: [NotReady] while that cannot be known yet. Never an empty list instead: it would say that there are none.
	AvailableNodes(ctx context.Context) ([]Node, error)

	// UpdateProviderTree edits tree until it says what the node can give. The tree comes filled with what Placement
	// says now: the root of that name and everything below it, and the sharing providers beside it. It is the driver's
	// to edit; on an error it is thrown away.
	//
	//   - Touch only what is the driver's own: providers, inventories, traits and aggregates that somebody else wrote stay
	//     as they are. Set what you know with SetInventory and AddTraits rather than replacing all of it.
	//   - Be idempotent: called with its own result, it changes nothing.
	//   - Look for a child by its name first: one that Nova made, or another agent, is taken over as it is, with its uuid. Use
	//     [providertree.ChildUUID] for those that are new, so that they are found again after a restart.
	//
	// If inventory that guests use must move to another provider, answer [ErrReshapeNeeded] when allocations is nil, as
	// it nearly always is. The agent then calls again with all allocations against the tree; edit both, and return the
	// allocations in which every consumer holds what it held before, at its new place. Returning nil stands for the
	// given allocations as they are now.
	//
	// Errors: [ErrReshapeNeeded]; a [*ReshapeFailed] if the allocations given cannot be moved; [NotReady] if the state
	// of the machine cannot be known now. After any error the agent lets stand what it last reported.
	UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations) (providertree.Allocations, error)
}

// Watcher is implemented by drivers that notice changes by themselves (hot-plug, a daemon that came back).
type Watcher interface {
	// Watch calls changed with the name of a node, or "" for all of them, whenever its tree may look different now, and
	// returns when ctx ends. It may be called before Configure has ever succeeded. Too many calls do no harm, too few cost
	// no more than a minute: the agent asks from time to time anyway.
	Watch(ctx context.Context, changed func(node string)) error
}

// HealthChecker is implemented by drivers that can tell more about themselves than that the process answers.
type HealthChecker interface {
	// Health returns nil, or in words what keeps the driver from working; what does not is for a [Warner]. It must answer within a second or so. The agent
	// shows the driver as degraded meanwhile; it does not restart it, since that seldom mends what is told so calmly.
	Health(ctx context.Context) error
}

// Shutdowner is implemented by drivers that have something to put in order at the end.
type Shutdowner interface {
	// Shutdown is called when all other calls have returned, but for Watch and WatchInstances, which are told to end at the same time. The
	// process ends after it, or at the deadline of ctx.
	Shutdown(ctx context.Context) error
}

// Info is who a driver is.
type Info struct {
	// Name is short and lower case, as it appears in the configuration: "libvirt".
	Name string
	// Version is the driver's own.
	Version string
}

// HostInfo is what the agent tells a driver about its surroundings.
type HostInfo struct {
	// Name is the host's name as the agent is configured: the usual name of the only node.
	Name string
	// StateDir is a directory that the driver may write to and that outlives it, or "" where there is none. It is there, and the driver's own:
	// nobody else keeps anything in it. While one process of the driver replaces another, both have it: a lock in it that lasts as long as the
	// process would keep the new one from ever being configured.
	StateDir string
}

// Node is one compute node: the root of a provider tree.
type Node struct {
	// Name of the root provider.
	Name string
	// UUID of the root provider; "" leaves it to the agent, whose own identity (the file compute_id) it becomes. There is one of that: a
	// driver with several nodes gives each, or all but one, a uuid that is the node's for good, such as the one that a manager knows it by.
	UUID string
}

// Logger is the logger of the call that ctx belongs to.
func Logger(ctx context.Context) zerolog.Logger { return *zerolog.Ctx(ctx) }
