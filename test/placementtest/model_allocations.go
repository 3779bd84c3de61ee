// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// replace is PUT and POST /allocations.
func (m *Model) replace(list []ledger.ConsumerAllocations) ledger.Kind {
	if kind := m.checkConsumers(list); kind != 0 {
		return kind
	}
	return m.allocate(list)
}

func (m *Model) checkConsumers(list []ledger.ConsumerAllocations) ledger.Kind {
	for _, req := range list {
		c, exists := m.Consumers[req.Consumer]
		if req.CheckGeneration && (exists != (req.Generation != nil) || exists && *req.Generation != c.Generation) {
			return ledger.ConsumerGenerationConflict
		}
	}
	for _, req := range list {
		for uuid := range req.Resources {
			if _, ok := m.Providers[uuid]; !ok {
				return ledger.ProviderNotFound
			}
		}
	}
	return 0
}

func (m *Model) allocate(list []ledger.ConsumerAllocations) ledger.Kind {
	for _, req := range list {
		for _, held := range req.Resources {
			for class := range held {
				if !m.hasClass(class) {
					return ledger.ClassNotFound
				}
			}
		}
	}
	before := m.clone()
	touched := map[string]bool{}
	for _, req := range list {
		old, exists := m.Consumers[req.Consumer]
		next := ConsumerDump{Generation: old.Generation + 1, Project: req.Project, User: req.User,
			Type: old.Type, Allocations: req.Resources}
		if req.Type != nil {
			next.Type = *req.Type
		}
		if len(req.Resources) > 0 {
			m.Consumers[req.Consumer] = next
		} else if exists {
			next.Allocations = old.Allocations // to touch their providers
			delete(m.Consumers, req.Consumer)
		}
		for uuid := range next.Allocations {
			touched[uuid] = true
		}
	}
	// Which of several offences is found first is left open, see SameRefusal.
	for _, req := range list {
		for uuid, held := range req.Resources {
			for class, amount := range held {
				inv, ok := m.Providers[uuid].Inventories[class]
				capacity := int64(float64(inv.Total-inv.Reserved) * inv.Ratio)
				switch {
				case !ok:
					return ledger.InventoryNotFound
				case amount < inv.MinUnit || amount > inv.MaxUnit || amount%inv.StepSize != 0:
					return ledger.AllocationConstraint
				case m.used(uuid, class) > capacity && m.used(uuid, class) > before.used(uuid, class):
					return ledger.CapacityExceeded
				}
			}
		}
	}
	for uuid := range touched {
		m.bump(uuid)
	}
	return 0
}

// SameRefusal says whether two kinds of refusal are the same up to the order
// in which several offences of one request are found.
func SameRefusal(a, b ledger.Kind) bool {
	capacityKinds := []ledger.Kind{ledger.InventoryNotFound, ledger.AllocationConstraint, ledger.CapacityExceeded}
	return a == b || slices.Contains(capacityKinds, a) && slices.Contains(capacityKinds, b)
}

// reshape is POST /reshaper, in three steps as there.
func (m *Model) reshape(req ledger.Reshape) ledger.Kind {
	for _, uuid := range sortedKeys(req.Inventories) {
		p, ok := m.Providers[uuid]
		if !ok {
			return ledger.ProviderNotFound
		}
		if p.Generation != req.Inventories[uuid].Generation {
			return ledger.GenerationConflict
		}
	}
	if kind := m.checkConsumers(req.Allocations); kind != 0 {
		return kind
	}
	for uuid, to := range req.Inventories {
		if len(to.Inventories) == 0 {
			continue
		}
		for _, i := range to.Inventories {
			if !m.hasClass(i.Class) {
				return ledger.ClassNotFound
			}
			m.Providers[uuid].Inventories[i.Class] = plain(i)
		}
		m.bump(uuid)
	}
	if kind := m.allocate(req.Allocations); kind != 0 {
		return kind
	}
	for uuid, to := range req.Inventories {
		if kind := m.setInventories(uuid, to.Inventories); kind != 0 {
			return kind
		}
	}
	return 0
}
