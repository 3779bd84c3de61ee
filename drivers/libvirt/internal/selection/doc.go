// SPDX-License-Identifier: Apache-2.0

// Package selection chooses the resources of a host that are for guests, by Nova's options. Each
// file is about one kind of resource, with its configuration (Parse…), the choice (Choose, Select),
// and what of the configuration does not fit the host, as discrepancies:
//
//	cpus.go         VCPU, PCPU                      cpu_shared_set, cpu_dedicated_set
//	hugepages.go    CUSTOM_HUGEPAGES_<size>         reserved_huge_pages
//	mdev*.go        VGPU and others                 enabled_mdev_types, mdev_types
//	pci*.go         CUSTOM_PCI_<vendor>_<product>   pci_device_spec, pci_report_in_placement
//	encryption.go   MEM_ENCRYPTION_CONTEXT          num_memory_encrypted_guests
//	pmem.go         CUSTOM_PMEM_NAMESPACE_<label>   pmem_namespaces
//
// A plain amount needs no file here: the driver's config.go checks it. Everything is pure. Package
// inventory makes resource providers of the choices.
package selection
