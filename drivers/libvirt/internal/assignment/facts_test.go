// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestFacts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	two, one := host(2, 2), host(1, 2) // cell 0 has processors 0, 1, 4, 5 and cell 1 has 2, 3, 6, 7
	offline := host(2, 2)
	offline.CPUs[0] = machine.CPU{ID: 0, Cell: -1, Package: -1, Core: -1}
	bare := domain.Domain{UUID: uuid, VCPUs: 2, MemoryKiB: 1024}
	for name, c := range map[string]struct {
		on     machine.Machine
		change func(*domain.Domain)
		want   assignment.Facts
	}{
		"nothing said": {two, func(*domain.Domain) {}, assignment.Facts{Unbound: 2, UnboundKiB: 1024}},
		"nothing said, one cell": {one,
			func(*domain.Domain) {}, assignment.Facts{Floating: map[int]int{0: 2}, MemoryKiB: map[int]uint64{0: 1024}}},
		"a processor pinned": {two, func(d *domain.Domain) { d.Pins = [][]int{{2}, nil} },
			assignment.Facts{Dedicated: map[int]int{1: 1}, Unbound: 1, UnboundKiB: 1024}},
		"floating in a cell": {two, func(d *domain.Domain) { d.CPUSet = []int{2, 3, 6} },
			assignment.Facts{Floating: map[int]int{1: 2}, UnboundKiB: 1024}},
		"floating over cells": {two, func(d *domain.Domain) { d.Pins = [][]int{{1, 2}, {0, 1}} },
			assignment.Facts{Floating: map[int]int{0: 1}, Unbound: 1, UnboundKiB: 1024}},
		"a pin to nowhere": {two, func(d *domain.Domain) { d.Pins = [][]int{{99}, {99, 1}} },
			assignment.Facts{Unbound: 1, Floating: map[int]int{0: 1}, UnboundKiB: 1024}},
		"a pin to an offline one": {offline, func(d *domain.Domain) { d.Pins = [][]int{{0}, {1}} },
			assignment.Facts{Unbound: 1, Dedicated: map[int]int{0: 1}, UnboundKiB: 1024}},
		"the emulator by itself": {two,
			func(d *domain.Domain) { d.Pins, d.EmulatorPin = [][]int{{0}, {1}}, []int{2} }, assignment.Facts{
				Dedicated: map[int]int{0: 2}, Emulator: map[int]int{1: 1}, UnboundKiB: 1024,
			}},
		"the emulator beside a processor": {two,
			func(d *domain.Domain) { d.Pins, d.EmulatorPin = [][]int{{0}, {1}}, []int{1} }, assignment.Facts{
				Dedicated: map[int]int{0: 2}, UnboundKiB: 1024,
			}},
		"strict memory": {two,
			func(d *domain.Domain) { d.Memory = domain.NUMATune{Mode: "strict", Nodes: []int{1}} },
			assignment.Facts{Unbound: 2, MemoryKiB: map[int]uint64{1: 1024}}},
		"restrictive memory": {two,
			func(d *domain.Domain) { d.Memory = domain.NUMATune{Mode: "restrictive", Nodes: []int{1}} },
			assignment.Facts{Unbound: 2, MemoryKiB: map[int]uint64{1: 1024}}},
		"preferred memory": {two,
			func(d *domain.Domain) { d.Memory = domain.NUMATune{Mode: "preferred", Nodes: []int{1}} },
			assignment.Facts{Unbound: 2, UnboundKiB: 1024}},
		"memory of both": {two,
			func(d *domain.Domain) { d.Memory = domain.NUMATune{Mode: "strict", Nodes: []int{0, 1}} },
			assignment.Facts{Unbound: 2, UnboundKiB: 1024}},
		"memory of a cell of none": {two,
			func(d *domain.Domain) { d.Memory = domain.NUMATune{Mode: "strict", Nodes: []int{7}} },
			assignment.Facts{Unbound: 2, UnboundKiB: 1024}},
		"cells of its own, and memory plugged in": {two, func(d *domain.Domain) {
			d.Cells = []domain.GuestCell{{ID: 0, MemoryKiB: 300}, {ID: 1, MemoryKiB: 500}}
			d.Memory = domain.NUMATune{Mode: "strict",
				Nodes: []int{0}, Cells: []domain.MemNode{{Cell: 1, Mode: "strict", Nodes: []int{1}}}}
		}, assignment.Facts{Unbound: 2, MemoryKiB: map[int]uint64{0: 300 + 224, 1: 500}}},
		"devices": {two, func(d *domain.Domain) {
			d.Mdevs, d.PCI = []string{id(0x101), id(0x202), id(0x999), id(0x888)}, managed(nic(0))
			d.Mark = &domain.Mark{Mdevs: []domain.Mdev{{UUID: id(0x888), Parent: "pci_0000_80_00_0"}}}
		}, assignment.Facts{
			Unbound: 2, UnboundKiB: 1024, Lost: []string{id(0x999)},
			Mdevs: map[string][]string{"pci_0000_80_00_0": {id(0x101), id(0x888)}, "pci_0000_81_00_0": {id(0x202)}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := bare
			c.change(&d)
			c.want.UUID = uuid
			testproc.Same(t, cmp.Diff(c.want, assignment.NewHost(c.on).Facts(d), cmpopts.EquateEmpty()))
		})
	}
}

func TestFactsOfGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		facts   assignment.Facts
		amounts map[string]int64
		want    map[string]map[int]int64
	}{
		"nothing": {assignment.Facts{Unbound: 2, UnboundKiB: 1024}, map[string]int64{"VCPU": 2, "MEMORY_MB": 1}, nil},
		"all": {
			assignment.Facts{Dedicated: map[int]int{0: 2}, MemoryKiB: map[int]uint64{0: 2048}},
			map[string]int64{"PCPU": 2, "MEMORY_MB": 2},
			map[string]map[int]int64{"PCPU": {0: 2}, "MEMORY_MB": {0: 2}},
		},
		"isolated emulator threads": {
			assignment.Facts{Dedicated: map[int]int{0: 1, 1: 1}, Emulator: map[int]int{1: 1}},
			map[string]int64{"PCPU": 3}, map[string]map[int]int64{"PCPU": {0: 1, 1: 2}},
		},
		"shared emulator threads": {
			assignment.Facts{Dedicated: map[int]int{0: 1, 1: 1}, Emulator: map[int]int{1: 1}},
			map[string]int64{"PCPU": 2}, map[string]map[int]int64{"PCPU": {0: 1, 1: 1}},
		},
		"pinned, and held as VCPU": {assignment.Facts{Dedicated: map[int]int{0: 1, 1: 1}}, map[string]int64{"VCPU": 2},
			map[string]map[int]int64{"VCPU": {0: 1, 1: 1}}},
		"dedicated and floating": {
			assignment.Facts{Dedicated: map[int]int{0: 2}, Floating: map[int]int{1: 2}},
			map[string]int64{"PCPU": 2, "VCPU": 2},
			map[string]map[int]int64{"PCPU": {0: 2}, "VCPU": {1: 2}},
		},
		"dedicated, and others anywhere": {
			assignment.Facts{Dedicated: map[int]int{0: 2}, Unbound: 2}, map[string]int64{"PCPU": 2, "VCPU": 2},
			map[string]map[int]int64{"PCPU": {0: 2}},
		},
		"half of it": {
			assignment.Facts{Floating: map[int]int{1: 2}, Unbound: 2}, map[string]int64{"VCPU": 4},
			map[string]map[int]int64{"VCPU": {1: 2}},
		},
		"less is held than the guest has": {
			assignment.Facts{MemoryKiB: map[int]uint64{0: 3 << 10, 1: 1 << 10}}, map[string]int64{"MEMORY_MB": 2},
			map[string]map[int]int64{"MEMORY_MB": {0: 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.facts.Guest(c.amounts)
			testproc.Same(t, cmp.Diff(c.want, got.Fixed, cmpopts.EquateEmpty()))
		})
	}
}
