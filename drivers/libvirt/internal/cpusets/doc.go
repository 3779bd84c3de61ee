// SPDX-License-Identifier: Apache-2.0

// Package cpusets says which of the host's CPUs guests may have: the shared ones, on which the vCPUs of many guests float (VCPU), and the
// dedicated ones, each pinned to one vCPU (PCPU). The options and their rules are those of Nova's [compute] section.
//
//	cpu_shared_set  cpu_dedicated_set    VCPU               PCPU
//	–               –                    all online CPUs    none
//	set             –                    the shared ones    none
//	–               set                  none               the dedicated ones
//	set             set                  the shared ones    the dedicated ones
package cpusets
