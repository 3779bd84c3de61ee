// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/jaypipes/ghw"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// noNames keeps ghw from parsing a megabyte of names of devices, which nobody reads here, each time: some 100 ms and 12 MB. It heeds
// the variable's value at each call.
var noNames = sync.OnceFunc(func() {
	if os.Getenv("PCIDB_PATH") == "" {
		_ = os.Setenv("PCIDB_PATH", os.DevNull)
	}
})

// GHW names what ghw sees of the PCI devices below a directory that the strict reader does not, or sees differently.
//
// It is a witness and no source: one device with a damaged modalias makes ghw list none at all, without an error, and it knows neither virtual
// functions nor mediated devices.
//
// Cost: some files for each device, a few milliseconds for a hundred.
func GHW(dir string, kernel machine.Machine) []machine.Discrepancy {
	noNames()
	info, err := ghw.PCI(ghw.WithChroot(dir), ghw.WithDisableTools(), ghw.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return []machine.Discrepancy{machine.Discrepancyf("ghw-pci", "ghw cannot list the PCI devices, so that they are not checked a second time: %v", err)}
	}
	var theirs []machine.Device
	var odd []string
	for _, d := range info.Devices {
		seen, err := fromGHW(d)
		if err != nil {
			odd = append(odd, err.Error())
			continue
		}
		theirs = append(theirs, seen)
	}
	if len(theirs) == 0 && len(odd) == 0 && len(kernel.Devices) > 0 {
		return []machine.Discrepancy{machine.Discrepancyf("ghw-pci", "ghw sees none of the %d PCI devices: one of them has no readable modalias in /sys/bus/pci/devices", len(kernel.Devices))}
	}
	ours := make(map[machine.Address]machine.Device, len(kernel.Devices))
	for _, d := range kernel.Devices {
		ours[d.Address] = d
	}
	for _, d := range theirs {
		switch k, found := ours[d.Address]; {
		case !found:
			odd = append(odd, fmt.Sprintf("%s only ghw has", d.Address))
		case k.Class != d.Class || k.Vendor != d.Vendor || k.Product != d.Product:
			odd = append(odd, fmt.Sprintf("%s is %04x:%04x of class %06x, by its modalias %04x:%04x of class %06x", d.Address, k.Vendor, k.Product, k.Class, d.Vendor, d.Product, d.Class))
		}
		delete(ours, d.Address)
	}
	for _, d := range kernel.Devices {
		if _, missing := ours[d.Address]; missing {
			odd = append(odd, fmt.Sprintf("%s ghw does not have", d.Address))
		}
	}
	if len(odd) == 0 {
		return nil
	}
	return []machine.Discrepancy{machine.Discrepancyf("ghw-pci", "ghw sees the PCI devices differently: %s", machine.Some(odd))}
}

func fromGHW(d *ghw.PCIDevice) (machine.Device, error) {
	var out machine.Device
	address, err := machine.ParseAddress(d.Address)
	if err != nil {
		return out, fmt.Errorf("ghw's address of a device: %w", err)
	}
	out.Address = address
	if d.Vendor == nil || d.Product == nil || d.Class == nil || d.Subclass == nil || d.ProgrammingInterface == nil {
		return out, fmt.Errorf("%s has no identity", d.Address)
	}
	for _, part := range []struct {
		text string
		bits int
		into func(uint64)
	}{
		{d.Vendor.ID, 16, func(n uint64) { out.Vendor = uint16(n) }},
		{d.Product.ID, 16, func(n uint64) { out.Product = uint16(n) }},
		{d.Class.ID + d.Subclass.ID + d.ProgrammingInterface.ID, 24, func(n uint64) { out.Class = uint32(n) }},
	} {
		n, err := strconv.ParseUint(part.text, 16, part.bits)
		if err != nil {
			return out, fmt.Errorf("%s has %.20q where a number should be", d.Address, part.text)
		}
		part.into(n)
	}
	return out, nil
}
