// SPDX-License-Identifier: Apache-2.0

// Package inventory computes the desired provider tree of a host, edits a tree to match it, and
// finds the inventory that moves.
//
//	flat (Nova's tree)
//	cn1                     VCPU PCPU MEMORY_MB DISK_GB
//	├─ cn1_pci_0000_82_00_0 VGPU
//	├─ cn1_0000:06:00.0     CUSTOM_PCI_15B3_1016
//	└─ cn1_amd_sev          MEM_ENCRYPTION_CONTEXT
//
//	nested
//	cn1                        DISK_GB
//	├─ cn1_numa_0              VCPU PCPU MEMORY_MB CUSTOM_HUGEPAGES_2M   HW_NUMA_ROOT
//	│  └─ cn1_0000:06:00.0     CUSTOM_PCI_15B3_1016
//	├─ cn1_numa_1              VCPU PCPU MEMORY_MB CUSTOM_HUGEPAGES_2M   HW_NUMA_ROOT
//	│  └─ cn1_pci_0000_82_00_0 VGPU
//	└─ cn1_amd_sev             MEM_ENCRYPTION_CONTEXT
//
// The decisions were made before, by package selection; here they become resource providers. A tree
// that Nova wrote is the flat one as it is.
//
//	Host, Settings ── Want ──▶ Wanted ─┬─ Moving(tree) ─▶ places whose allocations must move first
//	                                   ├─ Sites(tree) ───▶ what each provider is, before and after
//	                                   └─ Put(tree) ─────▶ the desired tree
//
// Ownership. On the root and the cells, the driver owns the classes that it knows; all others are
// unmanaged. It owns the traits that it may have set; on the provider of a PCI device it owns all,
// as in Nova. Providers are found by name and adopted with any uuid. An undesired provider is
// removed if it has a name that this package gives, and the uuid that this package gives or the
// mark of such a provider. Everything else is never touched.
//
// Everything is pure: no I/O, no clock, and equal arguments have equal results.
package inventory
