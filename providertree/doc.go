// SPDX-License-Identifier: Apache-2.0

// Package providertree is the provider tree as a value: the resource providers of one or more
// compute nodes (and the sharing providers beside them), their inventories, traits and aggregates,
// and the allocations against them.
//
// It is what a virt driver edits and what the agent compares with Placement. It does no I/O, reads
// no clock and logs nothing, so every rule in it can be tested by calling it.
//
//	root  cn1                         VCPU, MEMORY_MB, DISK_GB     COMPUTE_NODE
//	├─ cn1_numa_0                     VCPU, MEMORY_MB              HW_NUMA_ROOT
//	│  └─ cn1_pci_0000_84_00_0        VGPU
//	└─ cn1_numa_1                     VCPU, MEMORY_MB              HW_NUMA_ROOT
//	root  nfs-share                   DISK_GB                      MISC_SHARES_VIA_AGGREGATE
//
// A [Tree] holds any number of such trees. Its rules are those of Nova's ProviderTree, made strict:
// names and uuids are each unique over the whole Tree, a bulk change happens whole or not at all,
// inventories are compared after Placement's defaults were filled in, and a generation never goes
// backwards.
//
// A Tree is a value: [Tree.Clone] is cheap (providers are shared until one side writes), and
// nothing handed out by a Tree is connected with it any more. A Tree is not safe for concurrent
// writes; clones of one Tree may be used by different goroutines freely.
package providertree
