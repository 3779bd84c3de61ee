// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"sort"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Moving lists the places in a tree whose allocations must move along with [Wanted.Put]: the
// driver's places that lose a class which moves to another provider or gets another name. Empty:
// nothing needs to move. They are in the order of the tree. Call it before Put.
//
//	VCPU, PCPU, MEMORY_MB, huge pages     the root to the cells, the cells to the root
//	VCPU                                  where PCPU is new; it may stay, for guests without
//	                                      dedicated processors
//	VGPU and other mediated devices       the root to their parents
//	MEM_ENCRYPTION_CONTEXT                the root to its kinds
//	any class of a device                 the same device, under another class
//
// Removed inventory is not moving: a GPU or cell that no longer exists, a class that was disabled.
// It has nowhere to move to, and the agent keeps it while it is allocated. Neither is DISK_GB, even
// if a sharing provider has it now: other hosts' guests use that provider too.
//
// Cost: O(providers of the node).
func (w Wanted) Moving(tree *providertree.Tree, root string) ([]plugins.Place, error) {
	s, err := w.classify(tree, root)
	if err != nil {
		return nil, err
	}
	return w.moving(s), nil
}

func (w *Wanted) moving(s *ownedSubtree) []plugins.Place {
	split := !s.has(classPCPU) &&
		(w.hasInventory(assignment.Root, classPCPU) || w.hasInventory(assignment.Cell, classPCPU))
	var out []plugins.Place
	for _, uuid := range s.ours {
		if s.kept[uuid] {
			continue
		}
		v, _ := s.tree.Provider(uuid)
		p, site := s.wanted[uuid], s.site(uuid)
		classes := v.Inventories.Classes()
		if p != nil {
			classes = w.surplus(p, v, s.carried)
		}
		for _, class := range v.Inventories.Classes() {
			isSplit := split && class == classVCPU && (site.Kind == assignment.Root || site.Kind == assignment.Cell)
			if isSplit || slices.Contains(classes, class) && w.leaves(p, site.Kind, class) {
				out = append(out, plugins.Place{Provider: uuid, Class: class})
			}
		}
	}
	return out
}

// leaves reports whether a class that a provider loses moves elsewhere. p is nil for an undesired
// provider.
func (w *Wanted) leaves(p *Provider, kind assignment.Kind, class string) bool {
	switch {
	case kind == assignment.Root && computing(class):
		return w.hasInventory(assignment.Cell, class)
	case kind == assignment.Root && class == selection.EncryptionClass:
		return w.hasKind(assignment.Encryption)
	case kind == assignment.Root:
		return w.mdevClasses[class] && w.hasKind(assignment.MdevParent)
	case kind == assignment.Cell:
		return computing(class) && w.hasInventory(assignment.Root, class)
	}
	return p != nil
}

// sharing are the providers that share something with the root.
func (s *ownedSubtree) sharing() []string {
	node, _ := s.tree.Provider(s.root)
	aggregates := node.Aggregates
	var out []string
	for v := range s.tree.All() {
		if v.ParentUUID == "" && v.UUID != s.root && s.tree.HasTraits(v.UUID, providertree.TraitSharesViaAggregate) &&
			slices.ContainsFunc(aggregates, func(a string) bool { return s.tree.InAggregates(v.UUID, a) }) {
			out = append(out, v.UUID)
		}
	}
	return out
}

// Sites returns what the providers of a node stand for, by uuid: those in the tree and those that
// [Wanted.Put] creates. Before Put it knows both layouts: cells whose inventory moves to the root
// are still cells. Unmanaged and sharing providers, and those that are removed without moving
// anything, are assignment.Elsewhere.
//
// Cost: O(providers of the tree).
func (w Wanted) Sites(tree *providertree.Tree, root string) (map[string]assignment.Provider, error) {
	s, err := w.classify(tree, root)
	if err != nil {
		return nil, err
	}
	sites := make(map[string]assignment.Provider, tree.Len()+len(w.Providers))
	for _, uuid := range slices.Concat(tree.Subtree(root), s.sharing()) {
		sites[uuid] = assignment.Provider{Kind: assignment.Elsewhere}
	}
	for _, place := range w.moving(s) {
		if site, former := s.former[place.Provider]; former {
			sites[place.Provider] = site
		}
	}
	for uuid, p := range s.wanted {
		site := p.Site
		site.Devices = slices.Clone(site.Devices)
		sites[uuid] = site
	}
	return sites, nil
}

// Held are the names of devices and cells, as they follow the node's name, that have a provider
// below a root: what [selection.MdevTypes.Choose] asks for.
//
// Cost: O(providers of the node).
func Held(tree *providertree.Tree, root string) map[string]bool {
	held := map[string]bool{}
	node, found := tree.Provider(root)
	if !found {
		return held
	}
	for _, uuid := range tree.Subtree(root) {
		v, _ := tree.Provider(uuid)
		if key, below := strings.CutPrefix(v.Name, node.Name+"_"); below {
			held[key] = true
		}
	}
	return held
}

// Draining is the inventory that a reshape must keep, because it is still allocated after
// everything has moved that can: a GPU that died, a disabled device type, a disk that another
// provider reports. Its total is what is allocated, so that nothing is free for others; see
// [Wanted.PutDraining]. Other passes do not need it: the agent keeps allocated inventory and
// reserves the rest. In a reshape, missing inventory is lost, and reserving all of it is not
// enough, because Placement before 2025.1 checks the capacity for everything that a consumer holds,
// moved or not.
//
// before is the tree before Put, after the one after it, and allocations are the new ones.
//
// Cost: O(providers of the node + allocations).
func Draining(
	before, after *providertree.Tree, root string, allocations providertree.Allocations,
) map[plugins.Place]providertree.Inventory {
	used := map[plugins.Place]int64{}
	for _, consumer := range allocations {
		for provider, amounts := range consumer.Resources {
			for class, n := range amounts {
				used[plugins.Place{Provider: provider, Class: class}] += n
			}
		}
	}
	draining := map[plugins.Place]providertree.Inventory{}
	for _, uuid := range before.Subtree(root) {
		v, _ := before.Provider(uuid)
		for _, class := range v.Inventories.Classes() {
			place := plugins.Place{Provider: uuid, Class: class}
			was := v.Inventories[class]
			is, stays := after.Inventory(uuid, class)
			switch n := used[place]; {
			case n == 0:
			case !stays:
				draining[place] = smallestFor(was, 0, n)
			case is.Total < was.Total && is.Capacity() < n:
				draining[place] = smallestFor(was, is.Reserved, n)
			}
		}
	}
	return draining
}

// smallestFor is an inventory with the smallest total whose capacity is at least used, or the
// unchanged one if there is none.
func smallestFor(was providertree.Inventory, reserved, used int64) providertree.Inventory {
	inv := was
	inv.Reserved = min(reserved, was.Reserved)
	fits := func(total int) bool {
		inv.Total = int64(total)
		return inv.Capacity() >= used
	}
	inv.Total = int64(sort.Search(int(was.Total), fits))
	if inv.Capacity() < used {
		return was
	}
	return inv
}
