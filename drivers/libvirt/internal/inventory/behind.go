// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"sort"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Behind is what a reshape may not take away, because it is allocated still when all has moved that can: a GPU that died, a type of devices that
// is not enabled any more, a disk that another provider reports. It is just as much as is allocated, so that there is no room for others, for
// [Wanted.PutBeside]. In other passes nobody needs to ask: the agent keeps, and closes, what is allocated. In a reshape it takes what is not there
// for lost; and to close it would not do, because Placement before 2025.1 looks for room for all that a consumer holds, moved or not.
//
// before is the tree before Put, after the one since, and allocations are those that are to be.
//
// Cost: O(providers of the node + allocations).
func Behind(before, after *providertree.Tree, root string, allocations providertree.Allocations) map[plugins.Place]providertree.Inventory {
	used := map[plugins.Place]int64{}
	for _, consumer := range allocations {
		for provider, amounts := range consumer.Resources {
			for class, n := range amounts {
				used[plugins.Place{Provider: provider, Class: class}] += n
			}
		}
	}
	behind := map[plugins.Place]providertree.Inventory{}
	for _, uuid := range before.Subtree(root) {
		v, _ := before.Provider(uuid)
		for _, class := range v.Inventories.Classes() {
			place := plugins.Place{Provider: uuid, Class: class}
			was := v.Inventories[class]
			is, stays := after.Inventory(uuid, class)
			switch n := used[place]; {
			case n == 0:
			case !stays:
				behind[place] = holding(was, 0, n)
			case is.Total < was.Total && is.Capacity() < n:
				behind[place] = holding(was, is.Reserved, n)
			}
		}
	}
	return behind
}

// holding is an inventory cut to the least total that has room for so much, or as it was if it had none.
func holding(was providertree.Inventory, reserved, used int64) providertree.Inventory {
	inv := was
	inv.Reserved = min(reserved, was.Reserved)
	fits := func(total int) bool {
		inv.Total = int64(total)
		return inv.Capacity() >= used
	}
	inv.Total = int64(sort.Search(int(was.Total), fits))
	if inv.Capacity() < used {
		return was
	}
	return inv
}
