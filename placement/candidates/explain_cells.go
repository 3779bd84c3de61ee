// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// cellTrait marks providers that are NUMA cells.
const cellTrait = "HW_NUMA_ROOT"

// Bounds of what is explained by NUMA cells.
const (
	maxHosts    = 3   // the nearest ones
	maxCells    = 16  // of each host
	maxExamined = 256 // cells of a host; one with more is not explained
)

// HostExplanation explains by its NUMA cells why a host has no candidate.
type HostExplanation struct {
	// Host is the name of the root.
	Host    string `json:"host"`
	Verdict string `json:"verdict"`
	// Cells are in the order of the tree, at most 16.
	Cells []CellExplanation `json:"cells"`
}

// CellExplanation is a NUMA cell: a provider with the trait HW_NUMA_ROOT, and all below it.
type CellExplanation struct {
	Provider string `json:"resource_provider"`
	// Free is what is free of each requested class of which there is an inventory.
	Free map[string]int64 `json:"free"`
	// Lacks are what the cell lacks for the groups that the verdict names and that it cannot serve.
	Lacks []CellLack `json:"lacks"`
}

// CellLack is what a NUMA cell lacks for a group, or for one class of the unsuffixed one.
type CellLack struct {
	Suffix string `json:"suffix"`
	Reason string `json:"reason"`
}

// nearHost is a tree with NUMA cells, and how many parts of the request it has no provider for.
type nearHost struct {
	tree    *ledger.Tree
	lacking int
}

// rememberNearest keeps the trees with NUMA cells that lack the least.
func (e *explainer) rememberNearest(t *ledger.Tree, lacking int) {
	full := len(e.near) == maxHosts
	if e.cells.Len() == 0 || full && lacking >= e.near[maxHosts-1].lacking ||
		!slices.ContainsFunc(t.Providers(), e.cells.Has) {
		return
	}
	if full {
		e.near = e.near[:maxHosts-1]
	}
	at := 0
	for at < len(e.near) && e.near[at].lacking <= lacking {
		at++
	}
	e.near = slices.Insert(e.near, at, nearHost{t, lacking})
}

// explainHosts explains the nearest hosts of a request that has no candidates.
func (e *explainer) explainHosts() []HostExplanation {
	var list []HostExplanation
	e.asked = map[string]bool{}
	for i := range e.parts {
		for _, r := range e.parts[i].resources {
			e.asked[r.Class] = true
		}
	}
	for _, n := range e.near {
		if h, ok := e.explainHost(n.tree); ok {
			list = append(list, h)
		}
	}
	return list
}

// cellView is a tree of which the NUMA cells are looked at.
type cellView struct {
	e     *explainer
	tree  *ledger.Tree
	ends  []int32 // by provider: where its subtree ends
	cells []int   // providers
	// served are, by part, how many of the providers before each one can serve it. None means that
	// sharing providers cannot, either.
	served [][]int
	none   []bool
	// classes are the resource classes of which a cell has an inventory.
	classes map[string]bool
}

func (e *explainer) cellsOf(t *ledger.Tree) *cellView {
	v := &cellView{e: e, tree: t, ends: layoutOf(t).ends,
		served: make([][]int, len(e.parts)), none: make([]bool, len(e.parts)), classes: map[string]bool{}}
	providers, external := t.Providers(), e.external(t)
	inside := 0 // where the cells so far end
	for i, p := range providers {
		if e.cells.Has(p) {
			v.cells = append(v.cells, i)
			inside = max(inside, int(v.ends[i]))
		}
		for j := range p.Inventories {
			v.classes[p.Inventories[j].Class] = v.classes[p.Inventories[j].Class] || i < inside
		}
	}
	for part := range e.parts {
		x := &e.parts[part]
		v.served[part] = make([]int, len(providers)+1)
		for i, p := range providers {
			v.served[part][i+1] = v.served[part][i]
			if x.conditionsMet(p, t.Root(), false) == len(x.conditions) {
				v.served[part][i+1]++
			}
		}
		v.none[part] = v.served[part][len(providers)] == 0 &&
			!slices.ContainsFunc(external,
				func(p *ledger.Provider) bool { return x.conditionsMet(p, t.Root(), true) == len(x.conditions) })
	}
	return v
}

// conditionsMet returns how many of its conditions a provider meets, up to the first one that it
// does not.
func (e *explained) conditionsMet(p, root *ledger.Provider, external bool) int {
	n := 0
	for n < len(e.conditions) && e.conditions[n].met(p, root, external) {
		n++
	}
	return n
}

// serves reports whether a provider of a cell can serve a part.
func (v *cellView) serves(cell, part int) bool {
	return v.served[part][v.ends[cell]] > v.served[part][cell]
}

// explainHost explains a tree by its NUMA cells; ok is false if what it lacks is nothing that cells
// have.
func (e *explainer) explainHost(t *ledger.Tree) (out HostExplanation, ok bool) {
	v := e.cellsOf(t)
	if len(v.cells) > maxExamined {
		return out, false
	}
	var parts []int // that the verdict is about
	for part, none := range v.none {
		if none && v.concerns(part) {
			parts = append(parts, part)
		}
	}
	out.Host = t.Root().Name
	switch {
	case len(parts) > 0:
		out.Verdict = v.beginVerdict() + " serve " + e.names(parts, " or ")
	case slices.Contains(v.none, true):
		return out, false
	default:
		if parts = v.splitParts(); parts != nil {
			out.Verdict = v.beginVerdict() + " serve " + e.names(parts, " and ") + " together (same_subtree)"
		} else {
			out.Verdict = "each group can be served, but not all at once"
		}
	}
	for _, cell := range v.cells[:min(len(v.cells), maxCells)] {
		c := CellExplanation{Provider: t.Providers()[cell].Name, Free: v.free(cell), Lacks: []CellLack{}}
		for _, part := range parts {
			if !v.serves(cell, part) {
				c.Lacks = append(c.Lacks, CellLack{e.parts[part].group.Suffix, v.describeLack(cell, part)})
			}
		}
		out.Cells = append(out.Cells, c)
	}
	return out, true
}

// beginVerdict is the subject and verb of a verdict.
func (v *cellView) beginVerdict() string {
	if len(v.cells) == 1 {
		return "its NUMA cell cannot"
	}
	return fmt.Sprintf("none of its %d NUMA cells can", len(v.cells))
}

// names lists parts.
func (e *explainer) names(parts []int, conjunction string) string {
	var names []string
	for _, part := range parts {
		names = append(names, e.parts[part].name())
	}
	return strings.Join(names, conjunction)
}

// concerns reports whether a cell has an inventory of a class of the part; or, without resources,
// whether it could.
func (v *cellView) concerns(part int) bool {
	resources := v.e.parts[part].resources
	return len(resources) == 0 || slices.ContainsFunc(resources, func(r Resource) bool { return v.classes[r.Class] })
}

// splitParts returns the parts of the first same_subtree set that no cell can serve together.
func (v *cellView) splitParts() []int {
	for _, set := range v.e.r.SameSubtree {
		var parts []int
		for i := range v.e.parts {
			if suffix := v.e.parts[i].group.Suffix; suffix != "" && slices.Contains(set, suffix) {
				parts = append(parts, i)
			}
		}
		together := func(cell int) bool {
			return !slices.ContainsFunc(parts, func(part int) bool { return !v.serves(cell, part) })
		}
		if !slices.ContainsFunc(v.cells, together) {
			return parts
		}
	}
	return nil
}

// free returns the free amounts of the requested classes in a cell.
func (v *cellView) free(cell int) map[string]int64 {
	all := map[string]int64{}
	for _, p := range v.tree.Providers()[cell:v.ends[cell]] {
		for i := range p.Inventories {
			class := p.Inventories[i].Class
			if !v.e.asked[class] {
				continue
			}
			all[class] += freeAt(p, class)
		}
	}
	return all
}

// freeAt returns the free amount of a class of a provider: 0 without an inventory.
func freeAt(p *ledger.Provider, class string) int64 {
	inv, ok := p.Inventory(class)
	if !ok {
		return 0
	}
	return max(inv.Limits().Free(p.Used(inv.ClassID())), 0)
}

// describeLack says what the provider of a cell lacks that is the nearest to serving a part.
func (v *cellView) describeLack(cell, part int) string {
	x := &v.e.parts[part]
	var nearest *ledger.Provider
	best, most := -1, int64(-1)
	for _, p := range v.tree.Providers()[cell:v.ends[cell]] {
		n, free := x.conditionsMet(p, v.tree.Root(), false), int64(0)
		if x.conditions[n].kind == StepFree {
			free = freeAt(p, x.conditions[n].class)
		}
		if n > best || n == best && free > most {
			nearest, best, most = p, n, free
		}
	}
	if x.conditions[best].kind != StepFree {
		return "no provider " + x.conditions[best].text
	}
	var lacks []string
	for _, r := range x.resources {
		if free := freeAt(nearest, r.Class); free < r.Amount {
			lacks = append(lacks, fmt.Sprintf("%d of %d %s free", free, r.Amount, r.Class))
		}
	}
	text := strings.Join(lacks, ", ")
	if nearest != v.tree.Providers()[cell] {
		text = nearest.Name + " has " + text
	}
	return text
}
