// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Drift returns the items that another client has changed since they were last applied: a sentence
// for each, sorted, for messages, or a single one if the whole tree was deleted. Items that others
// added are not drift. A pending record has no known drift.
//
// Cost: O(items of the record); when nothing drifted, nothing is formatted.
func (r *Record) Drift(known *providertree.Tree) []string {
	if r == nil || r.Pending {
		return nil
	}
	if root, found := known.Provider(
		r.Root,
	); found && root.Generation == providertree.NoGeneration && len(root.Inventories) == 0 &&
		(len(r.Providers) > 1 || r.provider(r.Root).hasItems()) {
		return []string{fmt.Sprintf("Resource provider %s (%s) was removed, with all its descendants.", r.Node, r.Root)}
	}
	var out []string
	addf := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for uuid, p := range r.Providers {
		now, found := known.Provider(uuid)
		if !found {
			addf("Resource provider %s (%s) was removed.", p.Name, uuid)
			continue
		}
		if p.Owner != "" && now.Name != p.Name {
			addf("Resource provider %s (%s) was renamed to %s.", p.Name, uuid, now.Name)
		}
		if p.Owner != "" && now.ParentUUID != p.Parent {
			addf("Resource provider %s (%s) was moved from below %s to below %s.",
				p.Name, uuid, placeName(p.Parent), placeName(now.ParentUUID))
		}
		for class, owned := range p.Inventories {
			inv, found := now.Inventories[class]
			switch {
			case !found:
				addf("Resource provider %s (%s): the inventory of %s was removed.", p.Name, uuid, class)
			case !inv.Equal(owned.Inventory):
				addf("Resource provider %s (%s): the inventory of %s was changed: %s.",
					p.Name, uuid, class, changedFields(owned.Inventory, inv))
			}
		}
		for trait := range p.Traits {
			if !now.HasTrait(trait) {
				addf("Resource provider %s (%s): the trait %s was removed.", p.Name, uuid, trait)
			}
		}
		for aggregate := range p.Aggregates {
			if _, found := slices.BinarySearch(now.Aggregates, aggregate); !found {
				addf("Resource provider %s (%s) was removed from the aggregate %s.", p.Name, uuid, aggregate)
			}
		}
	}
	slices.Sort(out)
	return out
}

func placeName(parent string) string {
	if parent == "" {
		return "nothing"
	}
	return parent
}

// changedFields names what differs between two inventories that are not equal.
func changedFields(was, is providertree.Inventory) string {
	a, b := was.Normalize(), is.Normalize()
	out := ""
	add := func(field string, was, is any, differ bool) {
		if !differ {
			return
		}
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf("%s from %v to %v", field, was, is)
	}
	add("total", a.Total, b.Total, a.Total != b.Total)
	add("reserved", a.Reserved, b.Reserved, a.Reserved != b.Reserved)
	add("min_unit", a.MinUnit, b.MinUnit, a.MinUnit != b.MinUnit)
	add("max_unit", a.MaxUnit, b.MaxUnit, a.MaxUnit != b.MaxUnit)
	add("step_size", a.StepSize, b.StepSize, a.StepSize != b.StepSize)
	add("allocation_ratio", a.AllocationRatio, b.AllocationRatio, a.AllocationRatio != b.AllocationRatio)
	return out
}
