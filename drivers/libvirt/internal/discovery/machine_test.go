// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// machineTruth is what a made-up host is as a machine.
func machineTruth(t testing.TB, h testhost.Host) machine.Machine {
	t.Helper()
	at := func(text string) machine.Address {
		return testproc.Try(machine.ParseAddress(text)).Or(t)
	}
	m := machine.Machine{Arch: h.Processor.Arch}
	for _, c := range h.CPUs {
		cpu := machine.CPU{ID: c.ID, Online: !c.Offline,
			Isolated: c.Isolated, Cell: c.Cell, Package: c.Package, Core: c.Core}
		if c.Offline {
			cpu.Package, cpu.Core = -1, -1
		}
		m.CPUs = append(m.CPUs, cpu)
	}
	withCPUs := map[int]bool{}
	for _, c := range h.CPUs {
		withCPUs[c.Cell] = true
	}
	near := slices.ContainsFunc(h.Cells, func(c testhost.Cell) bool { return withCPUs[c.ID] && c.MemoryKiB > 0 })
	for _, c := range h.Cells {
		cell := machine.Cell{ID: c.ID, CPUs: h.CellCPUs(c.ID), MemoryKiB: c.MemoryKiB, Distances: map[int]int{}}
		for i, other := range h.Cells {
			cell.Distances[other.ID] = c.Distances[i]
		}
		for _, p := range c.HugePages {
			cell.Pages = append(cell.Pages, machine.Pages{SizeKiB: p.SizeKiB, Total: p.Total, Free: p.Free})
		}
		if near && c.MemoryKiB > 0 && !withCPUs[c.ID] {
			cell.Tier = machine.UnknownTier
		}
		m.Cells = append(m.Cells, cell)
	}
	for _, d := range h.Devices {
		dev := machine.Device{Address: at(d.Address), Class: d.Class, Vendor: d.Vendor, Product: d.Product,
			Driver: d.Driver, Cell: d.Cell, MaxVirtual: d.TotalVFs, GivesToGuests: givesToGuests(d)}
		if d.PF != "" {
			pf := at(d.PF)
			dev.Physical = &pf
		}
		for _, vf := range d.VFs {
			dev.Virtual = append(dev.Virtual, at(vf))
		}
		m.Devices = append(m.Devices, dev)
		if len(d.Types) > 0 {
			m.Parents = append(m.Parents,
				mdevTruth(machine.MdevParent{Name: testhost.NodeDeviceName(d.Address), Address: &dev.Address,
					Cell: d.Cell}, d.MdevParent))
		}
	}
	for _, p := range h.Virtual {
		m.Parents = append(m.Parents,
			mdevTruth(machine.MdevParent{Name: p.Name + "_" + p.Name, Cell: machine.NoCell}, p.MdevParent))
	}
	return m
}

func mdevTruth(want machine.MdevParent, p testhost.MdevParent) machine.MdevParent {
	for _, t := range p.Types {
		want.Types = append(want.Types,
			machine.MdevType{ID: t.ID, Name: t.Name, API: t.API, Available: t.Available, Description: t.Description})
	}
	for _, d := range p.Active() {
		want.Mdevs = append(want.Mdevs, machine.Mdev{UUID: d.UUID, Type: d.Type, Active: true})
	}
	slices.SortFunc(want.Mdevs, func(a, b machine.Mdev) int { return strings.Compare(a.UUID, b.UUID) })
	return want
}

func TestTheMachineIsTheModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, host := range presets {
		t.Run(name, func(t *testing.T) {
			h := host()
			got := testproc.Try(Read(string(render(t, h, scratch(t))), nil)).Or(t)
			testproc.Same(t, cmp.Diff(machineTruth(t, h), got.Machine(h.Processor.Arch), cmpopts.EquateEmpty()))
		})
	}
}

func TestAnyMachineIsTheModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		h := testhost.Random().Draw(rt, "host")
		dir := testproc.Try(testhost.Scratch()).Or(rt)
		defer func() { _ = os.RemoveAll(dir) }()
		got := testproc.Try(Read(string(render(t, h, dir)), nil)).Or(rt)
		if diff := cmp.Diff(machineTruth(t, h), got.Machine(h.Processor.Arch), cmpopts.EquateEmpty()); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// TestCoresWithTheSameNumber: a core's number is unique within its package, whatever the kernel
// does: older ones number cores within dies, and some firmware gives none.
func TestCoresWithTheSameNumber(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if c.Package == 1 {
			c.Die, c.Core = c.Core/2, c.Core%2
		}
	}
	read := testproc.Try(Read(string(render(t, h, scratch(t))), nil)).Or(t)
	type core struct{ pkg, number int }
	cores := map[core][]int{}
	for _, c := range read.Machine("x86_64").CPUs {
		at := core{c.Package, c.Core}
		cores[at] = append(cores[at], c.ID)
	}
	want := map[core][]int{
		{0, 0}: {0, 8}, {0, 1}: {1, 9}, {0, 2}: {2, 10}, {0, 3}: {3, 11}, // as the kernel says
		{1, 4}: {4, 12}, {1, 5}: {5, 13}, {1, 6}: {6, 14}, {1, 7}: {7, 15}, // by their first CPU
	}
	testproc.Same(t, cmp.Diff(want, cores))
}

// TestBrokenHostsWithoutNUMA: without NUMA, memory and huge pages are the whole machine's; what is
// missing then is an error as anywhere.
func TestBrokenHostsWithoutNUMA(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.SingleNode()
	h.NoNUMA = true
	h.Cells[0].HugePages = []testhost.HugePages{{SizeKiB: 2048, Total: 4, Free: 4}}
	for _, b := range []testhost.Breakage{
		testhost.Missing("no meminfo", "proc/meminfo"),
		testhost.Text("memory in words", "proc/meminfo", "MemTotal: lots kB\n"),
		testhost.Text("no memory", "proc/meminfo", "MemFree: 1 kB\n"),
		testhost.Text("pages in words", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "some\n"),
		testhost.Text("more pages than memory", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1000000\n"),
		testhost.Missing("no free pages", "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"),
	} {
		t.Run(b.Name, func(t *testing.T) {
			tree := render(t, h, scratch(t))
			testproc.Check(t, b.Apply(tree))
			if _, err := Read(string(tree), nil); err == nil || !strings.Contains(err.Error(), tree.Path(b.File)) ||
				!strings.Contains(err.Error(), "If it persists") {
				t.Errorf("%v, want an error that names %s and a hint", err, b.File)
			}
		})
	}
}

// TestDevicesUnpluggedAndPlugged: devices that are taken out are gone for the reader with all that
// hung on them, and there again when they are put back.
func TestDevicesUnpluggedAndPlugged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		h := testhost.Random().Filter(func(h testhost.Host) bool { return len(h.Devices) > 0 }).Draw(rt, "host")
		dir := testproc.Try(testhost.Scratch()).Or(rt)
		defer func() { _ = os.RemoveAll(dir) }()
		tree := render(t, h, dir)
		same := func(when string) {
			got, err := Read(dir, nil)
			if err != nil {
				rt.Fatal(when, err)
			}
			if diff := cmp.Diff(truth(t, h), got, cmpopts.EquateEmpty()); diff != "" {
				rt.Fatal(when, diff)
			}
		}
		before := h.Clone()
		out := rapid.SampledFrom(h.Devices).Draw(rt, "device").Address
		changes := testproc.Try(h.Unplug(tree, out)).Or(rt)
		same("unplugged")
		var back []testhost.Device
		// a physical function comes before its virtual ones, a bridge before what is behind it
		for _, d := range before.Devices {
			if h.Device(d.Address) == nil {
				back = append(back, d)
			}
		}
		last := slices.IndexFunc(changes,
			func(c testhost.Change) bool { return strings.HasSuffix(c.Path, "/"+out) && c.Action == "remove" })
		if last != len(changes)-1 {
			rt.Fatalf("the device is not the last to go: %d of %v", last, changes)
		}
		testproc.Try(h.Plug(tree, back...)).Or(rt)
		same("plugged")
	})
}
