// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/internal/lib/pmap"
)

// ErrBadState is a stored state that violates Placement's invariants. It must
// not be served.
var ErrBadState = errors.New("the stored state is not consistent")

func badStateError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadState, fmt.Sprintf(format, args...))
}

// NewSnapshot builds the snapshot of a whole state. Errors are ErrBadState.
// Cost: about 2 µs for each row.
func NewSnapshot(state *State) (*Snapshot, error) {
	d := newDraft(&Snapshot{next: nextIDs{class: MinCustomClassID, provider: 1, trait: 1, consumer: 1, aggregate: 1,
		project: 1, user: 1, typ: 1, host: 1}})
	d.version = state.Version
	d.projects.same, d.users.same, d.aggregates.same = state.SameID, state.SameID, state.SameID
	d.putNames(state)
	for _, r := range state.Classes {
		d.putClass(&ResourceClass{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt})
	}
	for _, r := range state.Traits {
		t := &Trait{ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
		d.traits = d.traits.Set(d.owner, t.Name, t)
		d.traitByID = d.traitByID.Set(d.owner, t.ID, t)
		d.traitList = append(d.traitList, t)
		d.next.trait = max(d.next.trait, t.ID+1)
	}
	slices.SortFunc(d.traitList, func(a, b *Trait) int { return cmp.Compare(a.ID, b.ID) })

	providers, err := d.assembleProviders(state)
	if err != nil {
		return nil, err
	}
	ordered := slices.SortedFunc(maps.Values(providers), compareProviders)
	if err := d.plantTrees(ordered); err != nil {
		return nil, err
	}
	consumers, err := d.assembleConsumers(state,
		func(id int64) (*Provider, bool) { p, ok := providers[id]; return p, ok })
	if err != nil {
		return nil, err
	}
	hosts, err := assembleHosts(state.Hosts)
	if err != nil {
		return nil, err
	}
	sumUsage(providers, consumers)
	d.indexAll(ordered, consumers)
	for _, h := range hosts {
		d.putHost(nil, h)
	}
	return d.Snapshot, nil
}

// putNames adds the append-only tables of names.
func (d draft) putNames(state *State) {
	for _, table := range []struct {
		rows []NamedRow
		to   *names
		next *int64
	}{
		{state.Aggregates, &d.aggregates, &d.next.aggregate}, {state.Projects, &d.projects, &d.next.project},
		{state.Users, &d.users, &d.next.user}, {state.ConsumerTypes, &d.types, &d.next.typ},
	} {
		for _, r := range table.rows {
			table.to.put(d.owner, r.ID, r.Name)
			*table.next = max(*table.next, r.ID+1)
		}
	}
}

// assembleProviders joins the rows of providers, by ID. Roots are not set yet.
func (d draft) assembleProviders(state *State) (map[int64]*Provider, error) {
	providers := make(map[int64]*Provider, len(state.Providers))
	for _, r := range state.Providers {
		providers[r.ID] = &Provider{ID: r.ID, UUID: r.UUID,
			Name: r.Name, Generation: r.Generation, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	}
	find := func(id int64) (*Provider, bool) {
		if p, ok := providers[id]; ok {
			return p, true
		}
		return d.providers.Get(id)
	}
	for _, r := range state.Providers {
		if r.Parent != 0 {
			parent, ok := find(r.Parent)
			if !ok {
				return nil,
					badStateError("resource provider %s has a parent, number %d, that does not exist", r.UUID, r.Parent)
			}
			providers[r.ID].Parent = parent.UUID
		}
	}
	for _, r := range state.Inventories {
		p, ok := providers[r.Provider]
		c, okClass := d.classByID.Get(r.Class)
		if !ok || !okClass {
			return nil, badStateError(
				"an inventory is of resource provider number %d and resource class number %d, which do not both exist",
				r.Provider, r.Class)
		}
		p.Inventories = append(p.Inventories,
			Inventory{Class: c.Name, Total: r.Total, Reserved: r.Reserved, MinUnit: r.MinUnit, MaxUnit: r.MaxUnit,
				StepSize: r.StepSize, AllocationRatio: r.AllocationRatio, CreatedAt: r.CreatedAt,
				UpdatedAt: r.UpdatedAt, class: c.ID})
	}
	for _, r := range state.ProviderTraits {
		p, ok := providers[r.Provider]
		t, okTrait := d.traitByID.Get(r.Target)
		if !ok || !okTrait {
			return nil, badStateError("trait number %d is set on resource provider number %d, which do not both exist",
				r.Target, r.Provider)
		}
		p.Traits = append(p.Traits, t.Name)
	}
	for _, r := range state.ProviderAggregates {
		p, ok := providers[r.Provider]
		uuid, okAggregate := d.aggregates.byID.Get(r.Target)
		if !ok || !okAggregate {
			return nil, badStateError("resource provider number %d is in aggregate number %d, which do not both exist",
				r.Provider, r.Target)
		}
		p.Aggregates = append(p.Aggregates, uuid)
	}
	for _, p := range providers {
		slices.SortFunc(p.Inventories, func(a, b Inventory) int { return cmp.Compare(a.class, b.class) })
		slices.Sort(p.Traits)
		slices.Sort(p.Aggregates)
		p.Inventories, p.Traits, p.Aggregates = slices.Clip(p.Inventories),
			slices.Clip(p.Traits), slices.Clip(p.Aggregates)
		p.traitOrder = d.traitOrder(p.Traits)
	}
	return providers, nil
}

// plantTrees makes the trees of an empty draft from its providers, in order of ID, and sets their
// roots. The column root_provider_id is ignored: it is NULL in rows of an old Placement.
func (d draft) plantTrees(providers []*Provider) error {
	children := byParent(providers)
	for _, root := range children[""] {
		slot, nodes := d.takeSlot(), subtreeOf(root, children)
		for _, p := range nodes {
			p.Root, p.slot = root.UUID, slot
		}
		d.trees = d.trees.Set(d.owner, slot, &Tree{nodes: nodes})
	}
	if i := slices.IndexFunc(providers, func(p *Provider) bool { return p.Root == "" }); i >= 0 {
		return badStateError("the parents of resource provider %s form a loop", providers[i].UUID)
	}
	return nil
}

// assembleConsumers joins the rows of consumers and allocations, in order of ID.
func (d draft) assembleConsumers(state *State, provider func(int64) (*Provider, bool)) ([]*Consumer, error) {
	byUUID := make(map[string]*Consumer, len(state.Consumers))
	consumers := make([]*Consumer, 0, len(state.Consumers))
	for _, r := range state.Consumers {
		project, okProject := d.projects.byID.Get(r.Project)
		user, okUser := d.users.byID.Get(r.User)
		if !okProject || !okUser {
			return nil, badStateError("consumer %s is of project number %d and user number %d, which do not both exist",
				r.UUID, r.Project, r.User)
		}
		typ, ok := d.types.byID.Get(r.Type)
		if r.Type != 0 && !ok {
			return nil, badStateError("consumer %s has consumer type number %d, which does not exist", r.UUID, r.Type)
		}
		c := &Consumer{ID: r.ID, UUID: r.UUID, Generation: r.Generation, Project: project, User: user, Type: typ,
			CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
		byUUID[c.UUID] = c
		consumers = append(consumers, c)
	}
	for _, r := range state.Allocations {
		p, ok := provider(r.Provider)
		class, okClass := d.classByID.Get(r.Class)
		if !ok || !okClass {
			return nil, badStateError(
				"consumer %s holds an allocation of resource provider number %d and resource class number %d, which "+
					"do not both exist", r.Consumer, r.Provider, r.Class)
		}
		c := byUUID[r.Consumer]
		if c == nil {
			c = &Consumer{UUID: r.Consumer}
			byUUID[c.UUID] = c
			consumers = append(consumers, c)
		}
		c.Allocations = append(
			c.Allocations,
			Allocation{Provider: p.UUID, Class: class.Name,
				Used: r.Used, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, provider: p.ID, class: class.ID},
		)
	}
	for _, c := range consumers {
		slices.SortFunc(c.Allocations, compareAllocations)
		c.Allocations = slices.Clip(c.Allocations)
	}
	slices.SortFunc(consumers, func(a, b *Consumer) int { return cmp.Compare(a.ID, b.ID) })
	return consumers, nil
}

func compareAllocations(a, b Allocation) int {
	return cmp.Or(cmp.Compare(a.provider, b.provider), cmp.Compare(a.class, b.class))
}

func sumUsage(providers map[int64]*Provider, consumers []*Consumer) {
	for _, c := range consumers {
		for _, a := range c.Allocations {
			p := providers[a.provider]
			at, ok := slices.BinarySearchFunc(p.used, a.class,
				func(u usage, class int64) int { return cmp.Compare(u.class, class) })
			if ok {
				p.used[at].used += a.Used
			} else {
				p.used = slices.Insert(p.used, at, usage{a.class, a.Used})
			}
		}
	}
}

// indexAll fills the indexes of an empty draft. It builds each set at once.
func (d draft) indexAll(providers []*Provider, consumers []*Consumer) {
	withClass, withTrait, inAggregate, consumersOn :=
		map[int64][]int64{}, map[int64][]int64{}, map[int64][]int64{}, map[int64][]int64{}
	owned := map[int64][]int64{}
	for _, p := range providers {
		d.providers = d.providers.Set(d.owner, p.ID, p)
		d.providerIDs = d.providerIDs.Set(d.owner, p.UUID, p.ID)
		if p.Name != "" {
			d.providerNames = d.providerNames.Set(d.owner, p.Name, p.ID)
			d.indexSpaces(p.ID, "", p.Name)
		}
		d.next.provider = max(d.next.provider, p.ID+1)
		for _, inv := range p.Inventories {
			withClass[inv.class] = append(withClass[inv.class], p.ID)
		}
		for _, name := range p.Traits {
			withTrait[d.traitID(name)] = append(withTrait[d.traitID(name)], p.ID)
		}
		for _, uuid := range p.Aggregates {
			inAggregate[d.aggregateID(uuid)] = append(inAggregate[d.aggregateID(uuid)], p.ID)
		}
	}
	for _, c := range consumers {
		if c.ID == 0 {
			d.orphans = d.orphans.Set(d.owner, c.UUID, c)
			continue
		}
		d.consumers = d.consumers.Set(d.owner, c.ID, c)
		d.consumerIDs = d.consumerIDs.Set(d.owner, c.UUID, c.ID)
		d.next.consumer = max(d.next.consumer, c.ID+1)
		project := d.projectID(c.Project)
		owned[project] = append(owned[project], c.ID)
		for _, id := range heldProviders(c) {
			consumersOn[id] = append(consumersOn[id], c.ID)
		}
	}
	for _, index := range []struct {
		sets map[int64][]int64
		to   *pmap.IntMap[pmap.IntSet]
	}{{withClass, &d.withClass}, {withTrait, &d.withTrait},
		{inAggregate, &d.inAggregate}, {consumersOn, &d.consumersOn}, {owned, &d.owned}} {
		for key, ids := range index.sets {
			*index.to = index.to.Set(d.owner, key, pmap.IntSetOf(ids))
		}
	}
}
