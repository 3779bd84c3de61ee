// SPDX-License-Identifier: Apache-2.0

// Package discovery reads what the kernel shows of a hypervisor's hardware in /sys and /proc: CPUs
// and NUMA cells with their memory and huge pages, PCI devices with their virtual functions,
// mediated devices and their types, memory encryption. Persistent memory ([ReadPMEM]) is read only
// where it is configured.
//
//	Open(dir) ─▶ Reader ─▶ Topology, Devices, MdevParents, KVM
//	Read(dir) ─▶ Host ─▶ Machine(arch)     all of them at once
//
// [Labels], [Processors] and [Caches] add what ghw knows beyond that: names, IOMMU groups, bridges,
// CPU models, caches.
//
// The reader is strict. Whatever is missing, malformed or inconsistent is a [HostError] with the
// file, its content and a hint; it never returns a machine with fewer cells, devices or instances
// than the kernel shows. What is wrong with a single PCI device takes out that device, as
// [machine.UnreadDevice]. What the kernel leaves out on purpose (a bus that it was built without, a
// device without NUMA cell) is not an error; the fields document it.
//
// While devices are added or removed, a listed file may be gone when it is read. The next read then
// succeeds.
//
// Cost, in files and directories read (a test counts them):
//
//	CPUs         3 + 1 for each + 2 for each core
//	cells        1 + 4 for each + 2 for each size of huge pages in each
//	tiers        1 + 1 for each, if the kernel shows them
//	devices      1 + 5 for each + 2 for each physical function
//	mediated     2 + 1 for each parent + 4 for each type that is asked for
//	KVM          4 at most
//
// A server with 32 CPUs takes some 130 files (2 ms), one with 256 CPUs, 8 GPUs and 32 virtual
// functions 861 (12 ms), on a busy machine.
package discovery
