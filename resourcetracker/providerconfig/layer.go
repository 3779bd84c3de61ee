// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// Unmatched is an entry that adds nothing to a tree.
type Unmatched struct {
	// Key is the key of the [Entry], for warning once. An entry may well be unmatched in the tree
	// of one node and matched in that of another.
	Key string
	// Where is FILE:LINE.
	Where string
	// Duplicate is set when the provider is there and has another entry, too: one by uuid and one
	// by name. Neither applies. Otherwise there is no such provider in the tree.
	Duplicate bool
	// Reason is the whole text, with a hint.
	Reason string
}

// Layer is what the configuration adds to the providers of a node: to those of its tree and to the
// sharing providers beside it. root is the uuid of the node's root, for which the entry
// $COMPUTE_NODE is meant unless the root has an entry of its own. The second result lists, in the
// order of the files, the entries that were meant for a provider and found none.
//
// It is pure, and linear in the number of entries.
func (c *Config) Layer(tree *providertree.Tree, root string) (ownership.Layer, []Unmatched) {
	layer := ownership.Layer{Owner: ownership.Operator, Providers: map[string]ownership.LayerProvider{}}
	if c == nil {
		return layer, nil
	}
	var unmatched []Unmatched
	byProvider := make(map[string][]int, len(c.entries)) // entries by the uuid of their provider
	order := map[string]int{}                            // entries by key
	for i, e := range c.entries {
		if e.UUID == ComputeNode {
			continue
		}
		order[e.Key()] = i
		p, ok := tree.Provider(e.UUID)
		if e.Name != "" {
			p, ok = tree.ProviderByName(e.Name)
		}
		if !ok {
			unmatched = append(unmatched, Unmatched{
				Key: e.Key(), Where: e.Place.line(),
				Reason: fmt.Sprintf(
					"neither this node nor a sharing provider has a resource provider with the %s; correct the "+
						"entry, or remove it", describe(e)),
			})
			continue
		}
		byProvider[p.UUID] = append(byProvider[p.UUID], i)
	}
	for uuid, entries := range byProvider {
		if len(entries) == 1 {
			c.entries[entries[0]].addTo(layer, uuid)
			continue
		}
		for _, i := range entries {
			unmatched = append(unmatched, c.duplicate(i, entries))
		}
	}
	slices.SortFunc(unmatched, func(a, b Unmatched) int { return cmp.Compare(order[a.Key], order[b.Key]) })
	if i, ok := c.byID[identity{uuid: ComputeNode}]; ok && len(byProvider[root]) == 0 && tree.Exists(root) {
		c.entries[i].addTo(layer, root)
	}
	return layer, unmatched
}

// addTo lays a copy of the entry's items over a provider.
func (e Entry) addTo(layer ownership.Layer, uuid string) {
	if len(e.Inventories)+len(e.Traits) > 0 {
		e = e.clone()
		layer.Providers[uuid] = ownership.LayerProvider{Inventories: e.Inventories, Traits: e.Traits}
	}
}

// duplicate is one of the entries that name the same provider, by its uuid and by its name.
func (c *Config) duplicate(this int, all []int) Unmatched {
	var others []string
	for _, i := range all {
		if i != this {
			others = append(others, fmt.Sprintf("%s (%s)", c.entries[i].Place.line(), describe(c.entries[i])))
		}
	}
	e := c.entries[this]
	return Unmatched{
		Key: e.Key(), Where: e.Place.line(), Duplicate: true,
		Reason: fmt.Sprintf(
			"the provider with the %s has another entry at %s, so neither is applied; merge them into one entry",
			describe(e), strings.Join(others, ", ")),
	}
}

func describe(e Entry) string {
	if e.Name != "" {
		return "name " + clip(e.Name)
	}
	return "uuid " + e.UUID
}
