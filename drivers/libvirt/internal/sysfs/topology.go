// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/chroot"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/cpulist"
)

// Topology is how CPUs and memory lie together.
type Topology struct {
	// CPUs are all that are present, online or not.
	CPUs []CPU
	// Cells are the NUMA cells that are online.
	Cells []Cell
	// NoNUMA says that the kernel was built without NUMA. There is one cell then, number 0, with all CPUs and all memory.
	NoNUMA bool
}

// CPU is a logical CPU: a hardware thread.
type CPU struct {
	ID     int
	Online bool
	// Isolated is isolcpus= of the kernel's command line.
	Isolated bool
	// Cell, Package and Core are None if the kernel does not say: for an offline CPU, or where firmware has no numbers. Cores are
	// numbered within their package or their die.
	Cell, Package, Core int
	// Siblings are the online CPUs of the same core, with this one; none for an offline CPU.
	Siblings []int
}

// Cell is a NUMA cell.
type Cell struct {
	ID int
	// CPUs are the online ones; none in a cell with memory only.
	CPUs []int
	// MemoryKiB is all memory that the kernel manages in this cell, huge pages included.
	MemoryKiB uint64
	// HugePages are the pools of each size, small ones first; none in a cell without memory.
	HugePages []HugePages
	// Distances are to all cells, in their order; 10 to itself.
	Distances []int
}

// HugePages is a pool of pages.
type HugePages struct {
	SizeKiB uint64
	// Total and Free are numbers of pages.
	Total, Free uint64
}

// Cell finds a cell by its number; nil if there is none.
func (t Topology) Cell(id int) *Cell {
	i, found := slices.BinarySearchFunc(t.Cells, id, func(c Cell, id int) int { return c.ID - id })
	if !found {
		return nil
	}
	return &t.Cells[i]
}

// CPU finds a CPU by its number; nil if there is none.
func (t Topology) CPU(id int) *CPU {
	i, found := slices.BinarySearchFunc(t.CPUs, id, func(c CPU, id int) int { return c.ID - id })
	if !found {
		return nil
	}
	return &t.CPUs[i]
}

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

// Topology reads CPUs and cells.
func (r *Reader) Topology() (t Topology, err error) {
	if err := in(r.root, cpuDir, func(d *chroot.Dir) error { t.CPUs, err = readCPUs(d); return err }); err != nil {
		return Topology{}, remedied(err)
	}
	err = in(r.root, nodeDir, func(d *chroot.Dir) error { return t.readCells(d) })
	if absent(err) && !exists(r.root, nodeDir) {
		err = t.wholeMachine(r.root)
	}
	if err != nil {
		return Topology{}, remedied(err)
	}
	return t, nil
}

func readCPUs(d *chroot.Dir) ([]CPU, error) {
	var sets [3][]int
	for i, name := range []string{"present", "online", "isolated"} {
		set, err := value(d, name, cpuSet)
		switch {
		case i >= 2 && absent(err): // older kernels, and those built without
		case err != nil:
			return nil, err
		case i < 2 && len(set) == 0:
			return nil, malformed(d, name, "", "it names no CPU")
		}
		sets[i] = set
	}
	present, online, isolated := sets[0], sets[1], sets[2]
	for _, id := range online {
		if !has(present, id) {
			return nil, malformed(d, "present", cpulist.Format(present), "CPU %d is not among them, yet online", id)
		}
	}
	cpus := make([]CPU, len(present))
	for i, id := range present {
		cpus[i] = CPU{ID: id, Online: has(online, id), Isolated: has(isolated, id), Cell: None, Package: None, Core: None}
	}
	return cpus, readCores(d, Topology{CPUs: cpus})
}

// readCores fills in where the online CPUs are, core by core.
func readCores(d *chroot.Dir, t Topology) error {
	for i := range t.CPUs {
		if c := &t.CPUs[i]; c.Online {
			name := fmt.Sprintf("cpu%d/topology", c.ID)
			if err := in(d, name, func(d *chroot.Dir) error { return readCore(d, t, c) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func readCore(d *chroot.Dir, t Topology, c *CPU) (err error) {
	const siblings = "thread_siblings_list"
	if c.Siblings, err = value(d, siblings, cpuSet); err != nil {
		return err
	}
	if !has(c.Siblings, c.ID) {
		return malformed(d, siblings, cpulist.Format(c.Siblings), "CPU %d is not its own sibling", c.ID)
	}
	// The first CPU of a core answers for all.
	if first := t.CPU(c.Siblings[0]); first != nil && first.ID < c.ID {
		if !slices.Equal(first.Siblings, c.Siblings) {
			return malformed(d, siblings, cpulist.Format(c.Siblings), "CPU %d says that its siblings are %s", first.ID, cpulist.Format(first.Siblings))
		}
		c.Package, c.Core = first.Package, first.Core
		return nil
	}
	for _, s := range c.Siblings {
		if other := t.CPU(s); other == nil || !other.Online {
			return malformed(d, siblings, cpulist.Format(c.Siblings), "CPU %d is not online", s)
		}
	}
	if c.Package, err = value(d, "physical_package_id", ordinal); err != nil {
		return err
	}
	c.Core, err = value(d, "core_id", ordinal)
	return err
}

func has(set []int, id int) bool {
	_, found := slices.BinarySearch(set, id)
	return found
}

// distances reads a row of the table of distances.
func distances(text string) ([]int, error) {
	var row []int
	for _, f := range strings.Fields(text) {
		n, err := strconv.ParseUint(f, 10, 16)
		if err != nil || n < 10 {
			return nil, fmt.Errorf("%.20q is no distance of 10 or more", f)
		}
		row = append(row, int(n))
	}
	return row, nil
}
