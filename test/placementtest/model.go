// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// Model is a Placement of maps and loops: slow, and plain enough to be
// checked by eye against OpenStack Placement's sources. It embeds the part of
// a Dump that is state and computes the rest when it is drawn.
type Model struct {
	Providers map[string]ProviderDump
	Consumers map[string]ConsumerDump
	Classes   map[string]bool
	Traits    map[string]bool
	Hosts     map[string]HostDump
}

// NewModel returns the model of an empty Placement.
func NewModel() *Model {
	return &Model{Providers: map[string]ProviderDump{}, Consumers: map[string]ConsumerDump{},
		Classes: map[string]bool{}, Traits: map[string]bool{}, Hosts: map[string]HostDump{}}
}

// Dump draws the model.
func (m *Model) Dump() Dump {
	dump := Dump{Providers: map[string]ProviderDump{}, Consumers: m.Consumers, Members: map[string][]string{},
		Traited: map[string][]string{}, Offering: map[string][]string{},
		Classes: sortedKeys(m.Classes), Traits: sortedKeys(m.Traits), Hosts: m.Hosts}
	for _, uuid := range sortedKeys(m.Providers) {
		p := m.Providers[uuid]
		p.Root = m.root(uuid)
		p.Used = map[string]int64{}
		for _, c := range sortedKeys(m.Consumers) {
			if held := m.Consumers[c].Allocations[uuid]; held != nil {
				p.Consumers = append(p.Consumers, c)
				for class, amount := range held {
					p.Used[class] += amount
				}
			}
		}
		for _, other := range sortedKeys(m.Providers) {
			if m.Providers[other].Parent == uuid {
				p.Children = append(p.Children, other)
			}
		}
		for _, a := range p.Aggregates {
			dump.Members[a] = append(dump.Members[a], uuid)
		}
		for _, t := range p.Traits {
			dump.Traited[t] = append(dump.Traited[t], uuid)
		}
		for class := range p.Inventories {
			dump.Offering[class] = append(dump.Offering[class], uuid)
		}
		dump.Providers[uuid] = p
	}
	return dump
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (m *Model) root(uuid string) string {
	for m.Providers[uuid].Parent != "" {
		uuid = m.Providers[uuid].Parent
	}
	return uuid
}

func (m *Model) used(uuid, class string) (sum int64) {
	for _, c := range m.Consumers {
		sum += c.Allocations[uuid][class]
	}
	return sum
}

func (m *Model) hasClass(name string) bool {
	return m.Classes[name] || slices.Contains(ledger.StandardClasses(), name)
}

func (m *Model) hasTrait(name string) bool {
	return m.Traits[name] || slices.Contains(ledger.StandardTraits(), name)
}

func (m *Model) clone() *Model {
	c := &Model{
		Providers: map[string]ProviderDump{}, Consumers: map[string]ConsumerDump{},
		Classes: maps.Clone(m.Classes), Traits: maps.Clone(m.Traits), Hosts: maps.Clone(m.Hosts),
	}
	for uuid, p := range m.Providers {
		p.Inventories = maps.Clone(p.Inventories)
		c.Providers[uuid] = p
	}
	for uuid, con := range m.Consumers {
		allocations := providertree.ProviderResources{}
		for p, r := range con.Allocations {
			allocations[p] = maps.Clone(r)
		}
		con.Allocations = allocations
		c.Consumers[uuid] = con
	}
	return c
}

// Apply does a write or, with the Kind of the refusal, nothing.
func (m *Model) Apply(op Op) ledger.Kind {
	try := m.clone()
	kind := try.apply(op)
	if kind == 0 {
		*m = *try
	}
	return kind
}

func (m *Model) bump(uuid string) {
	p := m.Providers[uuid]
	p.Generation++
	m.Providers[uuid] = p
}

func (m *Model) apply(op Op) ledger.Kind {
	switch op.Name {
	case "CreateProvider":
		return m.create(op.Create)
	case "CreateClass", "CreateTrait", "RenameClass", "DeleteClass", "DeleteTrait":
		return m.applyNames(op)
	case "ReplaceAllocations":
		return m.replace(op.Allocations)
	case "DeleteAllocations":
		if _, ok := m.Consumers[op.UUID]; !ok {
			return ledger.AllocationNotFound
		}
		delete(m.Consumers, op.UUID)
		return 0
	case "Reshape":
		return m.reshape(op.Reshape)
	case "SetHost":
		m.Hosts[op.Host.Name] = HostDump{op.Host.Since, op.Host.Classes, op.Host.Traits}
		return 0
	}
	p, ok := m.Providers[op.UUID]
	if !ok {
		return ledger.ProviderNotFound
	}
	checked := op.Name == "SetInventories" || op.Name == "SetInventory" || op.Name == "SetTraits" ||
		op.Name == "SetAggregates" && op.Generation != nil
	if checked && *op.Generation != p.Generation {
		return ledger.GenerationConflict
	}
	switch op.Name {
	case "UpdateProvider":
		return m.update(op.UUID, op.Update)
	case "DeleteProvider":
		for _, other := range m.Providers {
			if other.Parent == op.UUID {
				return ledger.CannotDeleteParent
			}
		}
		for _, c := range m.Consumers {
			if c.Allocations[op.UUID] != nil {
				return ledger.ProviderInUse
			}
		}
		delete(m.Providers, op.UUID)
		return 0
	case "SetInventories":
		return m.setInventories(op.UUID, op.Inventories)
	case "DeleteInventories":
		return m.setInventories(op.UUID, nil)
	case "AddInventory", "SetInventory":
		i := op.Inventories[0]
		_, has := p.Inventories[i.Class]
		switch {
		case !m.hasClass(i.Class):
			return ledger.ClassNotFound
		case has && op.Name == "AddInventory":
			return ledger.InventoryExists
		case !has && op.Name == "SetInventory":
			return ledger.InventoryNotFound
		}
		p.Inventories[i.Class] = plain(i)
	case "DeleteInventory":
		_, has := p.Inventories[op.Class]
		switch {
		case !m.hasClass(op.Class):
			return ledger.ClassNotFound
		case m.used(op.UUID, op.Class) > 0:
			return ledger.InventoryInUse
		case !has:
			return ledger.InventoryNotFound
		}
		delete(p.Inventories, op.Class)
	case "SetTraits", "ClearTraits":
		var want []string
		if op.Name == "SetTraits" {
			want = slices.Sorted(slices.Values(op.Names))
		}
		for _, t := range want {
			if !m.hasTrait(t) {
				return ledger.TraitNotFound
			}
		}
		if slices.Equal(want, p.Traits) {
			return 0
		}
		p.Traits = want
		m.Providers[op.UUID] = p
	case "SetAggregates":
		p.Aggregates = slices.Sorted(slices.Values(op.Names))
		m.Providers[op.UUID] = p
		if op.Generation == nil {
			return 0
		}
	}
	m.bump(op.UUID)
	return 0
}

func plain(i ledger.Inventory) InventoryDump {
	return InventoryDump{i.Total, i.Reserved, i.MinUnit, i.MaxUnit, i.StepSize, i.AllocationRatio}
}

func (m *Model) named(name string) bool {
	for _, p := range m.Providers {
		if p.Name == name {
			return true
		}
	}
	return false
}

func (m *Model) create(req ledger.NewProvider) ledger.Kind {
	_, exists := m.Providers[req.UUID]
	_, parent := m.Providers[req.Parent]
	switch {
	case req.Parent == req.UUID:
		return ledger.InvalidParent
	case req.Parent != "" && !parent:
		return ledger.ParentNotFound
	case exists:
		return ledger.DuplicateUUID
	case m.named(req.Name):
		return ledger.DuplicateName
	}
	m.Providers[req.UUID] = ProviderDump{Name: req.Name, Parent: req.Parent, Inventories: map[string]InventoryDump{}}
	return 0
}

func (m *Model) update(uuid string, req ledger.ProviderUpdate) ledger.Kind {
	p := m.Providers[uuid]
	if req.Parent != nil && *req.Parent != p.Parent {
		if _, ok := m.Providers[*req.Parent]; *req.Parent != "" && !ok {
			return ledger.ParentNotFound
		}
		if p.Parent != "" && !req.AllowReparent {
			return ledger.InvalidParent
		}
		for at := *req.Parent; at != ""; at = m.Providers[at].Parent {
			if at == uuid {
				return ledger.InvalidParent
			}
		}
		p.Parent = *req.Parent
	}
	if req.Name != p.Name && m.named(req.Name) {
		return ledger.DuplicateName
	}
	p.Name = req.Name
	m.Providers[uuid] = p
	return 0
}

func (m *Model) setInventories(uuid string, list []ledger.Inventory) ledger.Kind {
	p := m.Providers[uuid]
	next := map[string]InventoryDump{}
	for _, i := range list {
		if !m.hasClass(i.Class) {
			return ledger.ClassNotFound
		}
		next[i.Class] = plain(i)
	}
	for class := range p.Inventories {
		if _, keeps := next[class]; !keeps && m.used(uuid, class) > 0 {
			return ledger.InventoryInUse
		}
	}
	p.Inventories = next
	m.Providers[uuid] = p
	m.bump(uuid)
	return 0
}

func (m *Model) applyNames(op Op) ledger.Kind {
	custom := strings.HasPrefix(op.Class, "CUSTOM_")
	switch op.Name {
	case "CreateClass":
		if custom {
			m.Classes[op.Class] = true
		}
		return 0
	case "CreateTrait":
		if custom {
			m.Traits[op.Class] = true
		}
		return 0
	case "DeleteTrait":
		if !m.hasTrait(op.Class) {
			return ledger.TraitNotFound
		}
		if !custom {
			return ledger.StandardTrait
		}
		for _, p := range m.Providers {
			if slices.Contains(p.Traits, op.Class) {
				return ledger.TraitInUse
			}
		}
		delete(m.Traits, op.Class)
		return 0
	}
	if !m.hasClass(op.Class) {
		return ledger.ClassNotFound
	}
	if !custom {
		return ledger.StandardClass
	}
	if op.Name == "DeleteClass" {
		for _, p := range m.Providers {
			if _, ok := p.Inventories[op.Class]; ok {
				return ledger.ClassInUse
			}
		}
		delete(m.Classes, op.Class)
		return 0
	}
	switch {
	case !strings.HasPrefix(op.New, "CUSTOM_"):
		return ledger.InvalidName
	case op.New == op.Class:
		return 0
	case m.Classes[op.New]:
		return ledger.DuplicateName
	}
	delete(m.Classes, op.Class)
	m.Classes[op.New] = true
	for _, p := range m.Providers {
		rename(p.Inventories, op.Class, op.New)
	}
	for _, c := range m.Consumers {
		for _, held := range c.Allocations {
			rename(held, op.Class, op.New)
		}
	}
	return 0
}

func rename[V any](m map[string]V, from, to string) {
	if v, ok := m[from]; ok {
		delete(m, from)
		m[to] = v
	}
}
