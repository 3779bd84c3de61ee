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
// With emulators it has control groups of its own, too, compute-agent-sim-DIRECTORY in each hierarchy, which the daemon takes for the topmost: several
// simulations may have guests of the same names at once.
//
// Everything ends with the Sim, and with the process that started it; a process that is killed leaves its directory behind, some MiB of
// /dev/shm/th*. If the keeper is killed, too, its guests run on in their control groups ([Leftovers]), until the next simulation with emulators
// ends them. Where libvirt makes no control groups (there are none, or none may be made, or version 2 is mounted without controllers) such guests have to be
// ended by hand.
//
// A program that uses it calls [Main] first thing, in TestMain or main:
//
//	sim.Main()
//	s, err := sim.Start(ctx, testhost.GPUHost(), sim.Options{Passthrough: true})
//	defer s.Close(ctx)
//	…  s.URI() for libvirt, s.Root() as the chroot of what reads /sys
//
// It needs root and libvirtd; else Start returns [ErrNotRoot] or libvirtd.ErrNotInstalled. [ForTest] skips the test then.
//
// What the daemon tells of the tree is what it would tell of such a machine: capabilities with cells and huge pages, node
// devices, mediated devices made and ended, devices plugged in and out, events.
//
// Guests come in three degrees, by [Options]:
//
//	(none)       None. There is no emulator, and libvirt defines nothing. Up in 0.3 s.
//	Emulators    All can be defined; those run that have no device of the host and are pinned to CPUs and cells that this machine has. Others stay
//	             defined and off: their XML tells which devices they hold, which is all that a count of mediated devices in use needs.
//	Passthrough  All run: with mediated devices, PCI devices, pins to any CPU and cell of the made-up host. Libvirt checks and keeps what it always
//	             does (that the devices exist, that no two guests have one), and QEMU really runs, without the devices and wherever there
//	             is room. This is no way to learn of a guest's inside, only of what libvirt says. Three things are up to the caller: a mediated
//	             device must be made before its guest boots, a PCI device be bound to vfio-pci ([testhost.Tree.Bind]), and huge pages stay
//	             out of the XML, since the memory is this machine's.
//
// The first look at the emulators takes libvirt some seconds; Options.Cache keeps what it saw.
//
// [Sim.Define], [Sim.Boot], [Sim.Destroy], [Sim.Undefine] and [Sim.Virsh] are virsh, for those that are not linked with libvirt's library;
// others connect to [Sim.URI].
package sim
