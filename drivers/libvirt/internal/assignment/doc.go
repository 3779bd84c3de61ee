// SPDX-License-Identifier: Apache-2.0

// Package assignment finds the hardware that each guest uses, chooses the hardware of a new one,
// and moves allocations when inventory moves.
//
//   - [Host.Facts] finds the NUMA cells that a domain's processors and memory are bound to, and its
//     devices.
//   - [Reshape] plans the moves of allocations for a change of the tree's layout: VGPU to the GPUs
//     that the guests have, VCPU to PCPU, processors and memory to NUMA cells and back. It follows
//     the facts.
//   - [Place] divides amounts that are bound to nothing over places with free capacity.
//   - [Decide] chooses the processors, memory cells and devices of a new instance, from what
//     Placement granted.
//
// [Move] moves allocations when inventory moves to other resource providers of a host or to another
// resource class, and lists every consumer that cannot move, with a hint.
//
//	tree with both layouts, moving places ─┐
//	domains, machine ──────────────────────┼─▶ Move ─▶ allocations, moves, renames, notes
//	allocations ───────────────────────────┘              or all violations
//
// The cases:
//
//   - VGPU and other classes of mediated devices go from the root to the device that made those of
//     the guest's domain, and take the class that this device has.
//   - VCPU becomes PCPU for guests with dedicated processors, on the host's own providers only.
//   - Contexts of memory encryption go from the root to the provider of the domain's kind of
//     encryption.
//   - Processors, memory and huge pages go from the root to NUMA cells, and from there to the root,
//     where they add up.
//   - What a provider has of a class is called by the provider's new class.
//
// DISK_GB never moves: other hosts' guests use the sharing provider too, and only its owner decides
// about it. The agent keeps the root's allocated DISK_GB until it is free.
//
// All of it is pure: the same arguments, in whatever order, have the same result.
package assignment
