// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// layout is a tree as a search reads it, compact in memory. It is computed once for each version of
// a tree and cached with it. Providers are indices in the tree's pre-order.
type layout struct {
	ids         []int64
	ends        []int32     // where the provider's subtree ends
	from        []int32     // where its inventories begin; one more at the end
	inventories []inventory // of each provider in order of the classes' IDs
}

// inventory is the free capacity of one class of a provider.
type inventory struct {
	class int64
	left  providertree.Limits // the inventory's, with the used amount subtracted
}

func layoutOf(t *ledger.Tree) *layout {
	l, _ := t.Derive(ledger.DerivedLayout, newLayout).(*layout)
	return l
}

func newLayout(t *ledger.Tree) any {
	nodes := t.Providers()
	l := &layout{ids: make([]int64, len(nodes)), ends: make([]int32, len(nodes)), from: make([]int32, len(nodes)+1)}
	var open []int // the path from the root
	for i, p := range nodes {
		for len(open) > 0 && nodes[open[len(open)-1]].UUID != p.Parent {
			l.ends[open[len(open)-1]] = int32(i)
			open = open[:len(open)-1]
		}
		open = append(open, i)
		l.ids[i] = p.ID
		l.from[i] = int32(len(l.inventories))
		for j := range p.Inventories {
			inv := &p.Inventories[j]
			left := inv.Limits()
			left.Capacity = left.Free(p.Used(inv.ClassID()))
			l.inventories = append(l.inventories, inventory{inv.ClassID(), left})
		}
	}
	l.from[len(nodes)] = int32(len(l.inventories))
	for _, i := range open {
		l.ends[i] = int32(len(nodes))
	}
	return l
}

// inventoriesOf returns the inventories of a provider.
func (l *layout) inventoriesOf(at int32) []inventory {
	return l.inventories[l.from[at]:l.from[at+1]]
}
