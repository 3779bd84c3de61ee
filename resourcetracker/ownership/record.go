// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Owner says for whom the agent wrote an item to Placement. "" stands for other clients: a service
// or an administrator who wrote it.
type Owner string

// The owners that there are.
const (
	// Driver is the virt driver of the node.
	Driver Owner = "driver"
	// Operator is the one who wrote provider.yaml.
	Operator Owner = "operator"
	// Agent is the agent itself (COMPUTE_NODE, COMPUTE_STATUS_DISABLED, ...).
	Agent Owner = "agent"
	// Former is a driver that had the node before the present one. Its items, which the present
	// driver does not report, are removed as soon as nothing is allocated of them.
	Former Owner = "former-driver"
)

// layered reports whether the driver is not shown what the owner has: it is laid over the driver's
// tree, or is to go.
func (o Owner) layered() bool { return o == Operator || o == Agent || o == Former }

// Record is what this agent has written to Placement for one compute node. Everything else is
// another client's.
type Record struct {
	// Root is the uuid of the compute node and Node its name. Driver is the driver for which the
	// record was last computed.
	Root, Node, Driver string
	// Created says that the root was made by this agent, not found.
	Created bool
	// Pending says that Placement may have only a part of this, because the record was saved before
	// it was written, see [Record.Union].
	Pending bool
	// Layout is the layout version of the tree; 0: not known.
	Layout int
	// Providers are the providers with anything that is ours, by uuid. For a provider of another
	// client it has only our items on it.
	Providers map[string]Provider
}

// Provider is what is ours of one resource provider.
type Provider struct {
	// Name and Parent (a uuid, "" for a root) are as last applied.
	Name, Parent string
	// Owner is who made the provider; "": another client.
	Owner Owner
	// Inventories is by resource class.
	Inventories map[string]OwnedInventory
	// Traits and Aggregates (uuids) say whose each of them is.
	Traits, Aggregates map[string]Owner
}

// OwnedInventory is the inventory of one resource class as it was last applied.
type OwnedInventory struct {
	Owner     Owner
	Inventory providertree.Inventory
	// BeforeDrain is the inventory before [Drain] closed it; nil if it is not closed. It must not
	// be modified.
	BeforeDrain *providertree.Inventory
}

// Clone returns a deep copy; nil stays nil.
func (r *Record) Clone() *Record {
	if r == nil {
		return nil
	}
	out := *r
	out.Providers = make(map[string]Provider, len(r.Providers))
	for uuid, p := range r.Providers {
		out.Providers[uuid] = p.clone()
	}
	return &out
}

func (p Provider) clone() Provider {
	p.Inventories, p.Traits, p.Aggregates = maps.Clone(p.Inventories), maps.Clone(p.Traits), maps.Clone(p.Aggregates)
	return p
}

// Equal reports whether both say the same, with inventories compared as
// [providertree.Inventory.Equal] does. Cost: O(items), nothing is copied.
func (r *Record) Equal(o *Record) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Root == o.Root && r.Node == o.Node && r.Driver == o.Driver && r.Created == o.Created &&
		r.Pending == o.Pending && r.Layout == o.Layout &&
		maps.EqualFunc(r.Providers, o.Providers, Provider.equal)
}

func (p Provider) equal(o Provider) bool {
	return p.Name == o.Name && p.Parent == o.Parent && p.Owner == o.Owner &&
		maps.EqualFunc(p.Inventories, o.Inventories, OwnedInventory.equal) && maps.Equal(p.Traits, o.Traits) &&
		maps.Equal(p.Aggregates, o.Aggregates)
}

func (i OwnedInventory) equal(o OwnedInventory) bool {
	return i.Owner == o.Owner && i.Inventory.Equal(o.Inventory) && (i.BeforeDrain == nil) == (o.BeforeDrain == nil) &&
		(i.BeforeDrain == nil || i.BeforeDrain.Equal(*o.BeforeDrain))
}

// Union returns a record of everything that is ours by either record. For an item in both, it has
// the value of the newer one. The union must be on disk while the agent writes, so that everything
// that a crash leaves in Placement, old or new, is known to be ours. The newer record alone may be
// saved only after every write has succeeded: an item that was not deleted would otherwise be taken
// for another client's.
//
// It has the lower of two layout versions, because a driver's steps change nothing on a tree that
// they have changed already. An inventory that is closed by the old record stays recorded as
// closed, because it may still be closed in Placement.
func (r *Record) Union(newer *Record) *Record {
	if r == nil || newer == nil {
		if r == nil {
			r = newer
		}
		return r.Clone()
	}
	out := newer.Clone()
	out.Pending = !r.Equal(newer)
	out.Created = r.Created || newer.Created
	out.Layout = min(r.Layout, newer.Layout)
	for uuid, old := range r.Providers {
		p, found := out.Providers[uuid]
		if !found {
			out.Providers[uuid] = old.clone()
			continue
		}
		p.Owner = cmp.Or(p.Owner, old.Owner)
		p.Inventories = union(old.Inventories, p.Inventories)
		for class, was := range old.Inventories {
			if owned := p.Inventories[class]; owned.BeforeDrain == nil && was.BeforeDrain != nil {
				owned.BeforeDrain = was.BeforeDrain
				p.Inventories[class] = owned
			}
		}
		p.Traits = union(old.Traits, p.Traits)
		p.Aggregates = union(old.Aggregates, p.Aggregates)
		out.Providers[uuid] = p
	}
	return out
}

func union[V any](old, newer map[string]V) map[string]V {
	if len(old) == 0 {
		return newer
	}
	out := maps.Clone(old)
	maps.Copy(out, newer)
	return out
}

func (p Provider) hasItems() bool { return len(p.Inventories)+len(p.Traits)+len(p.Aggregates) > 0 }

// provider returns what is ours of a provider: nothing, also by no record.
func (r *Record) provider(uuid string) Provider {
	if r == nil {
		return Provider{}
	}
	return r.Providers[uuid]
}

// Exact returns the record of a tree that was derived from the one that r is for. Items that were
// put back, as by [Drain], are ours as by the former record. Items that were left out are not in
// it.
//
// Cost: O(size of the tree).
func (r *Record) Exact(former *Record, tree *providertree.Tree) *Record {
	out := *r
	out.Pending, out.Providers = false, make(map[string]Provider, len(r.Providers))
	for p := range tree.All() {
		now, old := r.provider(p.UUID), former.provider(p.UUID)
		was := ours{owner: now.Owner, inventories: map[string]Owner{}, traits: map[string]Owner{},
			aggregates: map[string]Owner{}}
		if was.owner == "" {
			was.owner = old.Owner
		}
		for class := range p.Inventories {
			was.inventories[class] = cmp.Or(now.Inventories[class].Owner, old.Inventories[class].Owner)
		}
		for _, trait := range p.Traits {
			was.traits[trait] = cmp.Or(now.Traits[trait], old.Traits[trait])
		}
		for _, aggregate := range p.Aggregates {
			was.aggregates[aggregate] = cmp.Or(now.Aggregates[aggregate], old.Aggregates[aggregate])
		}
		out.setProvider(p, was)
		for class, owned := range out.Providers[p.UUID].Inventories {
			for _, held := range []*providertree.Inventory{now.Inventories[class].BeforeDrain,
				old.Inventories[class].BeforeDrain} {
				if isHeld(held, owned.Inventory) {
					owned.BeforeDrain = held
					out.Providers[p.UUID].Inventories[class] = owned
					break
				}
			}
		}
	}
	return &out
}

// ours says whose a provider and the items on it are. Items that it does not name are another
// client's.
type ours struct {
	owner                           Owner
	inventories, traits, aggregates map[string]Owner
}

// setProvider puts what is ours of a provider, as it stands, into the record: nothing, if nothing
// is.
func (r *Record) setProvider(p providertree.Provider, o ours) {
	out := Provider{Name: p.Name, Parent: p.ParentUUID, Owner: o.owner}
	for class, inv := range p.Inventories {
		if owner := o.inventories[class]; owner != "" {
			put(&out.Inventories, class, OwnedInventory{Owner: owner, Inventory: inv})
		}
	}
	for _, trait := range p.Traits {
		if owner := o.traits[trait]; owner != "" {
			put(&out.Traits, trait, owner)
		}
	}
	for _, aggregate := range p.Aggregates {
		if owner := o.aggregates[aggregate]; owner != "" {
			put(&out.Aggregates, aggregate, owner)
		}
	}
	if out.Owner != "" || out.hasItems() {
		put(&r.Providers, p.UUID, out)
	}
}

func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Claim returns a record in which some traits of a provider in known belong to owner, also if
// another client set them. So they are removed when the owner's layer does not have them. It is for
// an explicit request of an operator, such as to disable a node whose driver is down.
func (r *Record) Claim(known *providertree.Tree, owner Owner, provider string, traits ...string) *Record {
	out := r.Clone()
	if out != nil {
		out.claim(known, owner, provider, traits)
	}
	return out
}

// claim is Claim in the record itself, which must be a copy.
func (r *Record) claim(known *providertree.Tree, owner Owner, provider string, traits []string) {
	p, found := known.Provider(provider)
	if !found {
		return
	}
	claimed := r.provider(provider).clone()
	claimed.Name, claimed.Parent = p.Name, p.ParentUUID
	for _, trait := range traits {
		if p.HasTrait(trait) {
			put(&claimed.Traits, trait, owner)
		}
	}
	if claimed.Owner != "" || claimed.hasItems() {
		put(&r.Providers, provider, claimed)
	}
}
