// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Compare returns where the kernel and libvirt differ. The driver uses the kernel's data, from
// which libvirt's comes: a difference mostly means that libvirt missed a change, and that what it
// does with the device will fail. Types selects the types of mediated devices that matter; nil:
// all.
//
// Cost: O(CPUs + devices).
func Compare(kernel, libvirt Machine, types func(id string) bool) []Discrepancy {
	if types == nil {
		types = func(string) bool { return true }
	}
	c := comparison{}
	c.cells(kernel, libvirt)
	c.devices(kernel, libvirt)
	c.parents(kernel, libvirt, types)
	return c.discrepancies
}

type comparison struct{ discrepancies []Discrepancy }

func (c *comparison) add(key string, problems []string) {
	if len(problems) > 0 {
		c.discrepancies = append(c.discrepancies,
			Discrepancyf(key, "%s; the driver uses the kernel's data", JoinSome(problems)))
	}
}

// maxListed is how much of a list is maxListed.
const maxListed = 5

// JoinSome joins a list, of a long one the beginning and the number of the others.
func JoinSome(list []string) string {
	if len(list) <= maxListed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(list[:maxListed], ", "), len(list)-maxListed)
}

// byKey joins two lists, and describes what is in one only.
func byKey[K cmp.Ordered, V any](kernel, libvirt []V, key func(V) K) (both [][2]V, apart []string) {
	theirs := make(map[K]V, len(libvirt))
	for _, v := range libvirt {
		theirs[key(v)] = v
	}
	for _, v := range kernel {
		k := key(v)
		if other, found := theirs[k]; found {
			both = append(both, [2]V{v, other})
			delete(theirs, k)
		} else {
			apart = append(apart, fmt.Sprintf("%v is known only to the kernel", k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(theirs)) {
		apart = append(apart, fmt.Sprintf("%v is known only to libvirt", k))
	}
	return both, apart
}

func (c *comparison) cells(kernel, libvirt Machine) {
	both, differing := byKey(kernel.Cells, libvirt.Cells, func(v Cell) int { return v.ID })
	var cpus, memory, pages []string
	for i, text := range differing {
		differing[i] = "NUMA cell " + text
	}
	for _, b := range both {
		k, l := b[0], b[1]
		if !slices.Equal(k.CPUs, l.CPUs) {
			cpus = append(cpus, fmt.Sprintf("NUMA cell %d has CPUs %s according to the kernel, %s according to libvirt",
				k.ID, cpuNames(k.CPUs), cpuNames(l.CPUs)))
		}
		if k.MemoryKiB > l.MemoryKiB+l.MemoryKiB/100 || l.MemoryKiB > k.MemoryKiB+k.MemoryKiB/100 {
			memory = append(memory,
				fmt.Sprintf("NUMA cell %d has %d MiB according to the kernel, %d according to libvirt",
					k.ID, k.MemoryKiB>>10, l.MemoryKiB>>10))
		}
		if text := pagesApart(k.Pages, l.Pages); text != "" {
			pages = append(pages, fmt.Sprintf("NUMA cell %d has %s", k.ID, text))
		}
	}
	c.add("numa-cells", differing)
	c.add("numa-cpus", cpus)
	c.add("numa-memory", memory)
	c.add("huge-pages", pages)
}

func cpuNames(cpus []int) string {
	if len(cpus) == 0 {
		return "none"
	}
	return FormatCPUs(cpus)
}

func pagesApart(kernel, libvirt []Pages) string {
	count := func(list []Pages) map[uint64]uint64 {
		out := map[uint64]uint64{}
		for _, p := range list {
			if p.Total > 0 {
				out[p.SizeKiB] = p.Total
			}
		}
		return out
	}
	k, l := count(kernel), count(libvirt)
	if maps.Equal(k, l) {
		return ""
	}
	words := func(m map[uint64]uint64) string {
		var parts []string
		for _, size := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, fmt.Sprintf("%d of %d KiB", m[size], size))
		}
		if parts == nil {
			return "none"
		}
		return strings.Join(parts, " and ")
	}
	return fmt.Sprintf("as huge pages %s according to the kernel, %s according to libvirt", words(k), words(l))
}

func (c *comparison) devices(kernel, libvirt Machine) {
	both, differing := byKey(kernel.Devices, libvirt.Devices, func(d Device) string { return d.Address.String() })
	var identity, drivers, cells, functions []string
	for _, b := range both {
		k, l := b[0], b[1]
		if k.Class != l.Class || k.Vendor != l.Vendor || k.Product != l.Product {
			identity = append(identity,
				fmt.Sprintf("%s is %04x:%04x of class %06x according to the kernel, %04x:%04x of class %06x "+
					"according to libvirt", k.Address, k.Vendor, k.Product, k.Class, l.Vendor, l.Product, l.Class))
		}
		if k.Driver != l.Driver {
			drivers = append(
				drivers,
				fmt.Sprintf("%s is bound to %s according to the kernel, to %s according to libvirt",
					k.Address, orElse(k.Driver, "no driver"), orElse(l.Driver, "no driver")),
			)
		}
		if k.Cell != l.Cell {
			cells = append(cells, fmt.Sprintf("%s is in %s according to the kernel, in %s according to libvirt",
				k.Address, cellName(k.Cell), cellName(l.Cell)))
		}
		if !slices.Equal(k.Virtual, l.Virtual) || k.MaxVirtual != l.MaxVirtual || !sameAddress(k.Physical, l.Physical) {
			functions = append(functions, fmt.Sprintf("%s is %s according to the kernel, %s according to libvirt",
				k.Address, sriov(k), sriov(l)))
		}
	}
	c.add("pci-devices", differing)
	c.add("pci-identity", identity)
	c.add("pci-driver", drivers)
	c.add("pci-numa", cells)
	c.add("pci-sriov", functions)
}

func orElse(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}

func cellName(id int) string {
	if id == NoCell {
		return "no NUMA cell"
	}
	return fmt.Sprintf("NUMA cell %d", id)
}

func sameAddress(a, b *Address) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func sriov(d Device) string {
	switch {
	case d.Physical != nil:
		return "a virtual function of " + d.Physical.String()
	case d.MaxVirtual > 0 || len(d.Virtual) > 0:
		return fmt.Sprintf("a physical function with %d of %d virtual ones", len(d.Virtual), d.MaxVirtual)
	}
	return "no SR-IOV device"
}

func (c *comparison) parents(kernel, libvirt Machine, want func(string) bool) {
	// libvirt knows nothing of vGPUs on virtual functions.
	known := slices.DeleteFunc(slices.Clone(kernel.Parents),
		func(p MdevParent) bool { return p.MakesVGPUs() || p.Problem != "" })
	both, differing := byKey(known, libvirt.Parents, func(p MdevParent) string { return p.Name })
	var types, mdevs []string
	for _, b := range both {
		k, l := b[0], b[1]
		wanted := func(list []MdevType) []MdevType {
			return slices.DeleteFunc(slices.Clone(list), func(t MdevType) bool { return !want(t.ID) })
		}
		pairs, only := byKey(wanted(k.Types), wanted(l.Types), func(t MdevType) string { return t.ID })
		for _, text := range only {
			types = append(types, fmt.Sprintf("type %s on %s", text, k.Name))
		}
		for _, p := range pairs {
			if p[0].Available != p[1].Available {
				types = append(
					types,
					fmt.Sprintf("of type %s on %s %d are available according to the kernel, %d according to libvirt",
						p[0].ID, k.Name, p[0].Available, p[1].Available),
				)
			}
		}
		active := func(list []Mdev) []Mdev {
			return slices.DeleteFunc(slices.Clone(list), func(m Mdev) bool { return !m.Active })
		}
		_, only = byKey(active(k.Mdevs), active(l.Mdevs), func(m Mdev) string { return m.UUID + " of type " + m.Type })
		for _, text := range only {
			mdevs = append(mdevs, fmt.Sprintf("%s on %s", text, k.Name))
		}
	}
	c.add("mdev-parents", differing)
	c.add("mdev-types", types)
	c.add("mdevs", mdevs)
}
