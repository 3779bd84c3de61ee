// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Huge pages: which of them each NUMA cell has, and what of them is the host's own. It is for trees
// with a provider per cell; Nova's flat tree has no huge pages.
//
// os-resource-classes has no class for huge pages, so there is a custom one for each size,
// CUSTOM_HUGEPAGES_2M and the like, whose unit is one page: amounts are exact, any allocation is
// whole pages, and the total is what the kernel says.
//
// It is a finer inventory beside MEMORY_MB and not a part cut out of it: MEMORY_MB of a cell is all
// of its memory, as that of the root is in a flat tree. Nova's flavors always ask for MEMORY_MB,
// with huge pages or without, and a guest holds the same in both layouts; so a guest that asks for
// pages holds both. Memory for the pages cannot be used otherwise: on a host with many of them,
// keep guests with normal pages away with reserved_host_memory_mb, or request pages in every flavor
// of such hosts.

// PagesCell is how the memory of a NUMA cell is split.
type PagesCell struct {
	ID int
	// CommonKiB is the memory that is in no huge pages. MEMORY_MB of the cell is all of its memory,
	// not this.
	CommonKiB uint64
	// Pages are the huge pages that there are, the smallest size first.
	Pages []Pages
}

// Pages are an inventory of huge pages.
type Pages struct {
	SizeKiB uint64
	// Class is [Class] of the size. Total and Reserved are in pages, and Reserved is never above
	// Total.
	Class           string
	Total, Reserved int64
}

// Choose splits the memory of a host's cells, in the order of their numbers. Reservations that do
// not fit to the host are returned as discrepancies, because the kernel can make and give up huge
// pages at any time.
//
// Cost: O(cells × sizes + reservations).
func (r Reserved) Choose(m machine.Machine) ([]PagesCell, []machine.Discrepancy) {
	var cells []PagesCell
	var discrepancies []machine.Discrepancy
	for _, cell := range m.Cells {
		c, ok := split(cell)
		if !ok {
			discrepancies = append(discrepancies, machine.Discrepancyf(fmt.Sprintf("hugepages-memory-%d", cell.ID),
				"NUMA cell %d reports more memory in huge pages than memory (%d KiB); one of the two figures is "+
					"wrong, so its MEMORY_MB or its inventory of huge pages is wrong", cell.ID, cell.MemoryKiB))
		}
		cells = append(cells, c)
	}
	slices.SortFunc(cells, func(a, b PagesCell) int { return cmp.Compare(a.ID, b.ID) })
	for _, one := range r.list {
		if d, ok := one.apply(m, cells); !ok {
			discrepancies = append(discrepancies, d)
		}
	}
	return cells, discrepancies
}

// split is false if the huge pages do not fit into the cell's memory.
func split(cell machine.Cell) (PagesCell, bool) {
	c := PagesCell{ID: cell.ID, CommonKiB: cell.MemoryKiB}
	fits := true
	for _, p := range cell.Pages {
		if p.Total == 0 {
			continue
		}
		c.Pages = append(c.Pages,
			Pages{SizeKiB: p.SizeKiB, Class: PagesClass(p.SizeKiB), Total: int64(min(p.Total, providertree.MaxUnit))})
		high, kib := bits.Mul64(p.Total, p.SizeKiB)
		if high != 0 || kib > c.CommonKiB {
			fits, kib = false, c.CommonKiB
		}
		c.CommonKiB -= kib
	}
	slices.SortFunc(c.Pages, func(a, b Pages) int { return cmp.Compare(a.SizeKiB, b.SizeKiB) })
	return c, fits
}

// apply reserves pages of a cell; if it cannot reserve them all, ok is false.
func (r reservation) apply(m machine.Machine, cells []PagesCell) (d machine.Discrepancy, ok bool) {
	discrepancy := func(format string, args ...any) (machine.Discrepancy, bool) {
		return machine.Discrepancyf("hugepages-"+r.key, "%s: "+format, append([]any{r.key}, args...)...), false
	}
	i := slices.IndexFunc(cells, func(c PagesCell) bool { return c.ID == r.cell })
	if i < 0 {
		return discrepancy("the host has no NUMA cell %d", r.cell)
	}
	size := FormatPageSize(r.sizeKiB)
	j := slices.IndexFunc(cells[i].Pages, func(p Pages) bool { return p.SizeKiB == r.sizeKiB })
	if j < 0 {
		for _, cell := range m.Cells {
			if cell.ID == r.cell && !slices.ContainsFunc(cell.Pages,
				func(p machine.Pages) bool { return p.SizeKiB == r.sizeKiB }) {
				return discrepancy("NUMA cell %d has no huge pages of %s; to reserve memory in normal pages, use "+
					"reserved_host_memory_mb", r.cell, size)
			}
		}
		if r.count == 0 {
			return machine.Discrepancy{}, true
		}
		return discrepancy("NUMA cell %d has none of the %d pages of %s", r.cell, r.count, size)
	}
	p := &cells[i].Pages[j]
	p.Reserved = min(r.count, p.Total)
	if r.count > p.Total {
		return discrepancy("NUMA cell %d has only %d of the %d pages of %s; all are reserved",
			r.cell, p.Total, r.count, size)
	}
	return machine.Discrepancy{}, true
}

// SplitReserved shares out reserved_host_memory_mb among cells whose MEMORY_MB totals are given, in
// proportion to them. The shares add up to it exactly, and none is above its total; more than there
// is in all is a [*plugins.ConfigError].
//
// Cost: O(cells log cells).
func SplitReserved(reservedMB int64, totals []int64) ([]int64, error) {
	var sum uint64
	for _, t := range totals {
		sum += uint64(max(t, 0))
	}
	if reservedMB < 0 || uint64(reservedMB) > sum {
		return nil, &plugins.ConfigError{Key: "reserved_host_memory_mb",
			Problem: fmt.Sprintf("reserves %d MiB, but the NUMA cells have only %d MiB", reservedMB, sum)}
	}
	shares := make([]int64, len(totals))
	if sum == 0 {
		return shares, nil
	}
	type remainder struct {
		cell  int
		parts uint64 // of sum
	}
	var rests []remainder
	left := reservedMB
	for i, t := range totals {
		high, low := bits.Mul64(uint64(reservedMB), uint64(max(t, 0)))
		share, parts := bits.Div64(high, low, sum) // high < sum, because reservedMB <= sum and t <= sum < 2^63
		shares[i] = int64(share)
		left -= shares[i]
		rests = append(rests, remainder{i, parts})
	}
	// What is lost by cutting goes to those that lost most by it.
	slices.SortStableFunc(rests, func(a, b remainder) int { return cmp.Compare(b.parts, a.parts) })
	for i := range left {
		shares[rests[i].cell]++
	}
	return shares, nil
}

// SplitReservedMemory is [SplitReserved] where some cells have no CPUs: what is reserved for the
// host is on those with CPUs, where its processes run, as far as it fits there.
//
// Cost: O(cells log cells).
func SplitReservedMemory(reservedMB int64, totals []int64, withCPUs []bool) ([]int64, error) {
	first, others := slices.Clone(totals), slices.Clone(totals)
	var fits int64
	for i, with := range withCPUs {
		if with {
			others[i] = 0
			fits += max(totals[i], 0)
		} else {
			first[i] = 0
		}
	}
	shares, err := SplitReserved(min(reservedMB, fits), first)
	if err != nil {
		return nil, err
	}
	rest, err := SplitReserved(max(reservedMB-fits, 0), others)
	if err != nil {
		return nil, err
	}
	for i := range shares {
		shares[i] += rest[i]
	}
	return shares, nil
}

// ReservedPagesKey is the name of the configuration's key, which is Nova's.
const ReservedPagesKey = "reserved_huge_pages"

// PagesConfig are the keys about huge pages in the driver's configuration.
type PagesConfig struct {
	ReservedHugePages []ReservedPages `json:"reserved_huge_pages"`
}

// ReservedPages are huge pages that are not for guests: { node = 0, size = "2M", count = 64 }. All
// three keys are needed.
type ReservedPages struct {
	// Node is the number of the NUMA cell.
	Node *int `json:"node"`
	// Size is a text ("2M", "1GiB") or KiB as a number.
	Size  json.RawMessage `json:"size"`
	Count *int64          `json:"count"`
}

// Reserved are the parsed reservations.
type Reserved struct {
	list []reservation
}

type reservation struct {
	key     string
	cell    int
	sizeKiB uint64
	count   int64
}

// maxReserved bounds the list: more than any host has cells times sizes.
const maxReserved = 4096

// ParsePages reads the configuration, as far as that is possible without a host. Errors are
// [*plugins.ConfigError].
func ParsePages(c PagesConfig) (Reserved, error) {
	if len(c.ReservedHugePages) > maxReserved {
		return Reserved{}, &plugins.ConfigError{Key: ReservedPagesKey,
			Problem: fmt.Sprintf("has %d entries; the limit is %d", len(c.ReservedHugePages), maxReserved)}
	}
	type pagesKey struct {
		cell    int
		sizeKiB uint64
	}
	seen := map[pagesKey]string{}
	var r Reserved
	var all []error
	for i, written := range c.ReservedHugePages {
		one := reservation{key: fmt.Sprintf("%s[%d]", ReservedPagesKey, i)}
		if key, err := one.parse(written); err != nil {
			all = append(all, &plugins.ConfigError{Key: one.key + key, Problem: err.Error()})
			continue
		}
		at := pagesKey{one.cell, one.sizeKiB}
		if before := seen[at]; before != "" {
			all = append(all,
				&plugins.ConfigError{Key: one.key, Problem: fmt.Sprintf("has the same node and size as %s", before)})
			continue
		}
		seen[at] = one.key
		r.list = append(r.list, one)
	}
	if err := plugins.JoinConfig(all...); err != nil {
		return Reserved{}, err
	}
	return r, nil
}

// parse reads an entry; in an error, key is what is wrong.
func (r *reservation) parse(w ReservedPages) (key string, err error) {
	switch {
	case w.Node == nil:
		return ".node", errors.New("is missing: the number of a NUMA cell")
	case *w.Node < 0:
		return ".node", fmt.Errorf("%d is not a number of a NUMA cell", *w.Node)
	case w.Count == nil:
		return ".count", errors.New("is missing: a number of pages")
	case *w.Count < 0 || *w.Count > providertree.MaxUnit:
		return ".count", fmt.Errorf("%d is not a number of pages", *w.Count)
	case len(w.Size) == 0:
		return ".size", errors.New("is missing: \"2M\", \"1G\" or the like")
	}
	r.cell, r.count = *w.Node, *w.Count
	text := string(w.Size)
	if json.Unmarshal(w.Size, &text) != nil {
		text = string(w.Size) // a number: KiB
	}
	r.sizeKiB, err = ParsePageSize(text)
	return ".size", err
}

// units of sizes, in KiB.
var units = []struct {
	letter string
	kib    uint64
}{{"G", 1 << 20}, {"M", 1 << 10}, {"K", 1}}

// maxSizeKiB is more than any page has: 1 TiB.
const maxSizeKiB = 1 << 30

// ParsePageSize reads the size of a page, in KiB: "2M", "2MB" and "2MiB" are 2048, and so is "2048"
// without a unit.
func ParsePageSize(text string) (uint64, error) {
	bad := fmt.Errorf("%.40q is not a page size such as \"2M\", \"1G\" or 2048 (KiB)", text)
	number, factor := strings.ToUpper(strings.TrimSpace(text)), uint64(1)
	for _, u := range units {
		if before, _, found := strings.Cut(number, u.letter); found {
			if suffix := number[len(before):]; suffix != u.letter && suffix != u.letter+"B" && suffix != u.letter+"IB" {
				return 0, bad
			}
			number, factor = before, u.kib
			break
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	if err != nil || n > maxSizeKiB/factor || bits.OnesCount64(n*factor) != 1 {
		return 0, bad
	}
	return n * factor, nil
}

// FormatPageSize is the shortest text for a size: 2M for 2048.
func FormatPageSize(kib uint64) string {
	for _, u := range units {
		if kib >= u.kib && kib%u.kib == 0 {
			return strconv.FormatUint(kib/u.kib, 10) + u.letter
		}
	}
	return "0K"
}

// PagesClass is the resource class of huge pages of a size: CUSTOM_HUGEPAGES_2M. Its unit is a
// page.
func PagesClass(sizeKiB uint64) string { return extraspecs.PagesClass(sizeKiB) }

// PagesSize is the size of the pages of a class in KiB; false for a class of something else.
func PagesSize(class string) (uint64, bool) {
	size, ok := strings.CutPrefix(class, extraspecs.PagesClassPrefix)
	if !ok {
		return 0, false
	}
	kib, err := ParsePageSize(size)
	return kib, err == nil && PagesClass(kib) == class
}
