// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
)

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
	Resources providertree.ProviderResources
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

// Consumer is the owner of allocations: an instance, a migration, a volume.
type Consumer struct {
	ID         int64
	UUID       string
	Generation int64
	// Project and User are Keystone's IDs.
	Project, User string
	// Type is the consumer type (1.38); "" is shown as "unknown".
	Type string
	// Allocations are in order of provider ID, then class ID.
	Allocations          []Allocation
	CreatedAt, UpdatedAt time.Time
}

// visible reports whether the API shows the consumer: it has a record and
// allocations. A database that an old Placement wrote can have allocations
// without a consumer record (ID 0 here), which count as used and are not
// shown, and records without allocations.
func (c *Consumer) visible() bool { return c.ID != 0 && len(c.Allocations) > 0 }

// Allocation is the amount of one class of one provider that a consumer has.
type Allocation struct {
	Provider             string // uuid
	Class                string
	Used                 int64
	CreatedAt, UpdatedAt time.Time

	provider, class int64 // the IDs of Provider and Class
}

// claim is a request to replace the allocations of one consumer, with the
// current consumer: nil, or a record without allocations, or allocations
// without a record, if the API shows no such consumer.
type claim struct {
	ConsumerAllocations
	old *Consumer
	// requested are its new allocations, in order of provider ID and class ID.
	requested []Allocation
}

// ReplaceAllocations replaces all allocations of the given consumers in one step (PUT
// /allocations/{consumer}, POST /allocations). A consumer without new allocations is deleted. An
// over-committed provider accepts allocations that do not increase the used amount of the class.
//
// As in Placement, it raises the generations of the consumers, of the providers of the new
// allocations, and of the providers of a consumer that is deleted. A provider that a consumer only
// moves away from keeps its generation.
//
// Kinds: DuplicateConsumer, ConsumerGenerationConflict, ProviderNotFound,
// ClassNotFound, InvalidAllocation, InventoryNotFound, AllocationConstraint,
// CapacityExceeded.
func (tx *Tx) ReplaceAllocations(list []ConsumerAllocations) error {
	claims, err := tx.claims(list)
	if err != nil {
		return err
	}
	return tx.allocate(claims, tx.restricted)
}

// KeepGenerations makes ReplaceAllocations raise the generation of a provider for which restricted
// returns true only if an amount on it changes. A consumer on such a provider that is given exactly
// what it has does not change either. All checks are made. It is for writers that must not
// invalidate generations that other clients have read. Placement has no counterpart.
func (tx *Tx) KeepGenerations(restricted func(*Provider) bool) { tx.restricted = restricted }

// claims checks the consumers and that the providers exist.
func (tx *Tx) claims(list []ConsumerAllocations) ([]claim, error) {
	claims := make([]claim, len(list))
	seen := make(map[string]bool, len(list))
	for i, req := range list {
		if seen[req.Consumer] {
			return nil, &Error{Kind: DuplicateConsumer, Consumer: req.Consumer}
		}
		seen[req.Consumer] = true
		if req.Consumer == "" || req.Project == "" || req.User == "" {
			return nil, &Error{Kind: InvalidAllocation,
				Consumer: req.Consumer, Detail: "a consumer, its project and its user must be named"}
		}
		old, _ := tx.lookupConsumer(req.Consumer)
		claims[i] = claim{ConsumerAllocations: req, old: old}
		if req.CheckGeneration {
			given, expected := int64(NoGeneration), int64(NoGeneration)
			if req.Generation != nil {
				given = *req.Generation
			}
			if old != nil && old.visible() {
				expected = old.Generation
			}
			// A client can send any number, including NoGeneration.
			if given != expected || (req.Generation == nil) != (expected == NoGeneration) {
				return nil,
					&Error{Kind: ConsumerGenerationConflict, Consumer: req.Consumer, Expected: expected, Given: given}
			}
		}
	}
	for _, c := range claims {
		for _, uuid := range slices.Sorted(maps.Keys(c.Resources)) {
			if _, ok := tx.Provider(uuid); !ok {
				return nil, &Error{Kind: ProviderNotFound, Provider: uuid, Consumer: c.Consumer}
			}
		}
	}
	return claims, nil
}

// allocate applies checked claims. restricted is the argument of KeepGenerations, nil for none.
func (tx *Tx) allocate(claims []claim, restricted func(*Provider) bool) error {
	for i := range claims {
		if err := tx.resolve(&claims[i]); err != nil {
			return err
		}
	}
	if err := tx.fits(claims); err != nil {
		return err
	}
	changes := make([]consumerChange, 0, len(claims))
	touched := map[int64]bool{}
	for _, c := range claims {
		held := c.requested
		if len(c.requested) == 0 {
			if c.old == nil || len(c.old.Allocations) == 0 {
				continue // no allocations before and after
			}
			held = c.old.Allocations
		}
		if restricted != nil {
			if held = tx.withoutUnchanged(held, c, restricted); held == nil {
				continue // all of it stays
			}
		}
		for _, a := range held {
			touched[a.provider] = true
		}
		changes = append(changes, consumerChange{c.old, tx.consumerOf(c)})
	}
	tx.recordConsumerRows(changes)
	tx.putConsumers(changes)
	for _, id := range slices.Sorted(maps.Keys(touched)) {
		p, _ := tx.providers.Get(id)
		tx.bump(p)
	}
	return nil
}

// withoutUnchanged is what is held without the providers that restricted reports and of which the
// claim changes nothing; nil if there are some and the claim changes nothing else either.
func (tx *Tx) withoutUnchanged(held []Allocation, c claim, restricted func(*Provider) bool) []Allocation {
	if c.old == nil || !c.old.visible() {
		return held
	}
	of := func(list []Allocation, provider int64) (amounts []Allocation) {
		for _, a := range list {
			if a.provider == provider {
				amounts = append(amounts, a)
			}
		}
		return amounts
	}
	same := func(was, is []Allocation) bool {
		return slices.EqualFunc(was, is,
			func(a, b Allocation) bool { return compareAllocations(a, b) == 0 && a.Used == b.Used })
	}
	kept := map[int64]bool{} // by provider: the answer
	out := make([]Allocation, 0, len(held))
	for _, a := range held {
		keep, known := kept[a.provider]
		if !known {
			p, _ := tx.providers.Get(a.provider)
			keep = restricted(p) && same(of(c.old.Allocations, a.provider), of(c.requested, a.provider))
			kept[a.provider] = keep
		}
		if !keep {
			out = append(out, a)
		}
	}
	if len(out) < len(held) && same(c.old.Allocations, c.requested) &&
		c.old.Project == c.Project && c.old.User == c.User && (c.Type == nil || c.old.Type == *c.Type) {
		return nil
	}
	return out
}

// resolve makes allocations of a claim's names.
func (tx *Tx) resolve(c *claim) error {
	for uuid, resources := range c.Resources {
		p, _ := tx.Provider(uuid)
		if len(resources) == 0 {
			return &Error{Kind: InvalidAllocation, Provider: uuid, Consumer: c.Consumer,
				Detail: "it names no resources"}
		}
		for _, name := range slices.Sorted(maps.Keys(resources)) {
			class, ok := tx.Class(name)
			if !ok {
				return &Error{Kind: ClassNotFound, Class: name, Provider: uuid, Consumer: c.Consumer}
			}
			if resources[name] < 1 || resources[name] > providertree.MaxUnit {
				return &Error{Kind: InvalidAllocation, Provider: uuid, Class: name, Consumer: c.Consumer,
					Detail: fmt.Sprintf("the amount is %d, must be from 1 to %d",
						resources[name], providertree.MaxUnit)}
			}
			c.requested = append(c.requested, Allocation{Provider: p.UUID, Class: class.Name, Used: resources[name],
				CreatedAt: tx.now, provider: p.ID, class: class.ID})
		}
	}
	slices.SortFunc(c.requested, compareAllocations)
	return nil
}

// fits checks units and capacity, without the consumers' current allocations.
func (tx *Tx) fits(claims []claim) error {
	type key struct{ provider, class int64 }
	freed, asked := map[key]int64{}, map[key]int64{}
	for _, c := range claims {
		if c.old != nil {
			for _, a := range c.old.Allocations {
				freed[key{a.provider, a.class}] += a.Used
			}
		}
		for _, a := range c.requested {
			asked[key{a.provider, a.class}] += a.Used
		}
	}
	for _, c := range claims {
		for _, a := range c.requested {
			p, _ := tx.providers.Get(a.provider)
			inv, ok := inventoryOf(p.Inventories, a.class)
			if !ok {
				return &Error{Kind: InventoryNotFound, Provider: p.UUID, Class: a.Class, Consumer: c.Consumer}
			}
			refused := func(kind Kind, broken providertree.FitError) error {
				return &Error{Kind: kind, Provider: p.UUID,
					Class: a.Class, Consumer: c.Consumer, Detail: broken.Error()}
			}
			limits := inv.Limits()
			if rule := limits.BrokenUnit(a.Used); rule != providertree.RuleNone {
				return refused(AllocationConstraint, providertree.FitError{Rule: rule, Limits: limits, Amount: a.Used})
			}
			k := key{a.provider, a.class}
			before := p.usedOf(a.class)
			others := before - freed[k]
			if asked[k] > limits.Free(others) && asked[k] > freed[k] {
				return refused(CapacityExceeded,
					providertree.FitError{Rule: providertree.RuleCapacity, Limits: limits,
						Used: others, Amount: asked[k]})
			}
		}
	}
	return nil
}

// consumerOf returns the consumer after a claim; nil without allocations.
func (tx *Tx) consumerOf(c claim) *Consumer {
	if len(c.requested) == 0 {
		return nil
	}
	now := &Consumer{UUID: c.Consumer, Generation: 1, Project: c.Project, User: c.User, Allocations: c.requested,
		CreatedAt: tx.now, UpdatedAt: tx.now}
	if c.old != nil && c.old.ID != 0 {
		now.ID, now.Type, now.CreatedAt = c.old.ID, c.old.Type, c.old.CreatedAt
		if c.old.visible() {
			now.Generation = c.old.Generation + 1
		}
	} else {
		now.ID = tx.next.consumer
		tx.next.consumer++
	}
	if c.Type != nil {
		now.Type = *c.Type
	}
	// Consumers share the strings of their names.
	now.Project, _ = tx.projects.byID.Get(tx.name(Projects, now.Project))
	now.User, _ = tx.users.byID.Get(tx.name(Users, now.User))
	if now.Type != "" {
		now.Type, _ = tx.types.byID.Get(tx.name(ConsumerTypes, now.Type))
	}
	return now
}

// recordConsumerRows records the row changes, grouped by kind, so that a store can
// write many rows in one statement.
func (tx *Tx) recordConsumerRows(changes []consumerChange) {
	for _, c := range changes {
		if c.old != nil && len(c.old.Allocations) > 0 {
			tx.recordRow(DeleteAllocations{c.old.ID, c.old.UUID})
		}
	}
	for _, c := range changes {
		switch {
		case c.now == nil:
		case c.old == nil || c.old.ID == 0:
			tx.recordRow(InsertConsumer{tx.consumerRow(c.now)})
		case c.old.Project == c.now.Project && c.old.User == c.now.User && c.old.Type == c.now.Type:
			tx.recordRow(BumpConsumer{c.now.ID, c.now.Generation, c.now.UpdatedAt})
		default:
			tx.recordRow(UpdateConsumer{tx.consumerRow(c.now)})
		}
	}
	for _, c := range changes {
		if c.now != nil {
			for _, a := range c.now.Allocations {
				tx.recordRow(
					InsertAllocation{AllocationRow{Provider: a.provider, Class: a.class, Consumer: c.now.UUID,
						Used: a.Used, CreatedAt: a.CreatedAt}})
			}
		}
	}
	for _, c := range changes {
		if c.now == nil && c.old.ID != 0 {
			tx.recordRow(DeleteConsumer{c.old.ID})
		}
	}
}

func (tx *Tx) consumerRow(c *Consumer) ConsumerRow {
	r := ConsumerRow{ID: c.ID, Generation: c.Generation, UUID: c.UUID, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt}
	r.Project, _ = tx.projects.ids.Get(c.Project)
	r.User, _ = tx.users.ids.Get(c.User)
	if c.Type != "" {
		r.Type, _ = tx.types.ids.Get(c.Type)
	}
	return r
}

// DeleteAllocations deletes all allocations of a consumer and its record. As in
// Placement, the generations of providers stay. Kind: AllocationNotFound.
func (tx *Tx) DeleteAllocations(consumer string) error {
	c, ok := tx.Consumer(consumer)
	if !ok {
		return &Error{Kind: AllocationNotFound, Consumer: consumer}
	}
	changes := []consumerChange{{old: c}}
	tx.recordConsumerRows(changes)
	tx.putConsumers(changes)
	return nil
}

// AddMissingConsumers creates up to limit consumer records for allocations that
// an old Placement wrote without them, owned by the given project and user
// (Placement's incomplete consumers), and returns their number.
func (tx *Tx) AddMissingConsumers(project, user string, limit int) int {
	var changes []consumerChange
	for _, old := range tx.orphans.All() {
		changes = append(changes, consumerChange{old: old})
	}
	slices.SortFunc(changes, func(a, b consumerChange) int { return cmp.Compare(a.old.UUID, b.old.UUID) })
	changes = changes[:min(max(limit, 0), len(changes))]
	for i, c := range changes {
		now := *c.old
		now.ID, now.CreatedAt = tx.next.consumer, tx.now
		tx.next.consumer++
		now.Project, _ = tx.projects.byID.Get(tx.name(Projects, project))
		now.User, _ = tx.users.byID.Get(tx.name(Users, user))
		changes[i].now = &now
		tx.recordRow(InsertConsumer{tx.consumerRow(&now)})
	}
	tx.putConsumers(changes)
	return len(changes)
}

// Reshape replaces inventories of providers and allocations of consumers in
// one step (POST /reshaper), in Placement's order: first each provider gets its
// new inventories in addition to the old ones, then allocations are replaced as
// in ReplaceAllocations, then the old inventories are removed. Generations grow
// as in Placement: of a provider in Inventories by 2 (by 1 if it has no new
// inventories), and by 1 more if its allocations change.
//
// Kinds: those of SetInventories and ReplaceAllocations.
func (tx *Tx) Reshape(req Reshape) (err error) {
	defer func() {
		if err != nil {
			tx.broken = err
		}
	}()
	uuids := slices.Sorted(maps.Keys(req.Inventories))
	for _, uuid := range uuids {
		if _, err := tx.providerAt(uuid, req.Inventories[uuid].Generation); err != nil {
			return err
		}
	}
	claims, err := tx.claims(req.Allocations)
	if err != nil {
		return err
	}
	was, is := make([][]Inventory, len(uuids)), make([][]Inventory, len(uuids))
	for i, uuid := range uuids {
		p, _ := tx.Provider(uuid)
		was[i] = p.Inventories
		if is[i], err = tx.inventories(uuid, req.Inventories[uuid].Inventories); err != nil {
			return err
		}
		// Placement also writes new rows twice: the second write sets updated_at.
		for k := range is[i] {
			is[i][k].UpdatedAt = tx.now
		}
		tx.setTimes(was[i], is[i])
		if len(is[i]) == 0 {
			continue
		}
		both := slices.Clone(is[i])
		for _, inv := range was[i] {
			if _, ok := inventoryOf(is[i], inv.class); !ok {
				both = append(both, inv)
			}
		}
		slices.SortFunc(both, func(a, b Inventory) int { return cmp.Compare(a.class, b.class) })
		interim, err := tx.setInventories(p, both)
		if err != nil {
			return err
		}
		tx.bump(interim)
	}
	if err := tx.allocate(claims, nil); err != nil {
		return err
	}
	for i, uuid := range uuids {
		p, _ := tx.Provider(uuid)
		final, err := tx.setInventories(p, is[i])
		if err != nil {
			return err
		}
		tx.recordInventoryRows(p, was[i], is[i])
		tx.bump(final)
	}
	return nil
}
