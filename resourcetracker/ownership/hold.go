// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"

	"github.com/compute-agent/compute-agent/providertree"
)

// drainedInventory is what is written for an inventory that is removed while n of it are allocated:
// its total is n and all of it is reserved, so no client can allocate more.
func drainedInventory(inv providertree.Inventory, n int64) providertree.Inventory {
	inv.Total = min(n, providertree.MaxUnit)
	inv.Reserved = inv.Total
	return inv
}

// isHeld reports whether an inventory is one that was closed, as it was made from what it was
// before. Where another client changed it since, it is not.
func isHeld(before *providertree.Inventory, now providertree.Inventory) bool {
	return before != nil && !before.Equal(now) && drainedInventory(*before, now.Total).Equal(now)
}

// Hold returns the record of a tree in which [Drain] has held something back, with what that was
// before it was closed: when it is wanted again, it is for the driver as if it had never been away
// ([Strip]). What is closed is the driver's from then on, also if another client made it, as all
// that is changed for it; but the operator's and the agent's stay theirs, and say again what they
// are when they come again. Base is what the driver was given, desired the tree of the record. What
// is left open there has nothing to be remembered.
//
// Cost: O(draining), and a copy of the record if there is something to note.
func (r *Record) Hold(base, desired *providertree.Tree, draining []Draining) *Record {
	out := r
	for _, one := range draining {
		was, there := base.Inventory(one.Provider, one.Class)
		now, stays := desired.Inventory(one.Provider, one.Class)
		stock := out.provider(one.Provider).Inventories[one.Class]
		if !one.Gone || !there || !stays || !isHeld(&was, now) || stock.Held != nil || stock.Owner.layered() {
			continue
		}
		if out == r {
			copied := *r
			copied.Providers = maps.Clone(r.Providers)
			out = &copied
		}
		at, _ := desired.Provider(one.Provider)
		p := out.provider(one.Provider).clone()
		p.Name, p.Parent = at.Name, at.ParentUUID
		put(&p.Inventories, one.Class, Stock{Owner: Driver, Inventory: now, Held: &was})
		put(&out.Providers, one.Provider, p)
	}
	return out
}
