// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// Random draws valid hosts, however odd, for property tests. Among them are:
//
//   - cells with gaps in their numbers and above 9, without CPUs or without memory; several
//     packages in a cell, several cells in a package, dies; kernels without NUMA
//   - offline and isolated CPUs, gaps in the numbers of CPUs, hyperthreads in part or none
//   - PCI domains above 0; devices without cell, driver, IOMMU group or modalias
//   - virtual functions, enabled or not, with mediated devices of their own; types with none
//     available; devices that are only defined.
func Random() *rapid.Generator[Host] { return rapid.Custom(draw) }

func draw(t *rapid.T) Host {
	h := Sample()
	h.Devices, h.Virtual, h.Namespaces = nil, nil, nil
	h.NoNUMA = rapid.IntRange(0, 9).Draw(t, "kernel without NUMA") == 0
	if rapid.Bool().Draw(t, "AMD") {
		h = amd(t, h)
	}
	h.Nested = rapid.Bool().Draw(t, "nested")
	topology(t, &h)
	devices(t, &h)
	return h
}

func amd(t *rapid.T, h Host) Host {
	epyc := GPUHost()
	h.Processor, h.Module, h.SEV = epyc.Processor, "kvm_amd", nil
	switch rapid.IntRange(0, 2).Draw(t, "SEV") {
	case 1:
		h.SEV = &SEV{}
	case 2:
		h.SEV = &SEV{SEV: true, ES: rapid.Bool().Draw(t, "ES"), Guests: rapid.IntRange(1, 509).Draw(t, "guests")}
		if h.SEV.ES {
			h.SEV.ESGuests = rapid.IntRange(1, 99).Draw(t, "ES guests")
			h.SEV.SNP = rapid.Bool().Draw(t, "SNP")
		}
	}
	return h
}

func topology(t *rapid.T, h *Host) {
	g := Grid{
		Packages:        rapid.IntRange(1, 3).Draw(t, "packages"),
		CellsPerPackage: rapid.IntRange(1, 2).Draw(t, "cells per package"),
		DiesPerCell:     rapid.IntRange(1, 2).Draw(t, "dies"), CoresPerDie: rapid.IntRange(1, 3).Draw(t, "cores"),
		ThreadsPerCore: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "threads"),
		Interleaved:    rapid.Bool().Draw(t, "interleaved"),
	}
	if h.NoNUMA {
		g.PackagesPerCell, g.CellsPerPackage = g.Packages, 1
	} else if g.CellsPerPackage == 1 && rapid.Bool().Draw(t, "shared cell") {
		g.PackagesPerCell = g.Packages
	}
	h.CPUs, h.Cells = g.Build()
	if !h.NoNUMA && rapid.Bool().Draw(t, "memory-only cell") {
		addCell(h)
	}
	renumber(t, h)
	sizes := rapid.SampledFrom([][]uint64{nil, {2048}, {2048, 1048576}, {64, 2048, 32768}}).Draw(t, "page sizes")
	for i := range h.Cells {
		memory(t, &h.Cells[i], sizes, i == 0)
	}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		c.Offline = c.ID != 0 && rapid.IntRange(0, 7).Draw(t, "offline") == 0
		c.Isolated = rapid.IntRange(0, 3).Draw(t, "isolated") == 0
		c.NoHzFull = c.Isolated && rapid.Bool().Draw(t, "nohz_full")
	}
	if rapid.IntRange(0, 4).Draw(t, "gaps in the numbers of CPUs") == 0 {
		h.CPUs = slices.DeleteFunc(h.CPUs,
			func(c CPU) bool { return c.ID != 0 && rapid.IntRange(0, 3).Draw(t, "absent") == 0 })
	}
	slices.SortFunc(h.CPUs, func(a, b CPU) int { return a.ID - b.ID })
}

func addCell(h *Host) {
	for i := range h.Cells {
		h.Cells[i].Distances = append(h.Cells[i].Distances, 17)
	}
	last := make([]int, len(h.Cells)+1)
	for i := range last {
		last[i] = 17
	}
	last[len(h.Cells)] = 10
	h.Cells = append(h.Cells, Cell{ID: len(h.Cells), Distances: last})
}

// renumber leaves gaps between the cells; there is always a cell 0.
func renumber(t *rapid.T, h *Host) {
	if h.NoNUMA {
		return
	}
	next := 0
	numbers := map[int]int{}
	for i := range h.Cells {
		if i > 0 {
			next += rapid.SampledFrom([]int{1, 1, 1, 2, 9}).Draw(t, "next cell")
		}
		numbers[h.Cells[i].ID] = next
		h.Cells[i].ID = next
	}
	for i := range h.CPUs {
		h.CPUs[i].Cell = numbers[h.CPUs[i].Cell]
	}
}

func memory(t *rapid.T, c *Cell, sizes []uint64, must bool) {
	c.MemoryKiB = uint64(rapid.IntRange(0, 64).Draw(t, "memory")) * 64 << 10
	if must {
		c.MemoryKiB += 64 << 10
	}
	if c.MemoryKiB == 0 {
		return
	}
	left := c.MemoryKiB
	for _, size := range sizes {
		p := HugePages{SizeKiB: size, Total: uint64(rapid.IntRange(0, int(min(left/size, 1000))).Draw(t, "huge pages"))}
		p.Free = uint64(rapid.IntRange(0, int(p.Total)).Draw(t, "free"))
		left -= p.Total * size
		c.HugePages = append(c.HugePages, p)
	}
}

// maker numbers what must be unique on a host.
type maker struct {
	t                 *rapid.T
	h                 *Host
	group, card, mdev int
}

func devices(t *rapid.T, h *Host) {
	m := &maker{t: t, h: h}
	domain := rapid.SampledFrom([]uint32{0, 0, 1, 0x10000}).Draw(t, "domain")
	for i := range rapid.IntRange(0, 4).Draw(t, "slots") {
		cell := m.cell()
		bus := uint8(0x20 * i)
		parent := ""
		if rapid.Bool().Draw(t, "behind a bridge") {
			port := Port(Address(domain, bus, 2, 0), cell)
			h.Devices = append(h.Devices, port)
			parent, bus = port.Address, bus+1
		}
		switch rapid.SampledFrom([]string{"GPU", "SR-IOV GPU", "NIC", "other"}).Draw(t, "device") {
		case "GPU":
			m.add(m.gpu(Address(domain, bus, 0, 0), parent, cell))
		case "SR-IOV GPU":
			m.functions(domain, bus, parent, cell, true)
		case "NIC":
			m.functions(domain, bus, parent, cell, false)
		default:
			m.add(Device{Address: Address(domain, bus, 3, 1), Parent: parent, Vendor: 0x1af4, Product: 0x1001,
				Class: 0x010000, Cell: cell, IOMMUGroup: m.iommu()})
		}
	}
	slices.SortFunc(h.Devices, func(a, b Device) int {
		if len(a.Address) != len(b.Address) {
			return len(a.Address) - len(b.Address)
		}
		if a.Address < b.Address {
			return -1
		}
		return 1
	})
	if rapid.IntRange(0, 3).Draw(t, "virtual parent") == 0 {
		p := VirtualParent{Name: "mtty"}
		p.MdevParent = m.mdevs([]MdevType{{ID: "mtty-1", API: "vfio-pci", Available: 24}})
		h.Virtual = append(h.Virtual, p)
	}
}

func (m *maker) add(d Device) {
	if rapid.IntRange(0, 3).Draw(m.t, "no driver") == 0 && len(d.Types) == 0 && len(d.VFs) == 0 {
		d.Driver, d.Interfaces = "", nil
	}
	d.NoModalias = rapid.IntRange(0, 5).Draw(m.t, "no modalias") == 0
	m.h.Devices = append(m.h.Devices, d)
}

func (m *maker) cell() int {
	if m.h.NoNUMA || rapid.IntRange(0, 3).Draw(m.t, "no cell") == 0 {
		return None
	}
	return rapid.SampledFrom(m.h.CellIDs()).Draw(m.t, "cell")
}

func (m *maker) iommu() int {
	if rapid.IntRange(0, 3).Draw(m.t, "no IOMMU group") == 0 {
		return None
	}
	m.group++
	return m.group - 1
}

func (m *maker) gpu(address, parent string, cell int) Device {
	d := GPU(address, parent, cell, m.iommu(), m.card)
	m.card++
	if rapid.Bool().Draw(m.t, "no types") {
		d.MdevParent = MdevParent{}
		return d
	}
	for i := range d.Types {
		d.Types[i].Available = rapid.IntRange(0, 4).Draw(m.t, "instances")
	}
	d.MdevParent = m.mdevs(d.Types)
	return d
}

func (m *maker) mdevs(types []MdevType) MdevParent {
	p := MdevParent{Types: types}
	for range rapid.IntRange(0, 3).Draw(m.t, "mediated devices") {
		m.mdev++
		d := Mdev{UUID: fmt.Sprintf("c0ffee00-0000-4000-8000-%012x", m.mdev),
			Type: rapid.SampledFrom(types).Draw(m.t, "type").ID, IOMMUGroup: 1000 + m.mdev}
		d.Inactive = rapid.IntRange(0, 3).Draw(m.t, "inactive") == 0
		p.Mdevs = append(p.Mdevs, d)
	}
	return p
}

// functions makes a physical function and some virtual ones.
func (m *maker) functions(domain uint32, bus uint8, parent string, cell int, gpus bool) {
	pf := Device{
		Address: Address(domain, bus, 0, 0), Parent: parent, Vendor: 0x15b3, Product: 0x1015,
		Class: 0x020000, Driver: "mlx5_core",
		Cell: cell, IOMMUGroup: m.iommu(), TotalVFs: rapid.IntRange(1, 64).Draw(m.t, "total VFs"),
	}
	if gpus {
		pf.Vendor, pf.Product, pf.Class, pf.Driver = 0x10de, 0x20b0, 0x030200, "nvidia"
	} else {
		pf.Interfaces = []Interface{{Name: fmt.Sprintf("ens%df0", bus), MAC: fmt.Sprintf("aa:bb:cc:%02x:00:00", bus)}}
	}
	var vfs []Device
	for i := range rapid.IntRange(0, min(pf.TotalVFs, 12)).Draw(m.t, "enabled VFs") {
		vf := Device{
			Address: Address(domain, bus, uint8(1+i/8), uint8(i%8)), Parent: parent, Vendor: pf.Vendor,
			Product: pf.Product + 1, Class: pf.Class, Driver: pf.Driver,
			Cell: cell, IOMMUGroup: m.iommu(), PF: pf.Address,
		}
		if gpus {
			vf.MdevParent = m.mdevs(
				[]MdevType{{ID: "nvidia-471", Name: "GRID A100-1-5C", API: "vfio-pci",
					Available: rapid.IntRange(0, 1).Draw(m.t, "instances")}})
		}
		pf.VFs = append(pf.VFs, vf.Address)
		vfs = append(vfs, vf)
	}
	m.add(pf)
	for _, vf := range vfs {
		m.add(vf)
	}
}
