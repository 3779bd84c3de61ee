// SPDX-License-Identifier: Apache-2.0

package extraspecs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// specsOf reads "a=b c=d".
func specsOf(text string) map[string]string {
	out := map[string]string{}
	for one := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(one, "=")
		out[name] = value
	}
	return out
}

// TestGuestCells: how a guest of 4 processors and 1024 MB is divided, or why not.
func TestGuestCells(t *testing.T) {
	const incomplete = "CPU and memory allocation must be provided for all NUMA nodes"
	const asymmetric = "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. " +
		"Explicit assignment of CPUs and memory to nodes is required"
	for specs, want := range map[string]string{
		"hw:cpu_policy=shared": "",
		"hw:numa_nodes=1":      "[0 1 2 3] 1024",
		"hw:numa_nodes=2":      "[0 1] 512, [2 3] 512",
		"hw:numa_nodes=4":      "[0] 256, [1] 256, [2] 256, [3] 256",
		"hw:numa_nodes=3":      asymmetric,
		"hw:numa_nodes=8":      asymmetric,
		"hw:numa_nodes=0":      "The property 'numa_nodes' cannot be '0'. It must be a number greater than 0",
		"hw:numa_nodes=-1":     "The property 'numa_nodes' cannot be '-1'. It must be a number greater than 0",
		"hw:numa_nodes=1000":   "hw:numa_nodes is 1000, more than 128",

		"hw:numa_nodes=2 hw:numa_cpus.0=0-1,3 hw:numa_cpus.1=2 " +
			"hw:numa_mem.0=1000 hw:numa_mem.1=24": "[0 1 3] 1000, [2] 24",
		"hw:numa_nodes=2 hw:numa_cpus.0=0-3,^2 hw:numa_cpus.1=2 " +
			"hw:numa_mem.0=1000 hw:numa_mem.1=24": "[0 1 3] 1000, [2] 24",
		"hw:numa_cpus.0=0-3 hw:numa_mem.0=1024":                 "[0 1 2 3] 1024",
		"hw:numa_nodes=2 hw:numa_cpus.0=0-3 hw:numa_mem.0=1024": incomplete,
		"hw:numa_nodes=2 hw:numa_cpus.0=0-1 hw:numa_cpus.1=2-3": incomplete,
		"hw:numa_nodes=2 hw:numa_cpus.0=0-1 hw:numa_cpus.2=2-3 " +
			"hw:numa_mem.0=512 hw:numa_mem.1=512": incomplete,
		"hw:numa_cpus.00=0-3 hw:numa_mem.0=1024": incomplete,
		"hw:numa_nodes=2 hw:numa_cpus.0=0-3 hw:numa_cpus.1= " +
			"hw:numa_mem.0=512 hw:numa_mem.1=512": incomplete,
		"hw:numa_nodes=2 hw:numa_cpus.0=0-1 hw:numa_cpus.1=2-4 " +
			"hw:numa_mem.0=512 hw:numa_mem.1=512": "CPU number 4 is larger than max 3",
		"hw:numa_nodes=2 hw:numa_cpus.0=0-2 hw:numa_cpus.1=2-3 " +
			"hw:numa_mem.0=512 hw:numa_mem.1=512": "CPU number 2 is assigned to two nodes",
		"hw:numa_nodes=2 hw:numa_cpus.0=0 hw:numa_cpus.1=2 " +
			"hw:numa_mem.0=512 hw:numa_mem.1=512": "CPU number {1, 3} is not assigned to any node",
		"hw:numa_nodes=2 hw:numa_cpus.0=0-1 hw:numa_cpus.1=2-3 " +
			"hw:numa_mem.0=512 hw:numa_mem.1=513": "1025 MB of memory assigned, but expected 1024 MB",
		"hw:numa_nodes=2 hw:numa_cpus.0=0-1 hw:numa_cpus.1=2-3 " +
			"hw:numa_mem.0=512 hw:numa_mem.1=0": "Validation failed; '0' is not a number of MB " +
			"greater than 0 for hw:numa_mem.1.",
		"hw:numa_nodes=2 hw:numa_cpus.0=0-1 hw:numa_cpus.1=3-2 " +
			"hw:numa_mem.0=512 hw:numa_mem.1=512": `Invalid range expression "3-2"`,
		"hw:numa_nodes=2 hw:numa_cpus.0=0-1 hw:numa_cpus.1=x " +
			"hw:numa_mem.0=512 hw:numa_mem.1=512": `Invalid range expression "x"`,
	} {
		cells, err := extraspecs.GuestCells(specsOf(specs), 4, 1024)
		var got []string
		for _, c := range cells {
			got = append(got, fmt.Sprintf("%v %d", c.VCPUs, c.MemoryMB))
		}
		text := strings.Join(got, ", ")
		if err != nil {
			text = err.Error()
		}
		testproc.Samef(t, cmp.Diff(want, text), "%s", specs)
	}
}

// TestPageSize: sizes as Nova reads them, and the class of such pages.
func TestPageSize(t *testing.T) {
	for text, want := range map[string]string{
		"": "0 false true", "small": "0 false true", "any": "0 false true", "large": "0 true true",
		"4": "0 false true", "64KB": "0 false true",
		"2048": "2048 false true", "2MB": "2048 false true", "2MiB": "2048 false true",
		"1GB": "1048576 false true", "1g": "1048576 false true",
		"x": "0 false false", "0": "0 false false", "-1": "0 false false", "2TB": "0 false false",
		"2MBB": "0 false false", "99999999999": "0 false false",
	} {
		kib, large, ok := extraspecs.PageSize(text)
		testproc.Equal(t, fmt.Sprint(kib, large, ok), want, "%s is %s", text)
	}
	for kib, want := range map[uint64]string{2048: "2M",
		1 << 20: "1G", 16 << 20: "16G", 512 << 10: "512M", 64: "64K", 1025: "1025K"} {
		testproc.Equal(t, extraspecs.PagesClass(kib), "CUSTOM_HUGEPAGES_"+want, "pages of %d KiB are %s", kib)
	}
}

// TestDeviceAffinity: what is not said, or not known, is legacy.
func TestDeviceAffinity(t *testing.T) {
	for value, want := range map[string]extraspecs.Affinity{
		"": extraspecs.AffinityLegacy, "legacy": extraspecs.AffinityLegacy, "socket": extraspecs.AffinityLegacy,
		" Required": extraspecs.AffinityRequired, "preferred": extraspecs.AffinityPreferred,
	} {
		if got := extraspecs.DeviceAffinity(map[string]string{"hw:pci_numa_affinity_policy": value}); got != want {
			t.Errorf("%q is %s", value, got)
		}
	}
}

// FuzzGuestCells: whatever a flavor says, the parts are the whole, or there is a reason.
func FuzzGuestCells(f *testing.F) {
	f.Add("2", "0-1", "2-3", "512", "512", int64(4), int64(1024))
	f.Add("2", "", "", "", "", int64(1<<40), int64(-2))
	f.Fuzz(func(t *testing.T, nodes, cpus0, cpus1, mem0, mem1 string, vcpus, memory int64) {
		specs := map[string]string{}
		for name, value := range map[string]string{"nodes": nodes, "cpus.0": cpus0, "cpus.1": cpus1,
			"mem.0": mem0, "mem.1": mem1} {
			if value != "" {
				specs["hw:numa_"+name] = value
			}
		}
		cells, err := extraspecs.GuestCells(specs, vcpus, memory)
		if err != nil || cells == nil {
			return
		}
		var all []int
		var sum int64
		for _, c := range cells {
			all, sum = append(all, c.VCPUs...), sum+c.MemoryMB
		}
		slices.Sort(all)
		if sum != memory || int64(len(slices.Compact(all))) != vcpus {
			t.Errorf("%v of %d and %d: %+v", specs, vcpus, memory, cells)
		}
	})
}
