// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// portion is an amount of one resource class that a machine has in one place.
type portion struct {
	Class  string `json:"class"`
	Amount int64  `json:"amount"`
	// Provider is the uuid of the resource provider that Placement granted it of.
	Provider string `json:"provider"`
	// Child is the GPU or NUMA cell that it really is on (gpu_1), "" if it is on none.
	Child string `json:"child,omitempty"`
}

// chooseDevices decides on which GPUs and cells a machine gets what Placement granted. What was
// granted of one of them is there; what was granted of the node as a whole goes where most is free,
// as a hypervisor chooses by itself.
func (c config) chooseDevices(
	tree *providertree.Tree, node string, granted providertree.ProviderResources, others []machine,
) []portion {
	used := providertree.ProviderResources{} // by class and child
	note := func(p portion) {
		if used[p.Class] == nil {
			used[p.Class] = map[string]int64{}
		}
		used[p.Class][p.Child] += p.Amount
	}
	for _, m := range others {
		for _, p := range m.Shares {
			if m.Node == node {
				note(p)
			}
		}
	}
	var out []portion
	for _, uuid := range slices.Sorted(maps.Keys(granted)) {
		p, _ := tree.Provider(uuid)
		for _, class := range slices.Sorted(maps.Keys(granted[uuid])) {
			one := portion{Class: class, Amount: granted[uuid][class], Provider: uuid}
			kind, split := kindOf(class)
			switch {
			case !split:
			case p.Name == node:
				inv := p.Inventories[class].Normalize()
				for _, some := range c.spread(kind, inv, one, used[class]) {
					note(some)
					out = append(out, some)
				}
				continue
			default:
				if i := strings.LastIndex(p.Name, "_"+kind.prefix); i >= 0 {
					one.Child = p.Name[i+1:]
				}
			}
			note(one)
			out = append(out, one)
		}
	}
	return out
}

// kindOf is the kind of children that have a class in layouts that have such children.
func kindOf(class string) (kind, bool) {
	for _, k := range []kind{gpuChildren, numaChildren} {
		if slices.Contains(k.classes, class) {
			return k, true
		}
	}
	return kind{}, false
}

// spread divides what was granted of a node's inventory among the children of a kind that the
// machine has, whether or not the present layout shows them. The child with the largest free amount
// gets all of it if that fits.
func (c config) spread(k kind, whole providertree.Inventory, granted portion, used map[string]int64) []portion {
	n := k.count(c)
	free := make([]int64, n)
	for i := range free {
		child := whole
		child.Total, child.Reserved = part(whole.Total, i, n), part(whole.Reserved, i, n)
		free[i] = child.Capacity() - used[k.child(i)]
	}
	var out []portion
	for left := granted.Amount; left > 0; {
		best := 0
		for i := range free {
			if free[i] > free[best] {
				best = i
			}
		}
		some := granted
		some.Child, some.Amount = k.child(best), min(left, free[best])
		if some.Amount <= 0 { // more was granted than there is: it is not for a hypervisor to say so
			some.Amount = left
		}
		free[best] -= some.Amount
		left -= some.Amount
		out = append(out, some)
	}
	return out
}

// placeAmong is the place of a portion among those that its class has now.
func (p portion) placeAmong(tree *providertree.Tree, places []plugins.Place) (plugins.Place, bool) {
	for _, place := range places {
		if place.Provider == p.Provider {
			return place, true
		}
	}
	for _, place := range places {
		if rp, _ := tree.Provider(place.Provider); p.Child != "" && strings.HasSuffix(rp.Name, "_"+p.Child) {
			return place, true
		}
	}
	if len(places) == 1 {
		return places[0], true
	}
	return plugins.Place{}, false
}

// movedPortions returns where an amount that a machine has at one place is among other ones; nil:
// unknown.
func (m machine) movedPortions(
	tree *providertree.Tree, from plugins.Place, to []plugins.Place, amount int64,
) []plugins.Portion {
	here, _ := tree.Provider(from.Provider)
	var all, own []portion
	for _, p := range m.Shares {
		if p.Class != from.Class && p.Class != to[0].Class {
			continue
		}
		all = append(all, p)
		if p.Provider == from.Provider || p.Child != "" && strings.HasSuffix(here.Name, "_"+p.Child) {
			own = append(own, p)
		}
	}
	for _, shares := range [][]portion{all, own} { // all of the class, unless only a part of it was here
		var out []plugins.Portion
		var sum int64
		for _, p := range shares {
			place, ok := p.placeAmong(tree, to)
			if !ok {
				return nil
			}
			sum += p.Amount
			if i := slices.IndexFunc(out, func(o plugins.Portion) bool { return o.Place == place }); i >= 0 {
				out[i].Amount += p.Amount
			} else {
				out = append(out, plugins.Portion{Place: place, Amount: p.Amount})
			}
		}
		if sum == amount {
			return out
		}
	}
	return nil
}

// resources returns the amounts of a machine, at the places that the tree has for them now; nil if
// a place is not known.
func (c config) resources(
	tree *providertree.Tree, root string, node provider, m machine,
) (providertree.ProviderResources, error) {
	places := map[string][]plugins.Place{}
	if err := collect(tree, root, root, node, node.Name, places); err != nil {
		return nil, err
	}
	out := providertree.ProviderResources{}
	for _, p := range m.Shares {
		class, at := p.Class, p.Provider
		if _, still := tree.Inventory(at, class); !still { // it was moved, or renamed
			class = c.ClassRenames.Present(class)
			place, ok := p.placeAmong(tree, places[class])
			if !ok || !tree.Exists(place.Provider) {
				return nil, nil
			}
			at = place.Provider
		}
		if out[at] == nil {
			out[at] = map[string]int64{}
		}
		out[at][class] += p.Amount
	}
	return out, nil
}
