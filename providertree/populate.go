// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"slices"
)

// Populate adds the given providers, or replaces those that are in the tree, as one change: on any
// error the tree is untouched.
//
// It is how a tree is filled from what Placement lists, so the order does not matter, and a
// provider is replaced whole: its inventory, traits, aggregates and resources become those given,
// and its descendants go unless they are given too. A provider may change its name or its parent on
// the way. Providers that are not given and not below one that is stay as they are.
//
// Errors: [Violations] that are [ErrInvalid] (also for a duplicate uuid or name), [ErrExists] for a
// name that another provider has, [ErrParent] for a parent that is nowhere or a loop,
// [ErrStaleGeneration].
func (t *Tree) Populate(providers []Provider) error {
	given, coming, found := canonicalSet(providers)
	next := t.Clone()
	if next.nodes == nil {
		next.nodes, next.byName = make(map[string]*node, len(given)), make(map[string]string, len(given))
	}
	found = append(found, next.staleGenerations(given)...)
	next.dropReplaced(given, coming)
	found = append(found, next.conflicts(given, coming)...)
	if len(found) > 0 {
		return found
	}
	for _, p := range given { // first the providers, then the links, since any order is allowed
		old := next.nodes[p.UUID]
		n := &node{Provider: p}
		if old != nil {
			n.children = old.children
		}
		next.nodes[p.UUID] = n
	}
	// by parent; linked in one go, so that many siblings cost no more than their number
	arriving := map[string][]string{}
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
	if loops := next.findLoops(); len(loops) > 0 {
		return loops
	}
	*t = *next
	return nil
}

// canonicalSet checks each provider on its own, and finds duplicates. It also returns the set of
// the uuids given, also of those that break rules: their children are not violations.
func canonicalSet(providers []Provider) ([]Provider, map[string]bool, Violations) {
	var found Violations
	out := make([]Provider, 0, len(providers))
	// uuids has the name of each uuid, names the uuid of each name.
	uuids, names := make(map[string]string, len(providers)), make(map[string]string, len(providers))
	coming := make(map[string]bool, len(providers))
	for _, given := range providers {
		p, wrong := given.canonical()
		r := &reporter{uuid: given.UUID, name: given.Name, found: wrong}
		if other, twice := uuids[p.UUID]; twice {
			r.addInvalid("uuid", fmt.Sprintf("duplicate uuid, also that of %q", clip(other)), hintUUID)
		}
		if other, twice := names[p.Name]; twice && p.Name != "" {
			r.addInvalid("name", "its name is also that of "+quoted(other)+"; each is given once", "")
		}
		uuids[p.UUID], names[p.Name], coming[p.UUID] = p.Name, p.UUID, true
		if found = append(found, r.found...); len(found) >= maxViolations {
			return nil, nil, found
		}
		if len(r.found) == 0 {
			out = append(out, p)
		}
	}
	return out, coming, found
}

func (t *Tree) staleGenerations(given []Provider) Violations {
	var found Violations
	for _, p := range given {
		if old := t.nodes[p.UUID]; old != nil && p.Generation < old.Generation {
			r := &reporter{uuid: p.UUID, name: p.Name}
			r.add(ErrStaleGeneration, "generation", fmt.Sprintf("stale generation: %d is known, %d given",
				old.Generation, p.Generation), "")
			found = append(found, r.found...)
		}
	}
	return found
}

// dropReplaced removes the descendants of replaced providers that are not given themselves, and
// frees the names of the replaced ones.
func (t *Tree) dropReplaced(given []Provider, listed map[string]bool) {
	gone := map[string]bool{}
	for _, p := range given {
		old := t.nodes[p.UUID]
		if old == nil {
			continue
		}
		delete(t.byName, old.Name)
		if listed[old.ParentUUID] { // with whose descendants these are handled
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

// conflicts takes the names of the given providers, and finds those that others have, and parents
// that will not be there.
func (t *Tree) conflicts(given []Provider, coming map[string]bool) Violations {
	var found Violations
	for _, p := range given {
		r := &reporter{uuid: p.UUID, name: p.Name}
		if uuid, taken := t.byName[p.Name]; taken {
			r.add(ErrExists, "name", "resource provider exists: its name is that of "+uuid, "")
		}
		t.byName[p.Name] = p.UUID
		switch {
		case p.ParentUUID == p.UUID:
			r.add(ErrParent, "parent", "it is its own parent", "")
		case p.ParentUUID != "" && !coming[p.ParentUUID] && t.nodes[p.ParentUUID] == nil:
			r.add(ErrParent, "parent", "its parent "+p.ParentUUID+" is not in the tree",
				"remove a provider with all its descendants, or return it unchanged")
		}
		found = append(found, r.found...)
	}
	return found
}

// findLoops finds providers that are below themselves: they are below no root.
func (t *Tree) findLoops() Violations {
	reached := t.UUIDs()
	if len(reached) == len(t.nodes) {
		return nil
	}
	ends := make(map[string]bool, len(t.nodes)) // known to be below a root, or reported
	for _, uuid := range reached {
		ends[uuid] = true
	}
	var found Violations
	for _, start := range sortedKeys(t.nodes) {
		path := map[string]int{}
		at := start
		for !ends[at] {
			ends[at], path[at] = true, len(path)
			at = t.nodes[at].ParentUUID
			if first, again := path[at]; again {
				r := &reporter{uuid: at, name: t.nodes[at].Name}
				r.add(ErrParent, "parent", fmt.Sprintf("it is below itself, in a loop of %d providers",
					len(path)-first), "one of them must have a parent outside of it")
				found = append(found, r.found...)
			}
		}
	}
	return found
}
