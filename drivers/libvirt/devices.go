// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// DevicesFlag is the first argument of the driver's program that makes it list devices.
const DevicesFlag = "--devices"

// hostDevices are the processors, NUMA cells, GPUs, coprocessors, network cards, NVMe disks and
// mediated device types of a host, and how to offer the devices to guests.
type hostDevices struct {
	Processors []hostProcessor `json:"processors"`
	Cells      []hostCell      `json:"numa_cells"`

	GPUs  []hostDevice   `json:"gpus"`
	NICs  []hostDevice   `json:"nics"`
	NVMe  []hostDevice   `json:"nvme"`
	Mdevs []hostMdevType `json:"mdev_types"`
	// Configuration are the lines of the driver's configuration that offer all of them, but for
	// disks, which the host may be using.
	Configuration []string `json:"configuration"`
	// Discrepancies are what ghw does not know or reports differently.
	Discrepancies []string `json:"discrepancies"`
}

type hostProcessor struct {
	Package int      `json:"package"`
	Vendor  string   `json:"vendor,omitempty"`
	Model   string   `json:"model,omitempty"`
	Flags   []string `json:"flags"`
}

type hostCell struct {
	Cell      int    `json:"numa_cell"`
	CPUs      string `json:"cpus"`
	MemoryMiB uint64 `json:"memory_mib"`
	// Distances are the distances to all cells, ordered by number; 10 to itself.
	Distances []int       `json:"distances"`
	Caches    []hostCache `json:"caches"`
}

type hostCache struct {
	Level   int    `json:"level"`
	SizeKiB uint64 `json:"size_kib"`
	CPUs    string `json:"cpus"`
}

type hostDevice struct {
	Address string `json:"address"`
	// VendorID and ProductID are as pci_device_spec has them.
	VendorID  string `json:"vendor_id"`
	ProductID string `json:"product_id"`
	Vendor    string `json:"vendor,omitempty"`
	Product   string `json:"product,omitempty"`
	Class     string `json:"class,omitempty"`
	// Cell is the NUMA cell, null if the kernel knows none.
	Cell       *int   `json:"numa_cell"`
	Driver     string `json:"driver,omitempty"`
	IOMMUGroup string `json:"iommu_group,omitempty"`
	Bridge     string `json:"bridge,omitempty"`
	// VirtualFunctions is how many are enabled, MaxVirtualFunctions how many there can be.
	VirtualFunctions    int    `json:"virtual_functions"`
	MaxVirtualFunctions int    `json:"max_virtual_functions"`
	PhysicalFunction    string `json:"physical_function,omitempty"`

	isMdevParent bool
}

type hostMdevType struct {
	// Device is the parent by libvirt's name, Product its name.
	Device    string `json:"device"`
	Product   string `json:"product,omitempty"`
	Cell      *int   `json:"numa_cell"`
	Type      string `json:"type"`
	Name      string `json:"name,omitempty"`
	API       string `json:"api"`
	Available int    `json:"available"`
	Existing  int    `json:"existing"`
}

// Devices lists the hardware of this host by its names, with the configuration that offers its
// devices to guests, as text or as JSON. It asks no daemon and needs no privileges.
func Devices(w io.Writer, args []string) error {
	flags := flag.NewFlagSet(DevicesFlag, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	chroot := flags.String("chroot", "/", "")
	output := flags.String("output", "text", "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 || *output != "text" && *output != "json" {
		return errors.Join(err,
			errors.New("usage: compute-driver-libvirt "+DevicesFlag+" [--chroot DIR] [--output text|json]"))
	}
	host, err := discovery.Read(*chroot, nil)
	if err != nil {
		return err
	}
	m := host.Machine("")
	labels, discrepancies := discovery.Labels(*chroot, m)
	list := listDevices(m, labels)
	caches, more := discovery.Caches(*chroot, m)
	list.addCells(m, caches)
	processors, err := discovery.Processors(*chroot)
	if err != nil {
		more = append(more, machine.Discrepancyf("ghw-cpu", "ghw cannot list the processors: %v", err))
	}
	for _, p := range processors {
		list.Processors = append(list.Processors, hostProcessor(p))
	}
	for _, d := range slices.Concat(unreadDiscrepancies(m.Unread), discrepancies, more) {
		list.Discrepancies = append(list.Discrepancies, d.Text)
	}
	if *output == "text" {
		return list.print(w)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}

// The classes of PCI that are listed: base classes, and with a subclass.
const (
	classNetwork     = 0x02
	classDisplay     = 0x03
	classAccelerator = 0x12
	classNVMe        = 0x0108
	classCoprocessor = 0x0b40 // QAT, vector engines
)

func listDevices(m machine.Machine, labels map[machine.Address]discovery.Label) hostDevices {
	list := hostDevices{
		Processors:    []hostProcessor{},
		Cells:         []hostCell{},
		GPUs:          []hostDevice{},
		NICs:          []hostDevice{},
		NVMe:          []hostDevice{},
		Mdevs:         []hostMdevType{},
		Configuration: []string{},
		Discrepancies: []string{},
	}
	parents := map[machine.Address]bool{}
	for _, p := range m.Parents {
		product := ""
		if p.Address != nil {
			parents[*p.Address], product = true, labels[*p.Address].Product
		}
		for _, f := range p.Functions {
			parents[f.Address] = true
		}
		for _, t := range p.Types {
			existing := 0
			for _, mdev := range p.Mdevs {
				if mdev.Type == t.ID {
					existing++
				}
			}
			list.Mdevs = append(list.Mdevs, hostMdevType{
				Device: p.Name, Product: product, Cell: cellNumber(p.Cell), Type: t.ID, Name: t.Name, API: t.API,
				Available: t.Available, Existing: existing,
			})
		}
	}
	for _, d := range m.Devices {
		l := labels[d.Address]
		one := hostDevice{
			Address: d.Address.String(), VendorID: fmt.Sprintf("%04x", d.Vendor),
			ProductID: fmt.Sprintf("%04x", d.Product),
			Vendor:    l.Vendor, Product: l.Product, Class: l.Class, Cell: cellNumber(d.Cell), Driver: d.Driver,
			IOMMUGroup: l.IOMMUGroup, Bridge: l.Bridge,
			VirtualFunctions: len(d.Virtual), MaxVirtualFunctions: d.MaxVirtual, isMdevParent: parents[d.Address],
		}
		if d.Physical != nil {
			one.PhysicalFunction = d.Physical.String()
		}
		switch base := d.Class >> 16; {
		case base == classDisplay, base == classAccelerator, d.Class>>8 == classCoprocessor:
			list.GPUs = append(list.GPUs, one)
		case base == classNetwork:
			list.NICs = append(list.NICs, one)
		case d.Class>>8 == classNVMe:
			list.NVMe = append(list.NVMe, one)
		}
	}
	list.configure()
	return list
}

// addCells lists the NUMA cells, with the caches that are known of them.
func (h *hostDevices) addCells(m machine.Machine, caches map[int][]discovery.Cache) {
	for _, c := range m.Cells {
		cell := hostCell{Cell: c.ID, CPUs: machine.FormatCPUs(c.CPUs),
			MemoryMiB: c.MemoryKiB / kibPerMiB, Caches: []hostCache{}}
		for _, to := range m.Cells {
			cell.Distances = append(cell.Distances, c.Distances[to.ID])
		}
		for _, cache := range caches[c.ID] {
			cell.Caches = append(cell.Caches,
				hostCache{Level: cache.Level, SizeKiB: cache.SizeKiB, CPUs: machine.FormatCPUs(cache.CPUs)})
		}
		h.Cells = append(h.Cells, cell)
	}
}

// cachesText counts a cell's caches by level and size: "L2 8 x 512 KiB, L3 1 x 32 MiB".
func (c hostCell) cachesText() string {
	type kind struct {
		level int
		kib   uint64
	}
	count := map[kind]int{}
	var kinds []kind
	for _, cache := range c.Caches {
		k := kind{cache.Level, cache.SizeKiB}
		if count[k]++; count[k] == 1 {
			kinds = append(kinds, k)
		}
	}
	var parts []string
	for _, k := range kinds {
		size, unit := k.kib, "KiB"
		if size >= kibPerMiB && size%kibPerMiB == 0 {
			size, unit = size/kibPerMiB, "MiB"
		}
		parts = append(parts, fmt.Sprintf("L%d %d x %d %s", k.level, count[k], size, unit))
	}
	return strings.Join(parts, ", ")
}

func cellNumber(cell int) *int {
	if cell == machine.NoCell {
		return nil
	}
	return &cell
}

// configure writes the lines that offer all devices: parents of mediated devices by a type,
// physical functions by their virtual functions if they have any. A parent offers one type only:
// the type of its existing mediated devices, or else one that another parent offers, or else its
// first. A comment names the other types.
func (h *hostDevices) configure() {
	var types, others, specs []string
	chosen := map[string]bool{} // devices
	for _, suits := range []func(t hostMdevType, quoted string) bool{
		func(t hostMdevType, _ string) bool { return t.Existing > 0 },
		func(_ hostMdevType, quoted string) bool { return slices.Contains(types, quoted) },
		func(hostMdevType, string) bool { return true },
	} {
		for _, t := range h.Mdevs {
			if quoted := fmt.Sprintf("%q", t.Type); !chosen[t.Device] && suits(t, quoted) {
				chosen[t.Device] = true
				if !slices.Contains(types, quoted) {
					types = append(types, quoted)
				}
			}
		}
	}
	for _, t := range h.Mdevs {
		if text := strings.TrimSpace(t.Type + " " + t.Name); !slices.Contains(types, fmt.Sprintf("%q", t.Type)) &&
			!slices.Contains(others, text) {
			others = append(others, text)
		}
	}
	if len(types) > 0 {
		line := "enabled_mdev_types = [" + strings.Join(types, ", ") + "]"
		if len(others) > 0 {
			line += " # one type per device; alternatives: " + strings.Join(others, ", ")
		}
		h.Configuration = append(h.Configuration, line)
	}
	offered := slices.Concat(h.GPUs, h.NICs)
	withheld := map[[2]string]bool{} // products of which some device is not offered
	for _, d := range offered {
		if d.isWithheld() {
			withheld[[2]string{d.VendorID, d.ProductID}] = true
		}
	}
	for _, d := range offered {
		if d.isWithheld() {
			continue
		}
		spec := fmt.Sprintf("  { vendor_id = %q, product_id = %q },", d.VendorID, d.ProductID)
		if withheld[[2]string{d.VendorID, d.ProductID}] { // as of virtual functions like their physical one
			spec = fmt.Sprintf("  { address = %q },", d.Address)
		}
		if text := d.productName(); text != "" {
			spec += " # " + text
		}
		if !slices.Contains(specs, spec) {
			specs = append(specs, spec)
		}
	}
	if len(specs) > 0 {
		h.Configuration = append(h.Configuration, "pci_report_in_placement = true", "pci_device_spec = [")
		h.Configuration = append(append(h.Configuration, specs...), "]")
	}
}

// isWithheld reports whether a device is not offered as such: it makes mediated devices, or stands
// for its virtual functions.
func (d hostDevice) isWithheld() bool { return d.isMdevParent || d.VirtualFunctions > 0 }

// productName names a device, "" if it has no names.
func (d hostDevice) productName() string {
	return discovery.Label{Vendor: d.Vendor, Product: d.Product}.ProductName()
}

func (h hostDevices) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	table := func(title, columns string, rows int, row func(i int) []any) {
		if rows == 0 {
			return
		}
		_, _ = fmt.Fprintf(t, "%s\n  %s\n", title, strings.ReplaceAll(columns, "   ", "\t"))
		for i := range rows {
			var cells []string
			for _, cell := range row(i) {
				cells = append(cells, fmt.Sprint(cell))
			}
			_, _ = fmt.Fprintf(t, "  %s\n", strings.Join(cells, "\t"))
		}
		_, _ = fmt.Fprintln(t)
		_ = t.Flush()
	}
	devices := func(title string, list []hostDevice) {
		// Virtual functions are counted at their physical one.
		list = slices.DeleteFunc(slices.Clone(list), func(d hostDevice) bool { return d.PhysicalFunction != "" })
		table(title, "ADDRESS   PRODUCT   CLASS   CELL   DRIVER   IOMMU   VFS", len(list), func(i int) []any {
			d := list[i]
			return []any{d.Address, cmp.Or(d.productName(), d.VendorID+":"+d.ProductID), orDash(d.Class),
				cellText(d.Cell),
				orDash(d.Driver), orDash(d.IOMMUGroup), d.functions()}
		})
	}
	table("Processors", "PACKAGE   MODEL   VENDOR   FLAGS", len(h.Processors), func(i int) []any {
		p := h.Processors[i]
		return []any{p.Package, orDash(p.Model), orDash(p.Vendor), len(p.Flags)}
	})
	table("NUMA cells", "CELL   CPUS   MEMORY   DISTANCES   CACHES", len(h.Cells), func(i int) []any {
		c := h.Cells[i]
		return []any{c.Cell, orDash(c.CPUs), fmt.Sprintf("%d MiB", c.MemoryMiB),
			strings.Trim(fmt.Sprint(c.Distances), "[]"), orDash(c.cachesText())}
	})
	devices("GPUs and accelerators", h.GPUs)
	devices("Network devices", h.NICs)
	devices("NVMe disks", h.NVMe)
	table("Mediated device types", "TYPE   NAME   DEVICE   PRODUCT   CELL   EXIST   AVAILABLE", len(h.Mdevs),
		func(i int) []any {
			m := h.Mdevs[i]
			return []any{m.Type, orDash(m.Name), m.Device, orDash(m.Product), cellText(m.Cell), m.Existing, m.Available}
		})
	switch {
	case len(h.Configuration) > 0:
		_, _ = fmt.Fprintf(t,
			"To offer these devices to guests, add to [drivers.libvirt.config] (leave out what the host needs):\n\n"+
				"%s\n", strings.Join(h.Configuration, "\n"))
	default:
		_, _ = fmt.Fprintln(t, "There are no GPUs, network devices or mediated device types.")
	}
	for _, text := range h.Discrepancies {
		_, _ = fmt.Fprintf(t, "\nnote: %s\n", text)
	}
	return t.Flush()
}

func orDash(text string) string { return cmp.Or(text, "-") }

func cellText(cell *int) string {
	if cell == nil {
		return "-"
	}
	return fmt.Sprint(*cell)
}

// functions are how many virtual functions are enabled, and can be.
func (d hostDevice) functions() string {
	if d.MaxVirtualFunctions == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", d.VirtualFunctions, d.MaxVirtualFunctions)
}

// deviceLabels remembers what the PCI devices are called, which takes a look at each of them and at
// the database of names.
type deviceLabels struct {
	config  int // the number of the configuration
	devices []deviceIdentity
	labels  map[machine.Address]discovery.Label
}

// deviceIdentity has the fields of a device that its label depends on.
type deviceIdentity struct {
	address         machine.Address
	vendor, product uint16
}

// labelsOf returns the labels of a host's devices. They are read again if the configuration or the
// devices have changed. Devices without a label are among ghw's discrepancies, see compareDevices.
func (l *deviceLabels) labelsOf(cfg config, m machine.Machine) map[machine.Address]discovery.Label {
	var devices []deviceIdentity
	for _, d := range m.Devices {
		devices = append(devices, deviceIdentity{d.Address, d.Vendor, d.Product})
	}
	if l.config != cfg.number || !slices.Equal(l.devices, devices) {
		labels, _ := discovery.Labels(cfg.Chroot, m)
		*l = deviceLabels{config: cfg.number, devices: devices, labels: labels}
	}
	return l.labels
}

// nameProducts stores the result of ProductNames. The devices of an invented host have no names.
func (d *Driver) nameProducts(cfg config, c choice) {
	addresses := map[string]machine.Address{} // by the provider's name
	for _, p := range c.host.Mdevs {
		if p.Address != nil {
			addresses[p.Name(c.host.Node)] = *p.Address
		}
	}
	for _, p := range c.host.PCI {
		addresses[p.Name(c.host.Node)] = p.Address
	}
	names := make(map[string]string, len(addresses))
	if len(addresses) > 0 && !c.hasTestDriver(cfg) {
		labels := d.labels.labelsOf(cfg, c.machine)
		for provider, address := range addresses {
			if name := labels[address].ProductName(); name != "" {
				names[provider] = name
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.productNames = names
}

// ProductNames are vendor and product of the devices behind the node's providers.
func (d *Driver) ProductNames(string) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.productNames
}
