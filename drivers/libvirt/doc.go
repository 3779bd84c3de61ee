// SPDX-License-Identifier: Apache-2.0

// Package libvirt is the virt driver for hypervisors that libvirt manages. It reports one node, the machine itself:
//
//	root  cn1   VCPU       online CPUs, as libvirt's host CPU map says
//	            MEMORY_MB  memory, as libvirt's node information says
//	            DISK_GB    the file system of the instances directory
//	            traits     CPU features, architecture, threads, emulated architectures
//
// Totals, reserved amounts, units and allocation ratios follow Nova's libvirt driver, so that a root that Nova wrote
// stays as it is. The driver owns these three resource classes and the traits of internal/hosttraits, and touches nothing
// else on the root.
//
//	libvirt ──▶ internal/binding ──▶ internal/hypervisor ─┐
//	            (cgo)                (deadlines, reconnect) ├─▶ survey ──▶ report ──▶ provider tree
//	/sys, /proc, statfs ───────────▶ internal/hostfs ─────┘   (facts)     (pure)
//
// The driver only reads: it connects to libvirt read-only. When libvirt cannot be asked it answers that it is not ready,
// with the cause and the remedy; it never reports less because it knows less. Where libvirt and the kernel disagree, it
// goes by libvirt and says so once in the log.
//
// New needs cgo and the build tag libvirt_dlopen; all the rest is pure Go.
package libvirt
