// SPDX-License-Identifier: Apache-2.0

// Package placing says where guests are on a host, and where they go.
//
//   - [Host.Facts] tells of a domain which NUMA cells its processors and memory are bound to, and which devices it has.
//   - [Place] divides what guests hold of a host over its NUMA cells: for a reshape from a flat provider tree to a nested one. It obeys the facts and has
//     a rule for guests that are bound to nothing.
//   - [Decide] chooses for a new instance, from what Placement granted of which provider, the very processors, cells of memory and devices.
//
// All of it is pure: the same arguments, in whatever order, have the same result.
package placing
