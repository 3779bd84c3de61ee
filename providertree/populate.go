// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"errors"
	"fmt"
	"slices"
)

// Populate adds the given providers, or replaces those that are in the tree, as one change: on any error the tree is
// untouched.
//
// It is how a tree is filled from what Placement lists, so the order does not matter, and a provider is replaced whole:
// its inventory, traits, aggregates and resources become those given, and its descendants go unless they are given too.
// A provider may change its name or its parent on the way. Providers that are not given and not below one that is stay
// as they are.
//
// Errors: [ErrInvalid] (also for a uuid or name given twice), [ErrExists] for a name that another provider has,
// [ErrParent] for a parent that is nowhere or a loop, [ErrStaleGeneration].
func (t *Tree) Populate(providers []Provider) error {
	given, err := canonicalSet(providers)
	if err != nil {
		return err
	}
	next := t.Clone()
	if next.nodes == nil {
		next.nodes, next.byName = map[string]*node{}, map[string]string{}
	}
	if err := next.checkGenerations(given); err != nil {
		return err
	}
	next.dropReplaced(given)
	if err := next.checkParents(given); err != nil {
		return err
	}
	for _, p := range given { // first everybody, then the links, since any order is allowed
		old := next.nodes[p.UUID]
		n := &node{Provider: p}
		if old != nil {
			n.children = old.children
		}
		next.nodes[p.UUID] = n
	}
	arriving := map[string][]string{} // by parent; linked in one go, so that many siblings cost no more than their number
	for _, p := range given {
		was, known := t.nodes[p.UUID]
		switch {
		case known && was.ParentUUID == p.ParentUUID: // keeps its place among its siblings
			continue
		case known:
			next.unlink(was.ParentUUID, p.UUID)
		}
		arriving[p.ParentUUID] = append(arriving[p.ParentUUID], p.UUID)
	}
	for parent, children := range arriving {
		next.link(parent, children...)
	}
	if err := next.checkReachable(); err != nil {
		return err
	}
	*t = *next
	return nil
}

// canonicalSet checks each provider on its own, and that none is given twice.
func canonicalSet(providers []Provider) ([]Provider, error) {
	var errs []error
	out := make([]Provider, 0, len(providers))
	uuids, names := map[string]bool{}, map[string]bool{}
	for _, p := range providers {
		c, err := p.canonical()
		switch {
		case err != nil:
			errs = append(errs, err)
		case uuids[c.UUID]:
			errs = append(errs, fmt.Errorf("%w: uuid %s is given twice", ErrInvalid, c.UUID))
		case names[c.Name]:
			errs = append(errs, fmt.Errorf("%w: name %q is given twice", ErrInvalid, c.Name))
		default:
			uuids[c.UUID], names[c.Name] = true, true
			out = append(out, c)
		}
	}
	return out, errors.Join(errs...)
}

func (t *Tree) checkGenerations(given []Provider) error {
	var errs []error
	for _, p := range given {
		if old := t.nodes[p.UUID]; old != nil && p.Generation < old.Generation {
			errs = append(errs, fmt.Errorf("%w: resource provider %q (%s): %d is known, %d given",
				ErrStaleGeneration, p.Name, p.UUID, old.Generation, p.Generation))
		}
	}
	return errors.Join(errs...)
}

// dropReplaced removes the descendants of replaced providers that are not given themselves, and frees the names of the
// replaced ones.
func (t *Tree) dropReplaced(given []Provider) {
	listed := make(map[string]bool, len(given))
	for _, p := range given {
		listed[p.UUID] = true
	}
	gone := map[string]bool{}
	for _, p := range given {
		if t.nodes[p.UUID] == nil {
			continue
		}
		for _, d := range t.Subtree(p.UUID) {
			if !listed[d] {
				gone[d] = true
			}
		}
		delete(t.byName, t.nodes[p.UUID].Name)
	}
	for d := range gone {
		delete(t.byName, t.nodes[d].Name)
		delete(t.nodes, d)
	}
	for uuid, n := range t.nodes {
		if slices.ContainsFunc(n.children, func(c string) bool { return gone[c] }) {
			kept := *n
			kept.children = slices.DeleteFunc(slices.Clone(n.children), func(c string) bool { return gone[c] })
			t.nodes[uuid] = &kept
		}
	}
}

// checkParents claims the names of the given providers and checks that each parent will be there.
func (t *Tree) checkParents(given []Provider) error {
	var errs []error
	coming := make(map[string]bool, len(given))
	for _, p := range given {
		coming[p.UUID] = true
		if uuid, taken := t.byName[p.Name]; taken {
			errs = append(errs, fmt.Errorf("%w: name %q of %s is that of %s", ErrExists, p.Name, p.UUID, uuid))
		}
		t.byName[p.Name] = p.UUID
	}
	for _, p := range given {
		if p.ParentUUID != "" && !coming[p.ParentUUID] && t.nodes[p.ParentUUID] == nil {
			errs = append(errs, fmt.Errorf("%w: %q (%s) wants %s, which is neither in the tree nor given", ErrParent, p.Name, p.UUID, p.ParentUUID))
		}
	}
	return errors.Join(errs...)
}

// checkReachable finds loops: their members are below no root.
func (t *Tree) checkReachable() error {
	reached := t.UUIDs()
	if len(reached) == len(t.nodes) {
		return nil
	}
	lost := make(map[string]bool, len(t.nodes))
	for uuid := range t.nodes {
		lost[uuid] = true
	}
	for _, uuid := range reached {
		delete(lost, uuid)
	}
	return fmt.Errorf("%w: these are each below the other: %v", ErrParent, sortedKeys(lost))
}
