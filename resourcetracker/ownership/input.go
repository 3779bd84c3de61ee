// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"
)

// Input is what [Merge] looks at. It changes none of it.
type Input struct {
	// Root is the uuid of the compute node, Node its name, Driver the driver's.
	Root, Node, Driver string
	// Known is what Placement says, Base what the driver was given of it (see [Strip]; nil: that is
	// computed), Answer what it made of that.
	Known, Base, Answer *providertree.Tree
	// Record is the last one; nil: there is none, and nothing in Known is ours.
	Record *Record
	// Layers are laid over the driver's answer, the first one first.
	Layers []Layer
	// Renames are the resource classes that the driver calls by another name from now on, by the
	// former ones.
	Renames map[string]string
	// Reshape says that the driver was given the allocations and that its answer has passed the
	// guard.
	Reshape bool
	// Created says that the root is made by this agent now.
	Created bool
}

// Layer is what the agent or the operator adds to the driver's providers.
type Layer struct {
	Owner     Owner
	Providers map[string]LayerProvider // by uuid
}

// LayerProvider is what a layer says of one provider.
type LayerProvider struct {
	Inventories providertree.Inventories
	Traits      []string
}

// Result is what Placement is to say.
type Result struct {
	Tree *providertree.Tree
	// Record is the record of Tree, exactly.
	Record *Record
	// Former is the last record, and in it the traits that move from one provider to another as the
	// driver's, whosever they were. It is what Record is united with before anything is written:
	// traits are written one provider after another, and a pass that comes after a crash between
	// two of them finds the trait in both places, where nothing tells any more that it moved. It is
	// [Input].Record itself if no trait moves.
	Former *Record
	// Kept is what the driver took away or changed although it is another client's, so that it was
	// put back.
	Kept []Kept
	// Conflicts are entries that were left out because what they speak of is another's.
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

// Kept is one thing of another client's that a driver took away or changed.
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
