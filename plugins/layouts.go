// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// MaxLayout is the highest layout version.
const MaxLayout = protocol.MaxLayout

// LayoutVersioner is implemented by drivers whose trees have layouts with versions. A layout is
// which providers there are, and which resource class is on which of them. Versions count from 1,
// in the order of the driver's releases. 0 is a tree whose layout was not recorded: one that Nova
// wrote, or this driver before it had versions.
//
// The agent records the layout version of a node's tree. When it starts and the driver has a later
// one, it gathers all allocations of the tree and runs the layout migrations between, each with the
// result of the one before: Reshape from 1, from 2, from 3. So each migration knows two layouts
// only, and is not changed after its release; hosts that skipped releases run several. The result
// of the last one goes to UpdateProviderTree, with the allocations, and the final result is checked
// and written as one reshape.
//
// There is no reshape while the agent runs. An UpdateProviderTree that gets no allocations and
// finds a tree of a former layout returns [ErrReshapeNeeded], as that of any driver does.
//
// If the agent starts and the tree has a former layout although the recorded version is current
// (another client moved inventory back), the agent runs no migrations. It calls UpdateProviderTree
// with the allocations, which moves them, as that of any driver does. It can call its own Reshape,
// from 0 on.
type LayoutVersioner interface {
	// LayoutVersion returns the layout version that UpdateProviderTree makes, 1 to [MaxLayout]. It
	// can depend on the configuration; 0 means that layouts have no versions with this
	// configuration, and the driver is treated as if it were not a LayoutVersioner.
	//
	// It is called after each successful Configure, before any other call, and must not block. An
	// invalid version is an error of that Configure.
	LayoutVersion() int

	// Reshape migrates a tree from layout version from to from+1, and moves the allocations;
	// [Moves] and [Distribution] do that part. The driver edits tree in place, as in
	// UpdateProviderTree. allocations are all of every consumer of the tree, never nil, and can be
	// edited too. It returns the allocations, in which every consumer has the same amounts as
	// before, at their new places; nil stands for the given ones, as edited. Classes that this
	// migration renames are declared with [Renamer], which is called after each.
	//
	//   - It is called with from between 0 and LayoutVersion()-1, never concurrently with
	//     Configure, AvailableNodes, UpdateProviderTree or itself.
	//   - It is idempotent: on a tree with layout from+1 or a later one it changes nothing. The
	//     record can be behind the tree (a state directory was lost), and 0 means unknown. So it
	//     looks in the tree for what it moves: "VGPU on the root", not "this is layout 1".
	//   - On the tree of a new node it changes nothing either.
	//   - It need not update amounts, traits or anything else that it does not move:
	//     UpdateProviderTree runs after it.
	//   - It can ask the hypervisor where a guest's share is, and take as long as an
	//     UpdateProviderTree.
	//
	// Errors: a [*ReshapeFailed] that names every consumer that cannot be moved; [NotReady] if the
	// machine's state is not known now. [ErrReshapeNeeded] is invalid here. After any error nothing
	// is written, and the node is not reported.
	Reshape(ctx context.Context, tree *providertree.Tree,
		node string, from int, allocations providertree.Allocations) (providertree.Allocations, error)
}
