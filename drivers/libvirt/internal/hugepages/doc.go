// SPDX-License-Identifier: Apache-2.0

// Package hugepages says which huge pages each NUMA cell has, and what of them is the host's own. It is for trees with a provider per cell;
// Nova's flat tree has no huge pages.
//
// os-resource-classes has no class for huge pages, so there is a custom one for each size, CUSTOM_HUGEPAGES_2M and the like, whose unit is
// one page: amounts are exact, any allocation is whole pages, and the total is what the kernel says.
//
// It is a finer inventory beside MEMORY_MB and not a part cut out of it: MEMORY_MB of a cell is all of its memory, as that of the root is in a
// flat tree. Nova's flavors always ask for MEMORY_MB, with huge pages or without, and what a guest holds is the same in both shapes; so a
// guest that asks for pages holds both. Memory for the pages can be used for nothing else: who has many of them keeps guests with common pages off
// by reserved_host_memory_mb, or by asking for pages in every flavor of such hosts.
package hugepages
