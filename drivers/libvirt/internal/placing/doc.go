// SPDX-License-Identifier: Apache-2.0

// Package placing says where guests are on a host, and where they go.
//
//   - [Host.Facts] tells of a domain which NUMA cells its processors and memory are bound to, and which devices it has.
//   - [Reshape] says for a change of the tree's shape which allocations move where, and whose cannot: VGPU to the GPUs that the guests have,
//     VCPU to PCPU, processors and memory to NUMA cells and back. It obeys the facts.
//   - [Place] is its rule for what is bound to nothing: how amounts are divided over places with room.
//   - [Decide] chooses for a new instance, from what Placement granted of which provider, the very processors, cells of memory and devices.
//
// All of it is pure: the same arguments, in whatever order, have the same result.
package placing
