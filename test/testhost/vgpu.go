// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// VGPUCard is a GPU whose driver makes vGPUs on its virtual functions, without mediated devices:
// NVIDIA's vendor-specific VFIO, Linux 6.8 and later.
//
// Sources: kubevirt#16890 and kernel/hypeman#327 and #364 (an L40S, vGPU 19), bigstack-oss/cubecos
// #1316 and #1338 (RTX PRO 6000): the files, the heading, the lists that shrink to one size of
// framebuffer with the first vGPU and to the heading with the last that fits, and what is refused.
type VGPUCard struct {
	// Types are all types that its driver knows.
	Types []VGPUType
	// FramebufferMiB is what its vGPUs share.
	FramebufferMiB int
	// Heterogeneous cards make vGPUs of several sizes at a time (nvidia-smi vgpu -shm 1).
	Heterogeneous bool
	// Current are the numbers of the types that its functions have, by their addresses.
	Current map[string]int
}

// VGPUType is a type of vGPUs, with the number and name that the driver has for it.
type VGPUType struct {
	ID             int
	Name           string
	FramebufferMiB int
	// Fit is how many fit on the GPU.
	Fit int
}

// typeOf returns the type with a number, or nil.
func (c *VGPUCard) typeOf(id int) *VGPUType {
	if i := slices.IndexFunc(c.Types, func(t VGPUType) bool { return t.ID == id }); i >= 0 {
		return &c.Types[i]
	}
	return nil
}

// Creatable are the types that a function without a vGPU can get now.
func (c *VGPUCard) Creatable() (types []VGPUType) {
	used, sizes, made := 0, map[int]bool{}, map[int]int{}
	for _, id := range c.Current {
		if t := c.typeOf(id); t != nil {
			used += t.FramebufferMiB
			sizes[t.FramebufferMiB] = true
			made[t.FramebufferMiB]++
		}
	}
	for _, t := range c.Types {
		alone := len(sizes) == 0 || len(sizes) == 1 && sizes[t.FramebufferMiB]
		if (c.Heterogeneous || alone) && used+t.FramebufferMiB <= c.FramebufferMiB && made[t.FramebufferMiB] < t.Fit {
			types = append(types, t)
		}
	}
	return types
}

// Set makes a vGPU on a function, or removes it with 0, as a write into current_vgpu_type does.
// What the card cannot make is refused with EIO, another type than 0 over one with EBUSY.
func (c *VGPUCard) Set(function string, id int) error {
	if c.Current == nil {
		c.Current = map[string]int{}
	}
	switch {
	case id == 0:
		delete(c.Current, function)
		return nil
	case c.Current[function] != 0:
		return syscall.EBUSY
	case !slices.ContainsFunc(c.Creatable(), func(t VGPUType) bool { return t.ID == id }):
		return syscall.EIO
	}
	c.Current[function] = id
	return nil
}

// SetVGPU is [VGPUCard.Set] on a tree: the files of all functions of the card follow.
func (t Tree) SetVGPU(h Host, function string, id int) error {
	vf := h.Device(function)
	if vf == nil || h.Device(vf.PF) == nil || h.Device(vf.PF).VGPU == nil {
		return syscall.ENOENT
	}
	card := h.Device(vf.PF)
	if err := card.VGPU.Set(function, id); err != nil {
		return err
	}
	for _, address := range card.VFs {
		for name, text := range card.VGPU.files(address) {
			if err := t.Write(h.path(h.Device(address))+"/nvidia/"+name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// files are the files of a function, by their names below nvidia.
func (c *VGPUCard) files(function string) map[string]string {
	var b strings.Builder
	b.WriteString("ID    : vGPU Name\n")
	for _, t := range c.Creatable() {
		fmt.Fprintf(&b, "%-6d: %s\n", t.ID, t.Name)
	}
	return map[string]string{
		"current_vgpu_type": strconv.Itoa(c.Current[function]) + "\n", "creatable_vgpu_types": b.String(),
		"gpu_instance_id": "0\n", "placement_id": "0\n", "vgpu_params": "\n",
	}
}

// vgpus writes the files of the functions, and vgpuConfig.xml.
func (w *writer) vgpus(h Host) {
	var types, cards strings.Builder
	for i := range h.Devices {
		d := &h.Devices[i]
		if d.VGPU == nil {
			continue
		}
		for _, address := range d.VFs {
			vf := h.Device(address)
			if vf.Driver != "nvidia" {
				continue
			}
			for name, text := range d.VGPU.files(address) {
				w.file(h.path(vf)+"/nvidia/"+name, "%s", text)
			}
		}
		fmt.Fprintf(&cards, "  <pgpu fractionalMultiVgpu=\"1\">\n    <devId vendorId=\"%#x\" deviceId=\"%#x\" "+
			"subsystemVendorId=\"%#x\" subsystemId=\"%#x\"/>\n", d.Vendor, d.Product, d.Vendor, d.Product)
		for _, t := range d.VGPU.Types {
			fmt.Fprintf(&cards, "    <supportedVgpu vgpuId=\"%d\">\n      <maxVgpus>%d</maxVgpus>\n"+
				"    </supportedVgpu>\n", t.ID, t.Fit)
			fmt.Fprintf(&types, "  <vgpuType id=\"%d\" name=\"%s\" class=\"Quadro\">\n"+
				"    <devId vendorId=\"%#x\" deviceId=\"%#x\" subsystemVendorId=\"%#x\" "+
				"subsystemId=\"%#x\"/>\n    <framebuffer>%#x</framebuffer>\n    <numHeads>4</numHeads>\n"+
				"    <display width=\"7680\" height=\"4320\"/>\n  </vgpuType>\n",
				t.ID, t.Name, d.Vendor, d.Product, d.Vendor, t.ID, t.FramebufferMiB<<20)
		}
		cards.WriteString("  </pgpu>\n")
	}
	if cards.Len() > 0 {
		w.file("usr/share/nvidia/vgpu/vgpuConfig.xml", "%s", "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"+
			"<!DOCTYPE vgpu SYSTEM \"http://www.nvidia.com/dtd/vgpuConfig.dtd\">\n<vgpuconfig>\n"+
			"  <version>1.0</version>\n"+types.String()+cards.String()+"</vgpuconfig>\n")
	}
}

// L40S is an NVIDIA L40S at function 0 of a slot, with as many virtual functions in the following
// ones as are enabled, at most 32: 8 vGPUs of nvidia-1151 (6 GiB) or 4 of nvidia-1153 (12 GiB), and
// others. The numbers of 1B and 1Q are measured (kernel/hypeman#327), the others follow them.
func L40S(bus uint8, parent string, cell, iommuGroup, enabled int) []Device {
	card := &VGPUCard{FramebufferMiB: 48 << 10,
		Types: []VGPUType{{ID: 1145, Name: "NVIDIA L40S-1B", FramebufferMiB: 1 << 10, Fit: 32}}}
	for i, gib := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 48} {
		card.Types = append(card.Types, VGPUType{ID: 1147 + i, Name: fmt.Sprintf("NVIDIA L40S-%dQ", gib),
			FramebufferMiB: gib << 10, Fit: min(32, 48/gib)})
	}
	pf := Device{
		Address: Address(0, bus, 0, 0), Parent: parent, Vendor: nvidia, Product: 0x26b9, Class: classDisplay,
		Driver: "nvidia", Cell: cell, IOMMUGroup: iommuGroup, TotalVFs: 32, VGPU: card,
	}
	devices := []Device{pf}
	for i := range enabled {
		// NVIDIA's functions begin at 00.4.
		vf := Device{
			Address: Address(0, bus, uint8((i+4)/8), uint8((i+4)%8)), Parent: parent, Vendor: nvidia, Product: 0x26b9,
			Class: classDisplay, Driver: "nvidia", Cell: cell, IOMMUGroup: iommuGroup + 1 + i, PF: pf.Address,
		}
		devices[0].VFs = append(devices[0].VFs, vf.Address)
		devices = append(devices, vf)
	}
	return devices
}

// VGPUHost is a server of 2026: two sockets with a cell and an L40S each, with 16 virtual
// functions. One on the second card has a vGPU that an operator made.
func VGPUHost() Host {
	h := Host{Processor: epyc, Module: "kvm_amd", Nested: true}
	h.CPUs, h.Cells = Grid{Packages: 2, CoresPerDie: 8, ThreadsPerCore: 2, MemoryKiB: 64 * gib}.Build()
	for cell, bus := range []uint8{0x41, 0xc1} {
		port := Address(0, bus-1, 1, 0)
		h.Devices = append(h.Devices, Port(port, cell))
		h.Devices = append(h.Devices, L40S(bus, port, cell, 10+40*cell, 16)...)
	}
	h.Device("0000:c1:00.0").VGPU.Current = map[string]int{"0000:c1:00.4": 1151}
	return h.sort()
}
