// SPDX-License-Identifier: Apache-2.0

// Command demo shows what compute-agent is for, on a made-up host: two sockets with a GPU each,
// four guests, and a Placement in which everything is on one resource provider, as nova-compute
// wrote it. In the end OpenStack's client has servers made there. The host's libvirtd, its guests'
// QEMU, Placement, the compute API, the agent and its driver are the real ones; only /sys is made
// up (package testhost).
//
//	demo ──namespaces of its own──▶ demo ─┬─ a simulated host: libvirtd, QEMU
//	(root)  mounts, processes,            ├─ compute-agent placement serve
//	        network, host name            ├─ compute-agent run, with compute-driver-libvirt
//	                                      ├─ compute-agent cells api, and two cells
//	                                      └─ the commands that it shows, one after the other
//
// It prints each command before its output. After each step it checks that every guest holds in
// Placement what it held before, on the right provider; it ends with exit code 1 at the first
// violation. All effects stay in its namespaces and end with the process, even when that is killed.
package main
