// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/chroot"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/cpulist"
)

// readCells reads the cells, and tells the CPUs in which they are.
func (t *Topology) readCells(d *chroot.Dir) error {
	ids, err := value(d, "online", cpuSet)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return malformed(d, "online", "", "it names no cell")
	}
	for i, id := range ids {
		name := fmt.Sprintf("node%d", id)
		err := in(d, name, func(d *chroot.Dir) error {
			c, err := readCell(d, id)
			if err != nil {
				return err
			}
			if len(c.Distances) != len(ids) || c.Distances[i] != slices.Min(c.Distances) {
				return malformed(d, "distance", fmt.Sprint(c.Distances), "not %d distances of which the one to cell %d is the least", len(ids), id)
			}
			t.Cells = append(t.Cells, c)
			return t.settle(d, c)
		})
		if err != nil {
			return err
		}
	}
	for _, c := range t.CPUs {
		if c.Online && c.Cell == None {
			return fmt.Errorf("%s: CPU %d is online, and no cell has it", d.Path("node*/cpulist"), c.ID)
		}
	}
	return nil
}

// settle tells the CPUs of a cell that they belong to it.
func (t *Topology) settle(d *chroot.Dir, c Cell) error {
	for _, id := range c.CPUs {
		cpu := t.CPU(id)
		if cpu == nil || !cpu.Online {
			return malformed(d, "cpulist", cpulist.Format(c.CPUs), "CPU %d is not online", id)
		}
		if cpu.Cell != None {
			return malformed(d, "cpulist", cpulist.Format(c.CPUs), "CPU %d is in cell %d already", id, cpu.Cell)
		}
		cpu.Cell = c.ID
	}
	return nil
}

// wholeMachine makes the one cell of a kernel without NUMA.
func (t *Topology) wholeMachine(root *chroot.Dir) error {
	const file = "proc/meminfo"
	t.NoNUMA = true
	c := Cell{Distances: []int{10}}
	for i := range t.CPUs {
		if cpu := &t.CPUs[i]; cpu.Online {
			cpu.Cell = c.ID
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
	err = in(root, "sys/kernel/mm", func(d *chroot.Dir) error { c.HugePages, err = readPools(d, c.MemoryKiB); return err })
	if absent(err) && !exists(root, "sys/kernel/mm") {
		err = nil // a kernel without huge pages
	}
	t.Cells = []Cell{c}
	return err
}

func readCell(d *chroot.Dir, id int) (c Cell, err error) {
	c.ID = id
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

// readPools reads the huge pages of a cell. The kernel shows none for a cell without memory, or if it was built without them.
func readPools(d *chroot.Dir, memoryKiB uint64) ([]HugePages, error) {
	names, err := d.Names("hugepages")
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pools []HugePages
	left := memoryKiB
	for _, name := range names {
		size, err := pageSize(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path("hugepages/"+name), err)
		}
		p := HugePages{SizeKiB: size}
		at := "hugepages/" + name + "/"
		if p.Total, err = value(d, at+"nr_hugepages", count); err != nil {
			return nil, err
		}
		if p.Free, err = value(d, at+"free_hugepages", count); err != nil {
			return nil, err
		}
		if p.Free > p.Total {
			return nil, malformed(d, at+"free_hugepages", fmt.Sprint(p.Free), "more than the %d pages that there are", p.Total)
		}
		if p.Total > left/size {
			return nil, malformed(d, at+"nr_hugepages", fmt.Sprint(p.Total), "more pages of %d KiB than the cell's memory of %d KiB has room for", size, memoryKiB)
		}
		left -= p.Total * size
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b HugePages) int { return int(a.SizeKiB) - int(b.SizeKiB) })
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
	return 0, errors.New("its name is no size of pages in kB")
}
