// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
)

// part has the processors and the memory of a guest that come from one NUMA cell of the host.
type part struct {
	host                int
	dedicated, floating []int // virtual processors
	memoryMB            int64
	emulator            bool // the emulator's own processor is there
}

// needs returns the amounts that Placement must have granted for the part.
func (p part) needs() grant {
	g := grant{vcpu: int64(len(p.floating)), pcpu: int64(len(p.dedicated)), memoryMB: p.memoryMB}
	if p.emulator {
		g.pcpu++
	}
	return g
}

// amounts returns the amounts of processors and memory, in a form that can be compared.
func (g *grant) amounts() [3]int64 { return [3]int64{g.vcpu, g.pcpu, g.memoryMB} }

// divide divides a guest by the cells that it is to see: those of the flavor, or as many even ones.
// Nil: not possible. The emulator's processor is in the first.
func (c *chooser) divide(n int) []part {
	cells := c.specs.cells
	if cells == nil {
		cells, _ = extraspecs.Divide(n, c.Instance.Flavor.VCPUs, c.Instance.Flavor.MemoryMB)
	}
	dedicated, _ := c.kinds()
	parts := make([]part, 0, len(cells))
	for i, cell := range cells {
		p := part{host: machine.NoCell, memoryMB: cell.MemoryMB, emulator: i == 0 && c.specs.emulator == isolate}
		for _, vcpu := range cell.VCPUs {
			if _, is := slices.BinarySearch(dedicated, vcpu); is {
				p.dedicated = append(p.dedicated, vcpu)
			} else {
				p.floating = append(p.floating, vcpu)
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// kinds are the virtual processors that are dedicated and those that float, in ascending order. If
// the flavor does not say which, the first ones are dedicated.
func (c *chooser) kinds() (dedicated, floating []int) {
	count := int(c.root.pcpu)
	for _, g := range c.cells {
		count += int(g.pcpu)
	}
	if c.specs.emulator == isolate {
		count--
	}
	for vcpu := range int(c.Instance.Flavor.VCPUs) {
		is := vcpu < count
		if c.specs.dedicated != nil {
			is = slices.Contains(c.specs.dedicated, vcpu)
		}
		if is {
			dedicated = append(dedicated, vcpu)
		} else {
			floating = append(floating, vcpu)
		}
	}
	return dedicated, floating
}

// granted finds the parts of a guest in what is granted of cells. Amounts are enough to know them
// by: parts of the same amounts can be exchanged.
//
// A grant that is divided in another way, by another scheduler, is taken as it is, unless the
// flavor says which processors are in which cell.
func (c *chooser) granted(hosts []int) error {
	if parts := c.divide(len(hosts)); len(parts) == len(hosts) && c.match(parts, hosts) {
		c.parts = parts
		return nil
	}
	if c.specs.assigned {
		return c.fault("the amounts that it was granted of NUMA cells are not those of hw:numa_cpus and hw:numa_mem")
	}
	dedicated, floating := c.kinds()
	home := c.mostDedicated(hosts)
	take := func(from *[]int, n int64) []int {
		out := (*from)[:n:n]
		*from = (*from)[n:]
		return out
	}
	for _, host := range hosts {
		g := c.cells[host]
		p := part{host: host, memoryMB: g.memoryMB, emulator: c.specs.emulator == isolate && host == home}
		own := g.pcpu
		if p.emulator {
			own--
		}
		p.dedicated, p.floating = take(&dedicated, own), take(&floating, g.vcpu)
		c.parts = append(c.parts, p)
	}
	return nil
}

// match gives each part the first cell that is granted just what it needs.
func (c *chooser) match(parts []part, hosts []int) bool {
	used := map[int]bool{}
	for i := range parts {
		needs := parts[i].needs()
		at := slices.IndexFunc(hosts,
			func(host int) bool { return !used[host] && c.cells[host].amounts() == needs.amounts() })
		if at < 0 {
			return false
		}
		parts[i].host, used[hosts[at]] = hosts[at], true
	}
	return true
}

// mostDedicated is the cell in which the most dedicated processors are granted, or NoCell.
func (c *chooser) mostDedicated(cells []int) int {
	out, most := machine.NoCell, int64(0)
	for _, cell := range cells {
		if c.cells[cell].pcpu > most {
			out, most = cell, c.cells[cell].pcpu
		}
	}
	return out
}

// choose finds cells for the parts of a guest, each one of its own, the best ones for the first.
func (c *chooser) choose(parts []part) bool {
	suitable := make([][]int, len(parts))
	for i, p := range parts {
		suitable[i] = c.suitable(p.needs())
	}
	taken := map[int]int{} // parts by cell
	var place func(i int, seen map[int]bool) bool
	place = func(i int, seen map[int]bool) bool {
		for _, free := range []bool{true, false} {
			for _, cell := range suitable[i] {
				other, is := taken[cell]
				if is == free || seen[cell] {
					continue
				}
				seen[cell] = true
				if free || place(other, seen) {
					taken[cell] = i
					return true
				}
			}
		}
		return false
	}
	for i := range parts {
		if !place(i, map[int]bool{}) {
			return false
		}
	}
	for cell, i := range taken {
		parts[i].host = cell
	}
	return true
}

// checkAffinity checks hw:pci_numa_affinity_policy: devices that have to be near are in a cell of
// the guest.
func (c *chooser) checkAffinity(*domain.Decision) error {
	if c.specs.affinity != extraspecs.AffinityRequired {
		return nil
	}
	for cell := range c.devices {
		if !slices.ContainsFunc(c.parts, func(p part) bool { return p.host == cell }) {
			return c.fault(
				"hw:pci_numa_affinity_policy is required, and its devices are in another NUMA cell than its " +
					"processors, or in an unknown one")
		}
	}
	return nil
}
