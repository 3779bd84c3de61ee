// SPDX-License-Identifier: Apache-2.0

package resourcerequest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
)

// Hosts of two kinds are asked for different things. On one without NUMA cells in its tree,
// processors and memory are the root's, and one unsuffixed group asks for them. On one with cells
// they are the cells', and there is one group _NUMA0, _NUMA1, … for each cell of the guest. The
// unsuffixed group of the first kind forbids HW_NUMA_ROOT, so that it never takes processors of one
// cell and memory of another.

// maxCells is how many cells a guest is divided into that does not say how many it has.
const maxCells = 8

// nestedForm is what only a request to hosts with NUMA cells has.
type nestedForm struct {
	cells int // how many groups _NUMA0, _NUMA1, … there are; 0: hosts with cells are not asked
	// apart says that providers of the cells must differ and Placement does not ensure it.
	apart bool
	// near is what candidates are chosen by, of those that Placement gives.
	near    nearness
	devices map[string]bool // classes that near is about
}

// Cells is what hosts with NUMA cells are asked for, in words; "" for a request to those without.
func (r *Request) Cells() string {
	switch n := r.onCells.cells; n {
	case 0:
		return ""
	case 1:
		return "1 cell"
	default:
		return strconv.Itoa(n) + " cells"
	}
}

// nearness is how near devices are to the guest's cells.
type nearness int

const (
	anywhere   nearness = iota // or Placement ensures it
	knownNear                  // near, or in no cell
	nearFirst                  // near ones first
	nearAlways                 // near, all of them
)

// HasStages reports whether hosts with NUMA cells are asked for something else than the others, so
// that [Request.Stages] may depend on whether there are any.
func (r *Request) HasStages() bool { return r.plan != nil }

// Stages are the requests for a server in the order in which they are tried: each stage only when
// none of those before found a host. The requests of a stage are for different hosts and are made
// together. So a guest that fits into one cell is never divided. cells says whether any host has
// NUMA cells as providers: without, there is but one request. None: no host can do.
func (r Request) Stages(cells bool) [][]Request {
	p := r.plan
	switch {
	case p == nil || p.onlyWithoutCells:
		return [][]Request{{r}}
	case !cells && p.onlyWithCells:
		return nil
	case !cells: // a host that has cells since then is not asked as if it had none
		return [][]Request{{r.withoutCells()}}
	}
	var out [][]Request
	for _, size := range p.pages {
		out = append(out, r.divisions(withPages(p.cells, size))...)
	}
	if !p.onlyWithCells {
		at := 0
		if p.affinity == extraspecs.AffinityPreferred && len(p.devices) > 0 {
			at = len(out) - 1 // it is not known which devices are near
		}
		out[at] = append(out[at], r.withoutCells())
	}
	for n := len(p.cells) + 1; n <= maxCells; n++ {
		if parts, ok := p.divided(n); ok {
			out = append(out, r.divisions(parts)...)
		}
	}
	return out
}

// divisions are the requests for a division into cells: with devices near, and then as the policy
// has it.
func (r Request) divisions(cells []guestCell) [][]Request {
	p := r.plan
	rest := map[extraspecs.Affinity]nearness{
		extraspecs.AffinityLegacy: knownNear, extraspecs.AffinityPreferred: nearFirst,
		extraspecs.AffinityRequired: nearAlways,
	}[p.affinity]
	var out [][]Request
	if len(p.devices) == 0 {
		return [][]Request{{r.withCells(cells, anywhere)}}
	}
	if len(cells) == 1 {
		if near := r.withCells(cells, anywhere); near.nearDevices() {
			out = append(out, []Request{near})
			if p.affinity == extraspecs.AffinityRequired {
				return out
			}
		}
	}
	return append(out, []Request{r.withCells(cells, rest)})
}

// clone is a copy that can be changed.
func (r Request) clone() Request {
	groups := make(map[string]*requestGroup, len(r.groups))
	for suffix, g := range r.groups {
		groups[suffix] = &requestGroup{resources: maps.Clone(g.resources), traits: maps.Clone(g.traits)}
	}
	r.groups, r.subtrees, r.root = groups, maps.Clone(r.subtrees), maps.Clone(r.root)
	return r
}

// withoutCells is the request to hosts without cells.
func (r Request) withoutCells() Request {
	out := r.clone()
	out.group("").traits[TraitNUMARoot] = false
	return out
}

// withCells is the request to hosts with cells. Traits follow what they are about: those of
// processors go to the cells that have some, those of storage stay with the disk, and others with
// the devices of the unsuffixed group; without such they are the host's.
func (r Request) withCells(cells []guestCell, near nearness) Request {
	out := r.clone()
	out.onCells = nestedForm{cells: len(cells), near: near, devices: r.plan.devices}
	rest := out.group("")
	maps.DeleteFunc(rest.resources, func(class string, _ int64) bool { return isComputing(class) })
	traits := rest.traits
	rest.traits = map[string]bool{}
	for i, amounts := range cells {
		g := out.group(cellGroup + strconv.Itoa(i))
		g.resources, g.traits[TraitNUMARoot] = amounts, true
		for trait, required := range traits {
			if concernsProcessors(trait, amounts) || !required {
				g.traits[trait] = required
			}
		}
	}
	for trait, required := range traits {
		switch {
		case trait == TraitNUMARoot, concernsProcessors(trait, r.plan.whole):
		case !required:
			rest.traits[trait], out.root[trait] = false, false
		case concernsRest(trait, rest.resources):
			rest.traits[trait] = true
		default:
			out.root[trait] = true
		}
	}
	if len(rest.resources) == 0 {
		delete(out.groups, "")
	}
	out.chooseGroupPolicy()
	return out
}

// concernsProcessors reports whether a trait is about processors, and there are some. Those of
// memory encryption are on the providers of its contexts.
func concernsProcessors(trait string, amounts map[string]int64) bool {
	for _, of := range encryptionTraits {
		if trait == of {
			return false
		}
	}
	return strings.HasPrefix(trait, "HW_CPU_") && amounts[ClassVCPU]+amounts[ClassPCPU] > 0
}

// concernsRest reports whether a trait may be about what the unsuffixed group has beside processors
// and memory.
func concernsRest(trait string, resources map[string]int64) bool {
	if strings.HasPrefix(trait, "STORAGE_") {
		return resources[ClassDisk] > 0
	}
	for class := range resources {
		if class != ClassDisk && !strings.HasPrefix(trait, "COMPUTE_") && !strings.HasPrefix(trait, "HW_ARCH_") {
			return true
		}
	}
	return false
}

// chooseGroupPolicy chooses the group_policy. Cells of a guest are on different cells of the host.
// With other groups beside them Placement cannot be asked for that alone, and candidates that are
// not so are left out here.
func (r *Request) chooseGroupPolicy() {
	isolated := r.policy == "isolate" && r.flavorGroups > 1
	switch {
	case r.LacksPolicy(): // Placement is asked as if it were none, or refuses
	case r.suffixed() < 2:
		r.policy = ""
	case isolated, r.suffixed() == r.onCells.cells:
		r.policy, isolated = "isolate", true
	default:
		r.policy = "none"
	}
	r.onCells.apart = r.onCells.cells > 1 && !isolated
}

// nearDevices asks Placement for devices at the one cell of the guest. It is false if it cannot be
// asked: if it is not known which of several classes of the unsuffixed group a trait is about, or
// their groups must be apart.
func (r *Request) nearDevices() bool {
	rest := r.groups[""]
	var move []string
	if rest != nil {
		for _, class := range slices.Sorted(maps.Keys(rest.resources)) {
			if r.onCells.devices[class] {
				move = append(move, class)
			}
		}
	}
	if len(move) > 0 {
		for trait, required := range rest.traits {
			if required && !strings.HasPrefix(trait, "STORAGE_") {
				return false
			}
		}
		if r.policy == "isolate" { // they need not be apart
			return false
		}
	}
	near := func(suffix string) { r.subtrees[cellGroup+"0"+suffix] = []string{cellGroup + "0", suffix} }
	for suffix, g := range r.groups {
		if suffix != "" && slices.ContainsFunc(slices.Collect(maps.Keys(g.resources)),
			func(class string) bool { return r.onCells.devices[class] }) {
			near(suffix)
		}
	}
	for i, class := range move {
		g := r.group(deviceGroup + strconv.Itoa(i))
		g.resources[class] = rest.resources[class]
		for trait, required := range rest.traits {
			if !required {
				g.traits[trait] = false
			}
		}
		delete(rest.resources, class)
		near(deviceGroup + strconv.Itoa(i))
	}
	if rest != nil && len(rest.resources) == 0 {
		delete(r.groups, "")
	}
	r.chooseGroupPolicy()
	return true
}
