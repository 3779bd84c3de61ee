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
	tree        *providertree.Tree
	staying     []plugins.Place // the latter
	providers   map[string]Provider
	mdevParents map[string]string // of mediated devices: uuid by libvirt's name
	pages       map[string]uint64
	// seen are the allocations without those that are not to be moved, and are no use of any
	// inventory.
	seen providertree.Allocations
	// loose are the problems of those that are guessed for: what binds them is not looked at.
	loose map[binding]string
	// unpinned are the loose consumers whose processors may be placed anywhere, too.
	unpinned   map[string]bool
	violations []plugins.Violation
}

func newRelocation(r MoveRequest) *relocation {
	s := &relocation{
		MoveRequest: r, host: NewHost(r.Machine), domains: make(map[string]*domain.Domain, len(r.Domains)),
		consumers: slices.Sorted(maps.Keys(r.Allocations)), moving: map[plugins.Place]bool{}, tree: r.Tree.Clone(),
		providers: maps.Clone(r.Sites), mdevParents: map[string]string{}, pages: map[string]uint64{},
		seen: maps.Clone(r.Allocations), loose: map[binding]string{}, unpinned: map[string]bool{},
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
func (r *relocation) recognise() {
	root, _ := r.Tree.Provider(r.Root)
	for _, uuid := range slices.Sorted(maps.Keys(r.providers)) {
		is := r.providers[uuid]
		at, there := r.Tree.Provider(uuid)
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
			is.Class = r.classOf(at, is.Class)
		}
		if is.Kind == MdevParent {
			r.mdevParents[is.Parent] = uuid
		}
		r.providers[uuid] = is
	}
}

// classOf is the class of a provider's devices from now on.
func (r *relocation) classOf(at providertree.Provider, declared string) string {
	classes := slices.DeleteFunc(at.Inventories.Classes(),
		func(class string) bool { return r.moving[plugins.Place{Provider: at.UUID, Class: class}] })
	switch {
	case slices.Contains(classes, declared):
		return declared
	case slices.Contains(classes, vgpuClass):
		return vgpuClass
	case len(classes) > 0:
		return classes[0]
	}
	return ""
}

// formerly returns what a provider was, by the class of a place on it, that is not a site any more.
func (r *relocation) formerly(place plugins.Place) Provider {
	switch {
	case r.computing(place.Class):
		return Provider{Kind: Cell, Cell: machine.NoCell}
	case place.Class == encryptionClass:
		return Provider{Kind: Encryption}
	}
	return Provider{Kind: MdevParent}
}

func (r *relocation) computing(class string) bool {
	_, pages := r.pages[class]
	return pages || class == "VCPU" || class == "PCPU" || class == "MEMORY_MB"
}

// splits reports whether a place leaves in part only: it keeps inventory of VCPU, and guests with
// dedicated processors have PCPU from now on.
func (r *relocation) splits(from plugins.Place) bool {
	if _, has := r.Tree.Inventory(from.Provider, from.Class); !has || from.Class != "VCPU" {
		return false
	}
	if r.providers[from.Provider].Kind == Cell {
		return !r.hasStaying(plugins.Place{Provider: r.Root, Class: from.Class})
	}
	for uuid, is := range r.providers {
		if _, has := r.Tree.Inventory(uuid, from.Class); has && is.Kind == Cell {
			return false
		}
	}
	return true
}

// gained reports whether some other place has inventory for what is allocated at a moving one.
func (r *relocation) gained(from plugins.Place) bool {
	own := r.providers[from.Provider]
	if own.Class != "" && r.hasStaying(plugins.Place{Provider: from.Provider, Class: own.Class}) {
		return true // its devices are called by another name
	}
	mdevs := own.Kind == MdevParent
	if own.Kind == Root && !r.computing(from.Class) && from.Class != encryptionClass {
		mdevs = true
	}
	for uuid, is := range r.providers {
		switch {
		case is.Kind == Elsewhere:
		case r.hasStaying(plugins.Place{Provider: uuid, Class: from.Class}),
			mdevs && is.Kind == MdevParent && r.hasStaying(plugins.Place{Provider: uuid, Class: is.Class}):
			return true
		}
	}
	return false
}

// hasStaying reports whether there is inventory at a place that does not leave.
func (r *relocation) hasStaying(place plugins.Place) bool {
	_, has := r.Tree.Inventory(place.Provider, place.Class)
	return has && !r.moving[place]
}

// sites are the root and the cells that have inventory of a class.
func (r *relocation) sites(class string) int {
	n := 0
	for uuid, is := range r.providers {
		if _, has := r.tree.Inventory(uuid, class); has && (is.Kind == Root || is.Kind == Cell) {
			n++
		}
	}
	return n
}

// hideDrained takes out of sight what is not to be moved though there is no inventory: what is
// drained and was allocated before.
func (r *relocation) hideDrained() {
	for _, consumer := range r.consumers {
		var aside []plugins.Place
		for provider, amounts := range r.Allocations[consumer].Resources {
			is, known := r.providers[provider]
			if !known || is.Kind == Elsewhere {
				continue
			}
			for class := range amounts {
				place := plugins.Place{Provider: provider, Class: class}
				_, has := r.tree.Inventory(provider, class)
				if !has && (!r.moving[place] || slices.Contains(r.staying, place)) {
					aside = append(aside, place)
				}
			}
		}
		r.hide(consumer, aside)
	}
}

func (r *relocation) hide(consumer string, places []plugins.Place) {
	if len(places) == 0 {
		return
	}
	c := r.seen[consumer].Clone()
	for _, place := range places {
		delete(c.Resources[place.Provider], place.Class)
	}
	r.seen[consumer] = c
}

// refuseUnread makes violations of the consumers whose unreadable domain would decide where they
// go, and takes them out of the plan.
func (r *relocation) refuseUnread() {
	if r.Unplaced == Guess {
		return
	}
	for _, consumer := range r.consumers {
		if r.Unread[consumer] == "" {
			continue
		}
		var places []plugins.Place
		for provider, amounts := range r.seen[consumer].Resources {
			for class := range amounts {
				place := plugins.Place{Provider: provider, Class: class}
				_, has := r.tree.Inventory(provider, class)
				if slices.Contains(r.parts, place) || r.moving[place] && !has && r.targets(place) > 1 {
					places = append(places, place)
				}
			}
		}
		slices.SortFunc(places, byPlace)
		for _, place := range places {
			r.violations = append(r.violations, plugins.Violation{
				Consumer: consumer, Provider: place.Provider, Class: place.Class, Problem: r.Unread[consumer],
				Hint: r.hint(consumer, false),
			})
		}
		r.hide(consumer, places)
	}
}

// targets are how many providers there are to which what is allocated at a moving place can go.
func (r *relocation) targets(from plugins.Place) int {
	own := r.providers[from.Provider]
	switch {
	case r.computing(from.Class):
		return r.sites(from.Class)
	case own.Class != "" && r.hasStaying(plugins.Place{Provider: from.Provider, Class: own.Class}):
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
	for uuid, is := range r.providers {
		if _, has := r.tree.Inventory(uuid, is.Class); has && is.Kind == kind {
			n++
		}
	}
	return n
}

// refuseUnknown makes violations of the consumers without a domain that could go to several cells,
// and takes them out of the plan.
func (r *relocation) refuseUnknown() {
	if r.Unplaced == Guess {
		return
	}
	choice := map[string]int{}
	for place := range r.moving {
		if r.computing(place.Class) {
			choice[place.Class] = r.sites(place.Class)
		}
	}
	for _, consumer := range r.consumers {
		if r.domains[consumer] != nil {
			continue
		}
		var places []plugins.Place
		several := 0
		for provider, amounts := range r.seen[consumer].Resources {
			for class := range amounts {
				place := plugins.Place{Provider: provider, Class: class}
				if _, has := r.tree.Inventory(provider, class); r.moving[place] && !has && r.computing(class) {
					places = append(places, place)
					several = max(several, choice[class])
				}
			}
		}
		if several > 1 {
			r.violations = append(r.violations, r.unknown(consumer, places, several)...)
			r.hide(consumer, places)
		}
	}
}

func sortedPlaces(set map[plugins.Place]bool) []plugins.Place {
	return slices.SortedFunc(maps.Keys(set), byPlace)
}
