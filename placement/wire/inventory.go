// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// Inventory is how much of one resource class a provider has, and in which portions it can be
// allocated. It is a [providertree.Inventory] with the names of the API, and converts from and to
// one; here zero is zero, and no default.
type Inventory struct {
	Total           int64   `json:"total"`
	Reserved        int64   `json:"reserved"`
	MinUnit         int64   `json:"min_unit"`
	MaxUnit         int64   `json:"max_unit"`
	StepSize        int64   `json:"step_size"`
	AllocationRatio float64 `json:"allocation_ratio"`
}

// Inventories is GET and PUT /resource_providers/{uuid}/inventories, response and request, and in a
// Reshape what one provider must have: inventories by resource class.
type Inventories struct {
	Generation  int64                `json:"resource_provider_generation"`
	Inventories map[string]Inventory `json:"inventories"`
}

// OneInventory is GET and PUT /resource_providers/{uuid}/inventories/{class}, response and request,
// and the response of POST to /inventories.
type OneInventory struct {
	Inventory
	Generation int64 `json:"resource_provider_generation"`
}

// InventoryCreate is the body of POST /resource_providers/{uuid}/inventories. It may have a
// generation, which Placement ignores.
type InventoryCreate struct {
	Inventory
	ResourceClass string `json:"resource_class"`
}

// DefaultInventory returns an inventory with a total. Its other fields have the values that
// Placement uses for fields that a request leaves out.
func DefaultInventory(total int64) Inventory {
	return Inventory(providertree.Inventory{Total: total}.Normalize())
}

// appendFields appends the members of an inventory, without the braces.
func (i *Inventory) appendFields(b []byte) []byte {
	b = append(b, `"total":`...)
	b = jsonkit.AppendInt(b, i.Total)
	b = append(b, `,"reserved":`...)
	b = jsonkit.AppendInt(b, i.Reserved)
	b = append(b, `,"min_unit":`...)
	b = jsonkit.AppendInt(b, i.MinUnit)
	b = append(b, `,"max_unit":`...)
	b = jsonkit.AppendInt(b, i.MaxUnit)
	b = append(b, `,"step_size":`...)
	b = jsonkit.AppendInt(b, i.StepSize)
	b = append(b, `,"allocation_ratio":`...)
	return jsonkit.AppendFloat(b, i.AllocationRatio)
}

// AppendInventory appends an Inventory. Cost: about 110 bytes and no allocation.
func AppendInventory(b []byte, i Inventory) []byte {
	b = append(b, '{')
	b = i.appendFields(b)
	return append(b, '}')
}

// AppendOneInventory appends a OneInventory.
func AppendOneInventory(b []byte, i Inventory, generation int64) []byte {
	b = append(b, '{')
	b = i.appendFields(b)
	b = append(b, `,"resource_provider_generation":`...)
	b = jsonkit.AppendInt(b, generation)
	return append(b, '}')
}

// DecodeInventories reads the body of PUT /resource_providers/{uuid}/inventories. The error is a
// *jsonkit.Error.
func DecodeInventories(body []byte) (Inventories, error) {
	r := newReader(body)
	inv, err := r.inventories()
	return inv, r.finish(err)
}

// DecodeOneInventory reads the body of PUT /resource_providers/{uuid}/inventories/{class}. The
// error is a *jsonkit.Error.
func DecodeOneInventory(body []byte) (OneInventory, error) {
	r := newReader(body)
	inv, generation, _, err := r.inventory(inventoryKeys{generation: true, needGeneration: true})
	return OneInventory{Inventory: inv, Generation: generation}, r.finish(err)
}

// DecodeInventoryCreate reads the body of POST /resource_providers/{uuid}/inventories. The error is
// a *jsonkit.Error.
func DecodeInventoryCreate(body []byte) (InventoryCreate, error) {
	r := newReader(body)
	inv, _, class, err := r.inventory(inventoryKeys{generation: true, class: true})
	return InventoryCreate{Inventory: inv, ResourceClass: class}, r.finish(err)
}

// inventories reads an Inventories. A class name that cannot exist is not a matter of the form: the
// lookup of the class refuses it, as any other class that is not there.
func (r *reader) inventories() (inv Inventories, err error) {
	var generation, inventories bool
	err = r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "resource_provider_generation":
			generation = true
			inv.Generation, err = r.generation()
		case "inventories":
			inventories = true
			inv.Inventories = map[string]Inventory{}
			err = r.Object(func(class []byte) error {
				// The generation may stand in each inventory, too, and is not looked at there.
				i, _, _, err := r.inventory(inventoryKeys{generation: true})
				inv.Inventories[string(class)] = i
				return err
			})
		default:
			err = r.Unknown()
		}
		return err
	})
	if err == nil && !generation {
		err = r.Missing("resource_provider_generation")
	}
	if err == nil && !inventories {
		err = r.Missing("inventories")
	}
	return inv, err
}

// inventoryKeys are the keys that may, and must, stand in an inventory besides its own.
type inventoryKeys struct {
	generation, needGeneration, class bool
}

func (r *reader) inventory(keys inventoryKeys) (inv Inventory, generation int64, class string, err error) {
	inv = DefaultInventory(0)
	var hasTotal, hasGeneration, hasClass bool
	err = r.Object(func(key []byte) (err error) {
		switch k := string(key); {
		case k == "total":
			hasTotal = true
			inv.Total, err = r.Integer(1, providertree.MaxUnit)
		case k == "reserved":
			inv.Reserved, err = r.Integer(0, providertree.MaxUnit)
		case k == "min_unit":
			inv.MinUnit, err = r.Integer(1, providertree.MaxUnit)
		case k == "max_unit":
			inv.MaxUnit, err = r.Integer(1, providertree.MaxUnit)
		case k == "step_size":
			inv.StepSize, err = r.Integer(1, providertree.MaxUnit)
		case k == "allocation_ratio":
			inv.AllocationRatio, err = r.Number(providertree.MaxRatio)
		case k == "resource_provider_generation" && keys.generation:
			hasGeneration = true
			generation, err = r.generation()
		case k == "resource_class" && keys.class:
			hasClass = true
			if class, err = r.String(0, 0); err == nil && !providertree.IsSymbol(class) {
				err = r.Invalid("must be the name of a resource class: A-Z, 0-9 and _")
			}
		default:
			err = r.Unknown()
		}
		return err
	})
	switch {
	case err != nil:
	case !hasTotal:
		err = r.Missing("total")
	case keys.needGeneration && !hasGeneration:
		err = r.Missing("resource_provider_generation")
	case keys.class && !hasClass:
		err = r.Missing("resource_class")
	}
	return inv, generation, class, err
}

// generation reads a generation: any integer.
func (r *reader) generation() (int64, error) { return r.Integer(math.MinInt64, math.MaxInt64) }
