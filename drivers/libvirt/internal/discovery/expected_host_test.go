// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// truth is what the reader should say of a made-up host.
func truth(t testing.TB, h testhost.Host) Host {
	t.Helper()
	at := func(text string) machine.Address {
		return testproc.Try(machine.ParseAddress(text)).Or(t)
	}
	maybe := func(text string) *machine.Address {
		if text == "" {
			return nil
		}
		a := at(text)
		return &a
	}
	var want Host
	for _, c := range h.CPUs {
		cpu := CPU{ID: c.ID, Online: !c.Offline, Isolated: c.Isolated, Cell: c.Cell, Package: None, Core: None}
		if cpu.Online {
			cpu.Package, cpu.Core, cpu.Siblings = c.Package, c.Core, h.Siblings(c)
		}
		want.CPUs = append(want.CPUs, cpu)
	}
	want.NoNUMA = h.NoNUMA
	for _, c := range h.Cells {
		cell := Cell{ID: c.ID, CPUs: h.CellCPUs(c.ID), MemoryKiB: c.MemoryKiB, Distances: c.Distances, Tier: None}
		if c.Tier > 0 {
			cell.Tier = c.Tier
		}
		for _, p := range c.HugePages {
			cell.HugePages = append(cell.HugePages, machine.Pages(p))
		}
		want.Cells = append(want.Cells, cell)
	}
	for _, d := range h.Devices {
		dev := machine.Device{
			Address: at(d.Address), Vendor: d.Vendor,
			Product: d.Product, Class: d.Class, Driver: d.Driver, Cell: d.Cell,
			Physical: maybe(d.PF), MaxVirtual: d.TotalVFs, GivesToGuests: givesToGuests(d),
		}
		for _, vf := range d.VFs {
			dev.Virtual = append(dev.Virtual, at(vf))
		}
		want.Devices = append(want.Devices, dev)
		if len(d.Types) > 0 {
			want.Parents = append(want.Parents, parentTruth(d.Address, maybe(d.Address), d.MdevParent))
		}
	}
	for _, p := range h.Virtual {
		parent := parentTruth(p.Name, nil, p.MdevParent)
		parent.Subsystem = p.Name
		want.Parents = append(want.Parents, parent)
	}
	if h.SEV != nil {
		want.KVM.SEV = &SEV{SEV: h.SEV.SEV, ES: h.SEV.ES,
			SNP: h.SEV.SNP, Guests: h.SEV.Guests, ESGuests: h.SEV.ESGuests}
	}
	return want
}

// givesToGuests reports whether the driver of a device is one for guests.
func givesToGuests(d testhost.Device) bool { return d.VFIO != "" || strings.Contains(d.Driver, "vfio") }

func parentTruth(name string, address *machine.Address, p testhost.MdevParent) MdevParent {
	want := MdevParent{Name: name, Address: address}
	for _, t := range p.Types {
		want.Types = append(want.Types,
			machine.MdevType{ID: t.ID, Name: t.Name, API: t.API, Available: t.Available, Description: t.Description})
	}
	for _, m := range p.Active() {
		want.Mdevs = append(want.Mdevs, machine.Mdev{UUID: m.UUID, Type: m.Type, Active: true})
	}
	slices.SortFunc(want.Mdevs, func(a, b machine.Mdev) int { return strings.Compare(a.UUID, b.UUID) })
	return want
}
