// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const (
	vgpuClass       = "VGPU"
	encryptionClass = "MEM_ENCRYPTION_CONTEXT"
)

// relocation is a request as it is worked on.
type relocation struct {
	MoveRequest
	host    *Host
	domains map[string]*domain.Domain
	// consumers are all of them, in order.
	consumers []string
	moving    map[plugins.Place]bool
	parts     []plugins.Place // those that leave in part only
	// tree has the inventory without that of the moving places. Those that no other place gains
	// have as much as is in use.
	tree      *providertree.Tree
	staying   []plugins.Place // the latter
	providers map[string]Provider
	makers    map[string]string // of mediated devices: uuid by libvirt's name
	pages     map[string]uint64
	// seen are the allocations without those that are not to be moved, and are no use of any
	// inventory.
	seen providertree.Allocations
	// loose are the problems of those that are guessed for: what binds them is not looked at.
	loose map[bond]string
	// unpinned are those of them whose processors are placed freely too.
	unpinned   map[string]bool
	violations []plugins.Violation
}

func newRelocation(r MoveRequest) *relocation {
	s := &relocation{
		MoveRequest: r, host: NewHost(r.Machine), domains: make(map[string]*domain.Domain, len(r.Domains)),
		consumers: slices.Sorted(maps.Keys(r.Allocations)), moving: map[plugins.Place]bool{}, tree: r.Tree.Clone(),
		providers: maps.Clone(r.Sites), makers: map[string]string{}, pages: map[string]uint64{},
		seen: maps.Clone(r.Allocations), loose: map[bond]string{}, unpinned: map[string]bool{},
	}
	for i := range r.Domains {
		s.domains[r.Domains[i].UUID] = &r.Domains[i]
	}
	if s.providers == nil {
		s.providers = map[string]Provider{}
	}
	if is, known := s.providers[r.Root]; !known || is.Kind == Elsewhere {
		s.providers[r.Root] = Provider{Kind: Root}
	}
	for _, place := range r.Moving {
		s.moving[place] = true
		if kib, is := selection.PagesSize(place.Class); is {
			s.pages[place.Class] = kib
		}
	}
	s.recognise()
	for _, place := range sortedPlaces(s.moving) {
		if _, known := s.providers[place.Provider]; !known {
			s.providers[place.Provider] = s.formerly(place)
		}
	}
	for _, place := range sortedPlaces(s.moving) {
		if s.splits(place) {
			s.parts = append(s.parts, place)
		}
	}
	for _, place := range s.parts {
		delete(s.moving, place)
	}
	for _, place := range sortedPlaces(s.moving) {
		used := int64(0)
		if !s.gained(place) {
			s.staying = append(s.staying, place)
			used = r.Allocations.Used(place.Provider)[place.Class]
		}
		// An error says that the provider is gone altogether: there is no inventory then, which is
		// as good.
		if used > 0 {
			_, _ = s.tree.SetInventory(place.Provider,
				place.Class, providertree.Inventory{Total: min(used, providertree.MaxUnit)})
		} else {
			_, _ = s.tree.RemoveInventory(place.Provider, place.Class)
		}
	}
	return s
}

// recognise finds out what a site does not say: the class of its devices, and its kind of
// encryption by its name.
func (s *relocation) recognise() {
	root, _ := s.Tree.Provider(s.Root)
	for _, uuid := range slices.Sorted(maps.Keys(s.providers)) {
		is := s.providers[uuid]
		at, there := s.Tree.Provider(uuid)
		if !there {
			continue
		}
		switch is.Kind {
		case Encryption:
			is.Class = encryptionClass
			if is.Security == "" {
				_, kind, _ := strings.Cut(at.Name, root.Name+"_amd_")
				is.Security = domain.Security(strings.ReplaceAll(kind, "_", "-"))
			}
		case MdevParent, PCI:
			is.Class = s.classOf(at, is.Class)
		}
		if is.Kind == MdevParent {
			s.makers[is.Parent] = uuid
		}
		s.providers[uuid] = is
	}
}

// classOf is the class of a provider's devices from now on.
func (s *relocation) classOf(at providertree.Provider, said string) string {
	classes := slices.DeleteFunc(at.Inventories.Classes(),
		func(class string) bool { return s.moving[plugins.Place{Provider: at.UUID, Class: class}] })
	switch {
	case slices.Contains(classes, said):
		return said
	case slices.Contains(classes, vgpuClass):
		return vgpuClass
	case len(classes) > 0:
		return classes[0]
	}
	return ""
}

// formerly is what a provider was that is no site any more.
func (s *relocation) formerly(place plugins.Place) Provider {
	switch {
	case s.computing(place.Class):
		return Provider{Kind: Cell, Cell: machine.NoCell}
	case place.Class == encryptionClass:
		return Provider{Kind: Encryption}
	}
	return Provider{Kind: MdevParent}
}

func (s *relocation) computing(class string) bool {
	_, pages := s.pages[class]
	return pages || class == "VCPU" || class == "PCPU" || class == "MEMORY_MB"
}

// splits reports whether a place leaves in part only: it keeps inventory of VCPU, and guests with
// dedicated processors have PCPU from now on.
func (s *relocation) splits(from plugins.Place) bool {
	if _, has := s.Tree.Inventory(from.Provider, from.Class); !has || from.Class != "VCPU" {
		return false
	}
	if s.providers[from.Provider].Kind == Cell {
		return !s.hasStaying(plugins.Place{Provider: s.Root, Class: from.Class})
	}
	for uuid, is := range s.providers {
		if _, has := s.Tree.Inventory(uuid, from.Class); has && is.Kind == Cell {
			return false
		}
	}
	return true
}

// gained reports whether some other place has inventory for what is allocated at a moving one.
func (s *relocation) gained(from plugins.Place) bool {
	own := s.providers[from.Provider]
	if own.Class != "" && s.hasStaying(plugins.Place{Provider: from.Provider, Class: own.Class}) {
		return true // its devices are called by another name
	}
	mdevs := own.Kind == MdevParent
	if own.Kind == Root && !s.computing(from.Class) && from.Class != encryptionClass {
		mdevs = true
	}
	for uuid, is := range s.providers {
		switch {
		case is.Kind == Elsewhere:
		case s.hasStaying(plugins.Place{Provider: uuid, Class: from.Class}),
			mdevs && is.Kind == MdevParent && s.hasStaying(plugins.Place{Provider: uuid, Class: is.Class}):
			return true
		}
	}
	return false
}

// hasStaying reports whether there is inventory at a place that does not leave.
func (s *relocation) hasStaying(place plugins.Place) bool {
	_, has := s.Tree.Inventory(place.Provider, place.Class)
	return has && !s.moving[place]
}

// sites are the root and the cells that have inventory of a class.
func (s *relocation) sites(class string) int {
	n := 0
	for uuid, is := range s.providers {
		if _, has := s.tree.Inventory(uuid, class); has && (is.Kind == Root || is.Kind == Cell) {
			n++
		}
	}
	return n
}

// lookAside takes out of sight what is not to be moved though there is no inventory: what is
// drained and was allocated before.
func (s *relocation) lookAside() {
	for _, consumer := range s.consumers {
		var aside []plugins.Place
		for provider, amounts := range s.Allocations[consumer].Resources {
			is, known := s.providers[provider]
			if !known || is.Kind == Elsewhere {
				continue
			}
			for class := range amounts {
				place := plugins.Place{Provider: provider, Class: class}
				_, has := s.tree.Inventory(provider, class)
				if !has && (!s.moving[place] || slices.Contains(s.staying, place)) {
					aside = append(aside, place)
				}
			}
		}
		s.hide(consumer, aside)
	}
}

func (s *relocation) hide(consumer string, places []plugins.Place) {
	if len(places) == 0 {
		return
	}
	c := s.seen[consumer].Clone()
	for _, place := range places {
		delete(c.Resources[place.Provider], place.Class)
	}
	s.seen[consumer] = c
}

// refuseUnread makes violations of the consumers whose unreadable domain would decide where they
// go, and takes them out of the plan.
func (s *relocation) refuseUnread() {
	if s.Unplaced == Guess {
		return
	}
	for _, consumer := range s.consumers {
		if s.Unread[consumer] == "" {
			continue
		}
		var places []plugins.Place
		for provider, amounts := range s.seen[consumer].Resources {
			for class := range amounts {
				place := plugins.Place{Provider: provider, Class: class}
				_, has := s.tree.Inventory(provider, class)
				if slices.Contains(s.parts, place) || s.moving[place] && !has && s.targets(place) > 1 {
					places = append(places, place)
				}
			}
		}
		slices.SortFunc(places, byPlace)
		for _, place := range places {
			s.violations = append(s.violations, plugins.Violation{
				Consumer: consumer, Provider: place.Provider, Class: place.Class, Problem: s.Unread[consumer],
				Hint: s.hint(consumer, false),
			})
		}
		s.hide(consumer, places)
	}
}

// targets are how many providers there are to which what is allocated at a moving place can go.
func (s *relocation) targets(from plugins.Place) int {
	own := s.providers[from.Provider]
	switch {
	case s.computing(from.Class):
		return s.sites(from.Class)
	case own.Class != "" && s.hasStaying(plugins.Place{Provider: from.Provider, Class: own.Class}):
		return 1
	}
	kind := own.Kind
	switch {
	case from.Class == encryptionClass:
		kind = Encryption
	case kind == Root:
		kind = MdevParent
	}
	n := 0
	for uuid, is := range s.providers {
		if _, has := s.tree.Inventory(uuid, is.Class); has && is.Kind == kind {
			n++
		}
	}
	return n
}

// refuseUnknown makes violations of the consumers without a domain that could go to several cells,
// and takes them out of the plan.
func (s *relocation) refuseUnknown() {
	if s.Unplaced == Guess {
		return
	}
	choice := map[string]int{}
	for place := range s.moving {
		if s.computing(place.Class) {
			choice[place.Class] = s.sites(place.Class)
		}
	}
	for _, consumer := range s.consumers {
		if s.domains[consumer] != nil {
			continue
		}
		var places []plugins.Place
		several := 0
		for provider, amounts := range s.seen[consumer].Resources {
			for class := range amounts {
				place := plugins.Place{Provider: provider, Class: class}
				if _, has := s.tree.Inventory(provider, class); s.moving[place] && !has && s.computing(class) {
					places = append(places, place)
					several = max(several, choice[class])
				}
			}
		}
		if several > 1 {
			s.violations = append(s.violations, s.unknown(consumer, places, several)...)
			s.hide(consumer, places)
		}
	}
}

func sortedPlaces(set map[plugins.Place]bool) []plugins.Place {
	return slices.SortedFunc(maps.Keys(set), byPlace)
}
