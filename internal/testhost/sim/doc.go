// SPDX-License-Identifier: Apache-2.0

// Package sim runs a real libvirtd on a made-up host: [testhost.Host] is rendered as /sys, and the daemon sees it as this machine's.
//
//	test, demo ──lines of JSON──▶ keeper ──────────────▶ libvirtd ──▶ mdevctl
//	  Sim        (stdin, stdout)   the same program       (another mount namespace, by       the same program
//	                               again, in mount and    internal/libvirtd)                 again, under this name:
//	                               network namespaces                                        changes the tree, sends events
//	                               of its own, with
//	                               the tree over /sys
//
// The network namespace makes made-up events of the kernel the daemon's alone, and keeps its networks from this machine.
// Everything ends with the Sim, and with the process that started it.
//
// A program that uses it calls [Main] first thing, in TestMain or main. It needs root and libvirtd; else Start says
// [ErrNotRoot] or libvirtd.ErrNotInstalled, and the caller decides what that means.
//
// What the daemon tells of the tree is what it would tell of such a machine: capabilities with cells and huge pages, node
// devices, mediated devices made and ended, events. What needs the machine itself does not work: guests run on the CPUs
// that there really are, and none can be started with a device passed through.
package sim
