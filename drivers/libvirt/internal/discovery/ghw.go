// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/ghw/pkg/memory"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Label is what ghw knows of a PCI device beyond the numbers that the strict reader has. What is
// not known is "".
type Label struct {
	// Vendor, Product and Class are names from the database of PCI ids; Class is the name of the
	// subclass: 3D controller.
	Vendor, Product, Class string
	// IOMMUGroup is the number of the group that goes to a guest together; Bridge the address of
	// the device above.
	IOMMUGroup, Bridge string
}

// ProductName is vendor and product, "" if neither is known.
func (l Label) ProductName() string { return strings.TrimSpace(l.Vendor + " " + l.Product) }

// pciDatabases are where distributions have the database of PCI ids.
var pciDatabases = []string{"/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids"}

// pciDatabase is the path of the database of names, "" if there is none. PCIDB_PATH stands above
// the usual places, as for ghw.
func pciDatabase(dir string) string {
	if path := os.Getenv(pciDatabaseKey); path != "" {
		return path
	}
	for _, root := range []string{dir, "/"} {
		for _, path := range pciDatabases {
			if info, err := os.Stat(filepath.Join(root, path)); err == nil && info.Mode().IsRegular() {
				return filepath.Join(root, path)
			}
		}
	}
	return ""
}

const pciDatabaseKey = "PCIDB_PATH"

// silent drops ghw's log: its results are compared with the strict reader's.
var silent = slog.New(slog.DiscardHandler)

// listing guards the variable, which is the process's and which ghw reads at each call.
var listing sync.Mutex

// listPCI is what ghw knows, with the names of a database; "" for none, which spares the megabyte
// of names: some 100 ms and 12 MB.
func listPCI(dir, database string) ([]*ghw.PCIDevice, error) {
	listing.Lock()
	defer listing.Unlock()
	if former, set := os.LookupEnv(pciDatabaseKey); set {
		defer func() { _ = os.Setenv(pciDatabaseKey, former) }()
	} else {
		defer func() { _ = os.Unsetenv(pciDatabaseKey) }()
	}
	if err := os.Setenv(pciDatabaseKey, cmp.Or(database, os.DevNull)); err != nil {
		return nil, err
	}
	info, err := ghw.PCI(ghw.WithChroot(dir), ghw.WithDisableTools(), ghw.WithLogger(silent))
	if err != nil {
		return nil, err
	}
	return info.Devices, nil
}

// Labels are what ghw knows of the PCI devices that the strict reader found below a directory. A
// device that ghw does not list has no label; that, and a database of names that is missing, is a
// discrepancy.
//
// Cost: some files for each device, and 100 ms for the names.
func Labels(dir string, kernel machine.Machine) (map[machine.Address]Label, []machine.Discrepancy) {
	var odd []machine.Discrepancy
	database := pciDatabase(dir)
	if database == "" {
		odd = append(
			odd,
			machine.Discrepancyf(
				"pci-names",
				"no database of PCI IDs is installed, so vendors and products have no names; install it: apt-get "+
					"install pci.ids, or dnf install hwdata",
			),
		)
	}
	devices, err := listPCI(dir, database)
	if err != nil {
		return nil, append(odd,
			machine.Discrepancyf("ghw-pci", "ghw cannot list the PCI devices, so they have no names: %v", err))
	}
	labels := make(map[machine.Address]Label, len(devices))
	for _, d := range devices {
		address, err := machine.ParseAddress(d.Address)
		if err != nil {
			continue // compare says so
		}
		l := Label{IOMMUGroup: d.IOMMUGroup, Bridge: d.ParentAddress}
		if d.Vendor != nil {
			l.Vendor = name(d.Vendor.Name)
		}
		if d.Product != nil {
			l.Product = name(d.Product.Name)
		}
		if d.Subclass != nil {
			l.Class = name(d.Subclass.Name)
		}
		if l.Class == "" && d.Class != nil {
			l.Class = name(d.Class.Name)
		}
		labels[address] = l
	}
	return labels, append(odd, comparePCI(devices, kernel)...)
}

// name is a name of the database, which ghw calls unknown where there is none.
func name(text string) string {
	if strings.EqualFold(text, "unknown") {
		return ""
	}
	return text
}

// ComparePCI names what ghw sees of the PCI devices below a directory that the strict reader does
// not, or sees differently.
//
// The reader is authoritative: one device with a damaged modalias makes ghw list none at all,
// without an error, and it knows neither virtual functions nor mediated devices.
//
// Cost: some files for each device, a few milliseconds for a hundred.
func ComparePCI(dir string, kernel machine.Machine) []machine.Discrepancy {
	devices, err := listPCI(dir, os.Getenv(pciDatabaseKey))
	if err != nil {
		return []machine.Discrepancy{machine.Discrepancyf(
			"ghw-pci", "ghw cannot list the PCI devices, so they are not cross-checked: %v", err)}
	}
	return comparePCI(devices, kernel)
}

func comparePCI(devices []*ghw.PCIDevice, kernel machine.Machine) []machine.Discrepancy {
	var theirs []machine.Device
	var odd []string
	for _, d := range devices {
		seen, err := fromGHW(d)
		if err != nil {
			odd = append(odd, err.Error())
			continue
		}
		theirs = append(theirs, seen)
	}
	if len(theirs) == 0 && len(odd) == 0 && len(kernel.Devices) > 0 {
		return []machine.Discrepancy{
			machine.Discrepancyf("ghw-pci",
				"ghw lists none of the %d PCI devices: one of them has no readable modalias in /sys/bus/pci/devices",
				len(kernel.Devices)),
		}
	}
	ours := make(map[machine.Address]machine.Device, len(kernel.Devices))
	for _, d := range kernel.Devices {
		ours[d.Address] = d
	}
	unread := machine.UnreadAddresses(kernel.Unread)
	for _, d := range theirs {
		switch k, found := ours[d.Address]; {
		case unread[d.Address]:
		case !found:
			odd = append(odd, fmt.Sprintf("only ghw lists %s", d.Address))
		case k.Class != d.Class || k.Vendor != d.Vendor || k.Product != d.Product:
			odd = append(
				odd,
				fmt.Sprintf("%s is %04x:%04x of class %06x, by its modalias %04x:%04x of class %06x",
					d.Address, k.Vendor, k.Product, k.Class, d.Vendor, d.Product, d.Class),
			)
		}
		delete(ours, d.Address)
	}
	for _, d := range kernel.Devices {
		if _, missing := ours[d.Address]; missing {
			odd = append(odd, fmt.Sprintf("ghw does not list %s", d.Address))
		}
	}
	if len(odd) == 0 {
		return nil
	}
	return []machine.Discrepancy{machine.Discrepancyf("ghw-pci",
		"ghw lists the PCI devices differently: %s", machine.JoinSome(odd))}
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

// Processor is what ghw knows of a processor package.
type Processor struct {
	Package       int
	Vendor, Model string
	// Flags are the flags in /proc/cpuinfo, sorted.
	Flags []string
}

// Processors are the processor packages with online CPUs, in the order of their numbers.
//
// Cost: ghw reads the whole CPU topology for it, some files for each CPU.
func Processors(dir string) ([]Processor, error) {
	// ghw takes an unreadable file for an empty one.
	root := Root(dir)
	if _, err := root.read(cpuInfo); err != nil {
		return nil, err
	}
	info, err := ghw.CPU(ghw.WithChroot(root.path("")), ghw.WithDisableTools(), ghw.WithLogger(silent))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", root.path(cpuInfo), err)
	}
	var out []Processor
	for _, p := range info.Processors {
		flags := slices.Compact(slices.Sorted(slices.Values(p.Capabilities)))
		flags = slices.DeleteFunc(flags, func(f string) bool { return strings.TrimSpace(f) == "" })
		out = append(out, Processor{Package: p.ID, Vendor: strings.TrimSpace(p.Vendor),
			Model: strings.TrimSpace(p.Model), Flags: flags})
	}
	return out, nil
}

// Cache is a processor cache of level 2 or higher.
type Cache struct {
	Level   int
	SizeKiB uint64
	// CPUs are the CPUs of one NUMA cell that share it.
	CPUs []int
}

const (
	// minCacheLevel leaves out level 1: ghw 0.26 reports the size of the instruction cache for both
	// of its caches.
	minCacheLevel = 2
	// maxCacheKiB is more than any cache has. ghw makes a huge number of a size that it cannot
	// read.
	maxCacheKiB = 1 << 30
)

// Caches are the caches that ghw knows of each NUMA cell, by the number of the cell, sorted by
// level, size and CPUs. Only CPUs that the strict reader found in the cell are listed.
//
// Cost: some files for each CPU.
func Caches(dir string, kernel machine.Machine) (map[int][]Cache, []machine.Discrepancy) {
	ctx := ghw.WithLogger(silent)(ghw.WithChroot(Root(dir).path(""))(context.Background()))
	caches := map[int][]Cache{}
	var problems []string
	for _, cell := range kernel.Cells {
		list, err := memory.CachesForNode(ctx, cell.ID)
		if err != nil {
			problems = append(problems, fmt.Sprintf("NUMA cell %d: %v", cell.ID, err))
			continue
		}
		for _, c := range list {
			one := Cache{Level: int(c.Level), SizeKiB: c.SizeBytes >> 10}
			for _, cpu := range c.LogicalProcessors {
				if slices.Contains(cell.CPUs, int(cpu)) {
					one.CPUs = append(one.CPUs, int(cpu))
				}
			}
			if one.Level >= minCacheLevel && c.Type != ghw.MemoryCacheTypeInstruction &&
				one.SizeKiB <= maxCacheKiB && len(one.CPUs) > 0 {
				caches[cell.ID] = append(caches[cell.ID], one)
			}
		}
		slices.SortFunc(caches[cell.ID], func(a, b Cache) int {
			return cmp.Or(cmp.Compare(a.Level, b.Level),
				cmp.Compare(a.SizeKiB, b.SizeKiB), slices.Compare(a.CPUs, b.CPUs))
		})
	}
	if len(problems) == 0 {
		return caches, nil
	}
	return caches, []machine.Discrepancy{machine.Discrepancyf("ghw-caches",
		"ghw cannot list caches: %s", machine.JoinSome(problems))}
}
