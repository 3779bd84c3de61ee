// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/providertree"
)

var (
	cellName       = regexp.MustCompile(`^numa_(0|[1-9][0-9]{0,5})$`)
	encryptionName = regexp.MustCompile(`^amd_sev(_es|_snp)?$`)
	pciClass       = regexp.MustCompile(`^CUSTOM_PCI_[0-9A-F]{4}_[0-9A-F]{4}$`)
)

const sevTrait = "HW_CPU_X86_AMD_SEV" // and its kinds, with a suffix

// former is what an undesired provider stands for, if the driver, Nova, or the driver with an
// earlier configuration created it. ok is false for unmanaged ones.
func (w *Wanted) former(root string, p providertree.Provider) (site assignment.Provider, ok bool) {
	key, below := strings.CutPrefix(p.Name, w.Providers[0].Name+"_")
	if !below || p.UUID == root {
		return assignment.Provider{}, false
	}
	uuid, err := providertree.ChildUUID(root, key)
	made := err == nil && uuid == p.UUID
	marked := func(traitsOf ...string) bool {
		return made || slices.ContainsFunc(traitsOf, p.HasTrait)
	}
	_, mdevErr := machine.ParseDeviceName(key)
	_, pciErr := machine.ParseAddress(key)
	classes := p.Inventories.Classes()
	mdevs := len(classes) > 0 && !slices.ContainsFunc(classes, func(c string) bool { return !w.mdevClasses[c] })
	switch number := cellName.FindStringSubmatch(key); {
	case number != nil:
		cell, _ := strconv.Atoi(number[1]) // the expression allows nothing else
		return assignment.Provider{Kind: assignment.Cell, Cell: cell}, marked(traitNUMA, traitNova)
	case mdevErr == nil:
		// Nova before 2026.2 does not mark it
		return assignment.Provider{Kind: assignment.MdevParent, Parent: key}, mdevs || marked(traitNova)
	case pciErr == nil:
		return assignment.Provider{Kind: assignment.PCI}, marked(selection.TraitManaged)
	case encryptionName.MatchString(key):
		return assignment.Provider{Kind: assignment.Encryption}, made ||
			slices.ContainsFunc(p.Traits, func(t string) bool { return strings.HasPrefix(t, sevTrait) })
	}
	// A virtual parent of mediated devices can have any name. Nova's is known by what it has.
	return assignment.Provider{Kind: assignment.MdevParent, Parent: key}, made || mdevs && marked(traitNova)
}

// surplus are the classes that a provider has and that it is not to have, of those that are the
// driver's there.
func (w *Wanted) surplus(want *Provider, now providertree.Provider, carried map[string]bool) []string {
	var known, custom []string
	for _, class := range now.Inventories.Classes() {
		if s := want.inventory(class); s != nil && (!s.Carried || carried[class]) {
			continue
		}
		switch {
		case w.owns(want.Site.Kind, class):
			known = append(known, class)
		case providertree.IsCustom(class):
			custom = append(custom, class)
		}
	}
	// A device has one class. If it lacks it, and has none that is known to be the driver's, then
	// it still has the one of a former configuration.
	if class := want.Site.Class; class != "" && len(known) == 0 {
		if _, has := now.Inventories[class]; !has {
			return custom
		}
	}
	return known
}

// owns reports whether the driver owns a class on providers of a kind.
func (w *Wanted) owns(kind assignment.Kind, class string) bool {
	switch kind {
	case assignment.Root:
		return slices.ContainsFunc(rootClasses, func(c rootClass) bool { return c.owned(w, class) })
	case assignment.Cell:
		return computing(class)
	case assignment.MdevParent:
		return w.mdevClasses[class]
	case assignment.PCI:
		return w.pciClasses[class] || pciClass.MatchString(class)
	case assignment.Encryption:
		return class == selection.EncryptionClass
	}
	return false
}

// ownedSubtree has the providers of a tree that are the driver's, and what they stand for.
type ownedSubtree struct {
	tree *providertree.Tree
	root string
	// uuids are the uuids of the wanted providers, in the order of these; exists says which of them
	// are in the tree.
	uuids  []string
	exists []bool
	// wanted are the wanted ones by uuid.
	wanted map[string]*Provider
	// ours are the uuids of the driver's providers that are in the tree, in pre-order; former what
	// those that are not wanted stand for.
	ours   []string
	former map[string]assignment.Provider
	// kept says which of ours stay as they are.
	kept map[string]bool
	// carried are the classes of huge pages that the root is to have though it is flat.
	carried map[string]bool
}

// computing lists the root and the driver's cells in the tree.
func (s *ownedSubtree) computing(yield func(providertree.Provider, assignment.Provider) bool) {
	for _, uuid := range s.ours {
		site := s.site(uuid)
		if site.Kind != assignment.Root && site.Kind != assignment.Cell {
			continue
		}
		if p, _ := s.tree.Provider(uuid); !yield(p, site) {
			return
		}
	}
}

// site returns what one of the driver's providers stands for on the host.
func (s *ownedSubtree) site(uuid string) assignment.Provider {
	if p := s.wanted[uuid]; p != nil {
		return p.Site
	}
	return s.former[uuid]
}

// has reports whether the root or a cell has a class.
func (s *ownedSubtree) has(class string) bool {
	for p := range s.computing {
		if _, has := p.Inventories[class]; has {
			return true
		}
	}
	return false
}

// ratio returns the allocation ratio of a class that moves within the tree: the root's, or else the
// highest of the cells', so that its allocations fit. It is 0 if no provider had the class.
func (s *ownedSubtree) ratio(class string) float64 {
	highest := 0.0
	for p, site := range s.computing {
		inv, has := p.Inventories[class]
		switch {
		case !has:
		case site.Kind == assignment.Root:
			return inv.AllocationRatio
		default:
			highest = max(highest, inv.AllocationRatio)
		}
	}
	return highest
}

// findCarried finds the classes of huge pages of a flat tree.
func (s *ownedSubtree) findCarried(root *Provider) {
	for _, desired := range root.Inventories {
		if _, pages := selection.PagesSize(desired.Class); pages && desired.Carried && s.has(desired.Class) {
			s.carried[desired.Class] = true
		}
	}
}
