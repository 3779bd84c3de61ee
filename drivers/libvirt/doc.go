// SPDX-License-Identifier: Apache-2.0

// Package libvirt is the virt driver for hypervisors that libvirt manages. It reports one node, the machine itself, as Nova's driver does (flat), or
// with its NUMA cells (nested):
//
//	flat                                          nested
//	cn1                    VCPU, PCPU, MEMORY_MB  cn1                      DISK_GB, traits
//	│                      DISK_GB, traits        ├─ cn1_numa_0            VCPU, PCPU, MEMORY_MB, huge pages
//	├─ cn1_pci_0000_82_…   VGPU                   ├─ cn1_numa_1            the same
//	├─ cn1_0000:06:00.0    CUSTOM_PCI_…           │  ├─ cn1_pci_0000_82_…  VGPU
//	└─ cn1_amd_sev         MEM_ENCRYPTION_CONTEXT │  └─ cn1_0000:06:00.0   CUSTOM_PCI_…
//	                                              └─ cn1_amd_sev           MEM_ENCRYPTION_CONTEXT
//
// Names, totals, reserved amounts, units and allocation ratios are Nova's, so that a flat tree that Nova wrote stays as it is. What is allocated
// moves along from one shape to the other.
//
//	libvirt ─▶ internal/binding ─▶ internal/hypervisor ─┐ ask, roster
//	           (cgo)               (deadlines, reconnect) ├──────────▶ survey ─▶ choose ─▶ shape ─▶ provider tree
//	/sys, /proc, statfs ─▶ internal/{sysfs,pmem,hostfs} ─┘            (facts)   (what is for guests:  (internal/inventory,
//	                                                                   │         internal/{cpusets,    relocate: pure)
//	                                                                   │         mdevs,pcispec,…})
//	                                                                   └▶ doubts ─▶ warnings
//
// When libvirt cannot be asked, the driver answers that it is not ready, with the cause and the remedy; it never reports less because it knows less.
// Where libvirt and the kernel disagree, a warning says who counts. It connects to libvirt read-only, unless it manages instances.
//
// New needs cgo and the build tag libvirt_dlopen; all the rest is pure Go.
package libvirt
