// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestGuestCells: guests of several NUMA cells, of the cells that were granted and of a root.
func TestGuestCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	uneven := map[string]string{
		"hw:numa_nodes": "2", "hw:numa_cpus.0": "0,2-3",
		"hw:numa_cpus.1": "1", "hw:numa_mem.0": "768", "hw:numa_mem.1": "256",
	}
	const mib = 1024
	for name, c := range map[string]struct {
		allocations allocations
		specs       map[string]string
		vcpus       [][]int
		cells       []domain.Share
		emulator    []int
	}{
		"uneven, the first in the second cell of the host": {
			allocations{"cell0": {"PCPU": 1, "MEMORY_MB": 256}, "cell1": {"PCPU": 3, "MEMORY_MB": 768}}, uneven,
			[][]int{{5}, {1}, {13}, {6}},
			[]domain.Share{{Host: 1, VCPUs: []int{0, 2, 3}, MemoryKiB: 768 * mib},
				{Host: 0, VCPUs: []int{1}, MemoryKiB: 256 * mib}},
			[]int{1, 5, 6, 13},
		},
		"uneven, of the root": {
			allocations{"root": {"PCPU": 4, "MEMORY_MB": 1024}}, uneven,
			[][]int{{1}, {5}, {9}, {2}},
			[]domain.Share{{Host: 0, VCPUs: []int{0, 2, 3}, MemoryKiB: 768 * mib},
				{Host: 1, VCPUs: []int{1}, MemoryKiB: 256 * mib}},
			[]int{1, 2, 5, 9},
		},
		"one cell dedicated, one shared": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 512}, "cell1": {"VCPU": 2, "MEMORY_MB": 512}},
			map[string]string{"hw:numa_nodes": "2", "hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3"},
			[][]int{{4, 12}, {4, 12}, {1}, {9}},
			[]domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: 512 * mib},
				{Host: 0, VCPUs: []int{2, 3}, MemoryKiB: 512 * mib}},
			[]int{1, 4, 9, 12},
		},
		"the emulator is in the first": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 512}, "cell1": {"PCPU": 3, "MEMORY_MB": 512}},
			map[string]string{"hw:numa_nodes": "2", "hw:emulator_threads_policy": "isolate"},
			[][]int{{5}, {13}, {1}, {9}},
			[]domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: 512 * mib},
				{Host: 0, VCPUs: []int{2, 3}, MemoryKiB: 512 * mib}},
			[]int{6},
		},
		"divided by the scheduler, and not by the flavor": {
			allocations{"cell0": {"VCPU": 2, "MEMORY_MB": 512}, "cell1": {"VCPU": 2, "MEMORY_MB": 512}}, nil,
			[][]int{{0, 8}, {0, 8}, {4, 12}, {4, 12}},
			[]domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: 512 * mib},
				{Host: 1, VCPUs: []int{2, 3}, MemoryKiB: 512 * mib}},
			[]int{0, 4, 8, 12},
		},
		"divided in another way than the flavor says": {
			allocations{"cell0": {"VCPU": 1, "MEMORY_MB": 512}, "cell1": {"VCPU": 3, "MEMORY_MB": 512}},
			map[string]string{"hw:numa_nodes": "2"},
			[][]int{{0, 8}, {4, 12}, {4, 12}, {4, 12}},
			[]domain.Share{{Host: 0, VCPUs: []int{0}, MemoryKiB: 512 * mib},
				{Host: 1, VCPUs: []int{1, 2, 3}, MemoryKiB: 512 * mib}},
			[]int{0, 4, 8, 12},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := nested()
			r.Instance.Allocations, r.Instance.Flavor.VCPUs, r.Instance.Flavor.ExtraSpecs = c.allocations, 4, c.specs
			got := testproc.Try(assignment.Decide(r)).Or(t)
			testproc.Same(t, cmp.Diff(domain.Decision{VCPUs: c.vcpus, Emulator: c.emulator, Cells: c.cells}, got))
		})
	}
}

// TestDeviceAffinity: devices that are required near are in a cell of the guest, or it is a fault.
func TestDeviceAffinity(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const fault = "pci_numa_affinity_policy is required, and its devices"
	for _, c := range []struct {
		allocations allocations
		host        int // the cell, if there is no fault
		fault       string
	}{
		{allocations{"cell1": {"VCPU": 2, "MEMORY_MB": 1024}, "gpu1": {"VGPU": 1}}, 1, ""},
		{allocations{"cell0": {"VCPU": 2, "MEMORY_MB": 1024}, "gpu1": {"VGPU": 1}}, 0, fault},
		{allocations{"cell0": {"VCPU": 2, "MEMORY_MB": 1024}, "gpu0": {"VGPU": 1}, "nic1": {"CUSTOM_VF": 1}}, 0, fault},
		{allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}, "gpu1": {"VGPU": 1}}, 1, ""},
		{allocations{"root": {"PCPU": 2, "MEMORY_MB": 1024}, "nic1": {"CUSTOM_VF": 1}}, 1, ""},
		{allocations{"root": {"PCPU": 2, "MEMORY_MB": 1024}, "gpu0": {"VGPU": 1}, "gpu1": {"VGPU": 1}}, 0, fault},
	} {
		r := nested()
		r.Instance.Allocations, r.Instance.Flavor.ExtraSpecs = c.allocations,
			map[string]string{"hw:pci_numa_affinity_policy": "required"}
		d, err := assignment.Decide(r)
		var why *plugins.InstanceFault
		switch {
		case c.fault != "" && (!errors.As(err, &why) || !strings.Contains(why.Reason, c.fault)):
			t.Errorf("%v: %v", c.allocations, err)
		case c.fault == "" && (err != nil || len(d.Cells) != 1 || d.Cells[0].Host != c.host):
			t.Errorf("%v: %+v, %v", c.allocations, d, err)
		}
	}
	r := nested()
	r.Instance.Allocations, r.Instance.Flavor.VCPUs =
		allocations{"cell0": {"VCPU": 1, "MEMORY_MB": 512}, "cell1": {"VCPU": 3, "MEMORY_MB": 512}}, 4
	r.Instance.Flavor.ExtraSpecs = map[string]string{"hw:numa_nodes": "2", "hw:numa_cpus.0": "0-1",
		"hw:numa_cpus.1": "2-3", "hw:numa_mem.0": "512", "hw:numa_mem.1": "512"}
	testproc.Try(assignment.Decide(r)).ErrorHas(t, "are not those of hw:numa_cpus and hw:numa_mem", "%v")
}

// TestPartsAreWhereTheyAreGranted: however a flavor divides a guest, and whichever cells Placement
// grants it: each of its cells has the processors and the memory that the flavor says, and they are
// of the cell of the host that was granted just that.
func TestPartsAreWhereTheyAreGranted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		r := assignment.Request{
			Machine: host(4, 8), Providers: map[string]assignment.Provider{"root": {Kind: assignment.Root}},
			Shared: []int{},
			Instance: plugins.InstanceSpec{UUID: uuid,
				Allocations: allocations{}, Flavor: plugins.Flavor{ExtraSpecs: map[string]string{}}},
		}
		free := map[int]int64{} // dedicated processors of each cell
		for i, cpu := range r.Machine.CPUs {
			if cpu.Core%2 == 0 {
				r.Shared = append(r.Shared, i)
			} else {
				r.Dedicated = append(r.Dedicated, i)
				free[cpu.Cell]++
			}
		}
		for cell := range r.Machine.Cells {
			r.Providers[fmt.Sprint("cell", cell)] = assignment.Provider{Kind: assignment.Cell, Cell: cell}
		}
		specs := r.Instance.Flavor.ExtraSpecs
		hosts := rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 1, 4, rapid.ID).Draw(t, "cells")
		in := rapid.SliceOfN(rapid.IntRange(0, len(hosts)-1), len(hosts), 12).Draw(t, "cell of each processor")
		for i := range hosts { // none is empty
			in[i] = i
		}
		mixed := rapid.Bool().Draw(t, "mixed")
		var dedicated []string
		granted := map[int]map[string]int64{}
		memory := map[int]int64{}
		var cpus [4][]string
		for i, h := range hosts {
			memory[i] = rapid.Int64Range(1, 3).Draw(t, "memory") * 64
			granted[h] = map[string]int64{"MEMORY_MB": memory[i]}
			r.Instance.Flavor.MemoryMB += memory[i]
			r.Instance.Allocations[fmt.Sprint("cell", h)] = granted[h]
		}
		for vcpu, i := range in {
			class := "VCPU"
			more := granted[hosts[i]]["PCPU"] < free[hosts[i]]
			if mixed && (vcpu == 0 || vcpu != len(in)-1 && more && rapid.Bool().Draw(t, "dedicated")) {
				class = "PCPU"
				dedicated = append(dedicated, strconv.Itoa(vcpu))
			}
			granted[hosts[i]][class]++
			cpus[i] = append(cpus[i], strconv.Itoa(vcpu))
		}
		r.Instance.Flavor.VCPUs = int64(len(in))
		if mixed {
			specs["hw:cpu_policy"], specs["hw:cpu_dedicated_mask"] = "mixed", strings.Join(dedicated, ",")
		}
		specs["hw:numa_nodes"] = strconv.Itoa(len(hosts))
		for i := range hosts {
			specs[fmt.Sprint("hw:numa_cpus.", i)], specs[fmt.Sprint("hw:numa_mem.", i)] =
				strings.Join(cpus[i], ","), strconv.Itoa(int(memory[i]))
		}
		d, err := assignment.Decide(r)
		testproc.Checkf(t, err, "%v", specs)
		got := map[int]map[string]int64{}
		for i, share := range d.Cells {
			var names []string
			got[share.Host] = map[string]int64{"MEMORY_MB": int64(share.MemoryKiB / 1024)}
			for _, vcpu := range share.VCPUs {
				names = append(names, strconv.Itoa(vcpu))
				class := "VCPU"
				if len(d.VCPUs[vcpu]) == 1 && slices.Contains(r.Dedicated, d.VCPUs[vcpu][0]) {
					class = "PCPU"
				}
				got[share.Host][class]++
				for _, cpu := range d.VCPUs[vcpu] {
					if r.Machine.CPUs[cpu].Cell != share.Host {
						t.Fatalf("processor %d runs on %d, which is not in cell %d", vcpu, cpu, share.Host)
					}
				}
			}
			if diff := cmp.Diff(cpus[i], names); diff != "" || int64(share.MemoryKiB) != memory[i]*1024 {
				t.Fatalf("cell %d: %s %+v", i, diff, share)
			}
		}
		if diff := cmp.Diff(granted, got); diff != "" {
			t.Fatal(diff)
		}
		writtenAndRead(t, r, d)
	})
}
