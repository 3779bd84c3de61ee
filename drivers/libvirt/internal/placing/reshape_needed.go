// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Needed says what is to move where, in words for [plugins.ReshapeNeeded], or "" if nothing is. It compares the tree as it is with the tree as it is to be;
// allocations are not looked at, so that it may turn out that nothing was allocated.
//
// Inventory moves where one place loses it and another gets it: processors and memory class by class, devices whatever their class is called. A
// place that only goes (a device was taken out) or only comes is none. VCPU moves to PCPU when there is none of that yet and a domain has dedicated
// processors.
//
// Cost: O(providers × classes + processors of the domains).
func (r Reshape) Needed(now *providertree.Tree) string {
	p := r.planner(nil)
	lost, gained := p.difference(now, r.Tree), p.difference(r.Tree, now)
	var out []string
	for _, from := range lost {
		var to []string
		for _, at := range gained {
			if p.follows(from, at) {
				to = append(to, nameIn(r.Tree, at.Provider))
			}
		}
		if len(to) > 0 {
			out = append(out, fmt.Sprintf("%s of %s moves to %s", from.Class, nameIn(now, from.Provider), some(to)))
		}
	}
	if at := slices.IndexFunc(gained, func(at plugins.Place) bool { return at.Class == "PCPU" }); at >= 0 && !p.anyPCPU(now) {
		for _, d := range r.Domains {
			if p.dedicatedOf(d) > 0 {
				out = append(out, "VCPU of guests with dedicated processors becomes PCPU")
				break
			}
		}
	}
	return strings.Join(out, "; ")
}

// difference is the places of our providers that have inventory in one tree and none in the other.
func (p *planner) difference(in, notIn *providertree.Tree) []plugins.Place {
	var out []plugins.Place
	for _, uuid := range p.own {
		view, there := in.View(uuid)
		if !there {
			continue
		}
		for _, class := range view.SortedClasses() {
			if _, both := notIn.Inventory(uuid, class); !both {
				out = append(out, plugins.Place{Provider: uuid, Class: class})
			}
		}
	}
	return out
}

// follows tells whether what is allocated at one place may have to go to another.
func (p *planner) follows(from, to plugins.Place) bool {
	what := p.thingOf(lot{stake: stake{place: from}, class: from.Class})
	switch is := p.Providers[to.Provider]; what.kind {
	case Root, Elsewhere:
		return from.Class == to.Class
	default:
		return is.Kind == what.kind && is.Class == to.Class || from.Class == to.Class
	}
}

func nameIn(tree *providertree.Tree, uuid string) string {
	provider, _ := tree.View(uuid)
	return provider.Name()
}

// some names the first of many.
func some(names []string) string {
	const shown = 4
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
