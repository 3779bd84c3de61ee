// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// shape is what a search needs to know of a tree, close together in memory. It is made once for each version of a tree, and
// kept with it. Providers go by their places in the tree's pre-order.
type shape struct {
	ids    []int64
	ends   []int32 // where the provider's subtree ends
	from   []int32 // where its stocks begin; one more at the end
	stocks []stock // of each provider in order of the classes' IDs
}

// stock is what a provider has of one class.
type stock struct {
	class int64
	left  providertree.Limits // the inventory's, with what is used taken off the capacity
}

func shapeOf(t *ledger.Tree) *shape {
	sh, _ := t.Derive(ledger.DerivedShape, newShape).(*shape)
	return sh
}

func newShape(t *ledger.Tree) any {
	nodes := t.Providers()
	sh := &shape{ids: make([]int64, len(nodes)), ends: make([]int32, len(nodes)), from: make([]int32, 0, len(nodes)+1)}
	var open []int // the path from the root
	for i, p := range nodes {
		for len(open) > 0 && nodes[open[len(open)-1]].UUID != p.Parent {
			sh.ends[open[len(open)-1]] = int32(i)
			open = open[:len(open)-1]
		}
		open = append(open, i)
		sh.ids[i] = p.ID
		sh.from = append(sh.from, int32(len(sh.stocks)))
		for j := range p.Inventories {
			inv := &p.Inventories[j]
			left := inv.Limits()
			left.Capacity = left.Free(p.Used(inv.ClassID()))
			sh.stocks = append(sh.stocks, stock{inv.ClassID(), left})
		}
	}
	sh.from = append(sh.from, int32(len(sh.stocks)))
	for _, i := range open {
		sh.ends[i] = int32(len(nodes))
	}
	return sh
}

// stocksOf returns the stocks of a provider.
func (sh *shape) stocksOf(at int32) []stock { return sh.stocks[sh.from[at]:sh.from[at+1]] }
