// SPDX-License-Identifier: Apache-2.0

// Package assignment says which of a host's hardware each guest holds, which a new one gets, and where allocations go when inventory moves.
//
//   - [Host.Facts] tells of a domain which NUMA cells its processors and memory are bound to, and which devices it has.
//   - [Reshape] says for a change of the tree's shape which allocations move where, and whose cannot: VGPU to the GPUs that the guests have,
//     VCPU to PCPU, processors and memory to NUMA cells and back. It obeys the facts.
//   - [Place] is its rule for what is bound to nothing: how amounts are divided over places with room.
//   - [Decide] chooses for a new instance, from what Placement granted of which provider, the very processors, cells of memory and devices.
//
// [Move] says what becomes of allocations when inventory moves to other resource providers of a host, or is called by another resource
// class, and names every consumer that cannot be moved and what to do about it.
//
//	tree with both shapes, places that lose inventory ─┐
//	domains, machine ──────────────────────────────────┼─▶ Move ─▶ allocations, moves, renames, notes
//	allocations ───────────────────────────────────────┘              or all violations
//
// Which cases there are:
//
//   - VGPU and other classes of mediated devices go from the root to the device that made those of the guest's domain, and take the class
//     that this device has.
//   - VCPU becomes PCPU for guests with dedicated processors, on the host's own providers only.
//   - Contexts of memory encryption go from the root to the provider of the domain's kind of encryption.
//   - Processors, memory and huge pages go from the root to NUMA cells, and from there to the root, where they add up.
//   - What a provider has of a class is called by the provider's new class.
//
// DISK_GB is not among them: on a sharing provider are other hosts' guests too, and nobody but its owner may give it away. The agent keeps what is
// allocated of the root's until it is free.
//
// All of it is pure: the same arguments, in whatever order, have the same result.
package assignment
