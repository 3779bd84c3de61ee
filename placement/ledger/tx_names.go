// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// customName checks the name of a new class or trait.
func customName(name string) error {
	if !providertree.IsCustomName(name) {
		return &Error{Kind: InvalidName, Name: name, Detail: "must be " + providertree.CustomPrefix +
			" and 1 to 248 of A-Z, 0-9 and _"}
	}
	return nil
}

// CreateClass creates a custom resource class, or returns the existing class of
// that name. Kind: InvalidName.
func (tx *Tx) CreateClass(name string) (c *ResourceClass, created bool, err error) {
	if c, ok := tx.Class(name); ok {
		return c, false, nil
	}
	if err := customName(name); err != nil {
		return nil, false, err
	}
	c = &ResourceClass{ID: tx.next.class, Name: name, CreatedAt: tx.now}
	tx.putClass(c)
	tx.recordRow(InsertNamed{Classes, NamedRow{ID: c.ID, Name: c.Name, CreatedAt: c.CreatedAt}})
	return c, true, nil
}

// RenameClass gives another name to a custom resource class (PUT before microversion 1.7). Kinds:
// ClassNotFound, StandardClass, InvalidName, DuplicateName.
// Cost: all inventories and allocations of the class.
func (tx *Tx) RenameClass(oldName, newName string) error {
	c, ok := tx.Class(oldName)
	if !ok {
		return &Error{Kind: ClassNotFound, Class: oldName}
	}
	if c.Standard() {
		return &Error{Kind: StandardClass, Class: oldName}
	}
	if err := customName(newName); err != nil {
		return err
	}
	if oldName == newName {
		return nil
	}
	if _, ok := tx.Class(newName); ok {
		return &Error{Kind: DuplicateName, Name: newName}
	}
	now := &ResourceClass{ID: c.ID, Name: newName, CreatedAt: c.CreatedAt, UpdatedAt: tx.now}
	tx.dropClass(c)
	tx.putClass(now)
	tx.renameIn(now)
	tx.recordRow(RenameNamed{Classes,
		NamedRow{ID: now.ID, Name: now.Name, CreatedAt: now.CreatedAt, UpdatedAt: now.UpdatedAt}})
	return nil
}

// renameIn writes a class's new name wherever the class is used.
func (tx *Tx) renameIn(c *ResourceClass) {
	set, _ := tx.withClass.Get(c.ID)
	renamed := map[int64]bool{}
	rename := func(old *Consumer) {
		now := *old
		now.Allocations = slices.Clone(old.Allocations)
		for i := range now.Allocations {
			if now.Allocations[i].class == c.ID {
				now.Allocations[i].Class = c.Name
			}
		}
		tx.indexConsumer(old, &now)
	}
	for id := range set.All() {
		p, _ := tx.providers.Get(id)
		now := *p
		now.Inventories = slices.Clone(p.Inventories)
		for i := range now.Inventories {
			if now.Inventories[i].class == c.ID {
				now.Inventories[i].Class = c.Name
			}
		}
		tx.replace(&now)
		for _, old := range tx.ConsumersOn(p.UUID) {
			if !renamed[old.ID] {
				renamed[old.ID] = true
				rename(old)
			}
		}
	}
	for _, old := range tx.orphans.All() {
		rename(old)
	}
}

// DeleteClass removes a custom resource class without inventories.
// Kinds: ClassNotFound, StandardClass, ClassInUse.
func (tx *Tx) DeleteClass(name string) error {
	c, ok := tx.Class(name)
	if !ok {
		return &Error{Kind: ClassNotFound, Class: name}
	}
	if c.Standard() {
		return &Error{Kind: StandardClass, Class: name}
	}
	if tx.ClassInUse(name) {
		return &Error{Kind: ClassInUse, Class: name}
	}
	tx.dropClass(c)
	tx.recordRow(DeleteNamed{Classes, c.ID})
	return nil
}

// CreateTrait creates a custom trait, or returns the existing trait of that
// name. Kind: InvalidName.
func (tx *Tx) CreateTrait(name string) (t *Trait, created bool, err error) {
	if t, ok := tx.Trait(name); ok {
		return t, false, nil
	}
	if err := customName(name); err != nil {
		return nil, false, err
	}
	t = &Trait{ID: tx.next.trait, Name: name, CreatedAt: tx.now}
	tx.putTrait(t)
	tx.recordRow(InsertNamed{Traits, NamedRow{ID: t.ID, Name: t.Name, CreatedAt: t.CreatedAt}})
	return t, true, nil
}

// DeleteTrait removes a custom trait that no provider has. Kinds:
// TraitNotFound, StandardTrait, TraitInUse.
func (tx *Tx) DeleteTrait(name string) error {
	t, ok := tx.Trait(name)
	if !ok {
		return &Error{Kind: TraitNotFound, Trait: name}
	}
	if t.Standard() {
		return &Error{Kind: StandardTrait, Trait: name}
	}
	if tx.TraitInUse(name) {
		return &Error{Kind: TraitInUse, Trait: name}
	}
	tx.dropTrait(t)
	tx.recordRow(DeleteNamed{Traits, t.ID})
	return nil
}

// SyncStandard adds the missing standard classes and traits, as Placement does
// at start. It removes none: names of a newer os-traits or os-resource-classes
// may be in use. Error: ErrBadState.
func (tx *Tx) SyncStandard() error {
	for id, name := range StandardClasses() {
		if _, ok := tx.Class(name); !ok {
			if other, taken := tx.classByID.Get(int64(id)); taken {
				return badStateError("number %d is that of the standard resource class %s, and %s has it",
					id, name, other.Name)
			}
			c := &ResourceClass{ID: int64(id), Name: name, CreatedAt: tx.now}
			tx.putClass(c)
			tx.recordRow(InsertNamed{Classes, NamedRow{ID: c.ID, Name: name, CreatedAt: tx.now}})
		}
	}
	for _, name := range StandardTraits() {
		if _, ok := tx.Trait(name); !ok {
			t := &Trait{ID: tx.next.trait, Name: name, CreatedAt: tx.now}
			tx.putTrait(t)
			tx.recordRow(InsertNamed{Traits, NamedRow{ID: t.ID, Name: name, CreatedAt: tx.now}})
		}
	}
	return nil
}
