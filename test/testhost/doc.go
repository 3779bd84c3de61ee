// SPDX-License-Identifier: Apache-2.0

// Package testhost makes up hypervisors for tests and demonstrations: one model of a machine,
// rendered as what its kernel would show in /sys and /proc, and as libvirt would report it.
//
//	            ┌─ Sysfs(dir) ──────▶ dir/sys, dir/proc: for readers with a chroot and simulations
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
//
// # Simulations
//
// [StartSim] runs a real libvirtd on a made-up host: its /sys is rendered, and the daemon sees it
// as the machine's own.
//
//	test, demo ──lines of JSON──▶ keeper ────────────▶ libvirtd ──▶ mdevctl
//	  Sim        (stdin, stdout)   the same program     (another mount     the same program
//	                               again, in mount and  namespace, by      again, under this
//	                               network namespaces   internal/libvirtd) name: changes the
//	                               of its own, with                        tree, sends events
//	                               the tree over /sys
//
// The network namespace confines the made-up events of the kernel to the daemon, and its networks
// to the namespace. With emulators the simulation has control groups of its own, too,
// compute-agent-sim-DIRECTORY in each hierarchy, which the daemon takes for the topmost: several
// simulations may have guests of the same names at once.
//
// Everything ends with the Sim, and with the process that started it; a process that is killed
// leaves its directory behind, some MiB of /dev/shm/th*. If the keeper is killed, too, its guests
// run on in their control groups ([SimLeftovers]), until the next simulation with emulators ends
// them. Where libvirt makes no control groups (they are missing or read-only, or version 2 is
// mounted without controllers), such guests have to be ended by hand.
//
// A program that uses it calls [SimMain] first, in TestMain or main:
//
//	testhost.SimMain()
//	s, err := testhost.StartSim(ctx, testhost.GPUHost(), testhost.SimOptions{Passthrough: true})
//	defer s.Close(ctx)
//	…  s.URI() for libvirt, s.Root() as the chroot of what reads /sys
//
// It needs root and libvirtd; else StartSim returns [ErrNotRoot] or libvirtd.ErrNotInstalled.
// [SimForTest] skips the test then.
//
// The daemon reports the tree as that of a real machine: capabilities with cells and huge pages,
// node devices, mediated devices created and destroyed, devices plugged in and out, events.
//
// [SimOptions] give three degrees of guests:
//
//	(none)       None. There is no emulator, and libvirt defines nothing. Up in 0.3 s.
//	Emulators    All can be defined; those run that have no device of the host and are pinned to
//	             CPUs and cells that this machine has. Others stay defined and off: their XML says
//	             which devices they hold, which is enough to count mediated devices in use.
//	Passthrough  All run: with mediated devices, PCI devices, pins to any CPU and cell of the
//	             made-up host. Libvirt checks what it always does (that the devices exist, that no
//	             two guests have one), and QEMU really runs, without the devices and on any CPU of
//	             this machine. What a guest sees is not that of a real host, only what libvirt
//	             says is. Three things are up to the caller: a mediated device must exist before
//	             its guest boots, a PCI device must be bound to vfio-pci ([Tree.Bind]),
//	             and the XML must not ask for huge pages, since the memory is this machine's.
//
// libvirt needs some seconds for its first look at the emulators; SimOptions.Cache keeps what it
// found.
//
// [Sim.Define], [Sim.Boot], [Sim.Destroy], [Sim.Undefine] and [Sim.Virsh] are virsh, for programs
// without libvirt's library; others connect to [Sim.URI].
package testhost
