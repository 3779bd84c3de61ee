// SPDX-License-Identifier: Apache-2.0

package ownership

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
)

// RemovalClient is what [RemoveNode] needs of a [reportclient.Client].
type RemovalClient interface {
	TreeOf(ctx context.Context, uuid string) (*providertree.Tree, error)
	ConsumersOf(ctx context.Context, provider string) (map[string]providertree.Resources, error)
	RemoveProvider(ctx context.Context, before providertree.Provider) error
	Forget(root string)
}

// Removal is what removing a node would delete, and what prevents it.
type Removal struct {
	// Providers are the resource providers to delete, children before parents. It is empty if
	// Placement no longer has the node and only the record of it is left.
	Providers []providertree.Provider
	// Blockers are all reasons why the node must not be removed.
	Blockers []Blocker
}

// Blocker is one reason why a node must not be removed.
type Blocker struct {
	// Provider is the uuid of the resource provider and Name its name. Both are empty if it is
	// about the whole node.
	Provider, Name string
	// Consumer has allocations of the provider; "" if it is about something else.
	Consumer string
	Problem  string
}

func (b Blocker) String() string {
	var what []string
	if b.Consumer != "" {
		what = append(what, "consumer "+b.Consumer)
	}
	if b.Provider != "" {
		what = append(what, fmt.Sprintf("resource provider %s (%s)", b.Name, b.Provider))
	}
	if len(what) == 0 {
		return b.Problem
	}
	return strings.Join(what, ", ") + ": " + b.Problem
}

// RefusedError says that a node was not removed. Nothing was written.
type RefusedError struct {
	Node, Root string
	Blockers   []Blocker
}

func (e *RefusedError) Error() string {
	lines := make([]string, 0, len(e.Blockers))
	for _, b := range e.Blockers {
		lines = append(lines, b.String())
	}
	return fmt.Sprintf("node %s (%s) was not removed, nothing was written: %s",
		e.Node, e.Root, strings.Join(lines, "; "))
}

// CheckRemoval lists what removing a node would delete, and everything that prevents it. It writes
// nothing.
//
// That a driver no longer names a node proves nothing. A node is removed only if all of this holds:
//
//   - the driver ([plugins.NodeChecker]) or an operator says that it was removed for good; the
//     caller makes sure of that;
//   - by its record, this agent created its root provider;
//   - no other agent reports it, as far as the caller can know;
//   - all providers, inventories, traits and aggregates in its tree are this agent's, and the
//     amounts are as it left them;
//   - no consumer has allocations of it.
//
// Cost: one GET for the tree and four for each provider.
func CheckRemoval(ctx context.Context, client RemovalClient, record *Record) (Removal, error) {
	tree, err := client.TreeOf(ctx, record.Root)
	if errors.Is(err, reportclient.ErrNotFound) {
		return Removal{}, nil
	}
	if err != nil {
		return Removal{}, fmt.Errorf("reading the tree of node %s (%s): %w", record.Node, record.Root, err)
	}
	var r Removal
	if !record.Created {
		r.Blockers = append(r.Blockers,
			Blocker{Problem: "by its record, this agent found the node's root provider in Placement and did " +
				"not create it"})
	}
	root, _ := tree.Provider(record.Root)
	if root.ParentUUID != "" {
		r.block(root, "it is now a child of "+root.ParentUUID+", not a compute node")
	}
	order := tree.Subtree(record.Root)
	slices.Reverse(order) // from the leaves to the root
	for _, uuid := range order {
		p, _ := tree.Provider(uuid)
		r.Providers = append(r.Providers, p)
		r.checkOwned(p, record.Providers[uuid], record.Pending)
		consumers, err := client.ConsumersOf(ctx, uuid)
		if errors.Is(err, reportclient.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return Removal{},
				fmt.Errorf("reading what is allocated of resource provider %s (%s): %w", p.Name, uuid, err)
		}
		for _, consumer := range slices.Sorted(maps.Keys(consumers)) {
			r.Blockers = append(r.Blockers,
				Blocker{Provider: uuid, Name: p.Name,
					Consumer: consumer, Problem: "it holds " + amounts(consumers[consumer])})
		}
	}
	return r, nil
}

// checkOwned lists what of a provider is not this agent's. ours is what the record has of it; if
// that is pending, the amounts are not known. An inventory that is not as this agent left it may be
// that of an agent which reports the node now. That another client disabled the node prevents
// nothing.
func (r *Removal) checkOwned(p providertree.Provider, ours Provider, pending bool) {
	if ours.Owner == "" {
		r.block(p, "it was not created by this agent")
		return
	}
	if ours.Name != p.Name {
		r.block(p, fmt.Sprintf("this agent named it %q: another client renamed it", ours.Name))
	}
	if ours.Parent != p.ParentUUID {
		r.block(p, fmt.Sprintf("this agent had it below %s, and it is below %s: another client moved it",
			cmp.Or(ours.Parent, "nothing"), cmp.Or(p.ParentUUID, "nothing")))
	}
	for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
		was, known := ours.Inventories[class]
		switch {
		case !known:
			r.block(p, "another client set its inventory of "+class)
		case !pending && !was.Inventory.Equal(p.Inventories[class]):
			r.block(p, fmt.Sprintf(
				"another client, maybe an agent that reports the node now, changed its inventory of %s: %s",
				class, changedFields(was.Inventory, p.Inventories[class])))
		}
	}
	for _, trait := range p.Traits {
		if ours.Traits[trait] == "" && trait != providertree.TraitStatusDisabled {
			r.block(p, "another client set its trait "+trait)
		}
	}
	for _, aggregate := range p.Aggregates {
		if ours.Aggregates[aggregate] == "" {
			r.block(p, "another client put it into aggregate "+aggregate)
		}
	}
}

func (r *Removal) block(p providertree.Provider, problem string) {
	r.Blockers = append(r.Blockers, Blocker{Provider: p.UUID, Name: p.Name, Problem: problem})
}

func amounts(resources map[string]int64) string {
	out := make([]string, 0, len(resources))
	for _, class := range slices.Sorted(maps.Keys(resources)) {
		out = append(out, fmt.Sprintf("%d %s", resources[class], class))
	}
	return strings.Join(out, ", ")
}

// RemoveNode deletes a node that was removed for good, from the leaves of its tree to the root, and
// then its record. Each provider is read again right before it is deleted. What is deleted already
// is no error, so a call that failed can be repeated. Nothing else must write for the node
// meanwhile. At the end it calls removed, unless that is nil, with the uuid of the root, and
// returns its error.
//
// It returns the providers that it deleted, also beside an error.
//
// Errors: [*RefusedError] if anything prevents it, see [CheckRemoval]; [reportclient.ErrConflict]
// or [reportclient.ErrProviderInUse] if another client wrote to the tree meanwhile: what was
// deleted until then was this agent's and unused.
//
// Cost: that of [CheckRemoval], and three requests for each provider.
func RemoveNode(
	ctx context.Context, client RemovalClient, record *Record, records *Store, removed func(root string) error,
) (deleted []providertree.Provider, err error) {
	r, err := CheckRemoval(ctx, client, record)
	if err != nil {
		return nil, err
	}
	if len(r.Blockers) > 0 {
		return nil, &RefusedError{Node: record.Node, Root: record.Root, Blockers: r.Blockers}
	}
	defer client.Forget(record.Root)
	for _, p := range r.Providers {
		if err := removeProvider(ctx, client, p, len(deleted) > 0); err != nil {
			return deleted, fmt.Errorf("deleting resource provider %s (%s): %w", p.Name, p.UUID, err)
		}
		deleted = append(deleted, p)
	}
	if err := records.Remove(record.Root); err != nil {
		return deleted, fmt.Errorf("the providers of node %s are deleted, but its record is not: %w", record.Node, err)
	}
	if removed == nil {
		return deleted, nil
	}
	return deleted, removed(record.Root)
}

// removeProvider deletes one provider. Placement may give a parent another generation when a child
// is deleted, so after the first deletion a provider whose generation moved is deleted if it is
// otherwise unchanged.
func removeProvider(ctx context.Context, client RemovalClient, p providertree.Provider, otherDeleted bool) error {
	err := client.RemoveProvider(ctx, p)
	if !errors.Is(err, reportclient.ErrConflict) || !otherDeleted {
		return err
	}
	tree, readErr := client.TreeOf(ctx, p.UUID)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	now, _ := tree.Provider(p.UUID)
	if !now.Equal(p) || len(tree.Children(p.UUID)) > 0 {
		return err
	}
	return client.RemoveProvider(ctx, now)
}
