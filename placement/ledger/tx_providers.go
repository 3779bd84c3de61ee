// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
)

// NewProvider is a resource provider to be created. UUID and Name are
// required; without a Parent it is a root.
type NewProvider struct {
	UUID, Name, Parent string
}

// ProviderUpdate is what PUT /resource_providers/{uuid} can change.
type ProviderUpdate struct {
	Name string
	// Parent is the new parent's uuid; nil keeps the present one and "" makes
	// the provider a root.
	Parent *string
	// AllowReparent is microversion 1.37: any move is possible. Without it a
	// root can be given a parent, once.
	AllowReparent bool
}

// row returns the provider's row; the IDs of parent and root are looked up.
func (tx *Tx) row(p *Provider) ProviderRow {
	r := ProviderRow{ID: p.ID, Generation: p.Generation,
		UUID: p.UUID, Name: p.Name, Root: p.ID, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt}
	if p.Parent != "" {
		r.Parent, _ = tx.providerIDs.Get(p.Parent)
		r.Root, _ = tx.providerIDs.Get(p.Root)
	}
	return r
}

// CreateProvider makes a resource provider with generation 0. Kinds:
// InvalidName, DuplicateUUID, DuplicateName, InvalidParent, ParentNotFound.
func (tx *Tx) CreateProvider(req NewProvider) (*Provider, error) {
	if req.UUID == "" || req.Name == "" {
		return nil, &Error{Kind: InvalidName, Provider: req.UUID, Name: req.Name,
			Detail: "a resource provider needs a uuid and a name"}
	}
	p := &Provider{ID: tx.next.provider, UUID: req.UUID, Name: req.Name, Root: req.UUID, CreatedAt: tx.now}
	if req.Parent == "" {
		// Placement sets the root in a second statement.
		p.UpdatedAt = tx.now
	} else {
		if req.Parent == req.UUID {
			return nil, &Error{Kind: InvalidParent, Provider: req.UUID,
				Detail: "parent provider UUID cannot be same as UUID; leave it out where there is no parent"}
		}
		parent, ok := tx.Provider(req.Parent)
		if !ok {
			return nil, &Error{Kind: ParentNotFound, Provider: req.Parent}
		}
		p.Parent, p.Root = parent.UUID, parent.Root
	}
	if _, ok := tx.Provider(req.UUID); ok {
		return nil, &Error{Kind: DuplicateUUID, Provider: req.UUID, Name: req.Name}
	}
	if err := tx.nameIsFree(req.Name, req.UUID); err != nil {
		return nil, err
	}
	if err := tx.moveProviders([]providerChange{{nil, p}}); err != nil {
		return nil, err
	}
	tx.recordRow(InsertProvider{tx.row(p)})
	return p, nil
}

// nameIsFree is a conflict if another provider than that of the uuid has the name.
func (tx *Tx) nameIsFree(name, uuid string) error {
	for other := range tx.providersNamed(name) {
		if other.UUID != uuid {
			return &Error{Kind: DuplicateName, Provider: other.UUID, Name: name}
		}
	}
	return nil
}

// UpdateProvider renames or moves a provider. Neither changes a generation.
// Kinds: ProviderNotFound, DuplicateName, ParentNotFound, InvalidParent.
// Cost: the size of the trees involved when it moves.
func (tx *Tx) UpdateProvider(uuid string, req ProviderUpdate) (*Provider, error) {
	p, err := tx.provider(uuid)
	if err != nil {
		return nil, err
	}
	now := *p
	// The parent first, as in Placement: it decides which of two errors is returned.
	if req.Parent != nil && *req.Parent != p.Parent {
		if now.Parent, now.Root, err = tx.newParent(p, *req.Parent, req.AllowReparent); err != nil {
			return nil, err
		}
	}
	if req.Name != "" && req.Name != p.Name {
		if err := tx.nameIsFree(req.Name, uuid); err != nil {
			return nil, err
		}
		now.Name = req.Name
	}
	if now.Name == p.Name && now.Parent == p.Parent {
		return p, nil
	}
	now.UpdatedAt = tx.now
	if now.Parent == p.Parent {
		tx.putProvider(p, &now)
		tx.recordRow(UpdateProvider{tx.row(&now)})
		return &now, nil
	}
	moves := []providerChange{{p, &now}}
	if now.Root != p.Root {
		for _, below := range tx.subtree(p)[1:] {
			c := *below
			c.Root, c.UpdatedAt = now.Root, tx.now
			moves = append(moves, providerChange{below, &c})
		}
	}
	if err := tx.moveProviders(moves); err != nil {
		return nil, err
	}
	for _, m := range moves {
		tx.recordRow(UpdateProvider{tx.row(m.now)})
	}
	return &now, nil
}

// ChangeUUID gives another uuid to a provider below a root, because the uuid is reserved for
// another one. Its name, parent, children, generation, inventories and allocations stay as they
// are. Placement has no such call. Kinds: ProviderNotFound, InvalidParent, DuplicateUUID. Cost: its
// children and the consumers on it.
func (tx *Tx) ChangeUUID(uuid, to string) (*Provider, error) {
	p, err := tx.provider(uuid)
	if err != nil {
		return nil, err
	}
	if p.Parent == "" {
		return nil, &Error{Kind: InvalidParent, Provider: uuid, Detail: "a root provider keeps its uuid"}
	}
	if _, taken := tx.Provider(to); taken {
		return nil, &Error{Kind: DuplicateUUID, Provider: to, Name: p.Name}
	}
	children, consumers := tx.Children(uuid), tx.ConsumersOn(uuid)
	for _, c := range tx.orphans.All() {
		if holdsOf(c, p.ID) {
			consumers = append(consumers, c)
		}
	}
	now := *p
	now.UUID, now.UpdatedAt = to, tx.now
	tx.putProvider(p, &now)
	for _, child := range children {
		below := *child
		below.Parent = to
		tx.putProvider(child, &below)
	}
	for _, old := range consumers {
		holder := *old
		holder.Allocations = slices.Clone(old.Allocations)
		for i := range holder.Allocations {
			if holder.Allocations[i].provider == p.ID {
				holder.Allocations[i].Provider = to
			}
		}
		tx.indexConsumer(old, &holder)
	}
	tx.recordRow(UpdateProviderUUID{ID: now.ID, UUID: to, UpdatedAt: tx.now})
	return &now, nil
}

// newParent checks a move and returns the new parent and root.
func (tx *Tx) newParent(p *Provider, uuid string, allowed bool) (parent, root string, err error) {
	if uuid == "" {
		if !allowed {
			return "", "", &Error{Kind: InvalidParent,
				Provider: p.UUID, Detail: "un-parenting a provider is not possible before microversion 1.37"}
		}
		return "", p.UUID, nil
	}
	to, ok := tx.Provider(uuid)
	if !ok {
		return "", "", &Error{Kind: ParentNotFound, Provider: uuid}
	}
	if p.Parent != "" && !allowed {
		return "", "", &Error{Kind: InvalidParent,
			Provider: p.UUID, Detail: "re-parenting a provider is not possible before microversion 1.37"}
	}
	if to.Root == p.Root && slices.Contains(tx.subtree(p), to) {
		return "", "", &Error{Kind: InvalidParent,
			Provider: p.UUID, Detail: "the new parent is the provider itself or below it: that would be a loop"}
	}
	return to.UUID, to.Root, nil
}

// subtree returns the provider and all below it, in pre-order.
func (tx *Tx) subtree(p *Provider) []*Provider {
	t, _ := tx.trees.Get(p.slot)
	in := map[string]bool{p.UUID: true}
	out := []*Provider{p}
	for _, n := range t.nodes {
		if in[n.Parent] {
			in[n.UUID] = true
			out = append(out, n)
		}
	}
	return out
}

// DeleteProvider removes a provider with its inventories, traits and
// memberships. Kinds: ProviderNotFound, CannotDeleteParent, ProviderInUse.
func (tx *Tx) DeleteProvider(uuid string) error {
	p, err := tx.provider(uuid)
	if err != nil {
		return err
	}
	if len(tx.subtree(p)) > 1 {
		return &Error{Kind: CannotDeleteParent, Provider: uuid}
	}
	if len(p.used) > 0 {
		return &Error{Kind: ProviderInUse, Provider: uuid}
	}
	tx.recordRow(DeleteProvider{p.ID})
	return tx.moveProviders([]providerChange{{p, nil}})
}

// SetTraits replaces the provider's traits. The generation grows only if they
// change. Kinds: ProviderNotFound, GenerationConflict, TraitNotFound.
func (tx *Tx) SetTraits(uuid string, generation int64, traits []string) (*Provider, error) {
	p, err := tx.providerAt(uuid, generation)
	if err != nil {
		return nil, err
	}
	var unknown []string
	for _, name := range traits {
		if _, ok := tx.Trait(name); !ok {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return nil, &Error{Kind: TraitNotFound, Provider: uuid, Trait: joinNames(unknown)}
	}
	return tx.replaceTraits(p, traits), nil
}

// ClearTraits removes all traits of the provider. Kind: ProviderNotFound.
func (tx *Tx) ClearTraits(uuid string) error {
	p, err := tx.provider(uuid)
	if err == nil {
		tx.replaceTraits(p, nil)
	}
	return err
}

func (tx *Tx) replaceTraits(p *Provider, traits []string) *Provider {
	now := *p
	now.Traits = sortedSet(traits)
	if slices.Equal(p.Traits, now.Traits) {
		return p
	}
	now.traitOrder = tx.traitOrder(now.Traits)
	gone, come := diffSorted(p.Traits, now.Traits)
	for _, name := range gone {
		tx.recordRow(RemoveTrait{LinkRow{p.ID, tx.traitID(name)}})
	}
	for _, name := range come {
		tx.recordRow(AddTrait{LinkRow{p.ID, tx.traitID(name)}, tx.now})
	}
	tx.putProvider(p, &now)
	return tx.bump(&now)
}

// SetAggregates replaces the provider's memberships. As in Placement, a given generation (1.19) is
// checked and always grows; without one it stays. Kinds: ProviderNotFound, GenerationConflict.
func (tx *Tx) SetAggregates(uuid string, generation *int64, aggregates []string) (*Provider, error) {
	p, err := tx.provider(uuid)
	if generation != nil {
		p, err = tx.providerAt(uuid, *generation)
	}
	if err != nil {
		return nil, err
	}
	now := *p
	now.Aggregates = sortedSet(aggregates)
	for i, name := range now.Aggregates {
		now.Aggregates[i], _ = tx.aggregates.byID.Get(tx.name(Aggregates, name)) // as it is known
	}
	now.Aggregates = sortedSet(now.Aggregates)
	gone, come := diffSorted(p.Aggregates, now.Aggregates)
	for _, name := range gone {
		tx.recordRow(RemoveAggregate{LinkRow{p.ID, tx.aggregateID(name)}})
	}
	for _, name := range come {
		id := tx.name(Aggregates, name)
		tx.recordRow(AddAggregate{LinkRow{p.ID, id}, tx.now})
	}
	if !slices.Equal(p.Aggregates, now.Aggregates) {
		tx.putProvider(p, &now)
	}
	if generation != nil {
		return tx.bump(&now), nil
	}
	return &now, nil
}

func sortedSet(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Clip(slices.Compact(out))
}
