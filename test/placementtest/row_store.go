// SPDX-License-Identifier: Apache-2.0

package placementtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// RowStore is a database of maps that several ledgers share. It is stricter than SQL: a change that
// does not fit the rows, or changes none, fails its commit. Rows are read in random order.
type RowStore struct {
	mu          sync.Mutex
	named       map[ledger.Table]map[int64]ledger.NamedRow
	providers   map[int64]ledger.ProviderRow
	inventories map[cell]ledger.InventoryRow
	traits      map[ledger.LinkRow]bool
	aggregates  map[ledger.LinkRow]bool
	consumers   map[int64]ledger.ConsumerRow
	allocations map[holding]ledger.AllocationRow
	hosts       map[about]ledger.HostRow
	orphans     map[string]bool // consumers that had allocations and no record to begin with

	Commits [][]ledger.Change // of version 1, 2, …
	// Loads counts calls of Load.
	Loads int
	// Backwards has Changes name the newest first.
	Backwards bool
}

type cell struct{ provider, class int64 }

// about is what a row of a host is about.
type about struct {
	id   int64
	kind ledger.HostKind
	name string
}

func aboutOf(r ledger.HostRow) about { return about{r.ID, r.Kind, r.Name} }

type holding struct {
	cell
	consumer string
}

// NewRowStore returns a database with the rows of a state, which has version 0.
func NewRowStore(state ledger.State) *RowStore {
	r := &RowStore{named: map[ledger.Table]map[int64]ledger.NamedRow{}, providers: map[int64]ledger.ProviderRow{},
		inventories: map[cell]ledger.InventoryRow{},
		traits:      map[ledger.LinkRow]bool{}, aggregates: map[ledger.LinkRow]bool{},
		consumers:   map[int64]ledger.ConsumerRow{},
		allocations: map[holding]ledger.AllocationRow{}, orphans: map[string]bool{},
		hosts: map[about]ledger.HostRow{}}
	for table, list := range tables(&state) {
		r.named[table] = map[int64]ledger.NamedRow{}
		for _, row := range *list {
			r.named[table][row.ID] = row
		}
	}
	for _, row := range state.Providers {
		r.providers[row.ID] = row
	}
	for _, row := range state.Inventories {
		r.inventories[cell{row.Provider, row.Class}] = row
	}
	for _, row := range state.ProviderTraits {
		r.traits[row] = true
	}
	for _, row := range state.ProviderAggregates {
		r.aggregates[row] = true
	}
	for _, row := range state.Consumers {
		r.consumers[row.ID] = row
	}
	for _, row := range state.Hosts {
		r.hosts[aboutOf(row)] = row
	}
	for _, row := range state.Allocations {
		r.allocations[holding{cell{row.Provider, row.Class}, row.Consumer}] = row
		r.orphans[row.Consumer] = r.consumerOf(row.Consumer) == nil
	}
	return r
}

// AddOrphan adds an allocation whose consumer has no record.
func (r *RowStore) AddOrphan(row ledger.AllocationRow) {
	r.allocations[holding{cell{row.Provider, row.Class}, row.Consumer}], r.orphans[row.Consumer] = row, true
}

func tables(s *ledger.State) map[ledger.Table]*[]ledger.NamedRow {
	return map[ledger.Table]*[]ledger.NamedRow{ledger.Classes: &s.Classes, ledger.Traits: &s.Traits,
		ledger.Aggregates: &s.Aggregates,
		ledger.Projects:   &s.Projects, ledger.Users: &s.Users, ledger.ConsumerTypes: &s.ConsumerTypes}
}

// Load implements ledger.Store.
func (r *RowStore) Load(context.Context) (*ledger.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Loads++
	state := r.state(nil)
	return &state, nil
}

// state reads the rows of what is affected; nil is everything.
func (r *RowStore) state(only *affected) ledger.State {
	s := ledger.State{Version: int64(len(r.Commits))}
	for table, list := range tables(&s) {
		for id, row := range r.named[table] {
			if only == nil || only.named[table][id] {
				*list = append(*list, row)
			}
		}
	}
	provider := func(id int64) bool { return only == nil || only.providers[id] }
	for id, row := range r.providers {
		if provider(id) {
			s.Providers = append(s.Providers, row)
		}
	}
	for at, row := range r.inventories {
		if provider(at.provider) {
			s.Inventories = append(s.Inventories, row)
		}
	}
	for link := range r.traits {
		if provider(link.Provider) {
			s.ProviderTraits = append(s.ProviderTraits, link)
		}
	}
	for link := range r.aggregates {
		if provider(link.Provider) {
			s.ProviderAggregates = append(s.ProviderAggregates, link)
		}
	}
	for at, row := range r.hosts {
		if only == nil || only.hosts[at.id] {
			s.Hosts = append(s.Hosts, row)
		}
	}
	uuids := map[string]bool{}
	for id, row := range r.consumers {
		if only == nil || only.consumers[id] {
			s.Consumers = append(s.Consumers, row)
			uuids[row.UUID] = true
		}
	}
	for at, row := range r.allocations {
		if only == nil || uuids[at.consumer] || only.orphans[at.consumer] && r.consumerOf(at.consumer) == nil {
			s.Allocations = append(s.Allocations, row)
		}
	}
	return s
}

func (r *RowStore) consumerOf(uuid string) *ledger.ConsumerRow {
	for _, row := range r.consumers {
		if row.UUID == uuid {
			return &row
		}
	}
	return nil
}

// Version implements ledger.Store.
func (r *RowStore) Version(context.Context) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.Commits)), nil
}

// Exclusive implements ledger.Store.
func (r *RowStore) Exclusive() bool { return false }

// Close implements ledger.Store.
func (r *RowStore) Close() error { return nil }

// Commit implements ledger.Store.
func (r *RowStore) Commit(_ context.Context, base int64, changes []ledger.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(len(r.Commits)) != base {
		return ledger.ErrVersionConflict
	}
	for _, c := range changes {
		if err := r.apply(c); err != nil {
			return fmt.Errorf("%T%+v: %w", c, c, err)
		}
	}
	if err := r.consistent(); err != nil {
		return err
	}
	r.Commits = append(r.Commits, slices.Clone(changes))
	return nil
}

// affected is what a number of commits changed.
type affected struct {
	named                map[ledger.Table]map[int64]bool
	providers, consumers map[int64]bool
	hosts                map[int64]bool
	orphans              map[string]bool
}

// Changes implements ledger.Store.
func (r *RowStore) Changes(_ context.Context, since int64) (*ledger.Delta, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &affected{named: map[ledger.Table]map[int64]bool{}, providers: map[int64]bool{}, consumers: map[int64]bool{},
		hosts: map[int64]bool{}, orphans: map[string]bool{}}
	for table := range r.named {
		a.named[table] = map[int64]bool{}
	}
	for _, changes := range r.Commits[since:] {
		for _, c := range changes {
			if _, is := c.(ledger.UpdateProviderUUID); is {
				return nil, ledger.ErrReload
			}
			a.add(c)
		}
	}
	ids := func(of map[int64]bool) []int64 {
		list := slices.Sorted(maps.Keys(of))
		if r.Backwards {
			slices.Reverse(list)
		}
		return list
	}
	return &ledger.Delta{State: r.state(a), ProviderIDs: ids(a.providers), ConsumerIDs: ids(a.consumers),
		ClassIDs: ids(a.named[ledger.Classes]), TraitIDs: ids(a.named[ledger.Traits]), HostIDs: ids(a.hosts),
		ConsumerUUIDs: slices.Collect(maps.Keys(a.orphans))}, nil
}

func (a *affected) add(change ledger.Change) {
	switch c := change.(type) {
	case ledger.InsertNamed:
		a.named[c.Table][c.Row.ID] = true
	case ledger.RenameNamed:
		a.named[c.Table][c.Row.ID] = true
	case ledger.DeleteNamed:
		a.named[c.Table][c.ID] = true
	case ledger.InsertProvider:
		a.providers[c.Row.ID] = true
	case ledger.UpdateProvider:
		a.providers[c.Row.ID] = true
	case ledger.BumpProvider:
		a.providers[c.ID] = true
	case ledger.DeleteProvider:
		a.providers[c.ID] = true
	case ledger.InsertInventory:
		a.providers[c.Row.Provider] = true
	case ledger.UpdateInventory:
		a.providers[c.Row.Provider] = true
	case ledger.DeleteInventory:
		a.providers[c.Provider] = true
	case ledger.AddTrait:
		a.providers[c.Link.Provider] = true
	case ledger.RemoveTrait:
		a.providers[c.Link.Provider] = true
	case ledger.AddAggregate:
		a.providers[c.Link.Provider] = true
	case ledger.RemoveAggregate:
		a.providers[c.Link.Provider] = true
	case ledger.InsertConsumer:
		a.consumers[c.Row.ID] = true
	case ledger.UpdateConsumer:
		a.consumers[c.Row.ID] = true
	case ledger.BumpConsumer:
		a.consumers[c.ID] = true
	case ledger.DeleteConsumer:
		a.consumers[c.ID] = true
	case ledger.DeleteAllocations:
		if c.ID == 0 {
			a.orphans[c.Consumer] = true
		} else {
			a.consumers[c.ID] = true
		}
	case ledger.InsertHostRow:
		a.hosts[c.Row.ID] = true
	case ledger.UpdateHostRow:
		a.hosts[c.Row.ID] = true
	case ledger.DeleteHostRow:
		a.hosts[c.Row.ID] = true
	}
}

// insert, update and remove change exactly one row of a table.
func insert[K comparable, V any](table map[K]V, key K, row V) error {
	if _, there := table[key]; there {
		return fmt.Errorf("there is a row %v", key)
	}
	table[key] = row
	return nil
}

func update[K comparable, V any](table map[K]V, key K, change func(*V)) error {
	row, there := table[key]
	if !there {
		return fmt.Errorf("there is no row %v", key)
	}
	change(&row)
	table[key] = row
	return nil
}

func remove[K comparable, V any](table map[K]V, key K) error {
	if _, there := table[key]; !there {
		return fmt.Errorf("there is no row %v", key)
	}
	delete(table, key)
	return nil
}

func (r *RowStore) apply(change ledger.Change) error {
	switch c := change.(type) {
	case ledger.InsertNamed:
		return insert(r.named[c.Table], c.Row.ID, c.Row)
	case ledger.RenameNamed:
		return update(r.named[c.Table], c.Row.ID,
			func(row *ledger.NamedRow) { row.Name, row.UpdatedAt = c.Row.Name, c.Row.UpdatedAt })
	case ledger.DeleteNamed:
		return remove(r.named[c.Table], c.ID)
	case ledger.InsertProvider:
		return insert(r.providers, c.Row.ID, c.Row)
	case ledger.UpdateProvider:
		return update(r.providers, c.Row.ID, func(row *ledger.ProviderRow) {
			row.Name, row.Parent, row.Root, row.UpdatedAt = c.Row.Name, c.Row.Parent, c.Row.Root, c.Row.UpdatedAt
		})
	case ledger.UpdateProviderUUID:
		return update(r.providers, c.ID,
			func(row *ledger.ProviderRow) { row.UUID, row.UpdatedAt = c.UUID, c.UpdatedAt })
	case ledger.BumpProvider:
		if is := r.providers[c.ID].Generation; is != c.From {
			return fmt.Errorf("the row has generation %d", is)
		}
		return update(r.providers, c.ID,
			func(row *ledger.ProviderRow) { row.Generation, row.UpdatedAt = c.To, c.UpdatedAt })
	case ledger.DeleteProvider:
		maps.DeleteFunc(r.inventories, func(at cell, _ ledger.InventoryRow) bool { return at.provider == c.ID })
		maps.DeleteFunc(r.traits, func(link ledger.LinkRow, _ bool) bool { return link.Provider == c.ID })
		maps.DeleteFunc(r.aggregates, func(link ledger.LinkRow, _ bool) bool { return link.Provider == c.ID })
		return remove(r.providers, c.ID)
	case ledger.InsertInventory:
		return insert(r.inventories, cell{c.Row.Provider, c.Row.Class}, c.Row)
	case ledger.UpdateInventory:
		return update(r.inventories, cell{c.Row.Provider, c.Row.Class}, func(row *ledger.InventoryRow) {
			c.Row.CreatedAt = row.CreatedAt
			*row = c.Row
		})
	case ledger.DeleteInventory:
		return remove(r.inventories, cell{c.Provider, c.Class})
	case ledger.AddTrait:
		return insert(r.traits, c.Link, true)
	case ledger.RemoveTrait:
		return remove(r.traits, c.Link)
	case ledger.AddAggregate:
		return insert(r.aggregates, c.Link, true)
	case ledger.RemoveAggregate:
		return remove(r.aggregates, c.Link)
	case ledger.InsertConsumer:
		return insert(r.consumers, c.Row.ID, c.Row)
	case ledger.UpdateConsumer:
		return update(r.consumers, c.Row.ID, func(row *ledger.ConsumerRow) {
			row.Project, row.User, row.Type, row.Generation, row.UpdatedAt = c.Row.Project, c.Row.User, c.Row.Type,
				c.Row.Generation, c.Row.UpdatedAt
		})
	case ledger.BumpConsumer:
		return update(r.consumers, c.ID,
			func(row *ledger.ConsumerRow) { row.Generation, row.UpdatedAt = c.To, c.UpdatedAt })
	case ledger.DeleteConsumer:
		return remove(r.consumers, c.ID)
	case ledger.DeleteAllocations:
		before := len(r.allocations)
		maps.DeleteFunc(r.allocations,
			func(at holding, _ ledger.AllocationRow) bool { return at.consumer == c.Consumer })
		if len(r.allocations) == before {
			return errors.New("there are no rows")
		}
		return nil
	case ledger.InsertAllocation:
		return insert(r.allocations, holding{cell{c.Row.Provider, c.Row.Class}, c.Row.Consumer}, c.Row)
	case ledger.InsertHostRow:
		return insert(r.hosts, aboutOf(c.Row), c.Row)
	case ledger.UpdateHostRow:
		return update(r.hosts, aboutOf(c.Row), func(row *ledger.HostRow) { row.Amount = c.Row.Amount })
	case ledger.DeleteHostRow:
		return remove(r.hosts, aboutOf(c.Row))
	}
	return errors.New("an unknown change")
}

// consistent checks the unique columns and the foreign keys of all tables.
func (r *RowStore) consistent() error {
	var wrong []error
	unique := func(column string, values []string) {
		slices.Sort(values)
		if len(slices.Compact(slices.Clone(values))) != len(values) {
			wrong = append(wrong, fmt.Errorf("a value is twice in %s: %q", column, values))
		}
	}
	refer := func(row any, there ...bool) {
		if slices.Contains(there, false) {
			wrong = append(wrong, fmt.Errorf("%+v refers to a row that does not exist", row))
		}
	}
	for table, rows := range r.named {
		unique(fmt.Sprint("the names of table ", table),
			column(rows, func(row ledger.NamedRow) string { return row.Name }))
	}
	unique("the names of providers", column(r.providers, func(row ledger.ProviderRow) string { return row.Name }))
	unique("the uuids of providers", column(r.providers, func(row ledger.ProviderRow) string { return row.UUID }))
	unique("the uuids of consumers", column(r.consumers, func(row ledger.ConsumerRow) string { return row.UUID }))
	for _, row := range r.providers {
		refer(row, has(r.providers, row.Root), row.Parent == 0 || has(r.providers, row.Parent))
	}
	for at := range r.inventories {
		refer(at, has(r.providers, at.provider), has(r.named[ledger.Classes], at.class))
	}
	for link := range r.traits {
		refer(link, has(r.providers, link.Provider), has(r.named[ledger.Traits], link.Target))
	}
	for link := range r.aggregates {
		refer(link, has(r.providers, link.Provider), has(r.named[ledger.Aggregates], link.Target))
	}
	for _, row := range r.consumers {
		refer(row, has(r.named[ledger.Projects], row.Project), has(r.named[ledger.Users], row.User), row.Type == 0 ||
			has(r.named[ledger.ConsumerTypes], row.Type))
	}
	for at := range r.allocations {
		refer(at, has(r.inventories, at.cell), r.consumerOf(at.consumer) != nil || r.orphans[at.consumer])
	}
	return errors.Join(wrong...)
}

func column[K comparable, V any](rows map[K]V, of func(V) string) []string {
	var out []string
	for _, row := range rows {
		out = append(out, of(row))
	}
	return out
}

func has[K comparable, V any](rows map[K]V, key K) bool {
	_, ok := rows[key]
	return ok
}
