// SPDX-License-Identifier: Apache-2.0

package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// Placement is what removing a node needs of a [reportclient.Client].
type Placement interface {
	TreeOf(ctx context.Context, uuid string) (*providertree.Tree, error)
	ConsumersOf(ctx context.Context, provider string) (map[string]providertree.Resources, error)
	RemoveProvider(ctx context.Context, before providertree.Provider) error
	Forget(root string)
}

// Witness is a [Placement] that remembers which nodes there are, and is told of one that was removed.
type Witness interface {
	NodeRemoved(root string) error
}

// Findings are what Placement has of a node, and what stands against removing it.
type Findings struct {
	// Providers are those to delete, in that order; none: Placement does not have the node any more, and only its record is
	// left.
	Providers []providertree.Provider
	// Objections are all that stands against it, for people; none: nothing does.
	Objections []Objection
}

// Objection is one thing that stands against removing a node.
type Objection struct {
	// Provider is the uuid of the resource provider, or "" if it is about the node as a whole; Name is its name.
	Provider, Name string
	// Consumer holds something of the provider; "" if it is about something else.
	Consumer string
	Problem  string
}

func (o Objection) String() string {
	var what []string
	if o.Consumer != "" {
		what = append(what, "consumer "+o.Consumer)
	}
	if o.Provider != "" {
		what = append(what, fmt.Sprintf("resource provider %s (%s)", o.Name, o.Provider))
	}
	if len(what) == 0 {
		return o.Problem
	}
	return strings.Join(what, ", ") + ": " + o.Problem
}

// RefusedError says that a node is not removed. Nothing was written.
type RefusedError struct {
	Node, Root string
	Objections []Objection
}

func (e *RefusedError) Error() string {
	lines := make([]string, 0, len(e.Objections))
	for _, o := range e.Objections {
		lines = append(lines, o.String())
	}
	return fmt.Sprintf("node %s (%s) is not removed, nothing was written: %s", e.Node, e.Root, strings.Join(lines, "; "))
}

// Examine looks at what Placement has of a node, and lists everything that stands against removing it. It writes nothing.
//
// Cost: one GET for the tree and four for each provider.
func Examine(ctx context.Context, placement Placement, record *ownership.Record) (Findings, error) {
	tree, err := placement.TreeOf(ctx, record.Root)
	if errors.Is(err, reportclient.ErrNotFound) {
		return Findings{}, nil
	}
	if err != nil {
		return Findings{}, fmt.Errorf("reading the tree of node %s (%s): %w", record.Node, record.Root, err)
	}
	var f Findings
	if !record.Created {
		f.Objections = append(f.Objections, Objection{Problem: "by its record, this agent found the node's root provider in Placement and did not make it"})
	}
	root, _ := tree.Provider(record.Root)
	if root.ParentUUID != "" {
		f.object(root, "it is a child of "+root.ParentUUID+" by now, and no compute node")
	}
	order := tree.Subtree(record.Root)
	slices.Reverse(order) // from the leaves to the root
	for _, uuid := range order {
		p, _ := tree.Provider(uuid)
		f.Providers = append(f.Providers, p)
		f.judge(p, record.Providers[uuid])
		consumers, err := placement.ConsumersOf(ctx, uuid)
		if errors.Is(err, reportclient.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return Findings{}, fmt.Errorf("reading what is allocated of resource provider %s (%s): %w", p.Name, uuid, err)
		}
		for _, consumer := range slices.Sorted(maps.Keys(consumers)) {
			f.Objections = append(f.Objections, Objection{Provider: uuid, Name: p.Name, Consumer: consumer, Problem: "it holds " + amounts(consumers[consumer])})
		}
	}
	return f, nil
}

// traitStatusDisabled says that nothing new is to be scheduled to a node. Whoever says that of a node that is gone is right, and
// loses nothing with it.
const traitStatusDisabled = "COMPUTE_STATUS_DISABLED"

// judge lists what of a provider is somebody else's. ours is what the record says of it.
func (f *Findings) judge(p providertree.Provider, ours ownership.Provider) {
	if ours.Owner == "" {
		f.object(p, "it was not made by this agent")
		return
	}
	if ours.Name != p.Name {
		f.object(p, fmt.Sprintf("this agent named it %q: somebody has renamed it", ours.Name))
	}
	if ours.Parent != p.ParentUUID {
		f.object(p, fmt.Sprintf("this agent had it below %s, and it is below %s: somebody has moved it", cmp.Or(ours.Parent, "nothing"), cmp.Or(p.ParentUUID, "nothing")))
	}
	for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
		if _, known := ours.Inventories[class]; !known {
			f.object(p, "its inventory of "+class+" is somebody else's")
		}
	}
	for _, trait := range p.Traits {
		if ours.Traits[trait] == "" && trait != traitStatusDisabled {
			f.object(p, "its trait "+trait+" is somebody else's")
		}
	}
	for _, aggregate := range p.Aggregates {
		if ours.Aggregates[aggregate] == "" {
			f.object(p, "that it is in aggregate "+aggregate+" is somebody else's doing")
		}
	}
}

func (f *Findings) object(p providertree.Provider, problem string) {
	f.Objections = append(f.Objections, Objection{Provider: p.UUID, Name: p.Name, Problem: problem})
}

func amounts(resources map[string]int64) string {
	out := make([]string, 0, len(resources))
	for _, class := range slices.Sorted(maps.Keys(resources)) {
		out = append(out, fmt.Sprintf("%d %s", resources[class], class))
	}
	return strings.Join(out, ", ")
}

// RemoveNode deletes a node of which somebody who knows says that it is gone, and then its record. What was deleted already is
// no error, so it can be repeated until it has succeeded. Nothing else may write for the node meanwhile.
//
// It returns the providers that it deleted, also beside an error.
//
// Errors: [*RefusedError] if anything stands against it; [reportclient.ErrConflict] or [reportclient.ErrProviderInUse] if
// somebody wrote to the tree meanwhile: it stops there, and what it deleted was ours and unused.
//
// Cost: what [Examine] costs, and three requests for each provider.
func RemoveNode(ctx context.Context, placement Placement, record *ownership.Record, records *ownership.Store) (deleted []providertree.Provider, err error) {
	f, err := Examine(ctx, placement, record)
	if err != nil {
		return nil, err
	}
	if len(f.Objections) > 0 {
		return nil, &RefusedError{Node: record.Node, Root: record.Root, Objections: f.Objections}
	}
	defer placement.Forget(record.Root)
	gone := map[string]bool{}
	for _, p := range f.Providers {
		if err := remove(ctx, placement, p, gone); err != nil {
			return deleted, fmt.Errorf("deleting resource provider %s (%s): %w", p.Name, p.UUID, err)
		}
		gone[p.UUID] = true
		deleted = append(deleted, p)
	}
	if err := records.Remove(record.Root); err != nil {
		return deleted, fmt.Errorf("the providers of node %s are deleted, and its record cannot be: %w", record.Node, err)
	}
	if witness, ok := placement.(Witness); ok {
		return deleted, witness.NodeRemoved(record.Root)
	}
	return deleted, nil
}

// remove deletes one provider. Placement may give a parent another generation when its child goes, so a provider that lost
// children is looked at again whole.
func remove(ctx context.Context, placement Placement, p providertree.Provider, gone map[string]bool) error {
	err := placement.RemoveProvider(ctx, p)
	if !errors.Is(err, reportclient.ErrConflict) || len(gone) == 0 {
		return err
	}
	tree, readErr := placement.TreeOf(ctx, p.UUID)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	now, _ := tree.Provider(p.UUID)
	if !now.Equal(p) || len(tree.Children(p.UUID)) > 0 {
		return err
	}
	return placement.RemoveProvider(ctx, now)
}
