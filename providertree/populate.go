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
	given, coming, err := canonicalSet(providers)
	if err != nil {
		return err
	}
	next := t.Clone()
	if next.nodes == nil {
		next.nodes, next.byName = make(map[string]*node, len(given)), make(map[string]string, len(given))
	}
	if err := next.checkGenerations(given); err != nil {
		return err
	}
	next.dropReplaced(given, coming)
	if err := next.checkParents(given, coming); err != nil {
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

// canonicalSet checks each provider on its own, and that none is given twice. It also returns the set of their uuids.
func canonicalSet(providers []Provider) ([]Provider, map[string]bool, error) {
	var errs []error
	out := make([]Provider, 0, len(providers))
	uuids, names := make(map[string]bool, len(providers)), make(map[string]bool, len(providers))
	for _, p := range providers {
		c, err := p.canonical()
		switch {
		case err != nil:
			errs = tell(errs, err)
		case uuids[c.UUID]:
			errs = tell(errs, fmt.Errorf("%w: uuid %s is given twice", ErrInvalid, c.UUID))
		case names[c.Name]:
			errs = tell(errs, fmt.Errorf("%w: name %q is given twice", ErrInvalid, c.Name))
		default:
			uuids[c.UUID], names[c.Name] = true, true
			out = append(out, c)
		}
	}
	return out, uuids, errors.Join(errs...)
}

func (t *Tree) checkGenerations(given []Provider) error {
	var errs []error
	for _, p := range given {
		if old := t.nodes[p.UUID]; old != nil && p.Generation < old.Generation {
			errs = tell(errs, fmt.Errorf("%w: resource provider %q (%s): %d is known, %d given",
				ErrStaleGeneration, p.Name, p.UUID, old.Generation, p.Generation))
		}
	}
	return errors.Join(errs...)
}

// dropReplaced removes the descendants of replaced providers that are not given themselves, and frees the names of the
// replaced ones.
func (t *Tree) dropReplaced(given []Provider, listed map[string]bool) {
	gone := map[string]bool{}
	for _, p := range given {
		old := t.nodes[p.UUID]
		if old == nil {
			continue
		}
		delete(t.byName, old.Name)
		if listed[old.ParentUUID] { // whose descendants are seen to already, and these with them
			continue
		}
		for _, d := range t.Subtree(p.UUID) {
			if !listed[d] {
				gone[d] = true
			}
		}
	}
	for d := range gone {
		delete(t.byName, t.nodes[d].Name)
		delete(t.nodes, d)
	}
	if len(gone) == 0 {
		return
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
func (t *Tree) checkParents(given []Provider, coming map[string]bool) error {
	var errs []error
	for _, p := range given {
		if uuid, taken := t.byName[p.Name]; taken {
			errs = tell(errs, fmt.Errorf("%w: name %q of %s is that of %s", ErrExists, p.Name, p.UUID, uuid))
		}
		t.byName[p.Name] = p.UUID
	}
	for _, p := range given {
		if p.ParentUUID != "" && !coming[p.ParentUUID] && t.nodes[p.ParentUUID] == nil {
			errs = tell(errs, fmt.Errorf("%w: %q (%s) wants %s, which is neither in the tree nor given", ErrParent, p.Name, p.UUID, p.ParentUUID))
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
	uuids := sortedKeys(lost)
	if n := len(uuids) - maxTold; n > 0 {
		return fmt.Errorf("%w: these are each below the other: %v, and %d others", ErrParent, uuids[:maxTold], n)
	}
	return fmt.Errorf("%w: these are each below the other: %v", ErrParent, uuids)
}

// maxTold bounds what one error tells. What is given may be hostile, and each of a million things in it wrong.
const maxTold = 20

var errMore = errors.New("and others")

// tell notes an error, or, when there are enough, that there are others.
func tell(errs []error, err error) []error {
	switch {
	case len(errs) < maxTold:
		return append(errs, err)
	case len(errs) == maxTold:
		return append(errs, errMore)
	}
	return errs
}
