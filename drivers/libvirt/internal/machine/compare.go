// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Compare names what the kernel and libvirt do not agree about. The kernel counts in all of it, since libvirt has it from there; so a
// disagreement mostly means that libvirt's news of a change was lost, and that what it does with a device will fail. Types says which types
// of mediated devices matter; nil: all.
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
	return c.doubts
}

type comparison struct{ doubts []Discrepancy }

func (c *comparison) tell(key string, problems []string) {
	if len(problems) > 0 {
		c.doubts = append(c.doubts, Discrepancyf(key, "%s; the kernel counts", Some(problems)))
	}
}

// told is how much of a list is told.
const told = 5

// Some names a list, of a long one the beginning and how much more there is.
func Some(list []string) string {
	if len(list) <= told {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(list[:told], ", "), len(list)-told)
}

// byKey indexes two lists, and says in words what is in one only.
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
			apart = append(apart, fmt.Sprintf("%v only the kernel has", k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(theirs)) {
		apart = append(apart, fmt.Sprintf("%v only libvirt has", k))
	}
	return both, apart
}

func (c *comparison) cells(kernel, libvirt Machine) {
	both, apart := byKey(kernel.Cells, libvirt.Cells, func(v Cell) int { return v.ID })
	var cpus, memory, pages []string
	for i, text := range apart {
		apart[i] = "NUMA cell " + text
	}
	for _, b := range both {
		k, l := b[0], b[1]
		if !slices.Equal(k.CPUs, l.CPUs) {
			cpus = append(cpus, fmt.Sprintf("NUMA cell %d has CPUs %s by the kernel, %s by libvirt", k.ID, cpuNames(k.CPUs), cpuNames(l.CPUs)))
		}
		if k.MemoryKiB > l.MemoryKiB+l.MemoryKiB/100 || l.MemoryKiB > k.MemoryKiB+k.MemoryKiB/100 {
			memory = append(memory, fmt.Sprintf("NUMA cell %d has %d MiB by the kernel, %d by libvirt", k.ID, k.MemoryKiB>>10, l.MemoryKiB>>10))
		}
		if text := pagesApart(k.Pages, l.Pages); text != "" {
			pages = append(pages, fmt.Sprintf("NUMA cell %d has %s", k.ID, text))
		}
	}
	c.tell("numa-cells", apart)
	c.tell("numa-cpus", cpus)
	c.tell("numa-memory", memory)
	c.tell("huge-pages", pages)
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
	return fmt.Sprintf("as huge pages %s by the kernel, %s by libvirt", words(k), words(l))
}

func (c *comparison) devices(kernel, libvirt Machine) {
	both, apart := byKey(kernel.Devices, libvirt.Devices, func(d Device) string { return d.Address.String() })
	var identity, drivers, cells, functions []string
	for _, b := range both {
		k, l := b[0], b[1]
		if k.Class != l.Class || k.Vendor != l.Vendor || k.Product != l.Product {
			identity = append(identity, fmt.Sprintf("%s is %04x:%04x of class %06x by the kernel, %04x:%04x of class %06x by libvirt",
				k.Address, k.Vendor, k.Product, k.Class, l.Vendor, l.Product, l.Class))
		}
		if k.Driver != l.Driver {
			drivers = append(drivers, fmt.Sprintf("%s is bound to %s by the kernel, to %s by libvirt", k.Address, or(k.Driver, "no driver"), or(l.Driver, "no driver")))
		}
		if k.Cell != l.Cell {
			cells = append(cells, fmt.Sprintf("%s is in %s by the kernel, in %s by libvirt", k.Address, cellName(k.Cell), cellName(l.Cell)))
		}
		if !slices.Equal(k.Virtual, l.Virtual) || k.MaxVirtual != l.MaxVirtual || !sameAddress(k.Physical, l.Physical) {
			functions = append(functions, fmt.Sprintf("%s is %s by the kernel, %s by libvirt", k.Address, sriov(k), sriov(l)))
		}
	}
	c.tell("pci-devices", apart)
	c.tell("pci-identity", identity)
	c.tell("pci-driver", drivers)
	c.tell("pci-numa", cells)
	c.tell("pci-sriov", functions)
}

func or(text, instead string) string {
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
	return "no device of SR-IOV"
}

func (c *comparison) parents(kernel, libvirt Machine, want func(string) bool) {
	both, apart := byKey(kernel.Parents, libvirt.Parents, func(p MdevParent) string { return p.Name })
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
				types = append(types, fmt.Sprintf("of type %s on %s %d are available by the kernel, %d by libvirt", p[0].ID, k.Name, p[0].Available, p[1].Available))
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
	c.tell("mdev-parents", apart)
	c.tell("mdev-types", types)
	c.tell("mdevs", mdevs)
}
