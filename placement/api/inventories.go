// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

func wireInventory(i *ledger.Inventory) wire.Inventory {
	return wire.Inventory{
		Total: i.Total, Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit,
		StepSize: i.StepSize, AllocationRatio: i.AllocationRatio,
	}
}

func ledgerInventory(class string, i wire.Inventory) ledger.Inventory {
	return ledger.Inventory{
		Class: class, Total: i.Total, Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit,
		StepSize: i.StepSize, AllocationRatio: i.AllocationRatio,
	}
}

// ledgerInventories converts inventories, in the order of their class names so that errors are
// deterministic.
func ledgerInventories(from map[string]wire.Inventory) []ledger.Inventory {
	list := make([]ledger.Inventory, 0, len(from))
	for _, class := range slices.Sorted(maps.Keys(from)) {
		list = append(list, ledgerInventory(class, from[class]))
	}
	return list
}

// inventories answers with all inventories of a provider. Cost: about 110 bytes each and no
// allocation for any.
func (x *exchange) inventories(p *ledger.Provider) error {
	var modified time.Time
	b := append(x.Buffer(), '{')
	b = wire.AppendGeneration(b, p.Generation)
	b = append(b, `"inventories":{`...)
	for i := range p.Inventories {
		inv := &p.Inventories[i]
		b = jsonkit.AppendString(jsonkit.AppendComma(b), inv.Class)
		b = append(b, ':')
		b = wire.AppendInventory(b, wireInventory(inv))
		modified = latest(modified, changed(inv.CreatedAt, inv.UpdatedAt))
	}
	b = append(b, "}}"...)
	return x.json(http.StatusOK, b, modified)
}

// inventory answers with one inventory of a provider.
func (x *exchange) inventory(status int, p *ledger.Provider, class string) error {
	inv, ok := p.Inventory(class)
	if !ok {
		return notFound("No inventory of class %s for resource provider %s.", shortened(class), p.UUID)
	}
	b := wire.AppendOneInventory(x.Buffer(), wireInventory(&inv), p.Generation)
	return x.json(status, b, changed(inv.CreatedAt, inv.UpdatedAt))
}

// listInventories is GET /resource_providers/{uuid}/inventories.
func listInventories(x *exchange) error {
	_, p, err := x.provider()
	if err != nil {
		return err
	}
	return x.inventories(p)
}

// showInventory is GET /resource_providers/{uuid}/inventories/{class}.
func showInventory(x *exchange) error {
	_, p, err := x.provider()
	if err != nil {
		return err
	}
	return x.inventory(http.StatusOK, p, x.R.PathValue("class"))
}

// checkCapacity refuses an inventory without capacity; from 1.26 on everything can be reserved.
func (x *exchange) checkCapacity(provider string, inv *ledger.Inventory) error {
	capacity := inv.Limits().Capacity
	if x.v.Has(wire.FullyReserved) {
		if capacity < 0 {
			return badRequest(
				"Invalid inventory for '%s' on resource provider '%s'. The reserved value is greater than total.",
				shortened(inv.Class), provider)
		}
		return nil
	}
	if capacity <= 0 {
		return badRequest(
			"Invalid inventory for '%s' on resource provider '%s'. The reserved value is greater than or "+
				"equal to total.", shortened(inv.Class), provider)
	}
	return nil
}

// The verdicts that differ from the default: a class that the body names is a 400.
var (
	unknownClassRefusals    = refusals{ledger.ClassNotFound: {http.StatusBadRequest, wire.CodeUndefined}}
	setInventoryRefusals    = refusals{ledger.InventoryNotFound: {http.StatusBadRequest, wire.CodeUndefined}}
	deleteInventoryRefusals = refusals{ledger.InventoryInUse: {http.StatusConflict, wire.CodeConcurrentUpdate}}
)

// setInventories is PUT /resource_providers/{uuid}/inventories.
func setInventories(x *exchange) error {
	uuid, wanted, err := bodyForProvider(x, wire.DecodeInventories)
	if err != nil {
		return err
	}
	list := ledgerInventories(wanted.Inventories)
	var p *ledger.Provider
	err = x.update(func(tx *ledger.Tx) (err error) {
		// A generation conflict takes precedence over invalid inventories.
		if now, ok := tx.Provider(uuid); ok && now.Generation == wanted.Generation {
			for i := range list {
				if err := x.checkCapacity(uuid, &list[i]); err != nil {
					return err
				}
			}
		}
		p, err = tx.SetInventories(uuid, wanted.Generation, list)
		return err
	})
	if err != nil {
		return explain(err, unknownClassRefusals,
			"Unable to update the inventory of resource provider %s", shortened(uuid))
	}
	return x.inventories(p)
}

// createInventory is POST /resource_providers/{uuid}/inventories.
func createInventory(x *exchange) error {
	uuid, wanted, err := bodyForProvider(x, wire.DecodeInventoryCreate)
	if err != nil {
		return err
	}
	inv := ledgerInventory(wanted.ResourceClass, wanted.Inventory)
	var p *ledger.Provider
	err = x.update(func(tx *ledger.Tx) (err error) {
		if _, ok := tx.Provider(uuid); ok {
			if err := x.checkCapacity(uuid, &inv); err != nil {
				return err
			}
		}
		p, err = tx.AddInventory(uuid, inv)
		return err
	})
	if err != nil {
		return explain(err, unknownClassRefusals,
			"Unable to create inventory for resource provider %s", shortened(uuid))
	}
	x.setLocation("/resource_providers/" + uuid + "/inventories/" + inv.Class)
	return x.inventory(http.StatusCreated, p, inv.Class)
}

// setInventory is PUT /resource_providers/{uuid}/inventories/{class}.
func setInventory(x *exchange) error {
	uuid, wanted, err := bodyForProvider(x, wire.DecodeOneInventory)
	if err != nil {
		return err
	}
	inv := ledgerInventory(x.R.PathValue("class"), wanted.Inventory)
	var p *ledger.Provider
	err = x.update(func(tx *ledger.Tx) (err error) {
		if now, ok := tx.Provider(uuid); ok && now.Generation == wanted.Generation {
			if err := x.checkCapacity(uuid, &inv); err != nil {
				return err
			}
		}
		p, err = tx.SetInventory(uuid, wanted.Generation, inv)
		return err
	})
	if err != nil {
		return explain(err, setInventoryRefusals,
			"Unable to update the inventory of resource provider %s", shortened(uuid))
	}
	return x.inventory(http.StatusOK, p, inv.Class)
}

// deleteInventory is DELETE /resource_providers/{uuid}/inventories/{class}.
func deleteInventory(x *exchange) error {
	uuid, class := x.R.PathValue("uuid"), x.R.PathValue("class")
	err := x.update(func(tx *ledger.Tx) error { return tx.DeleteInventory(uuid, class) })
	if err != nil {
		return explain(err, deleteInventoryRefusals,
			"Unable to delete inventory of class %s", shortened(class))
	}
	return x.noContent()
}

// deleteInventories is DELETE /resource_providers/{uuid}/inventories.
func deleteInventories(x *exchange) error {
	uuid := x.R.PathValue("uuid")
	err := x.update(func(tx *ledger.Tx) error { return tx.DeleteInventories(uuid) })
	if err != nil {
		return explain(err, nil, "Unable to delete the inventory of resource provider %s", shortened(uuid))
	}
	return x.noContent()
}
