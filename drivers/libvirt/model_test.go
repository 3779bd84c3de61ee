// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
)

// wish is a configuration, drawn for a host, in a form from which both the driver's configuration
// and what should come of it follow.
type wish struct {
	nested            bool
	shared, dedicated []int // nil: the key is not set
	reservedCPUs      int64
	reservedMB        int64
	pages             []reservedPages
	types             []wantedType
	specs             []wantedSpec
	// taken are the PCI devices that guests have.
	taken []string
	// encrypted says that libvirt offers as much memory encryption as the kernel.
	encrypted bool
}

type reservedPages struct {
	cell    int
	sizeKiB uint64
	count   int
}

type wantedType struct {
	id, class string
	addresses []string // none: all parents that no other type names
	traits    []string
}

type wantedSpec struct {
	vendor, product uint16
	class           string // "": that of the ids
	traits          []string
	once            bool
}

// drawWish draws a configuration that fits a host.
func drawWish(t *rapid.T, h testhost.Host) wish {
	w := wish{nested: rapid.Bool().Draw(t, "nested tree")}
	if rapid.Bool().Draw(t, "CPU sets") {
		for _, cpu := range h.OnlineCPUs() {
			switch rapid.IntRange(0, 2).Draw(t, "use of CPU") {
			case 0:
				w.shared = append(w.shared, cpu)
			case 1:
				w.dedicated = append(w.dedicated, cpu)
			}
		}
	}
	w.reservedCPUs = rapid.Int64Range(0, int64(min(len(w.vcpus(h)), 3))).Draw(t, "reserved CPUs")
	w.reservedMB = rapid.Int64Range(0, int64(h.Cells[0].MemoryKiB>>10)).Draw(t, "reserved MiB")
	for _, c := range h.Cells {
		for _, p := range c.HugePages {
			if p.Total > 0 && rapid.Bool().Draw(t, "reserve pages") {
				w.pages = append(w.pages,
					reservedPages{c.ID, p.SizeKiB, rapid.IntRange(0, int(p.Total)).Draw(t, "pages")})
			}
		}
	}
	w.drawTypes(t, h)
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom([]wantedSpec{
		{vendor: 0x15b3, product: 0x1016}, {vendor: 0x1af4, product: 0x1001}, {vendor: 0x10de, product: 0x20b1},
		{vendor: 0x10de, product: 0x1eb8},
	}), 0, 3, func(s wantedSpec) string { return s.ids() }).Draw(t, "devices for guests") {
		s.class = rapid.SampledFrom([]string{"", "CUSTOM_CARD", "CUSTOM_" + s.ids()}).Draw(t, "class of devices")
		if rapid.Bool().Draw(t, "traits of devices") {
			s.traits = []string{"CUSTOM_FAST"}
		}
		s.once = rapid.Bool().Draw(t, "for one use")
		w.specs = append(w.specs, s)
	}
	for _, d := range h.Devices {
		if w.spec(d) != nil && rapid.IntRange(0, 3).Draw(t, "taken") == 0 {
			w.taken = append(w.taken, d.Address)
		}
	}
	return w
}

func (w *wish) drawTypes(t *rapid.T, h testhost.Host) {
	named := map[string]bool{}
	classes := []string{"VGPU", "CUSTOM_A", "CUSTOM_B"}
	for i, id := range rapid.SliceOfNDistinct(
		rapid.SampledFrom([]string{"nvidia-222", "nvidia-231", "nvidia-471", "mtty-1", "none-of-these"}), 0,
		4, rapid.ID).Draw(t, "types") {
		one := wantedType{id: id, class: rapid.SampledFrom(classes).Draw(t, "class")}
		if rapid.Bool().Draw(t, "traits of type") {
			one.traits = []string{fmt.Sprintf("CUSTOM_TYPE_%d", i)}
		}
		for parent := range parents(h) {
			if !named[parent] && rapid.IntRange(0, 3).Draw(t, "named") == 0 {
				named[parent] = true
				one.addresses = append(one.addresses, parent)
			}
		}
		w.types = append(w.types, one)
	}
}

func (s wantedSpec) ids() string { return fmt.Sprintf("%04X_%04X", s.vendor, s.product) }

// parents are the parents of mediated devices by what the configuration calls them, in order.
func parents(h testhost.Host) func(func(string, parent) bool) {
	return func(yield func(string, parent) bool) {
		for _, d := range h.Devices {
			if len(d.Types) > 0 && !yield(d.Address, parent{d.MdevParent, testhost.NodeDeviceName(d.Address), d.Cell}) {
				return
			}
		}
		for _, v := range h.Virtual {
			name := v.Name + "_" + v.Name
			if len(v.Types) > 0 && !yield(name, parent{v.MdevParent, name, testhost.None}) {
				return
			}
		}
	}
}

type parent struct {
	testhost.MdevParent
	name string
	cell int
}

// config is the driver's configuration.
func (w wish) config() map[string]any {
	c := map[string]any{
		"numa": map[bool]string{false: "flat", true: "nested"}[w.nested], "reserved_host_cpus": w.reservedCPUs,
		"reserved_host_memory_mb": w.reservedMB,
		"pci_report_in_placement": len(w.specs) > 0,
	}
	for key, set := range map[string][]int{"cpu_shared_set": w.shared, "cpu_dedicated_set": w.dedicated} {
		if set != nil {
			c[key] = strings.Trim(strings.ReplaceAll(fmt.Sprint(set), " ", ","), "[]")
		}
	}
	var pages, specs []map[string]any
	for _, p := range w.pages {
		pages = append(pages, map[string]any{"node": p.cell, "size": p.sizeKiB, "count": p.count})
	}
	for _, s := range w.specs {
		spec := map[string]any{"vendor_id": fmt.Sprintf("%04x", s.vendor),
			"product_id": fmt.Sprintf("%04x", s.product), "one_time_use": s.once}
		if s.class != "" {
			spec["resource_class"] = s.class
		}
		if s.traits != nil {
			spec["traits"] = s.traits
		}
		specs = append(specs, spec)
	}
	enabled, types := []string{}, map[string]any{}
	for _, one := range w.types {
		enabled = append(enabled, one.id)
		options := map[string]any{"mdev_class": one.class}
		if one.addresses != nil {
			options["device_addresses"] = one.addresses
		}
		if one.traits != nil {
			options["traits"] = one.traits
		}
		types[one.id] = options
	}
	c["reserved_huge_pages"], c["pci_device_spec"],
		c["enabled_mdev_types"], c["mdev_types"] = pages, specs, enabled, types
	return c
}

// domains have what is taken.
func (w wish) domains() (list []testhost.Domain) {
	for i, address := range w.taken {
		list = append(list, testhost.Domain{Name: fmt.Sprintf("taker-%d", i),
			UUID: fmt.Sprintf("7a7e0000-0000-4000-8000-%012d", i), VCPUs: 1, MemoryMiB: 64, PCI: []string{address}})
	}
	return list
}

func (w wish) vcpus(h testhost.Host) []int {
	if w.shared == nil && w.dedicated == nil {
		return h.OnlineCPUs()
	}
	return w.shared
}

// spec is the first that matches a device.
func (w wish) spec(d testhost.Device) *wantedSpec {
	for i, s := range w.specs {
		if d.Vendor == s.vendor && d.Product == s.product {
			return &w.specs[i]
		}
	}
	return nil
}

// expected is a provider, by hand. Traits of the root are the same whatever the configuration, and
// not here.
type expected struct {
	Parent      string
	Inventories providertree.Inventories
	Traits      []string
}

const diskGiB = 100

// expect says what the tree is to be, from nothing but the host and the wish. What is reserved of
// processors and memory in cells is for sharesOf to judge, and 0 here.
func expect(h testhost.Host, w wish, node string) map[string]expected {
	exact := func(n int) providertree.Inventory { return inv(int64(n), 0, 1) }
	within := func(cpus, of []int) int {
		n := 0
		for _, cpu := range cpus {
			if slices.Contains(of, cpu) {
				n++
			}
		}
		return n
	}
	out := map[string]expected{}
	set := func(p expected, class string, i providertree.Inventory) {
		if i.Total > 0 {
			p.Inventories[class] = i
		}
	}
	root := expected{Inventories: providertree.Inventories{"DISK_GB": inv(diskGiB, 0, 1)}}
	if !w.nested {
		set(root, "VCPU", inv(int64(len(w.vcpus(h))), w.reservedCPUs, 4))
		set(root, "PCPU", exact(len(w.dedicated)))
		kib := h.MemoryKiB()
		for _, c := range h.Cells {
			if otherTier(h, c) {
				kib -= c.MemoryKiB
			}
		}
		set(root, "MEMORY_MB", inv(int64(kib>>10), w.reservedMB, 1))
	}
	out[node] = root
	below := func(cell int) string {
		if cell == testhost.None && len(h.Cells) == 1 { // it is in the only one
			cell = h.Cells[0].ID
		}
		name := fmt.Sprintf("%s_numa_%d", node, cell)
		if _, there := out[name]; there {
			return name
		}
		return node
	}
	for _, c := range h.Cells {
		cpus := h.CellCPUs(c.ID)
		if !w.nested || len(cpus) == 0 && c.MemoryKiB == 0 {
			continue
		}
		p := expected{Parent: node, Inventories: providertree.Inventories{}, Traits: []string{"HW_NUMA_ROOT"}}
		set(p, "VCPU", inv(int64(within(w.vcpus(h), cpus)), 0, 4))
		set(p, "PCPU", exact(within(w.dedicated, cpus)))
		set(p, "MEMORY_MB", inv(int64(c.MemoryKiB>>10), 0, 1))
		if otherTier(h, c) {
			p.Traits = append(p.Traits, "CUSTOM_MEMORY_TIER_UNKNOWN")
			slices.Sort(p.Traits)
		}
		for _, pages := range c.HugePages {
			i := exact(int(pages.Total))
			for _, r := range w.pages {
				if r.cell == c.ID && r.sizeKiB == pages.SizeKiB {
					i.Reserved = int64(r.count)
				}
			}
			set(p, map[uint64]string{64: "CUSTOM_HUGEPAGES_64K", 2048: "CUSTOM_HUGEPAGES_2M",
				32768: "CUSTOM_HUGEPAGES_32M", 1 << 20: "CUSTOM_HUGEPAGES_1G"}[pages.SizeKiB], i)
		}
		out[fmt.Sprintf("%s_numa_%d", node, c.ID)] = p
	}
	for name, p := range parents(h) {
		one := w.typeOf(name)
		if one == nil {
			continue
		}
		n := 0
		for _, m := range p.Active() {
			if m.Type == one.id {
				n++
			}
		}
		for _, offer := range p.Types {
			if offer.ID == one.id {
				n += offer.Available
			}
		}
		if n > 0 {
			out[node+"_"+p.name] = expected{
				Parent: below(p.cell), Inventories: providertree.Inventories{one.class: exact(n)},
				Traits: slices.Sorted(slices.Values(append([]string{"OWNER_NOVA"}, one.traits...))),
			}
		}
	}
	if w.encrypted && h.SEV != nil && h.SEV.SEV {
		kinds := map[string]int{"amd_sev": h.SEV.Guests}
		if h.SEV.ES {
			kinds["amd_sev_es"] = h.SEV.ESGuests
		}
		for kind, n := range kinds {
			contexts := exact(n)
			contexts.MaxUnit = 1
			out[node+"_"+kind] = expected{Parent: node,
				Inventories: providertree.Inventories{"MEM_ENCRYPTION_CONTEXT": contexts},
				Traits:      []string{"HW_CPU_X86_" + strings.ToUpper(kind), "OWNER_NOVA"}}
		}
	}
	for _, d := range h.Devices {
		s := w.spec(d)
		if s == nil {
			continue
		}
		home := d
		if d.PF != "" {
			home = *h.Device(d.PF)
		}
		name := node + "_" + strings.ToUpper(home.Address)
		p, there := out[name]
		if !there {
			p = expected{Parent: below(home.Cell), Inventories: providertree.Inventories{},
				Traits: slices.Sorted(
					slices.Values(append([]string{"COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"}, s.traits...)))}
			if s.once {
				p.Traits = slices.Sorted(slices.Values(append(p.Traits, "HW_PCI_ONE_TIME_USE")))
			}
			out[name] = p
		}
		class := s.class
		if class == "" {
			class = "CUSTOM_PCI_" + s.ids()
		}
		used := p.Inventories[class].Reserved > 0 || s.once && slices.Contains(w.taken, d.Address)
		i := exact(int(p.Inventories[class].Total) + 1)
		if used {
			i.Reserved = i.Total
		}
		p.Inventories[class] = i
	}
	return out
}

// otherTier says whether a cell has memory that no processors have, offline or not, on a host where
// some have memory, and whose kernel has no tiers.
func otherTier(h testhost.Host, c testhost.Cell) bool {
	with := map[int]bool{}
	for _, cpu := range h.CPUs {
		with[cpu.Cell] = true
	}
	return c.MemoryKiB > 0 && !with[c.ID] &&
		slices.ContainsFunc(h.Cells, func(c testhost.Cell) bool { return c.MemoryKiB > 0 && with[c.ID] })
}

// typeOf is the type that a parent makes: the one that names it, else the first that names none.
func (w wish) typeOf(parent string) *wantedType {
	for i := range w.types {
		if slices.Contains(w.types[i].addresses, parent) {
			return &w.types[i]
		}
	}
	for i := range w.types {
		if w.types[i].addresses == nil {
			return &w.types[i]
		}
	}
	return nil
}

// reported is what a tree says, in the model's words, without what is reserved in cells and without
// the traits of the root.
func reported(tree *providertree.Tree, node string) map[string]expected {
	out := map[string]expected{}
	for p := range tree.All() {
		e := expected{Inventories: maps.Clone(p.Inventories), Traits: p.Traits}
		if e.Inventories == nil {
			e.Inventories = providertree.Inventories{}
		}
		if above, found := tree.Provider(p.ParentUUID); found {
			e.Parent = above.Name
		}
		if p.Name == node {
			e.Traits = nil
		}
		if strings.HasPrefix(p.Name, node+"_numa_") {
			for _, class := range []string{"VCPU", "MEMORY_MB"} {
				if i, has := e.Inventories[class]; has {
					i.Reserved = 0
					e.Inventories[class] = i
				}
			}
		}
		out[p.Name] = e
	}
	return out
}

// compareTo names where a tree is not what the model says.
func compareTo(h testhost.Host, w wish, tree *providertree.Tree, node string) string {
	want := expect(h, w, node)
	root, _ := tree.ProviderByName(node)
	for name, p := range want { // the root's traits of the CPUs are also where VCPU and PCPU are
		if p.Inventories["VCPU"].Total+p.Inventories["PCPU"].Total > 0 && name != node {
			for _, trait := range root.Traits {
				if strings.HasPrefix(trait, "HW_CPU_") {
					p.Traits = append(p.Traits, trait)
				}
			}
			slices.Sort(p.Traits)
			want[name] = p
		}
	}
	d := cmp.Diff(want, reported(tree, node))
	if w.nested {
		d += sharesOf(tree, node, "VCPU", w.reservedCPUs, nil)
		without := map[string]bool{}
		for _, c := range h.Cells {
			without[fmt.Sprintf("%s_numa_%d", node, c.ID)] = len(h.CellCPUs(c.ID)) == 0
		}
		d += sharesOf(tree, node, "MEMORY_MB", w.reservedMB, without)
	}
	return d
}

// sharesOf sees that what is reserved of a class adds up over the cells, each with its share but
// for one unit. The last ones have only what does not fit into the others.
func sharesOf(tree *providertree.Tree, node, class string, reserved int64, last map[string]bool) string {
	var sum, total, more int64
	cells := map[string]providertree.Inventory{}
	for p := range tree.All() {
		if i, has := p.Inventories[class]; has && strings.HasPrefix(p.Name, node+"_numa_") {
			if sum += i.Reserved; last[p.Name] {
				more += i.Total
				continue
			}
			total += i.Total
			cells[p.Name] = i
		}
	}
	var out string
	if sum != reserved && total+more > 0 {
		out += fmt.Sprintf("%d of %s reserved in all, want %d\n", sum, class, reserved)
	}
	reserved = min(reserved, total)
	for name, i := range cells {
		if share := float64(reserved) * float64(i.Total) / float64(total); float64(i.Reserved) <= share-1 ||
			float64(i.Reserved) >= share+1 || i.Reserved > i.Total {
			out += fmt.Sprintf("%s: %d of %d %s reserved, its share is %.2f\n", name, i.Reserved, i.Total, class, share)
		}
	}
	return out
}
