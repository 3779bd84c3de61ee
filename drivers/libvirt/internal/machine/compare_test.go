// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

type fatal interface {
	Helper()
	Fatal(args ...any)
}

// kernel renders a host and reads it.
func kernel(t fatal, h testhost.Host) (dir string, m machine.Machine, remove func()) {
	t.Helper()
	dir, err := testhost.Scratch()
	testproc.Check(t, err)
	remove = func() { _ = os.RemoveAll(dir) }
	if _, err = h.Sysfs(dir); err != nil {
		t.Fatal(err)
	}
	seen := testproc.Try(discovery.Read(dir, nil)).Or(t)
	return dir, seen.Machine(h.Processor.Arch), remove
}

// libvirt is what libvirt says of a host.
func libvirt(t fatal, h testhost.Host) machine.Machine {
	t.Helper()
	caps := testproc.Try(capabilities.ParseHost(h.Capabilities("x86_64"))).Or(t)
	l := capabilities.Libvirt{Caps: caps, Online: h.OnlineCPUs()}
	for _, d := range h.NodeDevices() {
		if d.Inactive {
			continue
		}
		device := testproc.Try(capabilities.ParseDevice(d.XML)).Or(t)
		l.Devices = append(l.Devices, device)
	}
	return capabilities.FromLibvirt(l)
}

func TestKernelAndLibvirtAgree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, h := range map[string]testhost.Host{
		"sample": testhost.Sample(), "one cell": testhost.SingleNode(), "GPUs": testhost.GPUHost(),
		"many cells": testhost.ManyCells(),
	} {
		dir, m, remove := kernel(t, h)
		defer remove()
		for _, discrepancy := range machine.Compare(m, libvirt(t, h), nil) {
			t.Errorf("%s: %s: %s", name, discrepancy.Key, discrepancy.Text)
		}
		discrepancies := discovery.ComparePCI(dir, m)
		if odd := slices.ContainsFunc(h.Devices,
			func(d testhost.Device) bool { return d.NoModalias }); odd != (len(discrepancies) > 0) {
			t.Errorf("%s: ghw: %v", name, discrepancies)
		}
	}
}

func TestKernelAndLibvirtAgreeOnAnyHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		h := testhost.Random().Draw(t, "host")
		_, m, remove := kernel(t, h)
		defer remove()
		for _, discrepancy := range machine.Compare(m, libvirt(t, h), nil) {
			t.Fatal(discrepancy.Key, discrepancy.Text)
		}
	})
}

func TestCompareNamesEachDisagreement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, m, remove := kernel(t, testhost.Sample())
	defer remove()
	gpu := func(m *machine.Machine) *machine.MdevParent {
		return &m.Parents[slices.IndexFunc(m.Parents, func(p machine.MdevParent) bool { return len(p.Mdevs) > 0 })]
	}
	nic := func(m *machine.Machine) *machine.Device {
		return &m.Devices[slices.IndexFunc(m.Devices, func(d machine.Device) bool { return d.MaxVirtual > 0 })]
	}
	for key, c := range map[string]struct {
		change func(*machine.Machine)
		says   string
	}{
		"numa-cells": {func(m *machine.Machine) { m.Cells = m.Cells[:1] }, "NUMA cell 1 is known only to the kernel"},
		"numa-cpus":  {func(m *machine.Machine) { m.Cells[0].CPUs = m.Cells[0].CPUs[1:] }, "NUMA cell 0 has CPUs"},
		"numa-memory": {func(m *machine.Machine) { m.Cells[1].MemoryKiB /= 2 },
			"NUMA cell 1 has 16384 MiB according to the kernel, 8192 according to libvirt"},
		"huge-pages":  {func(m *machine.Machine) { m.Cells[0].Pages[0].Total++ }, "as huge pages"},
		"pci-devices": {func(m *machine.Machine) { m.Devices = m.Devices[1:] }, "is known only to the kernel"},
		"pci-identity": {func(m *machine.Machine) { nic(m).Product++ },
			"0000:06:00.0 is 15b3:1015 of class 020000 according to the kernel, 15b3:1016"},
		"pci-driver": {func(m *machine.Machine) { nic(m).Driver = "" },
			"bound to mlx5_core according to the kernel, to no driver according to libvirt"},
		"pci-numa": {func(m *machine.Machine) { nic(m).Cell = machine.NoCell },
			"NUMA cell 0 according to the kernel, in no NUMA cell according to libvirt"},
		"pci-sriov": {func(m *machine.Machine) { nic(m).Virtual = nil },
			"with 4 of 8 virtual ones according to the kernel, a physical function with 0 of 8"},
		"mdev-parents": {func(m *machine.Machine) { m.Parents = m.Parents[1:] }, "is known only to the kernel"},
		"mdev-types": {func(m *machine.Machine) { gpu(m).Types[0].Available++ },
			"are available according to the kernel"},
		"mdevs": {func(m *machine.Machine) { gpu(m).Mdevs[0].Active = false },
			"of type nvidia-222 is known only to the kernel on pci_0000_05_00_0"},
	} {
		other := libvirt(t, testhost.Sample())
		c.change(&other)
		discrepancies := machine.Compare(m, other, nil)
		if len(discrepancies) != 1 || discrepancies[0].Key != key || !strings.Contains(discrepancies[0].Text, c.says) {
			t.Errorf("%s: %v; want %q", key, discrepancies, c.says)
		}
	}
	other := libvirt(t, testhost.Sample())
	gpu(&other).Types[0].Available++
	if discrepancies := machine.Compare(m, other,
		func(id string) bool { return id != gpu(&other).Types[0].ID }); len(discrepancies) != 0 {
		t.Errorf("an unused type: %v", discrepancies)
	}
}

func TestGHWNamesDisagreements(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, m, remove := kernel(t, testhost.Sample())
	defer remove()
	if discrepancies := discovery.ComparePCI(dir, m); discrepancies != nil {
		t.Fatal(discrepancies)
	}
	for says, change := range map[string]func(*machine.Machine){
		"only ghw lists ": func(m *machine.Machine) { m.Devices = m.Devices[1:] },
		"ghw does not list": func(m *machine.Machine) {
			m.Devices = append(m.Devices, machine.Device{Address: machine.Address{Bus: 0xee}})
		},
		"by its modalias": func(m *machine.Machine) { m.Devices[2].Vendor++ },
	} {
		other := m
		other.Devices = slices.Clone(m.Devices)
		change(&other)
		if discrepancies := discovery.ComparePCI(dir, other); len(discrepancies) != 1 ||
			discrepancies[0].Key != "ghw-pci" || !strings.Contains(discrepancies[0].Text, says) {
			t.Errorf("%s: %v", says, discrepancies)
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	_, m, remove := kernel(b, testhost.GPUHost())
	defer remove()
	other := libvirt(b, testhost.GPUHost())
	b.ReportAllocs()
	for b.Loop() {
		if discrepancies := machine.Compare(m, other, nil); discrepancies != nil {
			b.Fatal(discrepancies)
		}
	}
}
