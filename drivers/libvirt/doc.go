// SPDX-License-Identifier: Apache-2.0

// Package libvirt is the virt driver for hypervisors that libvirt manages. It reports one node, the
// machine itself: processors, memory and disk space, huge pages and NUMA cells, mediated devices
// (vGPUs), PCI devices, memory encryption, persistent memory, and the traits of the host and of its
// GPUs. Trees, amounts and traits are those of Nova's libvirt driver, so that a tree that Nova
// wrote needs no change; a tree with a provider for each NUMA cell is optional. internal/inventory
// shows both.
//
//	libvirt ─▶ hypervisor ─┬─▶ capabilities, domain (its XML) ──────────────────┐
//	           (deadlines, │                                                    ├─▶ facts
//	            reconnect) └─▶ Watch: look again                                │
//	/sys, /proc, ghw ─▶ discovery ─▶ machine.Machine ───────────────────────────┘
//
//	facts, configuration ─▶ selection ─▶ choice       (what of the host is for guests)
//	choice ─▶ inventory ─▶ Wanted ─┬─ Put ─────▶ the provider tree
//	                               └─ Moving ─▶ assignment.Move ─▶ allocations: a reshape
//	choice, grant ─▶ assignment.Decide ─▶ domain ─▶ instances ─▶ libvirt, disks   (if configured)
//
// All of these packages are below internal. Only hypervisor, discovery and instances do I/O; the
// rest is pure:
//
//   - hypervisor keeps a connection to libvirt's library (cgo), with deadlines and events.
//   - discovery reads the kernel's files below a directory that stands for "/", strictly, and asks
//     ghw what it knows beside.
//   - instances makes guests and ends them, with their disks and mediated devices, and switches the
//     dedicated CPUs on and off with them.
//   - qcow2 reads and writes the headers of disk images.
//   - machine is the host as a value; capabilities and domain are libvirt's XML as values. domain
//     also writes it.
//   - selection decides what of the host is for guests, by the options that Nova has for it.
//   - inventory says which providers there should be, with which inventories and traits, and which
//     inventory moves by that.
//   - assignment knows which hardware guests hold, which a new one gets, and where allocations go
//     by a reshape.
//
// libvirt is authoritative for the host's memory and CPU features, as in Nova, the kernel for
// processors, cells and devices. A discrepancy is a warning, and logged once. When libvirt is
// unavailable, or /sys is inconsistent while devices are added or removed, the driver returns
// NotReady with the cause and a hint; it never reports less because it knows less.
//
// The driver only reads, unless it is configured to manage instances, for which it has separate
// connections. Its own connection is read-only; for calls that libvirt refuses on such a connection
// (domain capabilities) it opens another one and closes it at once.
//
// New needs cgo and the build tag libvirt_dlopen; all the rest is pure Go.
package libvirt
