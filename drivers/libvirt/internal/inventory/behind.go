// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Behind is what a reshape may not take away, because it is allocated still when all has moved that can: a GPU that died, a type of devices that
// is not enabled any more, a disk that another provider reports. It is the inventory that was there before, for [Wanted.PutBeside]. In
// other passes nobody needs to ask: the agent keeps, and closes, what is allocated. In a reshape it takes what is not there for lost.
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
		v, _ := before.View(uuid)
		for _, class := range v.SortedClasses() {
			place := plugins.Place{Provider: uuid, Class: class}
			was, _ := v.Inventory(class)
			is, stays := after.Inventory(uuid, class)
			shrinks := stays && is.Total < was.Total && is.Capacity() < used[place]
			if used[place] > 0 && (!stays || shrinks) {
				behind[place] = was
			}
		}
	}
	return behind
}
