// SPDX-License-Identifier: Apache-2.0

// Package libvirt is the virt driver for hypervisors that libvirt manages. It reports one node, the machine itself: processors, memory and disk
// space, huge pages and NUMA cells, mediated devices (vGPUs), PCI devices, memory encryption, persistent memory, and the traits of the host and
// of its GPUs. Trees, amounts and traits are those of Nova's libvirt driver, so that what Nova wrote stays as it is; a tree with a provider
// for each NUMA cell is there for those who want one. internal/inventory shows both.
//
//	libvirt ─▶ internal/binding ─▶ internal/hypervisor ─┬─▶ capabilities, domcaps, nodedev, domain ─┐
//	           (cgo)               (deadlines, reconnect)│   (its XML)                               │
//	                                                     └─▶ Watch: look again                       ├─▶ survey ─▶ facts
//	/sys ────▶ internal/sysfs (strict), internal/pmem ──────▶ machine.Machine ──┬────────────────────┤
//	/proc, statfs ─▶ internal/hostfs ───────────────────────────────────────────┼────────────────────┘
//	ghw ────────────────────────────────────▶ internal/crosscheck ◀─────────────┘
//	                                          └─▶ doubts ─▶ warnings and the log
//
//	facts, configuration ─▶ cpusets, hugepages, mdevs, pcispec, encryption, pmem, hosttraits ─▶ choice   (what of the host is for guests)
//	choice ─▶ internal/inventory ─▶ Wanted ─┬─ Put ─────▶ the provider tree
//	                                        └─ Leaving ─▶ internal/relocate ─▶ allocations: a reshape
//	choice, grant ─▶ internal/placing ─▶ internal/domain ─▶ internal/instances ─▶ libvirt, disks   (only if instances are managed)
//
// Everything from the facts to the tree and the allocations is pure. I/O is at the edges:
//
//   - binding is libvirt's library; hypervisor keeps a connection to it, with deadlines, and tells of events.
//   - chroot reads the kernel's files below a directory that stands for "/", and trusts none; sysfs and pmem read /sys through it, hostfs /proc,
//     the CPU's flags and file systems.
//   - fileaccess tells whether QEMU's user can enter the directories of disks and images, and read an image.
//   - instances makes guests and ends them, with their disks (below it: qcow2, and seed for cloud-init) and mediated devices.
//
// What is read becomes values:
//
//   - machine is the host: processors, cells, devices; and the doubt, which is a disagreement with a name.
//   - capabilities, domcaps, nodedev and domain are libvirt's XML about the host, its emulators, its devices and its guests. domain also writes it.
//   - cpulist is the notation of sets of CPUs.
//   - crosscheck compares what kernel, libvirt and ghw say of the machine.
//
// Then it is decided what of it is for guests, by the options that Nova has for it:
//
//   - cpusets: which processors, shared or dedicated. hugepages: which pages. mdevs: which types of mediated devices on which device. pcispec: which
//     PCI devices. encryption: how many guests with encrypted memory. pmem: which namespaces.
//   - hosttraits: for which traits the host and its GPUs stand. symbols makes names of classes and traits.
//
// And what that is in Placement:
//
//   - inventory says which providers there are to be, and which inventory moves by that.
//   - placing knows where guests are on the host, where allocations go by a reshape, and which hardware a new instance gets.
//   - relocate puts tree and guests together: what becomes of each allocation, or who cannot be moved and why.
//
// libvirt counts for the host's memory and the CPU's features, as in Nova, the kernel for processors, cells and devices; a disagreement is a
// warning and in the log, once. When libvirt cannot be asked, or /sys makes no sense while devices come and go, the driver answers that it is not
// ready, with the cause and the remedy; it never reports less because it knows less.
//
// The driver only reads, unless it is configured to manage instances, which have connections of their own. Its connection is without write access;
// what libvirt does not tell on such a one (domain capabilities) is asked on another, which is closed at once.
//
// New needs cgo and the build tag libvirt_dlopen; all the rest is pure Go.
package libvirt
