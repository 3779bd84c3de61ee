// SPDX-License-Identifier: Apache-2.0

package testhost

import "fmt"

const gib = 1 << 20 // in KiB

// PCI vendors and classes of the presets.
const (
	intel, nvidia, mellanox = 0x8086, 0x10de, 0x15b3
	classNetwork            = 0x020000
	classDisplay            = 0x030200
	classBridge             = bridgeClass << 8
)

var xeon = Processor{
	Arch: "x86_64", Vendor: "GenuineIntel", Name: "Fake Xeon @ 2.50GHz", Model: "Skylake-Server", Family: 6, Number: 85,
	Stepping: 4, MHz: 2500, Microcode: 0x2006e05,
	Flags: []string{"fpu", "vme", "sse", "sse2", "ssse3", "sse4_1", "sse4_2", "aes", "avx", "avx2",
		"avx512f", "vmx", "pni", "pclmulqdq"},
	Features: []string{"vmx", "pcid"},
}

var epyc = Processor{
	Arch: "x86_64", Vendor: "AuthenticAMD", Name: "Fake EPYC 7742", Model: "EPYC-Rome", Family: 23, Number: 49,
	Stepping: 0, MHz: 2250, Microcode: 0x8301034,
	Flags: []string{"fpu", "sse", "sse2", "ssse3", "sse4_1", "sse4_2", "aes", "avx", "avx2", "svm", "sev", "sev_es",
		"pni", "pclmulqdq", "sha_ni"},
	Features: []string{"svm"},
}

// Port is a PCI Express root port.
func Port(address string, cell int) Device {
	return Device{Address: address, Vendor: intel, Product: 0x2030, Class: classBridge, Driver: "pcieport",
		Cell: cell, IOMMUGroup: None}
}

// GPU is an NVIDIA T4 with some types of virtual GPUs: 16 of nvidia-222 or 8 of nvidia-231.
func GPU(address, parent string, cell, iommuGroup, card int) Device {
	return Device{
		Address: address, Parent: parent, Vendor: nvidia, Product: 0x1eb8, Class: classDisplay, Driver: "nvidia",
		Cell: cell, IOMMUGroup: iommuGroup, Cards: []int{card},
		MdevParent: MdevParent{Types: []MdevType{
			{
				ID:          "nvidia-222",
				Name:        "GRID T4-1B",
				API:         "vfio-pci",
				Available:   16,
				Description: "num_heads=4, frl_config=45, framebuffer=1024M, max_resolution=5120x2880, max_instance=16",
			},
			{
				ID:          "nvidia-231",
				Name:        "GRID T4-2Q",
				API:         "vfio-pci",
				Available:   8,
				Description: "num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=7680x4320, max_instance=8",
			},
		}},
	}
}

// NIC is a network card with SR-IOV, at function 0 of a slot, and its enabled virtual functions in
// the following ones: at most 63.
func NIC(bus uint8, parent string, cell, iommuGroup int, name string, total, enabled int) []Device {
	pf := Device{
		Address: Address(0, bus, 0, 0), Parent: parent, Vendor: mellanox, Product: 0x1015, Class: classNetwork,
		Driver: "mlx5_core", Cell: cell, IOMMUGroup: iommuGroup,
		TotalVFs: total, Interfaces: []Interface{{Name: name, MAC: fmt.Sprintf("aa:bb:cc:%02x:00:00", bus)}},
	}
	var vfs []Device
	for i := range enabled {
		vf := Device{
			Address:    Address(0, bus, uint8(1+i/8), uint8(i%8)),
			Parent:     parent,
			Vendor:     mellanox,
			Product:    0x1016,
			Class:      classNetwork,
			Driver:     "mlx5_core",
			Cell:       cell,
			IOMMUGroup: iommuGroup + 1 + i,
			PF:         pf.Address,
			Interfaces: []Interface{{Name: fmt.Sprintf("%sv%d", name, i),
				MAC: fmt.Sprintf("aa:bb:cc:%02x:01:%02x", bus, i)}},
		}
		pf.VFs = append(pf.VFs, vf.Address)
		vfs = append(vfs, vf)
	}
	return append([]Device{pf}, vfs...)
}

// Sample is a common server: two sockets of four cores with two threads, 16 GiB each with some huge
// pages, one GPU on each socket (one of them has a virtual GPU), and on the first a NIC with four
// of its eight virtual functions enabled.
func Sample() Host {
	h := Host{Processor: xeon, Module: "kvm_intel", Nested: true}
	h.CPUs, h.Cells = Grid{
		Packages: 2, CoresPerDie: 4, ThreadsPerCore: 2, Interleaved: true, MemoryKiB: 16 * gib,
		HugePages: []HugePages{{SizeKiB: 2048, Total: 1024, Free: 1024}, {SizeKiB: 1048576, Total: 2, Free: 1}},
	}.Build()
	h.Devices = []Device{Port("0000:00:02.0", 0), Port("0000:80:02.0", 1)}
	h.Devices = append(h.Devices, GPU("0000:05:00.0", "0000:00:02.0", 0, 30, 0),
		GPU("0000:82:00.0", "0000:80:02.0", 1, 40, 1))
	first := h.Device("0000:05:00.0")
	first.Mdevs = []Mdev{{UUID: "b7c7d4b0-0c1e-4a3d-8a3e-000000000001", Type: "nvidia-222", IOMMUGroup: 130}}
	first.Types[0].Available--
	h.Devices = append(h.Devices, NIC(0x06, "0000:00:02.0", 0, 50, "ens1f0", 8, 4)...)
	return h.sort()
}

// GPUHost is an AMD server for machine learning: two sockets with two cells each, 256 CPUs, 64 GiB
// per cell, eight GPUs (two per cell) without virtual GPUs in use, a NIC per socket, SEV, and CPUs
// isolated for guests.
func GPUHost() Host {
	h := Host{Processor: epyc, Module: "kvm_amd",
		Nested: true, SEV: &SEV{SEV: true, ES: true, Guests: 410, ESGuests: 99}}
	h.CPUs, h.Cells = Grid{
		Packages: 2, CellsPerPackage: 2, DiesPerCell: 2,
		CoresPerDie: 16, ThreadsPerCore: 2, Interleaved: true, MemoryKiB: 64 * gib,
		HugePages: []HugePages{{SizeKiB: 2048}, {SizeKiB: 1048576, Total: 32, Free: 32}},
	}.Build()
	for i := range h.CPUs {
		if h.CPUs[i].Core%32 >= 2 { // two cores of each cell stay with the host
			h.CPUs[i].Isolated, h.CPUs[i].NoHzFull = true, true
		}
	}
	for cell := range h.Cells {
		root := uint8(cell * 0x40)
		port := Address(0, root, 1, 0)
		h.Devices = append(h.Devices, Port(port, cell))
		for i := range 2 {
			h.Devices = append(h.Devices, GPU(Address(0, root+1+uint8(i), 0, 0), port, cell, 2*cell+i, 2*cell+i))
		}
		if cell%2 == 0 {
			h.Devices = append(h.Devices, NIC(root+4, port, cell, 100+64*cell, fmt.Sprintf("enp%ds0", cell), 16, 16)...)
		}
	}
	return h.sort()
}

// SingleNode is a small machine with one cell, no huge pages and one network card, without SR-IOV
// and IOMMU.
func SingleNode() Host {
	h := Host{Processor: xeon, Module: "kvm_intel"}
	h.CPUs, h.Cells = Grid{Packages: 1, CoresPerDie: 4, MemoryKiB: 8 * gib}.Build()
	h.Devices = []Device{{
		Address: "0000:00:03.0", Vendor: 0x1af4, Product: 0x1000, Class: classNetwork, Driver: "virtio-pci",
		Cell: None, IOMMUGroup: None,
		Virtio: true, Interfaces: []Interface{{Name: "eth0", MAC: "52:54:00:00:00:01"}},
	}}
	return h
}

// ManyCells has the corner cases for readers: cells 0, 2 and 10, the last with memory only; two
// packages in a cell; CPUs offline; a PCI domain with five digits; virtual functions that each make
// mediated devices, and others that are disabled; a device without cell and without modalias; an
// inactive mediated device; a type with none available; a parent that is no PCI device; persistent
// memory for guests and for other uses.
func ManyCells() Host {
	h := Host{Processor: xeon, Module: "kvm_intel"}
	h.CPUs, h.Cells = Grid{
		Packages:        4,
		PackagesPerCell: 2,
		CoresPerDie:     2,
		ThreadsPerCore:  2,
		MemoryKiB:       4 * gib,
		HugePages:       []HugePages{{SizeKiB: 2048, Total: 8, Free: 8}},
	}.Build()
	for i := range h.CPUs {
		h.CPUs[i].Cell *= 2
		h.CPUs[i].Offline = i == 3 || i == 15
	}
	h.Cells[0].Distances, h.Cells[1].Distances = []int{10, 21, 17}, []int{21, 10, 28}
	h.Cells[1].ID = 2
	h.Cells = append(h.Cells, Cell{ID: 10, MemoryKiB: 32 * gib, HugePages: []HugePages{{SizeKiB: 2048}},
		Distances: []int{17, 28, 10}})
	pf := GPU("10000:01:00.0", "10000:00:00.0", 2, 7, 0)
	pf.TotalVFs, pf.VFs, pf.MdevParent = 16, []string{"10000:01:00.4", "10000:01:00.5"}, MdevParent{}
	h.Devices = []Device{Port("10000:00:00.0", 2), pf}
	for i, address := range pf.VFs {
		vf := GPU(address, pf.Parent, 2, 8+i, 0)
		vf.PF, vf.Cards = pf.Address, nil
		vf.Types[0].Available, vf.Types[1].Available = 1, 0
		h.Devices = append(h.Devices, vf)
	}
	h.Device("10000:01:00.5").
		Mdevs = []Mdev{{UUID: "b7c7d4b0-0c1e-4a3d-8a3e-00000000000a", Type: "nvidia-231", Inactive: true}}
	h.Devices = append(h.Devices, NIC(0x07, "", None, 60, "ens2f0", 4, 0)...)
	h.Device("0000:07:00.0").NoModalias = true
	h.Virtual = []VirtualParent{{Name: "mtty", MdevParent: MdevParent{
		Types: []MdevType{{ID: "mtty-1", Name: "Single port serial", API: "vfio-pci", Available: 23}},
		Mdevs: []Mdev{{UUID: "b7c7d4b0-0c1e-4a3d-8a3e-00000000000b", Type: "mtty-1", IOMMUGroup: 131}},
	}}}
	h.Namespaces = []Namespace{
		{Name: "namespace0.0", Label: "ns0", UUID: "b7c7d4b0-0c1e-4a3d-8a3e-00000000000c", Mode: "dax", Bytes: 4 << 30,
			Cell: 0, Driver: "device_dax"},
		{Name: "namespace0.1", Label: "ns1", UUID: "b7c7d4b0-0c1e-4a3d-8a3e-00000000000d", Mode: "dax", Bytes: 4 << 30,
			Cell: 0, Driver: "device_dax"},
		{Name: "namespace1.0", Label: "files", UUID: "b7c7d4b0-0c1e-4a3d-8a3e-00000000000e",
			Mode: "memory", Bytes: 8 << 30, Cell: 2},
	}
	return h.sort()
}
