// SPDX-License-Identifier: Apache-2.0

// Package testhost makes up hypervisors for tests and demonstrations: one model of a machine,
// rendered as what its kernel would show in /sys and /proc, and as libvirt would report it.
//
//	            ┌─ Sysfs(dir) ──────▶ dir/sys, dir/proc: for readers with a chroot and package sim
//	Host ───────┼─ NodeXML(domains) ▶ the file behind test:///FILE, libvirt's test driver
//	 (a value)  ├─ Capabilities() ──▶ virConnectGetCapabilities
//	            └─ NodeDevices() ───▶ virConnectListAllNodeDevices
//
// The renderers share no code with what reads them, so that agreement means something. A [Host]
// answers questions about itself (OnlineCPUs, Siblings, …): those answers are what readers are
// compared with. [Host.Plug], [Host.Unplug] and the methods of [Tree] change it while readers look
// on.
//
// [Sample], [GPUHost], [SingleNode] and [ManyCells] are machines to start from; [Breakages] damage
// a rendered tree; [Random] draws random hosts.
package testhost
