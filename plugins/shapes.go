// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// MaxShape is the highest number of a shape.
const MaxShape = protocol.MaxShape

// Shaper is implemented by drivers whose trees have had several shapes over the years: which providers there are, and which
// resource class is on which of them. Shapes are numbered from 1 in the order in which the driver's releases made them. 0 is a tree
// whose shape nobody recorded: one that Nova wrote, or this driver before it numbered its shapes.
//
// The agent records which shape a node's tree has. When it starts and the driver makes a later one, it gathers all allocations on the
// tree and walks the steps between, each with what the one before left: Reshape from 1, from 2, from 3. So each step knows two
// neighbouring shapes only, and is never changed once it was released; hosts that skipped releases arrive all the same. What comes out of
// the last step goes to UpdateProviderTree, with the allocations, and the result of it all is checked and written as one reshape.
//
// While the agent runs no reshape takes place. An UpdateProviderTree that is given no allocations and finds a tree of an earlier
// shape answers [ErrReshapeNeeded], as that of any driver does; it is not asked to make the steps.
//
// Nor is it when it starts and the tree is behind the number that is recorded: somebody put inventory back to where it was. Then
// UpdateProviderTree is called with the allocations and moves them, as that of any driver does. It may call its own Reshape, from 0 on.
type Shaper interface {
	// ShapeVersion is the number of the shape that UpdateProviderTree makes, 1 to [MaxShape]. It may depend on the
	// configuration; 0 says that with this configuration there are no numbered shapes, and the driver is then treated as one
	// that is no Shaper.
	//
	// It is called after each Configure that succeeded, before any other call comes in, and must not block. A number that cannot be is an
	// error of that Configure.
	ShapeVersion() int

	// Reshape makes of a tree of shape from one of shape from+1, and moves the allocations along; [Moves] and [Distribution] do that
	// part. tree is the driver's to edit and comes as it does to UpdateProviderTree, allocations are all of every consumer that has some
	// on the tree, never nil, and the driver's to edit too. Returned are the allocations in which every consumer holds what it held
	// before, at its new place; nil stands for the given ones as they are now. Classes that this step renames are declared: see
	// [Renamer], which is asked after each step.
	//
	//   - It is called with from between 0 and ShapeVersion()-1, never beside Configure, AvailableNodes, UpdateProviderTree or itself.
	//   - It is idempotent: on a tree that has shape from+1 already, or a later one, it changes nothing. What is recorded may be behind
	//     what is there (a state directory was lost), and 0 says nothing at all. So it looks in the tree for what is to be moved: "VGPU
	//     on the root", not "this is shape 1".
	//   - On a tree that has nothing of the node yet it changes nothing either.
	//   - It need not bring amounts, traits or anything else up to date beyond what it moves: UpdateProviderTree comes after it.
	//   - It may ask the hypervisor where a guest's share is, and take as long as an UpdateProviderTree.
	//
	// Errors: a [*ReshapeFailed] that names every consumer that cannot be moved; [NotReady] if the state of the machine cannot be known
	// now. [ErrReshapeNeeded] is no answer: this is the reshape. After any error nothing is written, and the node is not reported.
	Reshape(ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations) (providertree.Allocations, error)
}
