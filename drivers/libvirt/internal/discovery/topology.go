// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Topology is how CPUs and memory lie together.
type Topology struct {
	// CPUs are all that are present, online or not.
	CPUs []CPU
	// Cells are the NUMA cells that are online.
	Cells []Cell
	// NoNUMA says that the kernel was built without NUMA. There is one cell then, number 0, with
	// all CPUs and all memory.
	NoNUMA bool
	// Odd is what the files say of CPUs and cells that is not so on a host, with the likely cause:
	// CPUs in several cells (numa=fake), or in lists though they are not online (containers). Each
	// online CPU is in the first of its cells then, and only in that. Nil if all agree.
	Odd error
}

// CPU is a logical CPU: a hardware thread.
type CPU struct {
	ID     int
	Online bool
	// Isolated is isolcpus= of the kernel's command line.
	Isolated bool
	// Cell is None if the kernel does not say. It does for an offline CPU too, by a link, unless
	// its cell is offline.
	Cell int
	// Package and Core are None for an offline CPU, or where firmware has no numbers. Cores are
	// numbered within their package or their die.
	Package, Core int
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
	HugePages []machine.Pages
	// Distances are to all cells, in their order; 10 to itself.
	Distances []int
	// Tier is the number of its memory tier: a lower one is faster. None where the kernel shows
	// none.
	Tier int
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
	tierDir = "sys/devices/virtual/memory_tiering"
)

// Topology reads CPUs and cells.
func (r *Reader) Topology() (t Topology, err error) {
	if err := inDir(r.root, cpuDir, func(d *Dir) error { return t.readCPUs(d) }); err != nil {
		return Topology{}, withHint(err)
	}
	err = inDir(r.root, nodeDir, func(d *Dir) error { return t.readCells(d) })
	if err == nil {
		err = inDir(r.root, cpuDir, func(d *Dir) error { return t.readOffline(d) })
	}
	if absent(err) && !exists(r.root, nodeDir) {
		err = t.wholeMachine(r.root)
	}
	if err == nil {
		err = t.readTiers(r.root)
	}
	if err != nil {
		return Topology{}, withHint(err)
	}
	if t.Odd != nil {
		t.Odd = fmt.Errorf("%w: %s", t.Odd, r.oddCause(t.Odd))
	}
	return t, nil
}

var (
	errShared    = errors.New("cells share CPUs")
	errNotOnline = errors.New("it is not online")
)

// oddCause is what files that do not agree come from.
func (r *Reader) oddCause(odd error) string {
	if errors.Is(odd, errNotOnline) {
		return "so it is in a container that shows only some of the host's CPUs as online, and for a moment while " +
			"CPUs are switched on or off"
	}
	line, err := r.root.Text("proc/cmdline")
	if err == nil && slices.ContainsFunc(strings.Fields(line),
		func(option string) bool { return strings.HasPrefix(option, "numa=fake") }) {
		return "the kernel was started with numa=fake (/proc/cmdline), which makes cells up"
	}
	return "so it is with the kernel's option numa=fake, which makes cells up"
}

// odd keeps the first oddity.
func (t *Topology) odd(err error) {
	if t.Odd == nil {
		t.Odd = err
	}
}

// readCPUs reads the CPUs, without their cells.
func (t *Topology) readCPUs(d *Dir) error {
	var sets [3][]int
	for i, name := range []string{"present", "online", "isolated"} {
		set, err := value(d, name, cpuSet)
		switch {
		case i >= 2 && absent(err): // older kernels, and those built without
		case err != nil:
			return err
		case i < 2 && len(set) == 0:
			return malformed(d, name, "", "it names no CPU")
		}
		sets[i] = set
	}
	present, online, isolated := sets[0], sets[1], sets[2]
	for _, id := range online {
		if !has(present, id) {
			return malformed(d, "present", machine.FormatCPUs(present), "CPU %d is online but not present", id)
		}
	}
	t.CPUs = make([]CPU, len(present))
	for i, id := range present {
		t.CPUs[i] = CPU{ID: id, Online: has(online, id),
			Isolated: has(isolated, id), Cell: None, Package: None, Core: None}
	}
	return t.readCores(d)
}

// readCores fills in where the online CPUs are, core by core.
func (t *Topology) readCores(d *Dir) error {
	for i := range t.CPUs {
		if c := &t.CPUs[i]; c.Online {
			name := fmt.Sprintf("cpu%d/topology", c.ID)
			if err := inDir(d, name, func(d *Dir) error { return t.readCore(d, c) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Topology) readCore(d *Dir, c *CPU) (err error) {
	const siblings = "thread_siblings_list"
	all, err := value(d, siblings, cpuSet)
	if err != nil {
		return err
	}
	c.Siblings = t.online(d, siblings, all)
	if !has(c.Siblings, c.ID) {
		return malformed(d, siblings, machine.FormatCPUs(c.Siblings), "CPU %d is not its own sibling", c.ID)
	}
	// The first CPU of a core answers for all.
	if first := t.CPU(c.Siblings[0]); first != nil && first.ID < c.ID {
		if !slices.Equal(first.Siblings, c.Siblings) {
			return malformed(d, siblings, machine.FormatCPUs(c.Siblings), "CPU %d has the siblings %s", first.ID,
				machine.FormatCPUs(first.Siblings))
		}
		c.Package, c.Core = first.Package, first.Core
		return nil
	}
	if c.Package, err = value(d, "physical_package_id", ordinal); err != nil {
		return err
	}
	c.Core, err = value(d, "core_id", ordinal)
	return err
}

// online are the CPUs of a file that are online. Others are odd.
func (t *Topology) online(d *Dir, name string, cpus []int) []int {
	return slices.DeleteFunc(slices.Clone(cpus), func(id int) bool {
		cpu := t.CPU(id)
		off := cpu == nil || !cpu.Online
		if off {
			t.odd(fmt.Errorf("%s: %.60q has CPU %d: %w", d.Path(name), machine.FormatCPUs(cpus), id, errNotOnline))
		}
		return off
	})
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
			return nil, fmt.Errorf("%.20q is not a distance of 10 or more", f)
		}
		row = append(row, int(n))
	}
	return row, nil
}

// readCells reads the cells, and sets the cell of each CPU.
func (t *Topology) readCells(d *Dir) error {
	ids, err := value(d, "online", cpuSet)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return malformed(d, "online", "", "it names no cell")
	}
	for i, id := range ids {
		name := fmt.Sprintf("node%d", id)
		err := inDir(d, name, func(d *Dir) error {
			c, err := readCell(d, id)
			if err != nil {
				return err
			}
			if len(c.Distances) != len(ids) || c.Distances[i] != slices.Min(c.Distances) {
				return malformed(d, "distance", fmt.Sprint(c.Distances),
					"expected %d distances, the smallest to cell %d", len(ids), id)
			}
			c.CPUs = t.assignCPUs(d, c)
			t.Cells = append(t.Cells, c)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, c := range t.CPUs {
		if c.Online && c.Cell == None {
			if t.Odd != nil {
				return t.Odd
			}
			return fmt.Errorf("%s: CPU %d is online but in no cell", d.Path("node*/cpulist"), c.ID)
		}
	}
	return nil
}

// assignCPUs sets the cell of each CPU of a cell that is online and in no cell yet, and returns
// these.
func (t *Topology) assignCPUs(d *Dir, c Cell) []int {
	return slices.DeleteFunc(t.online(d, "cpulist", c.CPUs), func(id int) bool {
		cpu := t.CPU(id)
		if cpu.Cell == None {
			cpu.Cell = c.ID
			return false
		}
		t.odd(fmt.Errorf("%s: %.60q has CPU %d, which is in cell %d already: %w",
			d.Path("cpulist"), machine.FormatCPUs(c.CPUs), id, cpu.Cell, errShared))
		return true
	})
}

// readOffline sets the cell of each offline CPU. The lists of the cells leave it out, and its
// topology is gone, but its link to the cell stays.
func (t *Topology) readOffline(d *Dir) error {
	for i := range t.CPUs {
		c := &t.CPUs[i]
		if c.Online {
			continue
		}
		name := fmt.Sprintf("cpu%d", c.ID)
		entries, err := d.Names(name)
		if absent(err) {
			continue // not registered
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			text, is := strings.CutPrefix(entry, "node")
			id, err := strconv.ParseUint(text, 10, 31)
			switch {
			case !is || err != nil || t.Cell(int(id)) == nil:
			case c.Cell != None:
				return malformed(d, name, entry, "CPU %d is in cell %d already", c.ID, c.Cell)
			default:
				c.Cell = int(id)
			}
		}
	}
	return nil
}

// readTiers sets the memory tiers of the cells, which Linux has since 6.1.
func (t *Topology) readTiers(root *Dir) error {
	names, err := root.Names(tierDir)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		text, is := strings.CutPrefix(name, "memory_tier")
		tier, err := strconv.ParseUint(text, 10, 31)
		if !is || err != nil {
			continue
		}
		ids, err := value(root, tierDir+"/"+name+"/nodelist", cpuSet)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if c := t.Cell(id); c != nil {
				c.Tier = int(tier)
			}
		}
	}
	return nil
}

// wholeMachine makes the one cell of a kernel without NUMA.
func (t *Topology) wholeMachine(root *Dir) error {
	const file = "proc/meminfo"
	t.NoNUMA = true
	c := Cell{Distances: []int{10}, Tier: None}
	for i := range t.CPUs {
		cpu := &t.CPUs[i]
		cpu.Cell = c.ID
		if cpu.Online {
			c.CPUs = append(c.CPUs, cpu.ID)
		}
	}
	text, err := root.Text(file)
	if err != nil {
		return err
	}
	if c.MemoryKiB, err = memTotal(text, "MemTotal:"); err != nil {
		return malformed(root, file, text, "%v", err)
	}
	err = inDir(root, "sys/kernel/mm", func(d *Dir) error { c.HugePages, err = readPools(d, c.MemoryKiB); return err })
	if absent(err) && !exists(root, "sys/kernel/mm") {
		err = nil // a kernel without huge pages
	}
	t.Cells = []Cell{c}
	return err
}

func readCell(d *Dir, id int) (c Cell, err error) {
	c.ID, c.Tier = id, None
	if c.CPUs, err = value(d, "cpulist", cpuSet); err != nil {
		return c, err
	}
	text, err := d.Text("meminfo")
	if err != nil {
		return c, err
	}
	if c.MemoryKiB, err = memTotal(text, fmt.Sprintf("Node %d MemTotal:", id)); err != nil {
		return c, malformed(d, "meminfo", text, "%v", err)
	}
	if c.Distances, err = value(d, "distance", distances); err != nil {
		return c, err
	}
	if len(c.Distances) == 0 {
		return c, malformed(d, "distance", "", "it has no distances")
	}
	c.HugePages, err = readPools(d, c.MemoryKiB)
	return c, err
}

// readPools reads the huge pages of a cell. The kernel shows none for a cell without memory, or if
// it was built without them.
func readPools(d *Dir, memoryKiB uint64) ([]machine.Pages, error) {
	names, err := d.Names("hugepages")
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pools []machine.Pages
	left := memoryKiB
	for _, name := range names {
		size, err := pageSize(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path("hugepages/"+name), err)
		}
		p := machine.Pages{SizeKiB: size}
		at := "hugepages/" + name + "/"
		if p.Total, err = value(d, at+"nr_hugepages", count); err != nil {
			return nil, err
		}
		if p.Free, err = value(d, at+"free_hugepages", count); err != nil {
			return nil, err
		}
		if p.Free > p.Total {
			return nil, malformed(d, at+"free_hugepages",
				fmt.Sprint(p.Free), "more than the %d pages that there are", p.Total)
		}
		if p.Total > left/size {
			return nil, malformed(d, at+"nr_hugepages",
				fmt.Sprint(p.Total), "more pages of %d KiB than fit the cell's memory of %d KiB", size, memoryKiB)
		}
		left -= p.Total * size
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b machine.Pages) int { return int(a.SizeKiB) - int(b.SizeKiB) })
	return pools, nil
}

// pageSize reads the name of a pool: hugepages-2048kB.
func pageSize(name string) (uint64, error) {
	text, ok := strings.CutPrefix(name, "hugepages-")
	text, kB := strings.CutSuffix(text, "kB")
	if ok && kB {
		if n, err := count(text); err == nil && n > 0 && n <= 1<<34 {
			return n, nil
		}
	}
	return 0, errors.New("its name is not a page size in kB")
}
