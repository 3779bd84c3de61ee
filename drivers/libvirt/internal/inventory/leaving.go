// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/encryption"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/placing"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Leaving lists the places in a tree whose allocations must move along with [Wanted.Put]: places of the driver's that lose a class which it has
// elsewhere from now on, or under another name. None: nothing needs to move. They come in the order of the tree. Ask before Put; afterwards
// there is nothing left to see.
//
//	VCPU, PCPU, MEMORY_MB, huge pages     the root to the cells, the cells to the root
//	VCPU                                  where PCPU comes that was nowhere; it may stay, for guests without dedicated processors
//	VGPU and other mediated devices       the root to their parents
//	MEM_ENCRYPTION_CONTEXT                the root to its kinds
//	any class of a device                 the same device, under another class
//
// What only goes is none of these: a GPU, a cell that is there no more, a class that was switched off. There is nowhere to move to, and the
// agent keeps it for as long as it is allocated. Neither is DISK_GB, though a sharing provider may have it from now on: other hosts' guests are on that,
// and it is not for one of them to give it away.
//
// Cost: O(providers of the node).
func (w Wanted) Leaving(tree *providertree.Tree, root string) ([]plugins.Place, error) {
	s, err := w.stand(tree, root)
	if err != nil {
		return nil, err
	}
	return w.leaving(s), nil
}

func (w *Wanted) leaving(s *standing) []plugins.Place {
	split := !s.has(classPCPU) && (w.anywhere(placing.Root, classPCPU) || w.anywhere(placing.Cell, classPCPU))
	var out []plugins.Place
	for _, uuid := range s.ours {
		v, _ := s.tree.Provider(uuid)
		p, site := s.wanted[uuid], s.site(uuid)
		classes := v.Inventories.Classes()
		if p != nil {
			classes = w.surplus(p, v, s.carried)
		}
		for _, class := range v.Inventories.Classes() {
			isSplit := split && class == classVCPU && (site.Kind == placing.Root || site.Kind == placing.Cell)
			if isSplit || slices.Contains(classes, class) && w.leaves(p, site.Kind, class) {
				out = append(out, plugins.Place{Provider: uuid, Class: class})
			}
		}
	}
	return out
}

// leaves says whether a class that a provider loses is elsewhere from now on. p is nil for a provider that is not wanted.
func (w *Wanted) leaves(p *Provider, kind placing.Kind, class string) bool {
	switch {
	case kind == placing.Root && computing(class):
		return w.anywhere(placing.Cell, class)
	case kind == placing.Root && class == encryption.Class:
		return w.any(placing.Encryption)
	case kind == placing.Root:
		return w.mdevClasses[class] && w.any(placing.MdevParent)
	case kind == placing.Cell:
		return computing(class) && w.anywhere(placing.Root, class)
	}
	return p != nil
}

// sharing are the providers that share something with the root.
func (s *standing) sharing() []string {
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

// Sites says what the providers of a node stand for, by uuid: those that are in the tree and those that [Wanted.Put] makes. Asked before Put, it
// knows both shapes: cells whose inventory moves to the root are still cells. Providers of others, sharing ones, and those of the driver's
// that go without anything moving are placing.Elsewhere.
//
// Cost: O(providers of the tree).
func (w Wanted) Sites(tree *providertree.Tree, root string) (map[string]placing.Provider, error) {
	s, err := w.stand(tree, root)
	if err != nil {
		return nil, err
	}
	sites := make(map[string]placing.Provider, tree.Len()+len(w.Providers))
	for _, uuid := range slices.Concat(tree.Subtree(root), s.sharing()) {
		sites[uuid] = placing.Provider{Kind: placing.Elsewhere}
	}
	for _, place := range w.leaving(s) {
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

// Held are the names of devices and cells, as they follow the node's name, that have a provider below a root: what mdevs.Types.Choose asks for.
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
