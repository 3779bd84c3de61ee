// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"
)

// Input has the arguments of [Merge], which does not change them.
type Input struct {
	// Root is the uuid of the compute node, Node its name, Driver the driver's.
	Root, Node, Driver string
	// Known is the tree in Placement. Base is the tree that the driver was given; nil stands for
	// [Strip] of Known. Answer is the tree that the driver returned.
	Known, Base, Answer *providertree.Tree
	// Record is the last record; nil if there is none, and nothing in Known is ours.
	Record *Record
	// Layers are laid over the driver's answer, the first one first.
	Layers []Layer
	// Renames has the new names of resource classes that the driver renames, by the former ones.
	Renames map[string]string
	// Reshape says that the driver was given the allocations and that its answer has passed the
	// guard.
	Reshape bool
	// Created says that this agent is about to create the root.
	Created bool
}

// Layer is what the agent or the operator adds to the providers of a tree, of every owner.
type Layer struct {
	Owner     Owner
	Providers map[string]LayerProvider // by uuid
}

// LayerProvider is what a layer says of one provider.
type LayerProvider struct {
	Inventories providertree.Inventories
	Traits      []string
}

// Result is the tree that Placement should have, with its record.
type Result struct {
	Tree *providertree.Tree
	// Record is the record of Tree, exactly.
	Record *Record
	// Former is the last record, in which traits that move to another provider are the driver's,
	// also if another client set them. The union of it and Record is saved before anything is
	// written. Traits are written provider by provider: after a crash in between, a trait is in
	// both places, and only this record shows that it moves. If no trait moves, it is
	// [Input].Record.
	Former *Record
	// Kept are the items of other clients that the driver removed or changed, and that were put
	// back.
	Kept []Kept
	// Conflicts are items that were left out because they belong to another owner.
	Conflicts []Conflict
}

// Kind is a kind of item that has an owner.
type Kind string

// The kinds that there are.
const (
	KindProvider  Kind = "provider"
	KindInventory Kind = "inventory"
	KindTrait     Kind = "trait"
	KindAggregate Kind = "aggregate"
)

// Kept is an item of another client that a driver removed or changed.
type Kept struct {
	// Provider is the uuid, Name the name of the resource provider.
	Provider, Name string
	Kind           Kind
	// Symbol is the resource class, trait or aggregate; "" for the provider itself.
	Symbol string
	// Change is what the driver did: "removed", "renamed", "moved".
	Change string
}

// String is a sentence for messages.
func (k Kept) String() string {
	what := fmt.Sprintf("the %s %s of resource provider %s (%s)", k.Kind, k.Symbol, k.Name, k.Provider)
	if k.Kind == KindProvider {
		what = fmt.Sprintf("resource provider %s (%s)", k.Name, k.Provider)
	}
	return fmt.Sprintf("The driver %s %s, which it does not own; it was left as it is.", k.Change, what)
}

// Conflict is one entry that was left out.
type Conflict struct {
	// Owner is whose entry it is.
	Owner Owner
	// Provider is the uuid, Name the name of the resource provider.
	Provider, Name string
	Kind           Kind
	// Symbol is the resource class or trait; "" for the provider itself.
	Symbol string
	// Problem says whose it is instead.
	Problem string
}

// String is a sentence for messages.
func (c Conflict) String() string {
	what := fmt.Sprintf("the %s %s of resource provider %s (%s)", c.Kind, c.Symbol, c.Name, c.Provider)
	if c.Kind == KindProvider {
		what = fmt.Sprintf("resource provider %s (%s)", c.Name, c.Provider)
	}
	return fmt.Sprintf("Ignored %s from the %s: %s.", what, c.Owner, c.Problem)
}
