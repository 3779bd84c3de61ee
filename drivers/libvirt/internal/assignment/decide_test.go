// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

type allocations = providertree.ProviderResources

// nested is a host of two cells of four cores (0-3 and 4-7, their second threads 8-11 and 12-15)
// with a tree that has the cells. The first core of each cell is shared: 0, 8, 4 and 12.
func nested() assignment.Request {
	m := host(2, 4)
	r := assignment.Request{
		Instance: plugins.InstanceSpec{UUID: uuid, Flavor: plugins.Flavor{VCPUs: 2, MemoryMB: 1024}},
		Machine:  m, Shared: []int{0, 4, 8, 12}, Dedicated: []int{1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15},

		Providers: map[string]assignment.Provider{
			"root": {Kind: assignment.Root}, "disk": {Kind: assignment.Elsewhere},
			"sev":   {Kind: assignment.Encryption, Security: domain.SEV},
			"snp":   {Kind: assignment.Encryption, Security: domain.SEVSNP},
			"cell0": {Kind: assignment.Cell, Cell: 0}, "cell1": {Kind: assignment.Cell, Cell: 1},
			"cell7": {Kind: assignment.Cell, Cell: 7},
			"gpu0":  {Kind: assignment.MdevParent, Parent: gpu(0).DeviceName(), Type: "nvidia-222"},
			"gpu1":  {Kind: assignment.MdevParent, Parent: gpu(1).DeviceName(), Type: "nvidia-222"},
			"gpu7":  {Kind: assignment.MdevParent, Parent: gpu(7).DeviceName(), Type: "nvidia-222"},
			"gpuX":  {Kind: assignment.MdevParent, Parent: gpu(0).DeviceName(), Type: "nvidia-999"},
			"nic0":  {Kind: assignment.PCI, Devices: managed(m.Devices[4].Virtual...)},
			"nic1":  {Kind: assignment.PCI, Devices: managed(m.Devices[9].Virtual...)},
			"pf0":   {Kind: assignment.PCI, Devices: managed(nic(0))},
		},
	}
	return r
}

func TestDecide(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	specs := func(keysAndValues ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(keysAndValues); i += 2 {
			out[keysAndValues[i]] = keysAndValues[i+1]
		}
		return out
	}
	pinned := func(uuid string, cpus ...int) domain.Domain {
		d := domain.Domain{UUID: uuid, VCPUs: len(cpus)}
		for _, cpu := range cpus {
			d.Pins = append(d.Pins, []int{cpu})
		}
		return d
	}
	gib := uint64(1 << 20)
	shared := []int{0, 4, 8, 12}
	for name, c := range map[string]struct {
		allocations allocations
		vcpus       int64
		specs       map[string]string
		domains     []domain.Domain
		want        domain.Decision
	}{
		"floating, of the root": {
			allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}, "disk": {"DISK_GB": 10}}, 2, nil, nil,
			domain.Decision{VCPUs: [][]int{shared, shared}, Emulator: shared},
		},
		"floating, of a cell": {
			allocations{"cell1": {"VCPU": 2, "MEMORY_MB": 1024}, "root": {"DISK_GB": 10}}, 2, nil, nil,
			domain.Decision{VCPUs: [][]int{{4, 12}, {4, 12}}, Emulator: []int{4, 12},
				Cells: []domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"dedicated, of a cell: both threads of a core": {
			allocations{"cell1": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, nil, nil,
			domain.Decision{VCPUs: [][]int{{5}, {13}},
				Emulator: []int{5, 13}, Cells: []domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"prefer takes single threads for what is left": {
			allocations{"cell0": {"PCPU": 3, "MEMORY_MB": 1024}}, 3, nil, []domain.Domain{pinned(id(1), 11)},
			domain.Decision{VCPUs: [][]int{{1}, {9}, {3}},
				Emulator: []int{1, 3, 9}, Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1, 2}, MemoryKiB: gib}}},
		},
		"require takes cores with two free threads": {
			allocations{"cell0": {"PCPU": 3, "MEMORY_MB": 1024}}, 3, specs("hw:cpu_thread_policy", "require"),
			[]domain.Domain{pinned(id(1), 9)},
			domain.Decision{VCPUs: [][]int{{2}, {10}, {3}},
				Emulator: []int{2, 3, 10}, Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1, 2}, MemoryKiB: gib}}},
		},
		"isolate takes one thread of free cores": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, specs("hw:cpu_thread_policy", "isolate"),
			[]domain.Domain{pinned(id(1), 9)},
			domain.Decision{VCPUs: [][]int{{2}, {3}}, Emulator: []int{2, 3}, Isolated: true,
				Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"no guest shares cores with an isolated guest": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, nil,
			[]domain.Domain{func() domain.Domain {
				d :=
					pinned(id(1), 1, 2)
				d.Mark = &domain.Mark{Isolated: true}
				return d
			}()},
			domain.Decision{VCPUs: [][]int{{3}, {11}},
				Emulator: []int{3, 11}, Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"a guest that floats over everything takes nothing, nor does the instance's own domain": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, nil,
			[]domain.Domain{{UUID: id(1), VCPUs: 1, CPUSet: []int{0, 1, 2, 3, 9}},
				{UUID: id(2), VCPUs: 9}, pinned(uuid, 1, 9)},
			domain.Decision{VCPUs: [][]int{{1}, {9}},
				Emulator: []int{1, 9}, Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"an emulator has a processor of its own": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, nil,
			[]domain.Domain{{UUID: id(1), VCPUs: 1, CPUSet: []int{0}, EmulatorPin: []int{1}}},
			domain.Decision{VCPUs: [][]int{{2}, {10}},
				Emulator: []int{2, 10}, Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"two cells": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 512}, "cell1": {"PCPU": 2, "MEMORY_MB": 512}}, 4, nil, nil,
			domain.Decision{VCPUs: [][]int{{1}, {9}, {5}, {13}}, Emulator: []int{1, 5, 9, 13}, Cells: []domain.Share{
				{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: gib / 2}, {Host: 1, VCPUs: []int{2, 3}, MemoryKiB: gib / 2},
			}},
		},
		"processors of two cells, memory of one": {
			allocations{"cell0": {"PCPU": 1}, "cell1": {"PCPU": 1, "MEMORY_MB": 1024}}, 2, nil, nil,
			domain.Decision{VCPUs: [][]int{{1}, {5}},
				Emulator: []int{1, 5}, Cells: []domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"some dedicated, some floating": {
			allocations{"cell0": {"PCPU": 1, "VCPU": 2, "MEMORY_MB": 1024}}, 3,
			specs("hw:cpu_dedicated_mask", "^0,^2"), nil,
			domain.Decision{VCPUs: [][]int{{0, 8}, {1}, {0, 8}}, Emulator: []int{0, 1, 8},
				Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1, 2}, MemoryKiB: gib}}},
		},
		"the emulator on shared processors": {
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, specs("hw:emulator_threads_policy", "share"), nil,
			domain.Decision{VCPUs: [][]int{{1}, {9}},
				Emulator: shared, Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"the emulator on a processor of its own": {
			allocations{"cell0": {"PCPU": 3, "MEMORY_MB": 1024}}, 2,
			specs("hw:emulator_threads_policy", "isolate"), nil,
			domain.Decision{VCPUs: [][]int{{1}, {9}},
				Emulator: []int{2}, Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"dedicated, of the root: the cell with the most free processors": {
			allocations{"root": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, nil, []domain.Domain{pinned(id(1), 1)},
			domain.Decision{VCPUs: [][]int{{5}, {13}},
				Emulator: []int{5, 13}, Cells: []domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"dedicated, of the root: the cell that has memory": {
			allocations{"root": {"PCPU": 2, "MEMORY_MB": 1024}}, 2, nil,
			[]domain.Domain{{UUID: id(1), MemoryKiB: 16 << 20,
				Memory: domain.NUMATune{Mode: "strict", Nodes: []int{0}}}},
			domain.Decision{VCPUs: [][]int{{5}, {13}},
				Emulator: []int{5, 13}, Cells: []domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: gib}}},
		},
		"dedicated, of the root: the cell of the device": {
			allocations{"root": {"PCPU": 2, "MEMORY_MB": 1024}, "gpu1": {"VGPU": 1}}, 2, nil, nil,
			domain.Decision{
				VCPUs: [][]int{{5}, {13}}, Emulator: []int{5, 13},
				Cells: []domain.Share{{Host: 1, VCPUs: []int{0, 1}, MemoryKiB: gib}},
				Mdevs: []domain.Mdev{{UUID: id(0x201),
					Parent: "pci_0000_81_00_0", Type: "nvidia-222", API: "vfio-pci"}},
			},
		},
		"dedicated, of the root: two cells, and the emulator": {
			allocations{"root": {"PCPU": 3, "MEMORY_MB": 1024}}, 2,
			specs("hw:numa_nodes", "2", "hw:emulator_threads_policy", "isolate"), []domain.Domain{pinned(id(1), 1)},
			domain.Decision{VCPUs: [][]int{{5}, {9}}, Emulator: []int{13}, Cells: []domain.Share{
				{Host: 1, VCPUs: []int{0}, MemoryKiB: gib / 2}, {Host: 0, VCPUs: []int{1}, MemoryKiB: gib / 2},
			}},
		},
		"large pages": {
			allocations{"cell0": {"VCPU": 1, "MEMORY_MB": 1024}}, 1, specs("hw:mem_page_size", "large"), nil,
			domain.Decision{VCPUs: [][]int{{0, 8}}, Emulator: []int{0, 8}, PageKiB: 1 << 20,
				Cells: []domain.Share{{Host: 0, VCPUs: []int{0}, MemoryKiB: gib}}},
		},
		"pages of a size, of the root": {
			allocations{"root": {"VCPU": 1, "MEMORY_MB": 1024}}, 1, specs("hw:mem_page_size", "2MB"), nil,
			domain.Decision{VCPUs: [][]int{{0, 8}}, Emulator: []int{0, 8}, PageKiB: 2048,
				Cells: []domain.Share{{Host: 0, VCPUs: []int{0}, MemoryKiB: gib}}},
		},
		"pages that are granted": {
			allocations{"cell0": {"VCPU": 1, "CUSTOM_HUGEPAGES_2M": 512}}, 1, nil, nil,
			domain.Decision{VCPUs: [][]int{{0, 8}}, Emulator: []int{0, 8}, PageKiB: 2048,
				Cells: []domain.Share{{Host: 0, VCPUs: []int{0}, MemoryKiB: gib}}},
		},
		"pages that are granted beside memory": {
			allocations{"cell0": {"VCPU": 1, "CUSTOM_HUGEPAGES_2M": 512, "MEMORY_MB": 1024}}, 1, nil, nil,
			domain.Decision{VCPUs: [][]int{{0, 8}}, Emulator: []int{0, 8}, PageKiB: 2048,
				Cells: []domain.Share{{Host: 0, VCPUs: []int{0}, MemoryKiB: gib}}},
		},
		"devices": {
			allocations{"root": {"VCPU": 1, "MEMORY_MB": 1024}, "nic0": {"CUSTOM_VF": 2}, "gpu0": {"VGPU": 2}}, 1, nil,
			[]domain.Domain{{UUID: id(1), Mdevs: []string{id(0x101)},
				PCI: managed(machine.Address{Bus: 0x10, Function: 2})}},
			domain.Decision{
				VCPUs: [][]int{shared}, Emulator: shared,
				PCI: managed(machine.Address{Bus: 0x10, Function: 3}, machine.Address{Bus: 0x10, Function: 4}),
				Mdevs: []domain.Mdev{
					{UUID: id(0x102), Parent: "pci_0000_80_00_0", Type: "nvidia-222", API: "vfio-pci"},
					{UUID: "2bdfebd3-a5e4-56db-aac8-38aab3d43271", Parent: "pci_0000_80_00_0", Type: "nvidia-222",
						API: "vfio-pci", Made: true},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := nested()
			r.Instance.Allocations, r.Instance.Flavor.VCPUs, r.Instance.Flavor.ExtraSpecs, r.Domains =
				c.allocations, c.vcpus, c.specs, c.domains
			got := testproc.Try(assignment.Decide(r)).Or(t)
			testproc.Same(t, cmp.Diff(c.want, got))
		})
	}
}

// TestDecideAgain: after an attempt that was interrupted, the device that was made for the instance
// is found and not made again.
func TestDecideAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := nested()
	r.Instance.Allocations = allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}, "gpu0": {"VGPU": 3}}
	first := testproc.Try(assignment.Decide(r)).Or(t)
	made := first.Mdevs[2]
	if !made.Made {
		t.Fatal(first)
	}
	r.Machine.Parents[0].Mdevs = append(r.Machine.Parents[0].Mdevs,
		machine.Mdev{UUID: made.UUID, Type: made.Type, Active: true})
	r.Machine.Parents[0].Types[0].Available = 0
	r.Instance.Allocations["gpu0"]["VGPU"] = 1
	again, err := assignment.Decide(r)
	testproc.Check(t, err)
	testproc.Same(t, cmp.Diff([]domain.Mdev{made}, again.Mdevs))
	r.Domains = []domain.Domain{{UUID: id(1), Mdevs: []string{made.UUID}}} // another domain took it meanwhile
	r.Instance.Allocations["gpu0"]["VGPU"] = 3
	r.Machine.Parents[0].Types[0].Available = 1
	if again, err = assignment.Decide(r); err != nil || again.Mdevs[2].UUID == made.UUID || !again.Mdevs[2].Made {
		t.Error(again, err)
	}
}

// TestDecideOnWhatIsOnline: processors that are not dedicated are shared by default; those that are
// offline are neither.
func TestDecideOnWhatIsOnline(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := nested()
	r.Instance.Allocations = allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}}
	r.Machine.CPUs[8] = machine.CPU{ID: 8, Cell: -1, Package: -1, Core: -1}
	for _, shared := range [][]int{nil, r.Shared} {
		r.Shared = shared
		d := testproc.Try(assignment.Decide(r)).Or(t)
		testproc.Same(t, cmp.Diff([]int{0, 4, 12}, d.Emulator))
	}
}

// TestEncryptedMemory: the kind of memory encryption is that of the provider that granted a
// context.
func TestEncryptedMemory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := nested()
	r.Instance.Allocations = allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}, "snp": {"MEM_ENCRYPTION_CONTEXT": 1}}
	d, err := assignment.Decide(r)
	if err != nil || d.Encryption != domain.SEVSNP {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestFaults(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type change = func(*assignment.Request)
	granted := func(a allocations) change { return func(r *assignment.Request) { r.Instance.Allocations = a } }
	specs := func(a allocations, key, value string) change {
		return func(r *assignment.Request) {
			r.Instance.Allocations, r.Instance.Flavor.ExtraSpecs = a, map[string]string{key: value}
		}
	}
	cell := allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 1024}}
	root := allocations{"root": {"PCPU": 2, "MEMORY_MB": 1024}}
	float := func(provider, class string, n int64) change {
		return granted(allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}, provider: {class: n}})
	}
	hostWords := regexp.MustCompile(`pci_|0000:|\b(CPU|cell) \d`)
	for want, c := range map[string]change{
		"resource provider absent, which":                 granted(allocations{"absent": {"VCPU": 2}}),
		"granted 0 of VCPU":                               granted(allocations{"root": {"VCPU": 0}}),
		"granted 4294967296 of VCPU":                      granted(allocations{"root": {"VCPU": 1 << 32}}),
		"granted CUSTOM_X, which this driver cannot give": granted(allocations{"root": {"CUSTOM_X": 1}}),
		"granted MEM_ENCRYPTION_CONTEXT, but":             granted(allocations{"root": {"MEM_ENCRYPTION_CONTEXT": 1}}),
		"granted more than one MEM_ENCRYPTION_CONTEXT":    float("sev", "MEM_ENCRYPTION_CONTEXT", 2),
		"more than one MEM_ENCRYPTION_CONTEXT, and can have": granted(allocations{
			"root": {"VCPU": 2, "MEMORY_MB": 1024}, "sev": {"MEM_ENCRYPTION_CONTEXT": 1},
			"snp": {"MEM_ENCRYPTION_CONTEXT": 1},
		}),
		"cannot give persistent memory":    granted(allocations{"root": {"CUSTOM_PMEM_NAMESPACE_X": 1}}),
		"1 VCPU and 0 PCPU, and needs 2":   granted(allocations{"root": {"VCPU": 1, "MEMORY_MB": 1024}}),
		"512 MB of memory, and its flavor": granted(allocations{"root": {"VCPU": 2, "MEMORY_MB": 512}}),
		"that no longer exists":            granted(allocations{"cell7": {"MEMORY_MB": 1024}, "root": {"VCPU": 2}}),
		"and part was not": granted(
			allocations{"cell0": {"MEMORY_MB": 512}, "root": {"VCPU": 2, "MEMORY_MB": 512}}),
		"cell that grants it no processors": granted(
			allocations{"cell0": {"PCPU": 2, "MEMORY_MB": 512}, "cell1": {"MEMORY_MB": 512}}),
		"PCPU was not granted from":           granted(allocations{"root": {"PCPU": 2}, "cell0": {"MEMORY_MB": 1024}}),
		"hw:cpu_thread_policy is \"x\"":       specs(cell, "hw:cpu_thread_policy", "x"),
		"hw:emulator_threads_policy is \"x\"": specs(cell, "hw:emulator_threads_policy", "x"),
		"is isolate, and it was granted no": specs(allocations{"root": {"VCPU": 3, "MEMORY_MB": 1024}},
			"hw:emulator_threads_policy", "isolate"),
		"'numa_nodes' cannot be '0'":     specs(cell, "hw:numa_nodes", "0"),
		"cannot be evenly distributed":   specs(root, "hw:numa_nodes", "3"),
		"resources of 1 NUMA cell(s)":    specs(cell, "hw:numa_nodes", "2"),
		"hw:cpu_dedicated_mask is \"2\"": specs(cell, "hw:cpu_dedicated_mask", "2"),
		"names 1 processors":             specs(cell, "hw:cpu_dedicated_mask", "1"),
		"hw:mem_page_size is \"x\"":      specs(cell, "hw:mem_page_size", "x"),
		"not enough free huge pages": func(r *assignment.Request) {
			specs(cell, "hw:mem_page_size", "large")(r)
			r.Machine.Cells[0].Pages = nil
		},
		"not enough free huge pages of the size": specs(cell, "hw:mem_page_size", "4MB"),
		"but the host has fewer":                 specs(root, "hw:mem_page_size", "4MB"),
		"was not granted from a NUMA cell": specs(
			allocations{"root": {"MEMORY_MB": 1024}, "cell0": {"PCPU": 2}}, "hw:mem_page_size", "2MB"),
		"511 huge pages of 2048 KiB": granted(allocations{"cell0": {"VCPU": 2, "CUSTOM_HUGEPAGES_2M": 511}}),
		"memory and huge pages from different": granted(
			allocations{"cell0": {"VCPU": 2, "CUSTOM_HUGEPAGES_2M": 512}, "cell1": {"MEMORY_MB": 1024}}),
		"another size than": specs(allocations{"cell0": {"VCPU": 2, "CUSTOM_HUGEPAGES_2M": 512}}, "hw:mem_page_size",
			"1GB"),
		"fewer are free under its hw:cpu_thread_policy, isolate": func(r *assignment.Request) {
			specs(allocations{"cell0": {"PCPU": 4, "MEMORY_MB": 1024}}, "hw:cpu_thread_policy", "isolate")(r)
			r.Instance.Flavor.VCPUs = 4
		},
		"under its hw:cpu_thread_policy, require": func(r *assignment.Request) {
			specs(cell, "hw:cpu_thread_policy", "require")(r)
			r.Dedicated = []int{1, 2, 3, 5, 6, 7}
		},
		"a NUMA cell without shared processors": func(r *assignment.Request) {
			granted(allocations{"cell0": {"VCPU": 2, "MEMORY_MB": 1024}})(r)
			r.Shared = []int{4}
		},
		"but the host has no shared processors": func(r *assignment.Request) {
			granted(allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}})(r)
			r.Shared = []int{}
		},
		"invalid size of 0 VCPUs":          func(r *assignment.Request) { r.Instance.Flavor.VCPUs = 0 },
		"VGPU, which is 1 more than":       float("gpu0", "VGPU", 5),
		"VGPU, but the host no longer has": float("gpu7", "VGPU", 1),
		"no longer offers that":            float("gpuX", "VGPU", 1),
		"CUSTOM_VF, which is 1 more than":  float("nic0", "CUSTOM_VF", 5),
		"CUSTOM_PF, which is 1 more than": func(r *assignment.Request) {
			float("pf0", "CUSTOM_PF", 1)(r)
			r.Domains = []domain.Domain{{UUID: id(1), PCI: managed(machine.Address{Bus: 0x10, Function: 2})}}
		},
		"CUSTOM_VF, which is 4 more than": func(r *assignment.Request) {
			float("nic0", "CUSTOM_VF", 4)(r)
			r.Domains = []domain.Domain{{UUID: id(1), PCI: managed(nic(0))}}
		},
	} {
		r := nested()
		c(&r)
		d, err := assignment.Decide(r)
		var fault *plugins.InstanceFault
		if !errors.As(err, &fault) || !strings.Contains(fault.Reason, want) || fault.UUID != uuid {
			t.Errorf("got %v, want %s", err, want)
			continue
		}
		if hostWords.MatchString(fault.Reason) {
			t.Errorf("the owner's reason names the host: %s", fault.Reason)
		}
		testproc.Same(t, cmp.Diff(domain.Decision{}, d))
	}
}

// managed are devices that libvirt binds to vfio-pci.
func managed(addresses ...machine.Address) []machine.PassedDevice {
	var devices []machine.PassedDevice
	for _, address := range addresses {
		devices = append(devices, machine.PassedDevice{Address: address, Managed: true})
	}
	return devices
}
