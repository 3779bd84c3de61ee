// SPDX-License-Identifier: Apache-2.0

package extraspecs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GuestCell is a NUMA cell of a guest.
type GuestCell struct {
	// VCPUs are the guest's processors in it, in ascending order.
	VCPUs    []int
	MemoryMB int64
}

const (
	// MostGuestCells is how many cells a guest can have, as Nova's NUMA_NODES_MAX.
	MostGuestCells = 128
	// mostDivided is how many processors a guest with several cells can have.
	mostDivided = 1 << 16

	numaNodes = "hw:numa_nodes"
	numaCPUs  = "hw:numa_cpus."
	numaMem   = "hw:numa_mem."
)

var (
	errIncomplete = conflictf("CPU and memory allocation must be provided for all NUMA nodes")
	errAsymmetric = conflictf("Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. " +
		"Explicit assignment of CPUs and memory to nodes is required")
)

// GuestCells are the NUMA cells that a flavor divides a guest into: hw:numa_nodes, hw:numa_cpus.N
// and hw:numa_mem.N. Nil: the flavor does not say. Unlike Nova, it overlooks none of these extra
// specs: one of a node that there is not is an error.
//
// The error is a [*ConflictError] or, for a processor that the guest does not have, an
// [*OutsideError], in the words of nova.virt.hardware.
func GuestCells(specs map[string]string, vcpus, memoryMB int64) ([]GuestCell, error) {
	cpus, mem := numbered(specs, numaCPUs), numbered(specs, numaMem)
	text, given := specs[numaNodes]
	if !given && len(cpus)+len(mem) == 0 {
		return nil, nil
	}
	n := int64(1)
	if given {
		var err error
		if n, err = strconv.ParseInt(strings.TrimSpace(text), 10, 32); err != nil || n < 1 {
			return nil, conflictf("The property 'numa_nodes' cannot be '%.64s'. It must be a number greater than 0",
				text)
		}
	}
	switch {
	case n > MostGuestCells:
		return nil, conflictf("hw:numa_nodes is %d, more than %d", n, MostGuestCells)
	case len(cpus)+len(mem) == 0:
		if cells, ok := Divide(int(n), vcpus, memoryMB); ok {
			return cells, nil
		}
		return nil, errAsymmetric
	case int64(len(cpus)) != n || int64(len(mem)) != n:
		return nil, errIncomplete
	}
	return assigned(cpus, mem, vcpus, memoryMB)
}

// numbered are the values of the extra specs whose names are a prefix and a text, by that text.
func numbered(specs map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for name, value := range specs {
		if number, is := strings.CutPrefix(name, prefix); is {
			out[number] = value
		}
	}
	return out
}

// assigned are the cells that are given one by one.
func assigned(cpus, mem map[string]string, vcpus, memoryMB int64) ([]GuestCell, error) {
	if vcpus > mostDivided {
		return nil, errAsymmetric
	}
	taken := map[int]bool{}
	var total int64
	var cells []GuestCell
	for i := range len(cpus) {
		node := strconv.Itoa(i)
		set, hasCPUs := cpus[node]
		amount, hasMem := mem[node]
		if !hasCPUs || !hasMem {
			return nil, errIncomplete
		}
		in, err := VCPUs(set, vcpus)
		if err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return nil, errIncomplete
		}
		for _, cpu := range in {
			if taken[cpu] {
				return nil, conflictf("CPU number %d is assigned to two nodes", cpu)
			}
			taken[cpu] = true
		}
		mb, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 32)
		if err != nil || mb < 1 {
			return nil, conflictf("Validation failed; '%.64s' is not a number of MB greater than 0 for %s%d.",
				amount, numaMem, i)
		}
		total += mb
		cells = append(cells, GuestCell{VCPUs: in, MemoryMB: mb})
	}
	if int64(len(taken)) != vcpus {
		var rest []string
		for cpu := range int(vcpus) {
			if !taken[cpu] && len(rest) < 16 {
				rest = append(rest, strconv.Itoa(cpu))
			}
		}
		return nil, conflictf("CPU number {%s} is not assigned to any node", strings.Join(rest, ", "))
	}
	if total != memoryMB {
		return nil, conflictf("%d MB of memory assigned, but expected %d MB", total, memoryMB)
	}
	return cells, nil
}

// Divide divides a guest evenly into n cells, the first processors in the first; false if that is
// not possible.
func Divide(n int, vcpus, memoryMB int64) ([]GuestCell, bool) {
	if n < 1 || vcpus < 1 || vcpus > mostDivided || vcpus%int64(n) != 0 || memoryMB%int64(n) != 0 {
		return nil, false
	}
	cells, each := make([]GuestCell, n), int(vcpus)/n
	for i := range cells {
		cells[i] = GuestCell{VCPUs: make([]int, each), MemoryMB: memoryMB / int64(n)}
		for j := range each {
			cells[i].VCPUs[j] = i*each + j
		}
	}
	return cells, true
}

// OutsideError says that a set names a processor that a guest does not have.
type OutsideError struct{ CPU, Max int64 }

// Error is in Nova's words.
func (e *OutsideError) Error() string {
	return fmt.Sprintf("CPU number %d is larger than max %d", e.CPU, e.Max)
}

// VCPUs reads a set of a guest's processors: "0-3,^1,6", or all but some: "^0". It is in ascending
// order. The error is an [*OutsideError] for one that the guest does not have.
func VCPUs(text string, vcpus int64) ([]int, error) {
	if vcpus > mostDivided {
		return nil, &OutsideError{CPU: vcpus - 1, Max: mostDivided - 1}
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "^") {
		text = "0-" + strconv.FormatInt(vcpus-1, 10) + "," + text
	}
	in, out := map[int]bool{}, map[int]bool{}
	for rule := range strings.SplitSeq(text, ",") {
		set := in
		rule = strings.TrimSpace(rule)
		if rest, left := strings.CutPrefix(rule, "^"); left {
			set, rule = out, rest
		}
		if rule == "" {
			continue
		}
		first, last, ranged := strings.Cut(rule, "-")
		if !ranged {
			last = first
		}
		low, err1 := strconv.ParseInt(strings.TrimSpace(first), 10, 32)
		high, err2 := strconv.ParseInt(strings.TrimSpace(last), 10, 32)
		switch {
		case err1 != nil || err2 != nil || low < 0 || low > high:
			return nil, conflictf("Invalid range expression %.66q", rule)
		case high >= vcpus:
			return nil, &OutsideError{CPU: high, Max: vcpus - 1}
		}
		for cpu := int(low); cpu <= int(high); cpu++ {
			set[cpu] = true
		}
	}
	var cpus []int
	for cpu := range in {
		if !out[cpu] {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	return cpus, nil
}

// PageSize reads hw:mem_page_size: the size of huge pages in KiB, all units counting in 1024s as
// Nova reads them. 0 is for common pages; large says that any huge ones do, the largest best.
func PageSize(text string) (kib uint64, large, ok bool) {
	switch text {
	case "", "small", "any":
		return 0, false, true
	case "large":
		return 0, true, true
	}
	digits := strings.TrimRight(text, "KMGTBkmgtbi")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 {
		return 0, false, false
	}
	switch strings.ToUpper(text[len(digits):]) {
	case "", "K", "KB", "KIB":
	case "M", "MB", "MIB":
		n <<= 10
	case "G", "GB", "GIB":
		n <<= 20
	default:
		return 0, false, false
	}
	if n <= 64 { // all common pages are as small as that
		n = 0
	}
	return n, false, true
}

// PagesClassPrefix is followed by the size of the pages in the class's name.
const PagesClassPrefix = "CUSTOM_HUGEPAGES_"

// PagesClass is the resource class of huge pages of a size, of which a page is the unit:
// CUSTOM_HUGEPAGES_2M. Drivers report it for NUMA cells.
func PagesClass(sizeKiB uint64) string {
	for _, unit := range []struct {
		letter string
		kib    uint64
	}{{"G", 1 << 20}, {"M", 1 << 10}} {
		if sizeKiB >= unit.kib && sizeKiB%unit.kib == 0 {
			return PagesClassPrefix + strconv.FormatUint(sizeKiB/unit.kib, 10) + unit.letter
		}
	}
	return PagesClassPrefix + strconv.FormatUint(sizeKiB, 10) + "K"
}

// Affinity is hw:pci_numa_affinity_policy: how near a guest's devices must be to its NUMA cells.
type Affinity string

// The policies. Socket is refused, as no resource provider stands for a socket.
const (
	// AffinityLegacy takes near devices, and those of which the cell is not known.
	AffinityLegacy Affinity = "legacy"
	// AffinityPreferred takes near devices first, and others.
	AffinityPreferred Affinity = "preferred"
	// AffinityRequired takes near devices only.
	AffinityRequired Affinity = "required"
)

// DeviceAffinity is the policy of a flavor. What [Check] refuses counts as legacy.
func DeviceAffinity(specs map[string]string) Affinity {
	switch a := Affinity(strings.ToLower(strings.TrimSpace(specs["hw:pci_numa_affinity_policy"]))); a {
	case AffinityPreferred, AffinityRequired:
		return a
	}
	return AffinityLegacy
}
