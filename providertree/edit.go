// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"maps"
	"slices"
)

// AddRoot adds a provider without a parent. The uuid is the caller's: a compute node's is its
// identity and must outlive everything else.
func (t *Tree) AddRoot(uuid, name string) error {
	return t.add(Provider{UUID: uuid, Name: name, Generation: NoGeneration})
}

// AddChild adds a provider below another. Use [ChildUUID] for a uuid that stays the same over
// restarts.
func (t *Tree) AddChild(parent, uuid, name string) error {
	if parent == "" {
		return fmt.Errorf("%w: resource provider %q is to be a child, and no parent is given", ErrParent, clip(name))
	}
	return t.add(Provider{UUID: uuid, Name: name, ParentUUID: parent, Generation: NoGeneration})
}

func (t *Tree) add(p Provider) error {
	p, found := p.canonical()
	if len(found) > 0 {
		return found
	}
	if known := t.nodes[p.UUID]; known != nil {
		return fmt.Errorf("%w: uuid %s is that of %q", ErrExists, p.UUID, known.Name)
	}
	if uuid, taken := t.byName[p.Name]; taken {
		return fmt.Errorf("%w: name %q is that of %s", ErrExists, p.Name, uuid)
	}
	if p.ParentUUID != "" && t.nodes[p.ParentUUID] == nil {
		return fmt.Errorf("%w: %q (%s) wants %s, which is not in the tree", ErrParent, p.Name, p.UUID, p.ParentUUID)
	}
	if t.nodes == nil {
		t.nodes, t.byName = map[string]*node{}, map[string]string{}
	}
	t.nodes[p.UUID] = &node{Provider: p}
	t.byName[p.Name] = p.UUID
	t.link(p.ParentUUID, p.UUID)
	return nil
}

// link appends providers to their parent's children, or to the roots. Cost: O(siblings), since
// clones share the list.
func (t *Tree) link(parent string, uuids ...string) {
	if parent == "" {
		t.roots = append(slices.Clip(t.roots), uuids...)
		return
	}
	n := *t.nodes[parent]
	n.children = append(slices.Clip(n.children), uuids...)
	t.nodes[parent] = &n
}

// unlink is the reverse of link.
func (t *Tree) unlink(parent, uuid string) {
	if parent == "" {
		t.roots = without(t.roots, uuid)
		return
	}
	if p := t.nodes[parent]; p != nil {
		n := *p
		n.children = without(n.children, uuid)
		t.nodes[parent] = &n
	}
}

// without returns a copy of a list that lacks one element.
func without(list []string, s string) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		if e != s {
			out = append(out, e)
		}
	}
	return out
}

// Remove takes a provider and all its descendants out and returns their uuids in pre-order.
func (t *Tree) Remove(uuid string) ([]string, error) {
	n := t.nodes[uuid]
	if n == nil {
		return nil, notFound(uuid)
	}
	gone := t.Subtree(uuid)
	t.unlink(n.ParentUUID, uuid)
	for _, g := range gone {
		delete(t.byName, t.nodes[g].Name)
		delete(t.nodes, g)
	}
	return gone, nil
}

// Rename gives a provider another name. Reports whether that changed anything.
func (t *Tree) Rename(uuid, name string) (bool, error) {
	if err := ValidateProviderName(name); err != nil {
		return false, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if taken, ok := t.byName[name]; ok && taken != uuid {
		return false, fmt.Errorf("%w: name %q is that of %s", ErrExists, name, taken)
	}
	var old string
	changed, err := t.edit(uuid, func(p *Provider) (bool, error) {
		old, p.Name = p.Name, name
		return old != name, nil
	})
	if changed {
		delete(t.byName, old)
		t.byName[name] = uuid
	}
	return changed, err
}

// Move puts a provider, with its descendants, below another parent; parent "" makes it a root.
// Reports whether that changed anything.
func (t *Tree) Move(uuid, parent string) (bool, error) {
	n := t.nodes[uuid]
	if n == nil {
		return false, notFound(uuid)
	}
	if parent != "" && t.nodes[parent] == nil {
		return false, fmt.Errorf("%w: %q (%s) wants %s, which is not in the tree", ErrParent, n.Name, uuid, parent)
	}
	for above := parent; above != ""; above = t.nodes[above].ParentUUID {
		if above == uuid {
			return false, fmt.Errorf("%w: %s is below %q (%s) itself", ErrParent, parent, n.Name, uuid)
		}
	}
	from := n.ParentUUID
	if from == parent {
		return false, nil
	}
	moved := *n
	moved.ParentUUID = parent
	t.nodes[uuid] = &moved
	t.unlink(from, uuid)
	t.link(parent, uuid)
	return true, nil
}

// SetInventories replaces the whole inventory of a provider; nil or empty leaves it none. Reports
// whether that changed anything.
func (t *Tree) SetInventories(uuid string, inventories Inventories) (bool, error) {
	return t.edit(uuid, func(p *Provider) (bool, error) {
		if err := inventories.Validate(); err != nil {
			return false, err
		}
		if p.Inventories.Equal(inventories) {
			return false, nil
		}
		p.Inventories = inventories.normalize()
		return true, nil
	})
}

// SetInventory sets the inventory of one resource class and leaves the others. Reports whether that
// changed anything.
func (t *Tree) SetInventory(uuid, class string, inv Inventory) (bool, error) {
	return t.edit(uuid, func(p *Provider) (bool, error) {
		if err := (Inventories{class: inv}).Validate(); err != nil {
			return false, err
		}
		inv = inv.Normalize()
		if old, ok := p.Inventories[class]; ok && old.Equal(inv) {
			return false, nil
		}
		p.Inventories = maps.Clone(p.Inventories)
		p.Inventories[class] = inv
		return true, nil
	})
}

// RemoveInventory takes away the inventory of one resource class. Reports whether the provider had
// it.
func (t *Tree) RemoveInventory(uuid, class string) (bool, error) {
	return t.edit(uuid, func(p *Provider) (bool, error) {
		if _, ok := p.Inventories[class]; !ok {
			return false, nil
		}
		p.Inventories = maps.Clone(p.Inventories)
		delete(p.Inventories, class)
		return true, nil
	})
}

// SetTraits replaces all traits of a provider. Reports whether that changed anything.
func (t *Tree) SetTraits(uuid string, traits []string) (bool, error) {
	return t.editSet(uuid, traits, (*Provider).traits, func([]string) []string { return traits })
}

// AddTraits adds traits to those that the provider has. Reports whether that changed anything.
func (t *Tree) AddTraits(uuid string, traits ...string) (bool, error) {
	return t.editSet(uuid, traits, (*Provider).traits,
		func(old []string) []string { return slices.Concat(old, traits) })
}

// RemoveTraits removes traits; those that the provider lacks do not matter. Reports whether that
// changed anything.
func (t *Tree) RemoveTraits(uuid string, traits ...string) (bool, error) {
	return t.editSet(uuid, nil, (*Provider).traits, func(old []string) []string { return subtract(old, traits) })
}

// SetAggregates replaces all aggregates (uuids) of a provider. Reports whether that changed
// anything.
func (t *Tree) SetAggregates(uuid string, aggregates []string) (bool, error) {
	return t.editSet(uuid, nil, (*Provider).aggregates, func([]string) []string { return aggregates })
}

// AddAggregates adds a provider to aggregates. Reports whether that changed anything.
func (t *Tree) AddAggregates(uuid string, aggregates ...string) (bool, error) {
	return t.editSet(uuid, nil, (*Provider).aggregates,
		func(old []string) []string { return slices.Concat(old, aggregates) })
}

// RemoveAggregates takes a provider out of aggregates. Reports whether that changed anything.
func (t *Tree) RemoveAggregates(uuid string, aggregates ...string) (bool, error) {
	return t.editSet(uuid, nil, (*Provider).aggregates,
		func(old []string) []string { return subtract(old, aggregates) })
}

// SetGeneration sets the generation that Placement answered with. It refuses one that is older than
// the present one with [ErrStaleGeneration], because a newer answer was handled before it.
func (t *Tree) SetGeneration(uuid string, generation int64) error {
	if n := t.nodes[uuid]; n != nil && generation < n.Generation {
		return fmt.Errorf("%w: resource provider %q (%s): %d is known, %d given",
			ErrStaleGeneration, n.Name, uuid, n.Generation, generation)
	}
	_, err := t.edit(uuid, func(p *Provider) (bool, error) {
		changed := p.Generation != generation
		p.Generation = generation
		return changed, nil
	})
	return err
}

// SetResources replaces the named units of a provider. Reports whether that changed anything.
func (t *Tree) SetResources(uuid string, resources map[string][]Resource) (bool, error) {
	return t.edit(uuid, func(p *Provider) (bool, error) {
		resources = cloneResources(resources)
		if equalResources(p.Resources, resources) {
			return false, nil
		}
		p.Resources = resources
		return true, nil
	})
}

// edit runs a change on a copy of a provider's record and keeps the copy if the change says so. The
// change must replace maps and slices, not write into them.
func (t *Tree) edit(uuid string, change func(*Provider) (bool, error)) (bool, error) {
	old := t.nodes[uuid]
	if old == nil {
		return false, notFound(uuid)
	}
	n := *old
	changed, err := change(&n.Provider)
	if err != nil {
		return false, fmt.Errorf("%w: resource provider %q (%s): %w", ErrInvalid, old.Name, uuid, err)
	}
	if changed {
		t.nodes[uuid] = &n
	}
	return changed, nil
}

func (p *Provider) traits() *[]string     { return &p.Traits }
func (p *Provider) aggregates() *[]string { return &p.Aggregates }

// editSet is edit for traits and aggregates: check holds trait names to validate, next makes the
// new list from the old.
func (t *Tree) editSet(
	uuid string, check []string, field func(*Provider) *[]string, next func([]string) []string,
) (bool, error) {
	return t.edit(uuid, func(p *Provider) (bool, error) {
		for _, trait := range check {
			if err := ValidateTrait(trait); err != nil {
				return false, err
			}
		}
		have := field(p)
		want := set(next(*have))
		if have == &p.Aggregates {
			r := &reporter{}
			if want = r.aggregates(want); len(r.found) > 0 {
				return false, r.found
			}
		}
		if slices.Equal(*have, want) {
			return false, nil
		}
		*have = want
		return true, nil
	})
}

func subtract(list, gone []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(gone, s) })
}
