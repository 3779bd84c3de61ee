// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
)

// CPUs: which of the host's guests may have, the shared ones, on which the vCPUs of many guests
// float (VCPU), and the dedicated ones, each pinned to one vCPU (PCPU). The options and their rules
// are those of Nova's [compute] section.
//
//	cpu_shared_set  cpu_dedicated_set    VCPU               PCPU
//	–               –                    all online CPUs    none
//	set             –                    the shared ones    none
//	–               set                  none               the dedicated ones
//	set             set                  the shared ones    the dedicated ones

// Names of the configuration's keys, which are those of Nova's [compute] section.
const (
	SharedCPUsKey    = "cpu_shared_set"
	DedicatedCPUsKey = "cpu_dedicated_set"
)

// CPUConfig are the keys about CPUs in the driver's configuration. "" is an unset key.
type CPUConfig struct {
	Shared    string `json:"cpu_shared_set"`
	Dedicated string `json:"cpu_dedicated_set"`
}

// CPUSets are the sets that an operator configured: ascending numbers, nil for a set that is not
// configured.
type CPUSets struct {
	Shared, Dedicated []int
}

// ParseCPUSets reads the configuration, as far as that is possible without a host. Errors are
// [*plugins.ConfigError].
func ParseCPUSets(c CPUConfig) (CPUSets, error) {
	var s CPUSets
	var all []error
	for _, set := range []struct {
		key, spec string
		into      *[]int
	}{{SharedCPUsKey, c.Shared, &s.Shared}, {DedicatedCPUsKey, c.Dedicated, &s.Dedicated}} {
		if set.spec == "" {
			continue
		}
		cpus, err := ParseCPUSpec(set.spec)
		if err != nil {
			all = append(all,
				&plugins.ConfigError{Key: set.key,
					Problem: fmt.Sprintf("is not a CPU set such as \"4-12,^8,15\": %v", err)})
			continue
		}
		*set.into = cpus
	}
	if err := plugins.JoinConfig(all...); err != nil {
		return CPUSets{}, err
	}
	shared := machine.SetOf(s.Shared)
	if both := filter(s.Dedicated, func(cpu int) bool { return shared[cpu] }); len(both) > 0 {
		return CPUSets{}, &plugins.ConfigError{Key: DedicatedCPUsKey, Problem: fmt.Sprintf(
			"has CPUs that are in %s too (%s); a CPU is shared or dedicated, not both",
			SharedCPUsKey, machine.FormatCPUs(both))}
	}
	return s, nil
}

// CPUs is which CPUs are for guests, in ascending order, and where they are.
type CPUs struct {
	// VCPU and PCPU are CPUs, one unit each of the class of that name.
	VCPU, PCPU []int
	// Cells are all NUMA cells of the host by number, with their share of the two. Together the
	// shares are the whole.
	Cells []CPUCell
	// Threaded says that some core has several threads online: HW_CPU_HYPERTHREADING.
	Threaded bool
}

// CPUCell is the share of a NUMA cell.
type CPUCell struct {
	ID         int
	VCPU, PCPU []int
	// PCPUCores are the cell's PCPU again, those of one core together: the thread policies require
	// and isolate go by them.
	PCPUCores []CPUCore
}

// CPUCore is what guests may have of a processor core.
type CPUCore struct {
	// PCPU are the dedicated CPUs of the core; Others are its remaining CPUs that are online,
	// shared or the host's own.
	PCPU, Others []int
}

// Choose applies the sets to a host. A configured CPU that the host does not have online is a
// [*plugins.ConfigError]; a host that contradicts itself is another error. What is valid but
// probably not intended is returned as discrepancies.
//
// Cost: O(CPUs log CPUs).
func (s CPUSets) Choose(m machine.Machine) (CPUs, []machine.Discrepancy, error) {
	var online []machine.CPU
	isOnline := map[int]bool{}
	for _, cpu := range m.CPUs {
		if cpu.Online {
			online = append(online, cpu)
			isOnline[cpu.ID] = true
		}
	}
	slices.SortFunc(online, func(a, b machine.CPU) int { return cmp.Compare(a.ID, b.ID) })
	for _, err := range []error{mustBeOnline(SharedCPUsKey, s.Shared, isOnline, m.CPUs),
		mustBeOnline(DedicatedCPUsKey, s.Dedicated, isOnline, m.CPUs)} {
		if err != nil {
			return CPUs{}, nil, err
		}
	}
	shared, dedicated := machine.SetOf(s.Shared), machine.SetOf(s.Dedicated)
	if s.Shared == nil && s.Dedicated == nil {
		shared = isOnline
	}
	c, err := share(m, online, shared, dedicated)
	if err != nil {
		return CPUs{}, nil, err
	}
	return c, s.discrepancies(m, c), nil
}

// mustBeOnline refuses CPUs of a set that guests cannot run on. Nova takes dedicated CPUs that are
// offline, because it can switch them on.
func mustBeOnline(key string, set []int, online map[int]bool, cpus []machine.CPU) error {
	known := map[int]bool{}
	for _, cpu := range cpus {
		known[cpu.ID] = true
	}
	if missing := filter(set, func(cpu int) bool { return !known[cpu] }); len(missing) > 0 {
		return &plugins.ConfigError{Key: key,
			Problem: fmt.Sprintf("has CPUs that the host does not have (%s)", machine.FormatCPUs(missing))}
	}
	if off := filter(set, func(cpu int) bool { return !online[cpu] }); len(off) > 0 {
		list := machine.FormatCPUs(off)
		return &plugins.ConfigError{Key: key,
			Problem: fmt.Sprintf("has CPUs that are offline (%s); bring them online (chcpu -e %s) or remove them",
				list, list)}
	}
	return nil
}

type coreID struct{ pkg, core int }

// share deals the CPUs out to the cells.
func share(m machine.Machine, online []machine.CPU, shared, dedicated map[int]bool) (CPUs, error) {
	var c CPUs
	cells := map[int]*CPUCell{}
	for _, cell := range m.Cells {
		cells[cell.ID] = &CPUCell{ID: cell.ID}
	}
	cores := map[coreID][]int{}
	for _, cpu := range online {
		cell := cells[cpu.Cell]
		if cell == nil {
			return CPUs{}, fmt.Errorf("CPU %d is in NUMA cell %d, which the host does not have", cpu.ID, cpu.Cell)
		}
		id := coreID{cpu.Package, cpu.Core}
		cores[id] = append(cores[id], cpu.ID)
		c.Threaded = c.Threaded || len(cores[id]) > 1
		switch {
		case dedicated[cpu.ID]:
			c.PCPU, cell.PCPU = append(c.PCPU, cpu.ID), append(cell.PCPU, cpu.ID)
		case shared[cpu.ID]:
			c.VCPU, cell.VCPU = append(c.VCPU, cpu.ID), append(cell.VCPU, cpu.ID)
		}
	}
	done := map[coreID]bool{}
	for _, cpu := range online { // in this order, so that cores come by their first dedicated CPU
		id := coreID{cpu.Package, cpu.Core}
		if !dedicated[cpu.ID] || done[id] {
			continue
		}
		done[id] = true
		cells[cpu.Cell].PCPUCores = append(cells[cpu.Cell].PCPUCores, CPUCore{
			PCPU:   filter(cores[id], func(n int) bool { return dedicated[n] }),
			Others: filter(cores[id], func(n int) bool { return !dedicated[n] }),
		})
	}
	for _, cell := range cells {
		c.Cells = append(c.Cells, *cell)
	}
	slices.SortFunc(c.Cells, func(a, b CPUCell) int { return cmp.Compare(a.ID, b.ID) })
	return c, nil
}

func (s CPUSets) discrepancies(m machine.Machine, c CPUs) []machine.Discrepancy {
	var discrepancies []machine.Discrepancy
	isolated := map[int]bool{}
	for _, cpu := range m.CPUs {
		isolated[cpu.ID] = cpu.Isolated
	}
	if both := filter(c.VCPU, func(cpu int) bool { return isolated[cpu] }); len(both) > 0 {
		discrepancies = append(discrepancies, machine.Discrepancyf("cpu-isolated",
			"CPUs %s are isolated from the kernel's scheduler (isolcpus), but are reported as VCPU: the kernel does "+
				"not balance guests' vCPUs over them. Remove them from %s, or dedicate them (%s)",
			machine.FormatCPUs(both), SharedCPUsKey, DedicatedCPUsKey))
	}
	var torn []int
	for _, cell := range c.Cells {
		for _, core := range cell.PCPUCores {
			if len(core.Others) > 0 {
				torn = append(torn, core.PCPU...)
			}
		}
	}
	if len(torn) > 0 {
		discrepancies = append(discrepancies, machine.Discrepancyf("cpu-siblings",
			"dedicated CPUs %s share their cores with CPUs that are not dedicated: other guests disturb theirs, and "+
				"the thread policies require and isolate do not work there. Put whole cores into %s",
			machine.FormatCPUs(torn), DedicatedCPUsKey))
	}
	return discrepancies
}

func filter(cpus []int, is func(int) bool) []int {
	var out []int
	for _, cpu := range cpus {
		if is(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

// maxSpec bounds a specification, in bytes. One that names 8192 CPUs one by one has 40 KB.
const maxSpec = 64 << 10

var errNothingLeft = errors.New("it leaves no CPUs")

// ParseCPUSpec reads Nova's notation of a set of CPUs: numbers, ranges, and either after a caret,
// which takes them out wherever it stands: "4-12,^8,15", "^0-1,0-7". Empty items and numbers that
// are there twice do no harm. Returned are the numbers in ascending order, at least one.
//
// Cost: O(len(s) + MaxCPU), whatever ranges s has.
func ParseCPUSpec(s string) ([]int, error) {
	if len(s) > maxSpec {
		return nil, fmt.Errorf("has %d characters; the limit is %d", len(s), maxSpec)
	}
	var with, without delta
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		into := &with
		numbers, out := strings.CutPrefix(item, "^")
		if out {
			into = &without
		}
		first, last, err := machine.ParseCPURange(numbers)
		if err != nil {
			return nil, fmt.Errorf("item %.40q: %w", item, err)
		}
		into.add(first, last)
	}
	var cpus []int
	in, out := 0, 0
	for cpu := range with {
		in, out = in+with[cpu], out+without[cpu]
		if in > 0 && out == 0 {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("%.60q: %w", s, errNothingLeft)
	}
	return cpus, nil
}

// delta has, for each CPU, how many ranges begin there less how many ended before it.
type delta [machine.MaxCPU + 2]int

func (d *delta) add(first, last int) {
	d[first]++
	d[last+1]--
}
