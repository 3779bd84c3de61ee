// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"fmt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

const uuid = "4f0e3f6c-5d6e-4b6f-9d55-5b0f3bd6c0aa"

// id is a uuid by number.
func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

// host is a machine with as many cores in each cell, each of two threads that are numbered as on
// most servers: first the first threads of all cores, then the second ones. A cell has a GPU that
// makes nvidia-222, and a NIC with four virtual functions.
func host(cells, cores int) machine.Machine {
	m := machine.Machine{Arch: "x86_64"}
	for cpu := range cells * cores * 2 {
		at := cpu % (cells * cores)
		m.CPUs = append(m.CPUs,
			machine.CPU{ID: cpu, Online: true, Cell: at / cores, Package: at / cores, Core: at % cores})
	}
	for cell := range cells {
		c := machine.Cell{ID: cell, MemoryKiB: 16 << 20,
			Pages: []machine.Pages{{SizeKiB: 2048, Total: 2048, Free: 2048}, {SizeKiB: 1 << 20, Total: 2, Free: 2}}}
		for _, cpu := range m.CPUs {
			if cpu.Cell == cell {
				c.CPUs = append(c.CPUs, cpu.ID)
			}
		}
		m.Cells = append(m.Cells, c)
		gpu, nic := gpu(cell), nic(cell)
		m.Parents = append(m.Parents, machine.MdevParent{
			Name: gpu.DeviceName(), Address: &gpu, Cell: cell,
			Types: []machine.MdevType{{ID: "nvidia-222", API: "vfio-pci", Available: 2},
				{ID: "nvidia-231", API: "vfio-pci", Available: 1}},
			Mdevs: []machine.Mdev{
				{UUID: id(0x100*(cell+1) + 2), Type: "nvidia-222", Active: true},
				{UUID: id(0x100*(cell+1) + 1), Type: "nvidia-222", Active: true},
				{UUID: id(0x100*(cell+1) + 3), Type: "nvidia-231", Active: true},
				{UUID: id(0x100*(cell+1) + 0), Type: "nvidia-222"},
			},
		})
		pf := machine.Device{Address: nic, Cell: cell, MaxVirtual: 8}
		for i := range 4 {
			vf := machine.Address{Bus: nic.Bus, Function: uint8(i + 2)}
			pf.Virtual = append(pf.Virtual, vf)
			m.Devices = append(m.Devices, machine.Device{Address: vf, Cell: cell, Physical: &nic})
		}
		m.Devices = append(m.Devices, pf)
	}
	return m
}

func gpu(cell int) machine.Address { return machine.Address{Bus: uint8(0x80 + cell)} }
func nic(cell int) machine.Address { return machine.Address{Bus: uint8(0x10 + cell)} }
