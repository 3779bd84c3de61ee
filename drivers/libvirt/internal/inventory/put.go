// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Put edits the tree of a node to match, and touches nothing that the driver does not own. A second
// Put changes nothing. If [Wanted.Moving] is not empty before, allocations must move along with it.
//
// Providers are found by name, or by the uuid that the driver gives, and adopted; those that should
// be below another parent are moved and keep uuid and content. Those of [Host.Uncertain] devices
// stay as they are, below the root if their parent is removed. The driver's undesired providers are
// removed; one with an unmanaged child stays, empty.
//
// An error leaves the tree half edited: discard it then.
//
// Cost: O(providers of the node); see BenchmarkPut.
func (w Wanted) Put(tree *providertree.Tree, root string) error {
	return w.PutDraining(tree, root, nil)
}

// PutDraining is [Wanted.Put] that keeps draining inventory, see [Draining]: its providers stay,
// below the root if their own parent is removed.
func (w Wanted) PutDraining(
	tree *providertree.Tree, root string, draining map[plugins.Place]providertree.Inventory,
) error {
	s, err := w.classify(tree, root)
	if err != nil {
		return err
	}
	// What goes is decided before anything comes.
	gone := make(map[string][]string, len(s.ours)) // classes by uuid
	for _, uuid := range s.ours {
		v, _ := tree.Provider(uuid)
		if s.kept[uuid] {
			continue
		}
		if p := s.wanted[uuid]; p != nil {
			gone[uuid] = w.surplus(p, v, s.carried)
		} else {
			gone[uuid] = v.Inventories.Classes()
		}
	}
	inventories := w.choose(s, gone)
	for i := range w.Providers {
		if s.kept[s.uuids[i]] {
			continue
		}
		if err := w.put(s, i, inventories[i]); err != nil {
			return fmt.Errorf("resource provider %q: %w", w.Providers[i].Name, err)
		}
	}
	for uuid, classes := range gone {
		for _, class := range classes {
			if _, err := tree.RemoveInventory(uuid, class); err != nil {
				return err
			}
		}
	}
	stays := maps.Clone(s.kept)
	for place, inv := range draining {
		stays[place.Provider] = true
		if _, err := tree.SetInventory(place.Provider, place.Class, inv); err != nil {
			return err
		}
	}
	for _, uuid := range slices.Backward(s.ours) { // children before their parents
		switch _, former := s.former[uuid]; {
		case !s.kept[uuid] && (!former || len(tree.Children(uuid)) > 0):
		case stays[uuid]:
			if err := s.keepBelowRoot(uuid, stays); err != nil {
				return err
			}
		default:
			if _, err := tree.Remove(uuid); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepBelowRoot puts a provider that stays below the root if its parent goes.
func (s *ownedSubtree) keepBelowRoot(uuid string, stays map[string]bool) error {
	v, _ := s.tree.Provider(uuid)
	if _, former := s.former[v.ParentUUID]; !former || stays[v.ParentUUID] {
		return nil
	}
	_, err := s.tree.Move(uuid, s.root)
	return err
}

// classify finds what of a tree is the driver's.
func (w *Wanted) classify(tree *providertree.Tree, root string) (*ownedSubtree, error) {
	if len(w.Providers) == 0 {
		return nil, errors.New("no inventory was computed")
	}
	node, found := tree.Provider(root)
	switch {
	case !found:
		return nil, fmt.Errorf("the root %s of node %q is not in the tree", root, w.Providers[0].Name)
	case node.ParentUUID != "" || node.Name != w.Providers[0].Name:
		return nil, fmt.Errorf("resource provider %q (%s) is not the root of node %q",
			node.Name, root, w.Providers[0].Name)
	}
	s := &ownedSubtree{tree: tree, root: root, wanted: make(map[string]*Provider, len(w.Providers)),
		former: map[string]assignment.Provider{}, kept: map[string]bool{}, carried: map[string]bool{}}
	for i := range w.Providers {
		p := &w.Providers[i]
		uuid, there, err := s.find(p)
		if err != nil {
			return nil, err
		}
		if other := s.wanted[uuid]; other != nil {
			return nil, fmt.Errorf("resource providers %q and %q would both become %s", other.Name, p.Name, uuid)
		}
		s.wanted[uuid] = p
		if there && w.uncertain[p.Key] {
			s.kept[uuid] = true
		}
		s.uuids, s.exists = append(s.uuids, uuid), append(s.exists, there)
	}
	for _, uuid := range tree.Subtree(root) {
		if s.wanted[uuid] == nil {
			v, _ := tree.Provider(uuid)
			site, ours := w.former(root, v)
			if !ours {
				continue
			}
			s.former[uuid] = site
			if key := strings.TrimPrefix(v.Name, node.Name+"_"); w.uncertain[key] &&
				(site.Kind == assignment.PCI || site.Kind == assignment.MdevParent) {
				s.kept[uuid] = true
			}
		}
		s.ours = append(s.ours, uuid)
	}
	s.findCarried(&w.Providers[0])
	return s, nil
}

// find looks for a wanted provider by its name, then by the uuid that it would get. It is not there
// if neither is.
func (s *ownedSubtree) find(p *Provider) (uuid string, there bool, err error) {
	if p.Parent == "" {
		return s.root, true, nil
	}
	if v, named := s.tree.ProviderByName(p.Name); named {
		uuid, there = v.UUID, true
	} else {
		if uuid, err = providertree.ChildUUID(s.root, p.Key); err != nil {
			return "", false, err
		}
		there = s.tree.Exists(uuid)
	}
	if top, _ := s.tree.RootOf(uuid); there && (top != s.root || uuid == s.root) {
		return "", false,
			fmt.Errorf("resource provider %q (%s) is not below the root %s, and its name is needed for a device there",
				p.Name, uuid, s.root)
	}
	return uuid, there, nil
}

// choose works out the inventories of all wanted providers, from the tree as it is before anything
// changes.
func (w *Wanted) choose(s *ownedSubtree, gone map[string][]string) [][]providertree.Inventory {
	ratios := map[string]float64{}
	ratio := func(class string) float64 {
		r, known := ratios[class]
		if !known {
			r = s.ratio(class)
			ratios[class] = r
		}
		return r
	}
	all := make([][]providertree.Inventory, len(w.Providers))
	for i := range w.Providers {
		p := &w.Providers[i]
		for _, desired := range p.Inventories {
			old, known := s.tree.Inventory(s.uuids[i], desired.Class)
			if !known && desired.Lenient { // it may have had another class
				for _, class := range gone[s.uuids[i]] {
					old, known = s.tree.Inventory(s.uuids[i], class)
				}
			}
			all[i] = append(all[i], desired.inventory(old, known, ratio))
		}
	}
	return all
}

// inventory is the desired inventory in Placement's terms. The ratio is by Nova's rule: what the
// configuration says; else what Placement has, so that an administrator's change survives; else the
// initial one.
func (d DesiredInventory) inventory(
	old providertree.Inventory, known bool, elsewhere func(class string) float64,
) providertree.Inventory {
	inv := providertree.Inventory{Total: d.Total, Reserved: d.Reserved, MinUnit: 1, MaxUnit: d.MaxUnit,
		StepSize: 1, AllocationRatio: d.Ratio}
	if inv.AllocationRatio == 0 && known {
		inv.AllocationRatio = old.AllocationRatio
	}
	if inv.AllocationRatio == 0 {
		inv.AllocationRatio = elsewhere(d.Class)
	}
	if inv.AllocationRatio == 0 {
		inv.AllocationRatio = d.Initial
	}
	if d.Lenient && known {
		inv.MinUnit, inv.StepSize = min(old.MinUnit, d.Total), old.StepSize
		inv.Reserved = max(inv.Reserved, min(old.Reserved, d.Total))
	}
	return inv
}

// put creates or adopts one provider and sets its content.
func (w *Wanted) put(s *ownedSubtree, i int, inventories []providertree.Inventory) error {
	p, uuid := &w.Providers[i], s.uuids[i]
	if p.Parent != "" {
		if err := s.place(p, uuid, s.exists[i]); err != nil {
			return err
		}
	}
	for j, desired := range p.Inventories {
		if desired.Carried && !s.carried[desired.Class] {
			continue
		}
		if _, err := s.tree.SetInventory(uuid, desired.Class, inventories[j]); err != nil {
			return err
		}
	}
	if p.Site.Kind == assignment.PCI { // all of its traits are the configuration's, as in Nova
		_, err := s.tree.SetTraits(uuid, s.traits(p, uuid, s.exists[i]))
		return err
	}
	if _, err := s.tree.AddTraits(uuid, s.traits(p, uuid, s.exists[i])...); err != nil {
		return err
	}
	now, _ := s.tree.Provider(uuid)
	_, err := s.tree.RemoveTraits(uuid, w.stale(p, now.Traits)...)
	return err
}

// traits returns the traits to add to a provider. One that another program made, as its uuid shows,
// gets no OWNER_NOVA, and keeps the one that it has: Nova before 2026.2 does not set it, and
// adopting its tree takes no write.
func (s *ownedSubtree) traits(p *Provider, uuid string, there bool) []string {
	made, err := providertree.ChildUUID(s.root, p.Key)
	if now, _ := s.tree.Provider(uuid); !there || err == nil && made == uuid || now.HasTrait(traitNova) {
		return p.Traits
	}
	return slices.DeleteFunc(slices.Clone(p.Traits), func(trait string) bool { return trait == traitNova })
}

// place brings a provider below its parent, under its name.
func (s *ownedSubtree) place(p *Provider, uuid string, there bool) error {
	parent, found := s.tree.ProviderByName(p.Parent)
	if !found {
		return fmt.Errorf("its parent %q is not in the tree", p.Parent)
	}
	if !there {
		return s.tree.AddChild(parent.UUID, uuid, p.Name)
	}
	if _, err := s.tree.Rename(uuid, p.Name); err != nil {
		return err
	}
	_, err := s.tree.Move(uuid, parent.UUID)
	return err
}

// stale are the traits that the driver may have given a provider and that are not wanted there, of
// those that it has now and others.
func (w *Wanted) stale(p *Provider, now []string) []string {
	var owned []string
	switch p.Site.Kind {
	case assignment.Root:
		owned = w.ownedTraits
	case assignment.Cell:
		owned = ofCPUs(w.ownedTraits)
		for _, trait := range now {
			if strings.HasPrefix(trait, traitTier) {
				owned = append(owned, trait)
			}
		}
	case assignment.MdevParent:
		owned = w.mdevTraits
	}
	wanted := make(map[string]bool, len(p.Traits)+1)
	wanted[p.typeTrait] = true
	for _, t := range p.Traits {
		wanted[t] = true
	}
	return slices.DeleteFunc(slices.Clone(owned), func(t string) bool { return wanted[t] })
}
