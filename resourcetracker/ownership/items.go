// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Nova's marks on child providers of a compute node that are its own.
const (
	traitManagedPCIDevice = "COMPUTE_MANAGED_PCI_DEVICE"
	traitOwnerNova        = "OWNER_NOVA"
)

func isMark(trait string) bool { return trait == traitManagedPCIDevice || trait == traitOwnerNova }

// marked reports whether a child provider of the node has a mark of Nova's that is not ours: a
// driver must not mark what it wants to remove. OWNER_NOVA does not count on providers that
// provider.yaml names, as Nova puts it on these too.
func (m *merger) marked(was providertree.Provider) bool {
	if !m.inNode[was.UUID] || was.ParentUUID == "" {
		return false
	}
	has := func(trait string) bool {
		return was.HasTrait(trait) && m.in.Record.provider(was.UUID).Traits[trait] == ""
	}
	return has(traitManagedPCIDevice) || has(traitOwnerNova) && !m.named[was.UUID]
}

// mergedProvider is a provider that was there and that the driver answers with.
func (m *merger) mergedProvider(was, now providertree.Provider) *entry {
	record := m.in.Record.provider(was.UUID)
	e := &entry{ours: ours{owner: record.Owner}}
	if m.shared(was) {
		now, e.edited = m.dropSharedEdits(was, now)
	}
	e.Provider = now
	if was.UUID == m.in.Root {
		e.owner = Driver
	}
	e.Generation = was.Generation
	if !m.ownedByDriver(was) {
		if now.Name != was.Name {
			e.Name = was.Name
			m.addKept(was, KindProvider, "", "renamed")
		}
		if now.ParentUUID != was.ParentUUID {
			e.ParentUUID = was.ParentUUID
			m.addKept(was, KindProvider, "", "moved")
		}
	}
	mayDrop := m.in.Reshape && m.inNode[was.UUID] && m.ownedByDriver(was)
	m.mergeInventories(e, was, record, mayDrop)
	e.Traits, e.traits = m.mergeSet(was, KindTrait, was.Traits, now.Traits, record.Traits)
	e.Aggregates, e.aggregates = m.mergeSet(was, KindAggregate, was.Aggregates, now.Aggregates, record.Aggregates)
	e.edited = e.edited || len(e.Traits) > len(now.Traits) || len(e.Aggregates) > len(now.Aggregates)
	return e
}

// shared reports whether a provider is beside the node's tree and not one that the driver has made:
// the drivers of other hosts see it too.
func (m *merger) shared(was providertree.Provider) bool {
	return !m.inNode[was.UUID] && m.in.Record.provider(was.UUID).Owner == ""
}

// dropSharedEdits returns what a driver answers about a shared provider, without what it adds and
// changes there: two drivers, or a driver and an operator, would overwrite each other forever.
func (m *merger) dropSharedEdits(was, now providertree.Provider) (left providertree.Provider, edited bool) {
	refuse := func(kind Kind, symbol, change string) {
		m.addKept(was, kind, symbol, change)
		edited = true
	}
	now.Inventories = maps.Clone(now.Inventories)
	for class, inv := range now.Inventories {
		if before, there := was.Inventories[class]; !there {
			refuse(KindInventory, class, "added")
			delete(now.Inventories, class)
		} else if !before.Equal(inv) {
			refuse(KindInventory, class, "changed")
			now.Inventories[class] = before
		}
	}
	drop := func(kind Kind, before, items []string) []string {
		return slices.DeleteFunc(slices.Clone(items), func(item string) bool {
			_, there := slices.BinarySearch(before, item)
			if !there {
				refuse(kind, item, "added")
			}
			return !there
		})
	}
	now.Traits = drop(KindTrait, was.Traits, now.Traits)
	now.Aggregates = drop(KindAggregate, was.Aggregates, now.Aggregates)
	return now, edited
}

// mergeInventories merges the resource classes of a provider. The entry holds the driver's.
func (m *merger) mergeInventories(e *entry, was providertree.Provider, record Provider, mayDrop bool) {
	e.inventories = make(map[string]Owner, len(e.Inventories))
	for class, inv := range e.Inventories {
		before, there := was.Inventories[class]
		if !there || !before.Equal(inv) || record.Inventories[class].Owner == Driver {
			e.inventories[class] = Driver
		}
	}
	for class, inv := range was.Inventories {
		if _, stays := e.Inventories[class]; stays ||
			mayDrop || record.Inventories[class].Owner == Driver || m.movesClass(was, class) {
			continue
		}
		m.addKept(was, KindInventory, class, "removed")
		e.Inventories[class] = inv
		e.edited = true
	}
}

// movesClass reports whether the driver removes a class from a provider of the node because another
// one has it now. Then it is removed even if the record lacks it (the state directory was lost): it
// must not be reported twice.
func (m *merger) movesClass(was providertree.Provider, class string) bool {
	if to, renamed := m.in.Renames[class]; renamed {
		class = to
	}
	return m.inNode[was.UUID] && m.gained[class]
}

// movesTrait reports whether a trait that the driver removes from a provider of the node has moved
// to another one. That is assumed in a reshape only: a trait can be on several providers, and
// otherwise an operator's CUSTOM_FAST on a GPU would go when the driver gives it to a new GPU.
// Nova's marks do not move.
func (m *merger) movesTrait(was providertree.Provider, trait string) bool {
	return m.inNode[was.UUID] && m.come[trait] && !isMark(trait)
}

// gains are the resource classes of which some provider of the node's tree has more in the answer
// than before, and, in a reshape, the traits that some provider there has and had not.
func (m *merger) gains() (classes, traits map[string]bool) {
	classes, traits = map[string]bool{}, map[string]bool{}
	within := map[string]bool{m.in.Root: true}
	for _, uuid := range m.answerOrder { // parents come first
		now := m.answer[uuid]
		if !within[uuid] && !within[now.ParentUUID] {
			continue
		}
		within[uuid] = true
		before := m.base[uuid]
		for class, inv := range now.Inventories {
			if was, there := before.Inventories[class]; !there || inv.Total > was.Total {
				classes[class] = true
			}
		}
		if !m.in.Reshape {
			continue
		}
		for _, trait := range now.Traits {
			if !before.HasTrait(trait) {
				traits[trait] = true
			}
		}
	}
	return classes, traits
}

// mergeSet merges traits or aggregates, which come and are returned sorted.
func (m *merger) mergeSet(
	was providertree.Provider, kind Kind, before, now []string, record map[string]Owner,
) ([]string, map[string]Owner) {
	owners := make(map[string]Owner, len(now))
	for _, item := range now {
		if _, there := slices.BinarySearch(before, item); !there || record[item] == Driver {
			owners[item] = Driver
		}
	}
	var back []string
	for _, item := range before {
		if _, stays := slices.BinarySearch(now, item); stays || record[item] == Driver {
			continue
		}
		if kind == KindTrait && m.movesTrait(was, item) {
			m.moved[was.UUID] = append(m.moved[was.UUID], item)
			continue
		}
		m.addKept(was, kind, item, "removed")
		back = append(back, item)
	}
	if len(back) > 0 {
		now = append(slices.Clip(now), back...)
		slices.Sort(now)
	}
	return now, owners
}

// createdProvider is a provider that the driver makes.
func (m *merger) createdProvider(now providertree.Provider) *entry {
	e := &entry{Provider: now, ours: ours{owner: Driver, inventories: map[string]Owner{}, traits: map[string]Owner{},
		aggregates: map[string]Owner{}}}
	e.Generation = providertree.NoGeneration
	for class := range now.Inventories {
		e.inventories[class] = Driver
	}
	for _, trait := range now.Traits {
		e.traits[trait] = Driver
	}
	for _, aggregate := range now.Aggregates {
		e.aggregates[aggregate] = Driver
	}
	return e
}

// remainder is what is left of a provider that the driver took away and that stays all the same:
// without what is the driver's on it. Of one that is only marked, the inventories are the driver's
// and the rest may be any client's.
func (m *merger) remainder(was providertree.Provider) *entry {
	record := m.in.Record.provider(was.UUID)
	e := &entry{Provider: was, ours: ours{owner: record.Owner}}
	onlyMarked := record.Owner == "" && m.marked(was)
	// base is read again if the provider comes back as an ancestor
	e.Inventories = maps.Clone(was.Inventories)
	maps.DeleteFunc(e.Inventories, func(class string, _ providertree.Inventory) bool {
		return onlyMarked || record.Inventories[class].Owner == Driver || m.in.Reshape && m.movesClass(was, class)
	})
	e.Traits = unmanagedItems(was.Traits, record.Traits)
	e.Aggregates = unmanagedItems(was.Aggregates, record.Aggregates)
	return e
}

// unmanagedItems are the items that are not the driver's.
func unmanagedItems(items []string, record map[string]Owner) []string {
	return slices.DeleteFunc(slices.Clone(items), func(item string) bool { return record[item] == Driver })
}
