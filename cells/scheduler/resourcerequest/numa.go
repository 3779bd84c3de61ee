// SPDX-License-Identifier: Apache-2.0

package resourcerequest

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/providertree"
)

// TraitNUMARoot is on the resource providers of NUMA cells.
const TraitNUMARoot = "HW_NUMA_ROOT"

// The suffixes of groups that a request adds to those of the flavor begin with these. A number
// follows.
const (
	cellGroup   = "_NUMA"
	deviceGroup = "_DEVICE"
)

// ownGroup is a suffix that flavors must not use.
var ownGroup = regexp.MustCompile(`^(` + cellGroup + `|` + deviceGroup + `)[0-9]+$`)

func isCellGroup(suffix string) bool { return strings.HasPrefix(suffix, cellGroup) }

// numaPlan is how the NUMA cells of hosts are asked for: what the group without a suffix has of
// processors and memory comes from as many cells as the guest has.
type numaPlan struct {
	whole    map[string]int64 // processors, memory and pages by class
	cells    []guestCell
	pages    []uint64 // sizes of huge pages in KiB, the best first; 0 is for common ones
	divided  func(n int) ([]guestCell, bool)
	affinity extraspecs.Affinity
	devices  map[string]bool // classes of which a cell may be near
	// onlyWithCells says that hosts without cells as providers do not do, onlyWithoutCells that
	// those with do not.
	onlyWithCells, onlyWithoutCells bool
}

// guestCell is what a NUMA cell of a guest asks for: amounts by class.
type guestCell map[string]int64

// addSubtree takes an extra spec same_subtree:NAME=_A,_B.
func (r *Request) addSubtree(name, value string) error {
	suffixes := strings.Split(value, ",")
	for i := range suffixes {
		suffixes[i] = strings.TrimSpace(suffixes[i])
	}
	if name == "" || len(suffixes) < 2 {
		return invalidf(
			"Validation failed; 'same_subtree:%.64s' is not a name and the suffixes of two or more groups of "+
				"'resources' or 'trait' extra specs: '%.300s'.", name, value)
	}
	r.subtrees[name] = suffixes
	return nil
}

// addPlan finds out how hosts with NUMA cells are to be asked. There is no plan for a flavor that
// names all of its groups itself.
func (r *Request) addPlan(f cellwire.Flavor) error {
	cells, err := extraspecs.GuestCells(f.ExtraSpecs, f.VCPUs, f.MemoryMB)
	if err != nil {
		return invalidf("%s", err)
	}
	kib, large, ok := extraspecs.PageSize(f.ExtraSpecs["hw:mem_page_size"])
	if !ok {
		return invalidf("Invalid memory page size '%.64s'", f.ExtraSpecs["hw:mem_page_size"])
	}
	if whole := r.computing(); whole != nil && !r.groups[""].traits[providertree.TraitStatusDisabled] {
		p := &numaPlan{whole: whole, affinity: extraspecs.DeviceAffinity(f.ExtraSpecs), devices: r.devices()}
		if err := r.fill(p, f, cells, kib, large); err != nil {
			return err
		}
		r.plan = p
	}
	return r.checkSubtrees(len(cells))
}

// computing is what the group without a suffix has of processors, memory and huge pages; nil if
// others have some, too.
func (r *Request) computing() map[string]int64 {
	out := map[string]int64{}
	for suffix, g := range r.groups {
		for class, amount := range g.resources {
			if isComputing(class) {
				out[class] = amount
				if suffix != "" {
					return nil
				}
			}
		}
	}
	if out[ClassVCPU]+out[ClassPCPU]+out[ClassMemory] == 0 {
		return nil
	}
	return out
}

func isComputing(class string) bool {
	return class == ClassVCPU || class == ClassPCPU ||
		class == ClassMemory || strings.HasPrefix(class, extraspecs.PagesClassPrefix)
}

// devices are the classes for which it matters how near they are.
func (r *Request) devices() map[string]bool {
	out := map[string]bool{}
	for class := range r.total() {
		host := class == ClassDisk || class == classEncryption || class == "IPV4_ADDRESS" ||
			strings.HasPrefix(class, "NET_") || strings.HasPrefix(class, "NUMA_")
		if !host && !isComputing(class) {
			out[class] = true
		}
	}
	return out
}

// fill completes a plan.
func (r *Request) fill(p *numaPlan, f cellwire.Flavor, cells []extraspecs.GuestCell, kib uint64, large bool) error {
	for suffix := range r.groups {
		if ownGroup.MatchString(suffix) {
			return invalidf("The group %s of the flavor has a name that the scheduler uses; choose another one.",
				suffix)
		}
	}
	required, named := r.groups[""].traits[TraitNUMARoot]
	p.onlyWithCells, p.onlyWithoutCells = named && required, named && !required
	for _, suffixes := range r.subtrees {
		p.onlyWithCells = p.onlyWithCells || slices.ContainsFunc(suffixes, isCellGroup)
	}
	p.onlyWithCells = p.onlyWithCells || p.affinity == extraspecs.AffinityRequired && len(p.devices) > 0
	if p.onlyWithCells && p.onlyWithoutCells {
		return invalidf("The flavor forbids the trait %s, and asks for what only hosts with that have.", TraitNUMARoot)
	}
	var whole bool
	if p.cells, whole = r.share(p.whole, f, cells); p.cells == nil {
		return invalidf(
			"The flavor has %d NUMA nodes, and 'resources' extra specs for processors or memory that are not the "+
				"flavor's own amounts; use one or the other.",
			len(cells),
		)
	}
	if err := p.addPages(kib, large); err != nil {
		return err
	}
	whole = whole || f.ExtraSpecs["hw:mem_page_size"] != "" || p.whole[ClassPCPU] > 0 || p.onlyWithCells
	p.divided = func(n int) ([]guestCell, bool) {
		even, ok := extraspecs.Divide(n, f.VCPUs, f.MemoryMB)
		if whole || !ok {
			return nil, false
		}
		parts, _ := r.share(p.whole, f, even)
		return parts, parts != nil
	}
	return nil
}

// share divides amounts among the cells of a guest; fixed says that the flavor says how. Nil: it is
// not possible.
func (r *Request) share(
	whole map[string]int64, f cellwire.Flavor, cells []extraspecs.GuestCell,
) (parts []guestCell, fixed bool) {
	if len(cells) < 2 {
		return []guestCell{maps.Clone(whole)}, len(cells) == 1
	}
	left := maps.Clone(whole)
	for i, cell := range cells {
		part := guestCell{}
		for class, amount := range whole {
			switch class {
			case ClassVCPU, ClassPCPU:
				part[class] = r.processors(class, whole, cell, i)
			case ClassMemory:
				part[class] = cell.MemoryMB
			default:
				part[class] = amount * cell.MemoryMB / max(f.MemoryMB, 1)
			}
			left[class] -= part[class]
		}
		maps.DeleteFunc(part, func(_ string, amount int64) bool { return amount == 0 })
		parts = append(parts, part)
	}
	for _, amount := range left {
		if amount != 0 {
			return nil, true
		}
	}
	return parts, true
}

// processors are how many of a kind the cell of a guest has. The emulator's is in the first.
func (r *Request) processors(class string, whole map[string]int64, cell extraspecs.GuestCell, i int) int64 {
	dedicated := int64(0)
	switch {
	case r.cpus.mask != nil:
		for _, cpu := range cell.VCPUs {
			if _, is := slices.BinarySearch(r.cpus.mask, cpu); is {
				dedicated++
			}
		}
	case whole[ClassPCPU] > 0:
		dedicated = int64(len(cell.VCPUs))
	}
	if class == ClassVCPU {
		return int64(len(cell.VCPUs)) - dedicated
	}
	if r.cpus.emulator && i == 0 {
		dedicated++
	}
	return dedicated
}

// largePages are the sizes of huge pages that "large" may mean, in KiB.
var largePages = []uint64{1 << 20, 2 << 10}

// addPages says which huge pages the memory is of. Where huge pages are a class, a guest holds
// both them and the memory.
func (p *numaPlan) addPages(kib uint64, large bool) error {
	sizes := []uint64{kib}
	if large {
		sizes = largePages
	}
	for class := range p.whole {
		if strings.HasPrefix(class, extraspecs.PagesClassPrefix) {
			sizes = []uint64{0} // the flavor says how many
		}
	}
	for _, size := range sizes {
		fits := !slices.ContainsFunc(p.cells,
			func(c guestCell) bool { return size > 0 && uint64(c[ClassMemory])*1024%size != 0 })
		if fits {
			p.pages = append(p.pages, size)
		}
	}
	if len(p.pages) == 0 && large && !p.onlyWithCells {
		p.onlyWithoutCells = true // its pages may be of another size
		return nil
	}
	if len(p.pages) == 0 {
		return invalidf(
			"The memory of each NUMA node of the flavor must be a multiple of the page size, hw:mem_page_size.")
	}
	return nil
}

// NamesPages reports whether hosts with NUMA cells are asked for huge pages by their class, which
// Placement does not know as long as no host has pages of that size.
func (r *Request) NamesPages() bool {
	return r.onCells.cells > 0 && slices.ContainsFunc(r.plan.pages, func(kib uint64) bool { return kib > 0 })
}

// withPages are the cells with huge pages of a size.
func withPages(cells []guestCell, kib uint64) []guestCell {
	out := make([]guestCell, len(cells))
	for i, c := range cells {
		out[i] = maps.Clone(c)
		if kib > 0 && c[ClassMemory] > 0 {
			out[i][extraspecs.PagesClass(kib)] = c[ClassMemory] * 1024 / int64(kib)
		}
	}
	return out
}

// checkSubtrees refuses sets that name groups that there are not.
func (r *Request) checkSubtrees(cells int) error {
	for name, suffixes := range r.subtrees {
		for _, suffix := range suffixes {
			n, err := strconv.Atoi(strings.TrimPrefix(suffix, cellGroup))
			isCell := r.plan != nil && ownGroup.MatchString(suffix) && isCellGroup(suffix) &&
				err == nil && n < max(cells, 1)
			if (suffix == "" || r.groups[suffix] == nil) && !isCell {
				return invalidf(
					"Validation failed; 'same_subtree:%.64s' names '%.64s', which is no group of 'resources' or "+
						"'trait' extra specs.", name, suffix)
			}
		}
	}
	return nil
}
