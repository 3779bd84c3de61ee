// SPDX-License-Identifier: Apache-2.0

package resourcerequest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// stagesOf are the queries for a flavor, a line each; a line of dashes is between stages. What all
// have is left out.
func stagesOf(t *testing.T, specs map[string]string, cells bool) string {
	t.Helper()
	r := testproc.Try(resourcerequest.New(flavorWith(specs), nil)).Or(t)
	var out []string
	for i, stage := range r.Stages(cells) {
		if i > 0 {
			out = append(out, "--")
		}
		for _, one := range stage {
			text := strings.ReplaceAll(plainQuery(one), "&root_required=!COMPUTE_STATUS_DISABLED", "")
			out = append(out, strings.ReplaceAll(text, "limit=1000&", ""))
		}
	}
	return strings.Join(out, "\n")
}

// TestStages: what hosts with NUMA cells are asked for, and what those without, in which order.
func TestStages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		flat = "required=!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4"
		one  = "required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17&resources_NUMA0=MEMORY_MB:2048,VCPU:4"
		two  = "group_policy=isolate&required_NUMA0=HW_NUMA_ROOT&required_NUMA1=HW_NUMA_ROOT&resources=DISK_GB:17&" +
			"resources_NUMA0=MEMORY_MB:1024,VCPU:2&resources_NUMA1=MEMORY_MB:1024,VCPU:2"
		four = "group_policy=isolate&required_NUMA0=HW_NUMA_ROOT&required_NUMA1=HW_NUMA_ROOT&" +
			"required_NUMA2=HW_NUMA_ROOT&required_NUMA3=HW_NUMA_ROOT&resources=DISK_GB:17&" +
			"resources_NUMA0=MEMORY_MB:512,VCPU:1&resources_NUMA1=MEMORY_MB:512,VCPU:1&" +
			"resources_NUMA2=MEMORY_MB:512,VCPU:1&resources_NUMA3=MEMORY_MB:512,VCPU:1"
		split = "\n--\n" + two + "\n--\n" + four
	)
	for name, c := range map[string]struct {
		specs map[string]string
		want  string
	}{
		"nothing":     {nil, one + "\n" + flat + split},
		"one node":    {map[string]string{"hw:numa_nodes": "1"}, one + "\n" + flat},
		"two nodes":   {map[string]string{"hw:numa_nodes": "2"}, two + "\n" + flat},
		"shared":      {map[string]string{"hw:cpu_policy": "shared"}, one + "\n" + flat + split},
		"small pages": {map[string]string{"hw:mem_page_size": "small"}, one + "\n" + flat},
		"no disk": {
			map[string]string{"resources:DISK_GB": "0", "hw:numa_nodes": "1"},
			"required_NUMA0=HW_NUMA_ROOT&resources_NUMA0=MEMORY_MB:2048,VCPU:4\n" +
				"required=!HW_NUMA_ROOT&resources=MEMORY_MB:2048,VCPU:4",
		},
		"memory of one's own": {
			map[string]string{"resources:MEMORY_MB": "1", "resources:VCPU": "0"},
			"required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17&resources_NUMA0=MEMORY_MB:1\n" +
				"required=!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:1",
		},
		"neither processors nor memory": {map[string]string{"resources:MEMORY_MB": "0", "resources:VCPU": "0"},
			"resources=DISK_GB:17"},
		"memory in a group of one's own": {
			map[string]string{"resources1:MEMORY_MB": "512"}, "resources=DISK_GB:17,VCPU:4&resources1=MEMORY_MB:512",
		},
		"dedicated": {
			map[string]string{"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
			"required_NUMA0=HW_CPU_HYPERTHREADING,HW_NUMA_ROOT&resources=DISK_GB:17&" +
				"resources_NUMA0=MEMORY_MB:2048,PCPU:4\n" +
				"required=HW_CPU_HYPERTHREADING,!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:4",
		},
		"mixed, of two nodes, and the emulator": {
			map[string]string{"hw:cpu_policy": "mixed",
				"hw:cpu_dedicated_mask": "0,2-3", "hw:emulator_threads_policy": "isolate", "hw:numa_nodes": "2"},
			"group_policy=isolate&required_NUMA0=HW_NUMA_ROOT&required_NUMA1=HW_NUMA_ROOT&resources=DISK_GB:17&" +
				"resources_NUMA0=MEMORY_MB:1024,PCPU:2,VCPU:1&resources_NUMA1=MEMORY_MB:1024,PCPU:2\n" +
				"required=!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,PCPU:4,VCPU:1",
		},
		"encrypted memory": {
			map[string]string{"hw:mem_encryption": "true", "hw:numa_nodes": "1"},
			"required=HW_CPU_X86_AMD_SEV&required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17,MEM_ENCRYPTION_CONTEXT:1&" +
				"resources_NUMA0=MEMORY_MB:2048,VCPU:4\n" +
				"required=HW_CPU_X86_AMD_SEV,!HW_NUMA_ROOT&" +
				"resources=DISK_GB:17,MEMORY_MB:2048,MEM_ENCRYPTION_CONTEXT:1,VCPU:4",
		},
		"uneven nodes": {
			map[string]string{"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-1,3", "hw:numa_cpus.1": "2",
				"hw:numa_mem.0": "48", "hw:numa_mem.1": "2000"},
			"group_policy=isolate&required_NUMA0=HW_NUMA_ROOT&required_NUMA1=HW_NUMA_ROOT&resources=DISK_GB:17&" +
				"resources_NUMA0=MEMORY_MB:48,VCPU:3&resources_NUMA1=MEMORY_MB:2000,VCPU:1\n" + flat,
		},
		"pages": {
			map[string]string{"hw:mem_page_size": "2MB"},
			strings.Replace(one, "NUMA0=MEMORY_MB", "NUMA0=CUSTOM_HUGEPAGES_2M:1024,MEMORY_MB", 1) + "\n" + flat,
		},
		"large pages": {
			map[string]string{"hw:mem_page_size": "large"},
			strings.Replace(one, "NUMA0=MEMORY_MB", "NUMA0=CUSTOM_HUGEPAGES_1G:2,MEMORY_MB", 1) + "\n" + flat +
				"\n--\n" +
				strings.Replace(one, "NUMA0=MEMORY_MB", "NUMA0=CUSTOM_HUGEPAGES_2M:1024,MEMORY_MB", 1),
		},
		"pages of one's own": {
			map[string]string{"resources:CUSTOM_HUGEPAGES_2M": "1024", "hw:mem_page_size": "2MB"},
			strings.Replace(one, "NUMA0=MEMORY_MB", "NUMA0=CUSTOM_HUGEPAGES_2M:1024,MEMORY_MB", 1) + "\n" +
				"required=!HW_NUMA_ROOT&resources=CUSTOM_HUGEPAGES_2M:1024,DISK_GB:17,MEMORY_MB:2048,VCPU:4",
		},
		"a device": {
			map[string]string{"resources:VGPU": "1", "hw:numa_nodes": "1"},
			"group_policy=none&required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17&resources_DEVICE0=VGPU:1&" +
				"resources_NUMA0=MEMORY_MB:2048,VCPU:4&same_subtree=_NUMA0,_DEVICE0\n" +
				"required=!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4,VGPU:1\n--\n" +
				"required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17,VGPU:1&resources_NUMA0=MEMORY_MB:2048,VCPU:4",
		},
		"a device, preferred": {
			map[string]string{"resources:VGPU": "1", "hw:numa_nodes": "1", "hw:pci_numa_affinity_policy": "preferred"},
			"group_policy=none&required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17&resources_DEVICE0=VGPU:1&" +
				"resources_NUMA0=MEMORY_MB:2048,VCPU:4&same_subtree=_NUMA0,_DEVICE0\n--\n" +
				"required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17,VGPU:1&resources_NUMA0=MEMORY_MB:2048,VCPU:4\n" +
				"required=!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4,VGPU:1",
		},
		"devices of two groups, required": {
			map[string]string{"resources_A:VGPU": "1", "trait_A:CUSTOM_X": "required", "resources_B:CUSTOM_FPGA": "2",
				"hw:pci_numa_affinity_policy": "Required", "group_policy": "none"},
			"group_policy=none&required_A=CUSTOM_X&required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17&" +
				"resources_A=VGPU:1&resources_B=CUSTOM_FPGA:2&resources_NUMA0=MEMORY_MB:2048,VCPU:4" +
				"&same_subtree=_NUMA0,_A&same_subtree=_NUMA0,_B",
		},
		"a device of two nodes": {
			map[string]string{"resources:VGPU": "1", "hw:numa_nodes": "2"},
			strings.Replace(two, "DISK_GB:17", "DISK_GB:17,VGPU:1", 1) +
				"\nrequired=!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4,VGPU:1",
		},
		"the policy without a device": {map[string]string{"hw:pci_numa_affinity_policy": "required",
			"hw:numa_nodes": "1"}, one + "\n" + flat},
		"a trait of one of several": {
			map[string]string{"resources:VGPU": "1", "trait:CUSTOM_X": "required", "hw:numa_nodes": "1"},
			"required=CUSTOM_X&required_NUMA0=HW_NUMA_ROOT&resources=DISK_GB:17,VGPU:1&" +
				"resources_NUMA0=MEMORY_MB:2048,VCPU:4\n" +
				"required=CUSTOM_X,!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4,VGPU:1",
		},
		"traits": {
			map[string]string{"trait:HW_CPU_X86_AVX2": "required", "trait:STORAGE_DISK_SSD": "required",
				"trait:CUSTOM_FAST": "required", "trait:CUSTOM_OLD": "forbidden", "hw:numa_nodes": "1"},
			"required=STORAGE_DISK_SSD,!CUSTOM_OLD&required_NUMA0=HW_CPU_X86_AVX2,HW_NUMA_ROOT,!CUSTOM_OLD&" +
				"resources=DISK_GB:17&resources_NUMA0=MEMORY_MB:2048,VCPU:4&" +
				"root_required=CUSTOM_FAST,!COMPUTE_STATUS_DISABLED,!CUSTOM_OLD\n" +
				"required=CUSTOM_FAST,HW_CPU_X86_AVX2,STORAGE_DISK_SSD,!CUSTOM_OLD,!HW_NUMA_ROOT&" +
				"resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4",
		},
		"only hosts with cells": {map[string]string{"trait:HW_NUMA_ROOT": "required"}, one},
		"no hosts with cells":   {map[string]string{"trait:HW_NUMA_ROOT": "forbidden"}, flat},
		"a group at a cell": {
			map[string]string{"resources_A:CUSTOM_X": "1", "same_subtree:near": "_NUMA1, _A", "hw:numa_nodes": "2"},
			"group_policy=none&required_NUMA0=HW_NUMA_ROOT&required_NUMA1=HW_NUMA_ROOT&resources=DISK_GB:17&" +
				"resources_A=CUSTOM_X:1&resources_NUMA0=MEMORY_MB:1024,VCPU:2&resources_NUMA1=MEMORY_MB:1024,VCPU:2&" +
				"same_subtree=_NUMA1,_A",
		},
		"one group, isolated, beside cells": {
			map[string]string{"resources_A:CUSTOM_X": "1", "group_policy": "isolate", "hw:numa_nodes": "2"},
			strings.Replace(strings.Replace(two, "isolate", "none", 1), "&resources_NUMA0",
				"&resources_A=CUSTOM_X:1&resources_NUMA0", 1) +
				"\ngroup_policy=isolate&" + flat + "&resources_A=CUSTOM_X:1",
		},
		"groups below a place": {
			map[string]string{"resources_A:CUSTOM_X": "1", "resources_B:CUSTOM_X": "1",
				"trait_P:CUSTOM_NIC": "required", "same_subtree:1": "_P,_A,_B", "group_policy": "isolate",
				"resources:VCPU": "0", "resources:MEMORY_MB": "0"},
			"group_policy=isolate&required_P=CUSTOM_NIC&resources=DISK_GB:17&resources_A=CUSTOM_X:1&" +
				"resources_B=CUSTOM_X:1&same_subtree=_P,_A,_B",
		},
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Same(t, cmp.Diff(strings.Split(c.want, "\n"), strings.Split(stagesOf(t, c.specs, true), "\n")))
		})
	}
}

// TestStagesWithoutCells: where no host has NUMA cells as providers, there is one request, or none.
// It forbids cells all the same: a host may have some since it was looked.
func TestStagesWithoutCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const flat = "required=!HW_NUMA_ROOT&resources=DISK_GB:17,MEMORY_MB:2048,VCPU:4"
	for _, c := range []struct {
		want  string
		specs map[string]string
	}{
		{flat, nil},
		{flat + ",VGPU:1", map[string]string{"resources:VGPU": "1", "hw:numa_nodes": "2"}},
		{"", map[string]string{"resources:VGPU": "1", "hw:pci_numa_affinity_policy": "required"}},
		{flat, map[string]string{"trait:HW_NUMA_ROOT": "forbidden"}},
	} {
		testproc.Equal(t, stagesOf(t, c.specs, false), c.want, "%v: %s", c.specs)
	}
}

// TestInTreeOfCells: one tree is that of the cells.
func TestInTreeOfCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r, err := resourcerequest.New(flavorWith(map[string]string{"hw:numa_nodes": "2", "resources1:VGPU": "1"}), nil)
	testproc.Check(t, err)
	one := r.Stages(true)[0][0]
	one.InTree, one.Limit = "u", 7
	q := one.Query()
	for key, want := range map[string]string{"in_tree": "", "in_tree1": "", "in_tree_NUMA0": "u", "in_tree_NUMA1": "u",
		"group_policy": "none", "limit": "7"} {
		testproc.Equal(t, q.Get(key), want, "%s is %q", key)
	}
}

// TestInvalidNUMA: what is refused, and in which words.
func TestInvalidNUMA(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		specs map[string]string
		want  string
	}{
		{map[string]string{"hw:numa_nodes": "x"},
			"The extra spec hw:numa_nodes=x of the flavor is invalid: it must be an integer from 1 to 128."},
		{map[string]string{"hw:numa_nodes": "129"},
			"The extra spec hw:numa_nodes=129 of the flavor is invalid: it must be an integer from 1 to 128."},
		{map[string]string{"hw:numa_mem.0": "0"},
			"The extra spec hw:numa_mem.0=0 of the flavor is invalid: it must be an integer of 1 or more."},
		{map[string]string{"hw:numa_nodes": "3"},
			"Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. Explicit " +
				"assignment of CPUs and memory to nodes is required"},
		{map[string]string{"hw:numa_cpus.0": "0-3"}, "CPU and memory allocation must be provided for all NUMA nodes"},
		{map[string]string{"hw:mem_page_size": "2XB"}, "Invalid memory page size '2XB'"},
		{map[string]string{"hw:mem_page_size": "4GB"},
			"The memory of each NUMA node of the flavor must be a multiple of the page size, hw:mem_page_size."},
		{map[string]string{"hw:numa_nodes": "2", "resources:MEMORY_MB": "2"},
			"The flavor has 2 NUMA nodes, and 'resources' extra specs for processors or memory that are not the " +
				"flavor's own amounts; use one or the other."},
		{map[string]string{"hw:pci_numa_affinity_policy": "socket"},
			"The extra spec hw:pci_numa_affinity_policy=socket of the flavor is not supported here: no resource " +
				"provider stands for a socket."},
		{map[string]string{"resources:VGPU": "1", "hw:pci_numa_affinity_policy": "required",
			"trait:HW_NUMA_ROOT": "forbidden"},
			"The flavor forbids the trait HW_NUMA_ROOT, and asks for what only hosts with that have."},
		{map[string]string{"resources_NUMA0:VGPU": "1"},
			"The group _NUMA0 of the flavor has a name that the scheduler uses; choose another one."},
		{map[string]string{"resources_A:VGPU": "1", "same_subtree:x": "_A"},
			"Validation failed; 'same_subtree:x' is not a name and the suffixes of two or more groups of " +
				"'resources' or 'trait' extra specs: '_A'."},
		{map[string]string{"resources_A:VGPU": "1", "same_subtree:x": "_A,_B"},
			"Validation failed; 'same_subtree:x' names '_B', which is no group of 'resources' or 'trait' extra specs."},
		{map[string]string{"resources_A:VGPU": "1", "same_subtree:x": "_A,_NUMA1"},
			"Validation failed; 'same_subtree:x' names '_NUMA1', which is no group of 'resources' or 'trait' " +
				"extra specs."},
		{map[string]string{"trait_P:CUSTOM_A": "required", "resources_A:VGPU": "1"},
			"Validation failed; the extra specs 'trait_P:' have no 'resources_P:' that they could be about."},
	} {
		_, err := resourcerequest.New(flavorWith(c.specs), nil)
		if err == nil || err.Error() != c.want {
			t.Errorf("New with the extra specs %v: got %v", c.specs, err)
		}
	}
}
