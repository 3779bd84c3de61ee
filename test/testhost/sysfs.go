// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// Sysfs writes the host's sys and proc below a directory, which should be empty. About 10 files for
// each CPU and device.
func (h Host) Sysfs(dir string) (Tree, error) {
	w := writer{tree: Tree(dir), made: map[string]bool{}}
	w.cpus(h)
	if !h.NoNUMA {
		w.cells(h)
	}
	w.pools(h)
	w.proc(h)
	w.virtualization(h)
	for _, d := range []string{"sys/class/drm", "sys/class/net", "sys/bus/pci/devices", "sys/bus/pci/drivers",
		"sys/fs/cgroup", "sys/kernel/iommu_groups"} {
		w.mkdir(d)
	}
	w.file("sys/bus/pci/drivers_probe", "")
	w.driverFiles("vfio-pci")
	for i := range h.Devices {
		w.device(h, &h.Devices[i])
	}
	w.vgpus(h)
	for _, p := range h.Virtual {
		w.virtual(p)
	}
	if slices.ContainsFunc(h.Devices, func(d Device) bool { return len(d.Types) > 0 }) || len(h.Virtual) > 0 {
		w.mkdir("sys/class/mdev_bus")
		w.mkdir("sys/bus/mdev/devices")
	}
	w.namespaces(h)
	return w.tree, w.err
}

// writer writes until the first error and keeps it. There is no reader yet, so it need not replace
// files in one step.
type writer struct {
	tree Tree
	made map[string]bool // directories
	err  error
}

func (w *writer) file(name, format string, args ...any) {
	if w.mkdir(path.Dir(name)); w.err == nil {
		w.err = os.WriteFile(w.tree.Path(name), fmt.Appendf(nil, format, args...), 0o644)
	}
}

func (w *writer) mkdir(name string) {
	if w.err == nil && !w.made[name] {
		w.err = w.tree.Mkdir(name)
		w.made[name] = true
	}
}

func (w *writer) link(name, target string) {
	if w.mkdir(path.Dir(name)); w.err == nil {
		w.err = os.Symlink(relative(path.Dir(name), target), w.tree.Path(name))
	}
}

// list is the kernel's notation of a set: 0-3,8.
func list(ids []int) string {
	var b strings.Builder
	for i := 0; i < len(ids); i++ {
		first := ids[i]
		for i+1 < len(ids) && ids[i+1] == ids[i]+1 {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, first)
		if ids[i] > first {
			fmt.Fprintf(&b, "-%d", ids[i])
		}
	}
	return b.String()
}

// mask is the kernel's other notation: hexadecimal words of 32 bits, the highest first.
func mask(ids []int, highest int) string {
	words := make([]uint32, highest/32+1)
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	var text []string
	for _, word := range slices.Backward(words) {
		text = append(text, fmt.Sprintf("%08x", word))
	}
	return strings.Join(text, ",")
}

func (w *writer) cpus(h Host) {
	const at = "sys/devices/system/cpu/"
	present := h.PresentCPUs()
	highest := slices.Max(present)
	w.file(at+"present", "%s\n", list(present))
	w.file(at+"possible", "0-%d\n", highest)
	w.file(at+"online", "%s\n", list(h.OnlineCPUs()))
	w.file(at+"isolated", "%s\n", list(h.IsolatedCPUs()))
	if tickless := h.NoHzFullCPUs(); len(tickless) > 0 {
		w.file(at+"nohz_full", "%s\n", list(tickless))
	} else {
		w.file(at+"nohz_full", "(null)\n") // what Linux prints for an empty set here
	}
	w.file(at+"smt/control", "%s\n", h.smt())
	for _, c := range h.CPUs {
		w.cpu(h, c, highest)
	}
}

// smt is the kernel's word for whether cores have several threads, online or not.
func (h Host) smt() string {
	cores := map[[3]int]bool{}
	for _, c := range h.CPUs {
		at := [3]int{c.Package, c.Die, c.Core}
		if cores[at] {
			return "on"
		}
		cores[at] = true
	}
	return "notsupported"
}

func (w *writer) cpu(h Host, c CPU, highest int) {
	at := fmt.Sprintf("sys/devices/system/cpu/cpu%d", c.ID)
	if c.ID != 0 { // the first CPU cannot be taken offline
		online := 1
		if c.Offline {
			online = 0
		}
		w.file(at+"/online", "%d\n", online)
	}
	w.file(at+"/uevent", "DRIVER=processor\n")
	w.link(fmt.Sprintf("sys/bus/cpu/devices/cpu%d", c.ID), at)
	w.link(at+"/subsystem", "sys/bus/cpu")
	w.mkdir(at + "/cache")
	if !h.NoNUMA {
		cell := fmt.Sprintf("sys/devices/system/node/node%d", c.Cell)
		w.link(fmt.Sprintf("%s/cpu%d", cell, c.ID), at)
		w.link(fmt.Sprintf("%s/node%d", at, c.Cell), cell)
	}
	if c.Offline {
		return
	}
	siblings := h.Siblings(c)
	w.file(at+"/topology/physical_package_id", "%d\n", c.Package)
	w.file(at+"/topology/die_id", "%d\n", c.Die)
	w.file(at+"/topology/cluster_id", "%d\n", c.Core)
	w.file(at+"/topology/core_id", "%d\n", c.Core)
	w.file(at+"/topology/thread_siblings", "%s\n", mask(siblings, highest))
	w.file(at+"/topology/thread_siblings_list", "%s\n", list(siblings))
	if h.Processor.Microcode != 0 {
		w.file(at+"/microcode/version", "0x%x\n", h.Processor.Microcode)
	}
}

func (w *writer) cells(h Host) {
	const at = "sys/devices/system/node/"
	w.file(at+"online", "%s\n", list(h.CellIDs()))
	w.file(at+"possible", "0-%d\n", slices.Max(h.CellIDs()))
	var withMemory, withCPUs []int
	for _, c := range h.Cells {
		if c.MemoryKiB > 0 {
			withMemory = append(withMemory, c.ID)
		}
		if len(h.CellCPUs(c.ID)) > 0 {
			withCPUs = append(withCPUs, c.ID)
		}
	}
	w.file(at+"has_memory", "%s\n", list(withMemory))
	w.file(at+"has_normal_memory", "%s\n", list(withMemory))
	w.file(at+"has_cpu", "%s\n", list(withCPUs))
	tiers := map[int][]int{}
	for _, c := range h.Cells {
		if c.Tier > 0 {
			tiers[c.Tier] = append(tiers[c.Tier], c.ID)
		}
	}
	for tier, ids := range tiers {
		w.file(fmt.Sprintf("sys/devices/virtual/memory_tiering/memory_tier%d/nodelist", tier), "%s\n", list(ids))
	}
	block := h.blockKiB()
	w.file("sys/devices/system/memory/block_size_bytes", "%x\n", block<<10)
	next := 0
	for _, c := range h.Cells {
		w.cell(h, c)
		for range c.MemoryKiB / block {
			memory := fmt.Sprintf("sys/devices/system/memory/memory%d", next)
			w.file(memory+"/state", "online\n")
			w.file(memory+"/online", "1\n")
			w.link(fmt.Sprintf("%snode%d/memory%d", at, c.ID, next), memory)
			next++
		}
	}
}

// blockKiB is the size of the blocks in which memory can be plugged: large enough that no host has
// thousands.
func (h Host) blockKiB() uint64 {
	block := uint64(128 << 10)
	for h.MemoryKiB()/block > 128 {
		block *= 2
	}
	return block
}

func (w *writer) cell(h Host, c Cell) {
	at := fmt.Sprintf("sys/devices/system/node/node%d/", c.ID)
	cpus := h.CellCPUs(c.ID)
	w.file(at+"cpulist", "%s\n", list(cpus))
	w.file(at+"cpumap", "%s\n", mask(cpus, slices.Max(h.PresentCPUs())))
	w.file(at+"distance", "%s\n", strings.Trim(fmt.Sprint(c.Distances), "[]"))
	var small HugePages
	for _, p := range c.HugePages {
		if p.SizeKiB == 2048 {
			small = p
		}
		pool := fmt.Sprintf("%shugepages/hugepages-%dkB/", at, p.SizeKiB)
		w.file(pool+"nr_hugepages", "%d\n", p.Total)
		w.file(pool+"free_hugepages", "%d\n", p.Free)
		w.file(pool+"surplus_hugepages", "0\n")
	}
	w.file(at+"meminfo",
		"Node %[1]d MemTotal:       %[2]d kB\nNode %[1]d MemFree:        %[3]d kB\nNode %[1]d MemUsed:        %[4]d "+
			"kB\nNode %[1]d HugePages_Total: %[5]d\nNode %[1]d HugePages_Free:  %[6]d\nNode %[1]d "+
			"HugePages_Surp:      0\n",
		c.ID, c.MemoryKiB, c.MemoryKiB/2, c.MemoryKiB-c.MemoryKiB/2, small.Total, small.Free)
}

// pools are the huge pages of the whole machine.
func (w *writer) pools(h Host) {
	sums := map[uint64]HugePages{}
	for _, c := range h.Cells {
		for _, p := range c.HugePages {
			s := sums[p.SizeKiB]
			sums[p.SizeKiB] = HugePages{SizeKiB: p.SizeKiB, Total: s.Total + p.Total, Free: s.Free + p.Free}
		}
	}
	for _, p := range sums {
		pool := fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB/", p.SizeKiB)
		w.file(pool+"nr_hugepages", "%d\n", p.Total)
		w.file(pool+"free_hugepages", "%d\n", p.Free)
		w.file(pool+"resv_hugepages", "0\n")
		w.file(pool+"surplus_hugepages", "0\n")
	}
}
