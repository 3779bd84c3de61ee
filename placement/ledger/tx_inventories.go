// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
)

func joinNames(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// inventories checks what a request sets and returns it in order of the class
// ID. The API decides whether capacity may be zero (1.26). Capacity below the
// used amount is allowed.
func (tx *Tx) inventories(provider string, list []Inventory) ([]Inventory, error) {
	out := slices.Clone(list)
	for i := range out {
		inv := &out[i]
		c, ok := tx.Class(inv.Class)
		if !ok {
			return nil, &Error{Kind: ClassNotFound, Provider: provider, Class: inv.Class}
		}
		inv.class, inv.Class = c.ID, c.Name
		inv.CreatedAt, inv.UpdatedAt = tx.now, time.Time{}
		if tx.ratio != nil {
			inv.AllocationRatio = tx.ratio(inv.AllocationRatio)
		}
		if err := inv.amounts().ValidateStored(); err != nil {
			return nil, &Error{Kind: InvalidInventory, Provider: provider, Class: inv.Class, Detail: err.Error()}
		}
	}
	slices.SortFunc(out, func(a, b Inventory) int { return cmp.Compare(a.class, b.class) })
	for i := 1; i < len(out); i++ {
		if out[i].class == out[i-1].class {
			return nil, &Error{Kind: InvalidInventory,
				Provider: provider, Class: out[i].Class, Detail: "the class is given twice"}
		}
	}
	return out, nil
}

// setInventories sets all inventories of the provider, without row changes: existing
// rows keep their creation time.
func (tx *Tx) setInventories(p *Provider, list []Inventory) (*Provider, error) {
	var inUse []string
	for _, inv := range p.Inventories {
		if _, stays := inventoryOf(list, inv.class); !stays && p.usedOf(inv.class) > 0 {
			inUse = append(inUse, inv.Class)
		}
	}
	if len(inUse) > 0 {
		return nil, &Error{Kind: InventoryInUse, Provider: p.UUID, Class: joinNames(inUse)}
	}
	now := *p
	now.Inventories = list
	tx.putProvider(p, &now)
	return &now, nil
}

// setTimes dates inventories that replace others: new ones are created
// now, existing ones are updated now.
func (tx *Tx) setTimes(was, is []Inventory) {
	for i := range is {
		if old, ok := inventoryOf(was, is[i].class); ok {
			is[i].CreatedAt, is[i].UpdatedAt = old.CreatedAt, tx.now
		}
	}
}

// recordInventoryRows records the row changes from was to is.
func (tx *Tx) recordInventoryRows(p *Provider, was, is []Inventory) {
	for _, inv := range was {
		if _, stays := inventoryOf(is, inv.class); !stays {
			tx.recordRow(DeleteInventory{p.ID, inv.class})
		}
	}
	for _, inv := range is {
		if _, had := inventoryOf(was, inv.class); had {
			tx.recordRow(UpdateInventory{inv.row(p.ID)})
		} else {
			tx.recordRow(InsertInventory{inv.row(p.ID)})
		}
	}
}

// amounts are the fields of the inventory, without defaults.
func (i *Inventory) amounts() providertree.Inventory {
	return providertree.Inventory{
		Total: i.Total, Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit, StepSize: i.StepSize,
		AllocationRatio: i.AllocationRatio,
	}
}

func (i *Inventory) row(provider int64) InventoryRow {
	return InventoryRow{Provider: provider, Class: i.class,
		Total: i.Total, Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit,
		StepSize: i.StepSize, AllocationRatio: i.AllocationRatio, CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt}
}

func (tx *Tx) replaceInventories(p *Provider, list []Inventory) (*Provider, error) {
	is, err := tx.inventories(p.UUID, list)
	if err != nil {
		return nil, err
	}
	tx.setTimes(p.Inventories, is)
	now, err := tx.setInventories(p, is)
	if err != nil {
		return nil, err
	}
	tx.recordInventoryRows(p, p.Inventories, is)
	return tx.bump(now), nil
}

// SetInventories replaces all inventories of a provider. Kinds:
// ProviderNotFound, GenerationConflict, ClassNotFound, InvalidInventory, InventoryInUse.
func (tx *Tx) SetInventories(uuid string, generation int64, list []Inventory) (*Provider, error) {
	p, err := tx.providerAt(uuid, generation)
	if err != nil {
		return nil, err
	}
	return tx.replaceInventories(p, list)
}

// DeleteInventories removes all inventories of a provider and moves its
// generation, even when there were none. Kinds: ProviderNotFound, InventoryInUse.
func (tx *Tx) DeleteInventories(uuid string) error {
	p, err := tx.provider(uuid)
	if err == nil {
		_, err = tx.replaceInventories(p, nil)
	}
	return err
}

// AddInventory adds an inventory of a class (POST). Placement checks no
// generation there. Kinds: ProviderNotFound,
// ClassNotFound, InvalidInventory, InventoryExists.
func (tx *Tx) AddInventory(uuid string, inv Inventory) (*Provider, error) {
	p, err := tx.provider(uuid)
	if err != nil {
		return nil, err
	}
	checked, err := tx.inventories(uuid, []Inventory{inv})
	if err != nil {
		return nil, err
	}
	if _, ok := p.Inventory(inv.Class); ok {
		return nil, &Error{Kind: InventoryExists, Provider: uuid, Class: inv.Class}
	}
	return tx.withInventory(p, checked)
}

// SetInventory replaces the inventory of one class (PUT). Kinds:
// ProviderNotFound, GenerationConflict, ClassNotFound, InvalidInventory, InventoryNotFound.
func (tx *Tx) SetInventory(uuid string, generation int64, inv Inventory) (*Provider, error) {
	p, err := tx.providerAt(uuid, generation)
	if err != nil {
		return nil, err
	}
	checked, err := tx.inventories(uuid, []Inventory{inv})
	if err != nil {
		return nil, err
	}
	if _, ok := p.Inventory(inv.Class); !ok {
		return nil, &Error{Kind: InventoryNotFound, Provider: uuid, Class: inv.Class}
	}
	return tx.withInventory(p, checked)
}

// withInventory sets one checked inventory, and changes only its row.
func (tx *Tx) withInventory(p *Provider, checked []Inventory) (*Provider, error) {
	tx.setTimes(p.Inventories, checked)
	is := slices.Clone(p.Inventories)
	at, had := slices.BinarySearchFunc(is, checked[0].class,
		func(i Inventory, class int64) int { return cmp.Compare(i.class, class) })
	if had {
		is[at] = checked[0]
		tx.recordRow(UpdateInventory{checked[0].row(p.ID)})
	} else {
		is = slices.Insert(is, at, checked[0])
		tx.recordRow(InsertInventory{checked[0].row(p.ID)})
	}
	now, err := tx.setInventories(p, is)
	if err != nil {
		return nil, err
	}
	return tx.bump(now), nil
}

// DeleteInventory removes the inventory of one class. Kinds:
// ProviderNotFound, ClassNotFound, InventoryInUse, InventoryNotFound.
func (tx *Tx) DeleteInventory(uuid, class string) error {
	p, err := tx.provider(uuid)
	if err != nil {
		return err
	}
	c, ok := tx.Class(class)
	if !ok {
		return &Error{Kind: ClassNotFound, Provider: uuid, Class: class}
	}
	if p.usedOf(c.ID) > 0 {
		return &Error{Kind: InventoryInUse, Provider: uuid, Class: class}
	}
	if _, ok := p.Inventory(class); !ok {
		return &Error{Kind: InventoryNotFound, Provider: uuid, Class: class}
	}
	is := slices.DeleteFunc(slices.Clone(p.Inventories), func(i Inventory) bool { return i.class == c.ID })
	now, err := tx.setInventories(p, is)
	if err != nil {
		return err
	}
	tx.recordRow(DeleteInventory{p.ID, c.ID})
	tx.bump(now)
	return nil
}
