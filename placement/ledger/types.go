// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
)

// MinCustomClassID is the smallest ID of a custom resource class; the IDs of
// the standard classes are their places in os-resource-classes.
const MinCustomClassID = 10000

// Provider is a resource provider in one snapshot. It is deeply immutable.
type Provider struct {
	// ID is the database's number of the provider; it follows the order of creation.
	ID   int64
	UUID string
	Name string
	// Generation grows by one with each change of inventories, traits,
	// aggregates (1.19) or allocations, and with no other change.
	Generation int64
	// Parent is the uuid of the parent provider, "" on a root.
	Parent string
	// Root is the uuid of the root of the provider's tree, its own on a root.
	Root string
	// Inventories are in order of the class ID.
	Inventories []Inventory
	// Traits and Aggregates are sorted.
	Traits, Aggregates []string
	// CreatedAt and UpdatedAt are UTC with microseconds; the zero time is SQL's NULL.
	CreatedAt, UpdatedAt time.Time

	// slot is the number of the provider's tree.
	slot int64
	// used are the allocated amounts by class ID, without zeros.
	used []usage
	// traitOrder are the indices of Traits in the order of the traits' IDs; nil
	// if Traits are in that order.
	traitOrder []int32
}

// usage is the sum of the allocations of one class on one provider.
type usage struct {
	class int64
	used  int64
}

// Inventory returns the provider's inventory of the class, if it has one.
// Cost: the number of the provider's inventories.
func (p *Provider) Inventory(class string) (Inventory, bool) {
	for _, inv := range p.Inventories {
		if inv.Class == class {
			return inv, true
		}
	}
	return Inventory{}, false
}

// HasTrait reports whether the provider has the trait.
func (p *Provider) HasTrait(trait string) bool { return containsSorted(p.Traits, trait) }

// TraitsByID returns the names of the provider's traits in the order of the
// traits' IDs, in which Placement shows them.
func (p *Provider) TraitsByID() []string {
	if p.traitOrder == nil {
		return p.Traits
	}
	list := make([]string, len(p.traitOrder))
	for i, at := range p.traitOrder {
		list[i] = p.Traits[at]
	}
	return list
}

// InAggregate reports whether the provider is a member of the aggregate.
func (p *Provider) InAggregate(aggregate string) bool { return containsSorted(p.Aggregates, aggregate) }

// usedOf returns the allocated amount of the class.
func (p *Provider) usedOf(class int64) int64 {
	for _, u := range p.used {
		if u.class == class {
			return u.used
		}
	}
	return 0
}

// Inventory is an amount of one resource class that a provider offers.
type Inventory struct {
	Class                string
	Total, Reserved      int64
	MinUnit, MaxUnit     int64
	StepSize             int64
	AllocationRatio      float64
	CreatedAt, UpdatedAt time.Time

	class int64 // the ID of Class
}

// Limits are the limits of the inventory. No field gets a default, not even zero: rows of another
// program can hold values that the API does not accept.
func (i *Inventory) Limits() providertree.Limits {
	return providertree.Limits{
		Capacity: providertree.Capacity(i.Total, i.Reserved, i.AllocationRatio), MinUnit: i.MinUnit,
		MaxUnit: i.MaxUnit, StepSize: i.StepSize,
	}
}

// ResourceClass is a kind of resource.
type ResourceClass struct {
	ID                   int64
	Name                 string
	CreatedAt, UpdatedAt time.Time
}

// Standard reports whether the class is one of os-resource-classes.
func (c *ResourceClass) Standard() bool { return c.ID < MinCustomClassID }

// Trait is a qualitative property of a provider.
type Trait struct {
	ID                   int64
	Name                 string
	CreatedAt, UpdatedAt time.Time
}

// Standard reports whether the trait is one of os-traits.
func (t *Trait) Standard() bool { return !strings.HasPrefix(t.Name, providertree.CustomPrefix) }
