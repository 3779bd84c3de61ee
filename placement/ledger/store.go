// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"time"
)

// Store is the durable storage of a ledger: rows in Placement's own schema, and
// a version that grows by one with every commit.
//
// Implementations are used by one ledger at a time, but must allow Version
// and Changes to run beside Commit.
type Store interface {
	// Load reads the whole state in one consistent read.
	Load(ctx context.Context) (*State, error)
	// Version reads the newest committed version.
	Version(ctx context.Context) (int64, error)
	// Commit writes the changes, in their order, and sets the version from base
	// to base+1, atomically and durably. Errors: ErrVersionConflict (another
	// server committed, nothing was written), ErrReload (a row differed from the
	// ledger's, nothing was written), ErrOutcomeUnknown, or the storage's own, in
	// which case nothing was written.
	Commit(ctx context.Context, base int64, changes []Change) error
	// Changes reads, consistently, the rows that changed after the version
	// since; ErrReload if that is too long ago or not known.
	Changes(ctx context.Context, since int64) (*Delta, error)
	// Exclusive: no other process can commit while this store is open, so
	// Version need not be read.
	Exclusive() bool
	Close() error
}

// Reserver is a Store that can keep other servers from committing for a moment.
// The ledger uses it after another server committed first: otherwise the slower
// of two servers that write all the time would never commit.
type Reserver interface {
	// Reserve returns when no other server can commit until the next Commit of
	// this store, or until release. Reserve, Commit and release are called by
	// one goroutine, in this order.
	Reserve(ctx context.Context) (release func(), err error)
}

// Coarse is a Store whose columns can be less precise than the values written to them. The ledger
// rounds values before it uses them: otherwise the server that wrote them would show other times
// and capacities than one that read them.
type Coarse interface {
	// TimeResolution returns the resolution of the times.
	TimeResolution() time.Duration
	// Ratio is the allocation ratio that is read when one is written.
	Ratio(written float64) float64
}

// Rows, as Placement's tables have them. Times are UTC with microseconds, and
// the zero time is NULL.
type (
	// NamedRow is a row of resource_classes, traits, placement_aggregates,
	// projects, users or consumer_types: a number and what it stands for.
	NamedRow struct {
		ID                   int64
		Name                 string
		CreatedAt, UpdatedAt time.Time
	}
	// ProviderRow is a row of resource_providers; Parent 0 is NULL.
	ProviderRow struct {
		ID, Generation       int64
		UUID, Name           string
		Root, Parent         int64
		CreatedAt, UpdatedAt time.Time
	}
	// InventoryRow is a row of inventories.
	InventoryRow struct {
		Provider, Class            int64
		Total, Reserved            int64
		MinUnit, MaxUnit, StepSize int64
		AllocationRatio            float64
		CreatedAt, UpdatedAt       time.Time
	}
	// LinkRow is a row of resource_provider_traits or resource_provider_aggregates.
	LinkRow struct {
		Provider, Target int64
	}
	// ConsumerRow is a row of consumers; Type 0 is NULL.
	ConsumerRow struct {
		ID, Generation       int64
		UUID                 string
		Project, User, Type  int64
		CreatedAt, UpdatedAt time.Time
	}
	// AllocationRow is a row of allocations; Consumer is the consumer's uuid,
	// as in the table.
	AllocationRow struct {
		Provider, Class      int64
		Consumer             string
		Used                 int64
		CreatedAt, UpdatedAt time.Time
	}
	// HostRow is a row of ledger_hosts. Those with one ID are a Host: its name and the second since
	// which it reports, amounts of resource classes, and kinds of traits, whose amounts are 0.
	HostRow struct {
		ID     int64
		Kind   HostKind
		Name   string
		Amount int64
	}
)

// HostKind is what a HostRow is about. It is stored: never change the meaning of one.
type HostKind uint8

// The kinds of rows of hosts.
const (
	HostItself HostKind = iota
	HostClass
	HostTraits
)

// State is the rows of all tables at one version. The order of the rows is of
// no importance.
type State struct {
	Version int64
	// SameID maps an id of a project, user or aggregate to a key that is equal for all ids that the
	// database treats as one; nil if no two ids are equal. If there are several rows with equal
	// keys nevertheless, each id means its own row.
	SameID func(id string) string

	Classes, Traits, Aggregates    []NamedRow
	Projects, Users, ConsumerTypes []NamedRow
	Providers                      []ProviderRow
	Inventories                    []InventoryRow
	ProviderTraits                 []LinkRow
	ProviderAggregates             []LinkRow
	Consumers                      []ConsumerRow
	Allocations                    []AllocationRow
	Hosts                          []HostRow
}

// Delta is what changed between two versions. It has the IDs of everything that changed, and the
// present rows of these; what has an ID here but no row was deleted.
type Delta struct {
	// State holds the named providers with their inventories and links, the
	// named consumers with their allocations, all rows of the named hosts, and
	// named rows of the rest.
	State
	// ProviderIDs, ConsumerIDs, ClassIDs, TraitIDs and HostIDs are named as changed.
	// Aggregates, projects, users and consumer types are only ever added.
	ProviderIDs, ConsumerIDs, ClassIDs, TraitIDs, HostIDs []int64
	// ConsumerUUIDs are consumers that have allocations but no record, named
	// by uuid since they have no number.
	ConsumerUUIDs []string
}

// Table names a table of NamedRow rows, or of the objects of an Object.
type Table uint8

// The tables of NamedRow rows.
const (
	Classes Table = iota + 1
	Traits
	Aggregates
	Projects
	Users
	ConsumerTypes
)

// The tables of other objects.
const (
	Providers Table = iota + 100
	Consumers
	Hosts
)

// Change is one change of rows: one of the types below, in the order in which
// they must be applied.
type Change interface{ object() Object }

// Object is what a change is about: a row of a table of names, a provider, a consumer or a host.
type Object struct {
	Table Table
	ID    int64  // 0 for a consumer without a record, and of InsertAllocation
	UUID  string // of a consumer; "" for BumpConsumer and DeleteConsumer
}

// ObjectOf returns what a change is about.
func ObjectOf(c Change) Object { return c.object() }

type (
	// InsertNamed adds a row to one of the tables of names.
	InsertNamed struct {
		Table Table
		Row   NamedRow
	}
	// RenameNamed changes the name in a row of classes.
	RenameNamed struct {
		Table Table
		Row   NamedRow
	}
	// DeleteNamed removes a row of classes or traits.
	DeleteNamed struct {
		Table Table
		ID    int64
	}
	// InsertProvider adds a provider.
	InsertProvider struct{ Row ProviderRow }
	// UpdateProvider changes name, parent, root and time of a provider, not
	// its generation.
	UpdateProvider struct{ Row ProviderRow }
	// UpdateProviderUUID changes the uuid of a provider. Other servers load the whole state
	// (ErrReload) instead of following it, because children and allocations name providers by uuid.
	UpdateProviderUUID struct {
		ID        int64
		UUID      string
		UpdatedAt time.Time
	}
	// BumpProvider moves a provider's generation. From is what the row must
	// hold before.
	BumpProvider struct {
		ID, From, To int64
		UpdatedAt    time.Time
	}
	// DeleteProvider removes a provider with its inventories and links.
	DeleteProvider struct{ ID int64 }
	// InsertInventory adds an inventory.
	InsertInventory struct{ Row InventoryRow }
	// UpdateInventory changes an inventory.
	UpdateInventory struct{ Row InventoryRow }
	// DeleteInventory removes an inventory.
	DeleteInventory struct{ Provider, Class int64 }
	// AddTrait gives a provider a trait.
	AddTrait struct {
		Link      LinkRow
		CreatedAt time.Time
	}
	// RemoveTrait takes a trait from a provider.
	RemoveTrait struct{ Link LinkRow }
	// AddAggregate makes a provider a member of an aggregate.
	AddAggregate struct {
		Link      LinkRow
		CreatedAt time.Time
	}
	// RemoveAggregate ends a membership.
	RemoveAggregate struct{ Link LinkRow }
	// InsertConsumer adds a consumer.
	InsertConsumer struct{ Row ConsumerRow }
	// UpdateConsumer changes a consumer's generation, owners and type.
	UpdateConsumer struct{ Row ConsumerRow }
	// BumpConsumer moves a consumer's generation and changes nothing else, so
	// that a database need not touch the indexes of owners and types.
	BumpConsumer struct {
		ID, To    int64
		UpdatedAt time.Time
	}
	// DeleteConsumer removes a consumer that holds nothing.
	DeleteConsumer struct{ ID int64 }
	// DeleteAllocations removes all that a consumer holds. ID is the
	// consumer's number, 0 when it has no record.
	DeleteAllocations struct {
		ID       int64
		Consumer string
	}
	// InsertAllocation adds an allocation.
	InsertAllocation struct{ Row AllocationRow }
	// InsertHostRow adds a row about a host.
	InsertHostRow struct{ Row HostRow }
	// UpdateHostRow changes the amount of one.
	UpdateHostRow struct{ Row HostRow }
	// DeleteHostRow removes one.
	DeleteHostRow struct{ Row HostRow }
)

func (i InsertNamed) object() Object        { return Object{Table: i.Table, ID: i.Row.ID} }
func (r RenameNamed) object() Object        { return Object{Table: r.Table, ID: r.Row.ID} }
func (d DeleteNamed) object() Object        { return Object{Table: d.Table, ID: d.ID} }
func (i InsertProvider) object() Object     { return Object{Table: Providers, ID: i.Row.ID} }
func (u UpdateProvider) object() Object     { return Object{Table: Providers, ID: u.Row.ID} }
func (u UpdateProviderUUID) object() Object { return Object{Table: Providers, ID: u.ID} }
func (b BumpProvider) object() Object       { return Object{Table: Providers, ID: b.ID} }
func (d DeleteProvider) object() Object     { return Object{Table: Providers, ID: d.ID} }
func (i InsertInventory) object() Object    { return Object{Table: Providers, ID: i.Row.Provider} }
func (u UpdateInventory) object() Object    { return Object{Table: Providers, ID: u.Row.Provider} }
func (d DeleteInventory) object() Object    { return Object{Table: Providers, ID: d.Provider} }
func (a AddTrait) object() Object           { return Object{Table: Providers, ID: a.Link.Provider} }
func (r RemoveTrait) object() Object        { return Object{Table: Providers, ID: r.Link.Provider} }
func (a AddAggregate) object() Object       { return Object{Table: Providers, ID: a.Link.Provider} }
func (r RemoveAggregate) object() Object    { return Object{Table: Providers, ID: r.Link.Provider} }
func (c InsertConsumer) object() Object {
	return Object{Table: Consumers, ID: c.Row.ID, UUID: c.Row.UUID}
}
func (c UpdateConsumer) object() Object {
	return Object{Table: Consumers, ID: c.Row.ID, UUID: c.Row.UUID}
}
func (c BumpConsumer) object() Object   { return Object{Table: Consumers, ID: c.ID} }
func (c DeleteConsumer) object() Object { return Object{Table: Consumers, ID: c.ID} }
func (d DeleteAllocations) object() Object {
	return Object{Table: Consumers, ID: d.ID, UUID: d.Consumer}
}
func (i InsertAllocation) object() Object { return Object{Table: Consumers, UUID: i.Row.Consumer} }
func (i InsertHostRow) object() Object    { return Object{Table: Hosts, ID: i.Row.ID} }
func (u UpdateHostRow) object() Object    { return Object{Table: Hosts, ID: u.Row.ID} }
func (d DeleteHostRow) object() Object    { return Object{Table: Hosts, ID: d.Row.ID} }
