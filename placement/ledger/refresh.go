// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
)

// Refresh makes the snapshot that follows base by a delta. ErrReload when the
// delta does not fit: then only a whole load is safe.
// Cost: what the delta names, and the trees of moved providers.
func Refresh(base *Snapshot, delta *Delta) (*Snapshot, error) {
	// A renamed class stands in every inventory and allocation of it.
	for _, r := range delta.Classes {
		if c, ok := base.classByID.Get(r.ID); ok && c.Name != r.Name {
			return nil, fmt.Errorf("resource class %s was renamed to %s: %w", c.Name, r.Name, ErrReload)
		}
	}
	d := newDraft(base)
	d.version = delta.Version
	d.putNames(&delta.State)
	for _, r := range delta.Classes {
		d.putClass(&ResourceClass{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt})
	}
	for _, r := range delta.Traits {
		if t, ok := d.traitByID.Get(r.ID); ok && t.Name != r.Name {
			return nil, fmt.Errorf("the number of trait %s was given to %s: %w", t.Name, r.Name, ErrReload)
		}
		d.putTrait(&Trait{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt})
	}
	if err := d.refreshProviders(delta); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrReload)
	}
	if err := d.refreshConsumers(delta); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrReload)
	}
	if err := d.refreshHosts(delta); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrReload)
	}
	// What went is dropped last: until here the old providers named it.
	for _, id := range delta.ClassIDs {
		if c, ok := d.classByID.Get(id); ok &&
			!slices.ContainsFunc(delta.Classes, func(r NamedRow) bool { return r.ID == id }) {
			d.dropClass(c)
		}
	}
	for _, id := range delta.TraitIDs {
		if t, ok := d.traitByID.Get(id); ok &&
			!slices.ContainsFunc(delta.Traits, func(r NamedRow) bool { return r.ID == id }) {
			d.dropTrait(t)
		}
	}
	return d.Snapshot, nil
}

func (d draft) refreshProviders(delta *Delta) error {
	changed, err := d.assembleProviders(&delta.State)
	if err != nil {
		return err
	}
	byUUID := make(map[string]*Provider, len(changed))
	for _, p := range changed {
		byUUID[p.UUID] = p
	}
	var moves []providerChange
	for _, id := range delta.ProviderIDs {
		old, _ := d.providers.Get(id)
		now := changed[id]
		if old == nil && now == nil {
			continue // made and gone between the two versions
		}
		if now != nil {
			if err := d.findRoot(now, byUUID); err != nil {
				return err
			}
			if old != nil {
				now.used = old.used // corrected by the consumers named
				now.slot = old.slot
			}
		}
		if old != nil && now != nil && old.Parent == now.Parent && old.Root == now.Root {
			d.putProvider(old, now)
			continue
		}
		moves = append(moves, providerChange{old, now})
	}
	if len(moves) == 0 {
		return nil
	}
	return d.moveProviders(moves)
}

// findRoot follows the parents of a changed provider through changed and existing ones.
func (d draft) findRoot(p *Provider, changed map[string]*Provider) error {
	at := p
	for range d.providers.Len() + len(changed) { // more would be a loop
		if at.Parent == "" {
			p.Root = at.UUID
			return nil
		}
		parent, ok := changed[at.Parent]
		if !ok {
			parent, ok = d.Provider(at.Parent)
		}
		if !ok {
			break
		}
		at = parent
	}
	return badStateError("the parents of resource provider %s do not end at a root", p.UUID)
}

func (d draft) refreshConsumers(delta *Delta) error {
	changed, err := d.assembleConsumers(&delta.State, d.providers.Get)
	if err != nil {
		return err
	}
	byID := map[int64]*Consumer{}
	strays := map[string]*Consumer{}
	for _, c := range changed {
		if c.ID == 0 {
			strays[c.UUID] = c
		} else {
			byID[c.ID] = c
		}
	}
	var changes []consumerChange
	uuids := slices.Clone(delta.ConsumerUUIDs)
	for _, id := range delta.ConsumerIDs {
		old, _ := d.consumers.Get(id)
		now := byID[id]
		changes = append(changes, consumerChange{old, now})
		if now != nil {
			uuids = append(uuids, now.UUID) // it may have got a record
		}
	}
	slices.Sort(uuids)
	for _, uuid := range slices.Compact(uuids) {
		old, _ := d.orphans.Get(uuid)
		changes = append(changes, consumerChange{old, strays[uuid]})
	}
	d.putConsumers(changes)
	return nil
}
