// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPutKeepsOwnerOfPCIDevices: newer Novas mark PCI devices and encryption contexts with
// OWNER_NOVA, older ones do not. Both are adopted without a write; what the driver makes has it.
func TestPutKeepsOwnerOfPCIDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	host := twoSockets(t)
	for _, marked := range []bool{false, true} {
		tree := novas(t)
		for _, uuid := range []string{novaNIC, novaSEV} {
			if marked {
				testproc.Try(tree.AddTraits(uuid, "OWNER_NOVA")).Or(t)
			}
		}
		after := put(t, want(t, host, settings()), tree)
		if changes := providertree.Diff(tree, after); !changes.Empty() {
			t.Errorf("marked %v: the adoption changes the tree (-Nova +driver):\n%s",
				marked, cmp.Diff(dump(tree), dump(after)))
		}
	}
	made := put(t, want(t, host, settings()), fresh(t))
	for _, name := range []string{"cn1_0000:86:00.0", "cn1_amd_sev"} {
		if p, _ := made.ProviderByName(name); !p.HasTrait("OWNER_NOVA") {
			t.Errorf("%s has the traits %v", name, p.Traits)
		}
	}
}

// TestTraitsOfCPUsFollowThem: each cell with VCPU or PCPU has the traits of the CPUs that the root
// has, and no others; those that others set stay.
func TestTraitsOfCPUsFollowThem(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	host, s := twoSockets(t), settings()
	host.Cells = append(host.Cells, machine.Cell{ID: 2, MemoryKiB: 1 << 20}) // memory alone
	host.Traits = []string{"COMPUTE_NODE", "HW_CPU_HYPERTHREADING", "HW_CPU_X86_AVX2"}
	host.OwnedTraits = []string{"HW_ARCH_X86_64", "HW_CPU_HYPERTHREADING", "HW_CPU_X86_AVX2", "HW_CPU_X86_AVX512F"}
	s.Nested = true
	cells := func(tree *providertree.Tree) (all [3]string) {
		for i := range all {
			all[i] = traits(tree, fmt.Sprintf("cn1_numa_%d", i))
		}
		return all
	}
	tree := put(t, want(t, host, s), fresh(t))
	const all = "HW_CPU_HYPERTHREADING HW_CPU_X86_AVX2 HW_NUMA_ROOT"
	testproc.Samef(t, cmp.Diff([3]string{all, all, "HW_NUMA_ROOT"}, cells(tree)), "a new tree")
	testproc.Equal(t, traits(tree, "cn1"), "COMPUTE_NODE HW_CPU_HYPERTHREADING HW_CPU_X86_AVX2", "the root has %s")

	// The features change, nothing is known of threads, no CPU of the second cell is for guests.
	one, _ := tree.ProviderByName("cn1_numa_1")
	testproc.Try(tree.AddTraits(one.UUID, "CUSTOM_RACK_7", "HW_CPU_X86_PDPE1GB")).Or(t)
	host.Traits, host.OwnedTraits = []string{"HW_CPU_X86_AVX512F"}, []string{"HW_CPU_X86_AVX2", "HW_CPU_X86_AVX512F"}
	host.Shared, host.Dedicated = []int{1, 2}, nil
	tree = put(t, want(t, host, s), tree)
	if diff := cmp.Diff([3]string{
		"HW_CPU_HYPERTHREADING HW_CPU_X86_AVX512F HW_NUMA_ROOT",
		"CUSTOM_RACK_7 HW_CPU_HYPERTHREADING HW_CPU_X86_PDPE1GB HW_NUMA_ROOT",
		"HW_NUMA_ROOT",
	}, cells(tree)); diff != "" {
		t.Errorf("other features (-want +got):\n%s", diff)
	}

	s.Nested = false // and back
	tree = put(t, want(t, host, s), tree)
	if got := traits(tree, "cn1"); got != "COMPUTE_NODE HW_CPU_HYPERTHREADING HW_CPU_X86_AVX512F" ||
		tree.Exists(one.UUID) {
		t.Errorf("the flat tree's root has %s; cell 1 exists: %v", got, tree.Exists(one.UUID))
	}
}
