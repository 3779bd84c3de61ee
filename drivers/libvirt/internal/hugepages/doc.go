// SPDX-License-Identifier: Apache-2.0

// Package hugepages says how the memory of each NUMA cell is split into huge pages and the rest, and what of it is the host's own. It is for
// trees with a provider per cell; in a flat tree MEMORY_MB of the root is all memory, as in Nova.
//
// os-resource-classes has no class for huge pages, so there is a custom one for each size, CUSTOM_HUGEPAGES_2M and the like, whose unit is
// one page: amounts are exact, any allocation is whole pages, and the total is what the kernel says. Memory in huge pages can be used for nothing
// else, so it does not count as MEMORY_MB of its cell: a guest asks for the one or the other.
package hugepages
