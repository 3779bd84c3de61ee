// SPDX-License-Identifier: Apache-2.0

package ledger

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

// ConsumerAllocations replaces all allocations of a consumer.
type ConsumerAllocations struct {
	Consumer string
	// CheckGeneration is microversion 1.28: Generation must be the consumer's,
	// nil when it must be new.
	CheckGeneration bool
	Generation      *int64
	// Project and User replace those of an existing consumer.
	Project, User string
	// Type is the consumer type (1.38); nil leaves an existing one as it is.
	Type *string
	// Resources are amounts by provider uuid and class name. None: all
	// allocations of the consumer and its record are deleted.
	Resources map[string]map[string]int64
}

// ProviderInventories replaces all inventories of a provider in a reshape.
type ProviderInventories struct {
	Generation  int64
	Inventories []Inventory
}

// Reshape is POST /reshaper: inventories by provider uuid and the allocations
// of consumers, replaced together.
type Reshape struct {
	Inventories map[string]ProviderInventories
	Allocations []ConsumerAllocations
}
