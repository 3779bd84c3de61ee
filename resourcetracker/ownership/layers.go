// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// applyLayer applies a layer to the entries. Providers that do not exist are left out: their owner
// is not known yet.
//
// What another client has written is kept and becomes the layer's, so that what Nova wrote for the
// same provider.yaml is adopted without a write. What the driver or another layer has stays theirs:
// a conflict for the operator's layer, if it is the driver's or differs; ignored for the agent's.
func (m *merger) applyLayer(layer Layer) {
	for _, uuid := range sortedKeys(layer.Providers) {
		e := m.entries[uuid]
		if e == nil {
			continue
		}
		items := layer.Providers[uuid]
		for class, inv := range items.Inventories {
			m.addLayerInventory(layer.Owner, e, class, inv)
		}
		var add []string
		for _, trait := range items.Traits {
			_, there := slices.BinarySearch(e.Traits, trait)
			switch holder := e.traits[trait]; {
			case holder == layer.Owner:
				continue
			case there && holder == Driver:
				m.addConflict(layer.Owner, e, KindTrait, trait, holder)
				continue
			case holder != "", there && e.ParentUUID != "" && isMark(trait):
				// another layer says it, and it can only be said once; and a mark of Nova's must
				// stay one
				continue
			case !there:
				add = append(add, trait)
			}
			put(&e.traits, trait, layer.Owner)
		}
		if len(add) > 0 {
			e.Traits = append(slices.Clip(e.Traits), add...)
			slices.Sort(e.Traits)
			e.edited = true
		}
	}
}

func (m *merger) addLayerInventory(owner Owner, e *entry, class string, inv providertree.Inventory) {
	there, found := e.Inventories[class]
	if holder := e.inventories[class]; found && holder != "" {
		if holder == Driver || !there.Equal(inv) {
			m.addConflict(owner, e, KindInventory, class, holder)
		}
		return
	}
	put(&e.inventories, class, owner)
	if found && there.Equal(inv) {
		return
	}
	if e.Inventories == nil {
		e.Inventories = providertree.Inventories{}
	}
	e.Inventories[class] = inv
	e.edited = true
}

func (m *merger) addConflict(owner Owner, e *entry, kind Kind, symbol string, holder Owner) {
	if owner == Agent {
		return
	}
	m.conflicts = append(m.conflicts, Conflict{Owner: owner, Provider: e.UUID, Name: e.Name, Kind: kind, Symbol: symbol,
		Problem: fmt.Sprintf("it belongs to the %s, which keeps it", holder)})
}
