// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
)

const (
	kibPerMiB = 1024
	// maxMemoryKiB is more than any host has (4 PiB): a figure above it is damaged.
	maxMemoryKiB = 1 << 42
)

// facts are the answers of libvirt and the kernel about the host, from which a pass makes the tree.
type facts struct {
	machine   machine.Machine
	memoryKiB uint64
	disk      discovery.Filesystem
	// features are the features of the CPU that guests get. With featuresUnknown, libvirt does not
	// report them.
	features        []string
	featuresUnknown bool
	threaded        bool
	// sev is what the kernel can encrypt, nil if it does not know SEV.
	answers
	sev  *discovery.SEV
	pmem []machine.Namespace
	// domains are all domains of the host except those in unread, which has the problem of each
	// unreadable domain by uuid. domainsKnown is false if the hypervisor cannot list domains.
	domains      []domain.Domain
	unread       map[string]string
	domainsKnown bool
}

// deviceComparison remembers the last comparison of the host's devices, which costs a call for each
// of them.
type deviceComparison struct {
	// What it depends on: the connection, which is 0 before the first, the number of the
	// configuration, the events about devices so far.
	connection uint64
	config     int
	events     uint64
	devices    []machine.Device
	unread     []machine.UnreadDevice
	parents    []machine.MdevParent

	// found is what differed, discrepancies what of it is reported: in the first comparison of a
	// connection or configuration all, later what differed in the one before too, with no events
	// between them. libvirt knows a device some time after the kernel.
	found, discrepancies []machine.Discrepancy
	// since is for how many passes it has stood.
	since int
}

// discover reads the host from libvirt and the kernel. An impossible answer is an error; where the
// two differ, it records a discrepancy. The kernel is authoritative for processors, NUMA cells and
// devices, libvirt for the host's total memory, as in Nova, and for CPU features.
//
// Cost: four calls of libvirt, two for the domains, and a file of /sys or some for each CPU and
// device.
func (d *Driver) discover(ctx context.Context, cfg config, l *hypervisor.Link, reload bool) (facts, error) {
	a, err := d.queryLibvirt(ctx, l, cfg.GuestCPU)
	if err != nil {
		return facts{}, err
	}
	f := facts{answers: a}
	if f.disk, err = d.disks.discover(ctx, cfg.guestsDirectory()); err != nil {
		return facts{}, err
	}
	d.discrepancies.begin()
	d.discrepancies.add(a.guests.discrepancies)
	d.checkAccess(ctx, cfg, f)
	root := discovery.Root(cfg.Chroot)
	if err := f.checkCPUs(cfg, root, &d.discrepancies); err != nil {
		return facts{}, err
	}
	if f.memoryKiB, err = discoverMemory(a, root, &d.discrepancies); err != nil {
		return facts{}, err
	}
	if err := d.discoverMachine(ctx, cfg, l, &f); err != nil {
		return facts{}, err
	}
	f.features = d.discoverFeatures(a, cfg.Chroot)
	if cfg.ModelsFor(a.caps.Arch) != nil {
		f.features, f.featuresUnknown = a.modelFeatures, a.modelProblem != ""
		d.discrepancies.addIf(f.featuresUnknown, "cpu-models",
			"libvirt does not report the features of the guests' CPU models, so CPU traits stay unchanged: %s",
			a.modelProblem)
	}
	f.features = cfg.Apply(f.features)
	var odd []machine.Discrepancy
	switch f.domains, odd, err = d.domainCache.list(ctx, l, reload); {
	case err == nil:
		f.domainsKnown, f.unread = true, unreadDomains(odd)
		d.discrepancies.add(odd)
	case !errors.Is(err, hypervisor.ErrUnsupported):
		return facts{}, err
	}
	return f, nil
}

// checkCPUs looks whether libvirt's figures can be true, and whether they are the kernel's.
// libvirt's test driver has an invented CPU map, other hypervisors may have none.
func (f *facts) checkCPUs(cfg config, root discovery.Root, d *discrepancies) error {
	a := f.answers
	if a.node.CPUs == 0 || a.node.CPUs > machine.MaxCPU {
		return fmt.Errorf("libvirt's node information says that the host has %d CPUs", a.node.CPUs)
	}
	if a.cpuMap == nil || a.hypervisor == testDriver {
		return nil
	}
	cpus := a.onlineCPUs()
	if len(cpus) == 0 {
		return errors.New("libvirt's CPU map says that no CPU is online")
	}
	d.addIf(len(cpus) != int(a.node.CPUs) && len(cfg.power.Switchable()) == 0, "cpu-count",
		"libvirt's CPU map has %d CPUs online (%s), its node information says %d; the driver uses the kernel's list",
		len(cpus), machine.FormatCPUs(cpus), a.node.CPUs)
	if len(a.caps.Cells) > 0 {
		return nil // cell by cell, see compare
	}
	online, err := root.OnlineCPUs()
	if err != nil {
		return err
	}
	online, cpus = cfg.unmanaged(online), cfg.unmanaged(cpus)
	d.addIf(machine.FormatCPUs(online) != machine.FormatCPUs(cpus), "cpu-sysfs",
		"libvirt reports CPUs %s online, the kernel %s; the driver uses the kernel's list",
		machine.FormatCPUs(cpus), machine.FormatCPUs(online))
	return nil
}

func (a answers) onlineCPUs() []int {
	var cpus []int
	for cpu, online := range a.cpuMap {
		if online {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// discoverMemory goes by the node's figures, as Nova does. The kernel's MemTotal may differ:
// libvirt adds up the NUMA nodes, and memory can be hot-plugged. Less than the kernel has is no
// discrepancy: it stays so on machines whose memory is in a balloon, and no guest is placed that
// does not fit.
func discoverMemory(a answers, root discovery.Root, d *discrepancies) (uint64, error) {
	kib := a.node.MemoryKiB
	if kib < kibPerMiB || kib > maxMemoryKiB {
		return 0, fmt.Errorf("libvirt's node information says that the host has %d KiB of memory", kib)
	}
	if a.hypervisor == testDriver {
		return kib, nil
	}
	total, err := root.MemTotalKiB()
	if err != nil {
		d.addIf(true, "memory", "cannot compare the kernel's memory with libvirt's: %v", err)
		return kib, nil
	}
	d.addIf(kib > total+total/100, "memory",
		"libvirt reports %d MiB of memory, and the kernel has %d (/proc/meminfo); the driver uses libvirt's figure, "+
			"so guests may be placed that do not fit", kib/kibPerMiB, total/kibPerMiB)
	return kib, nil
}

// hasTestDriver reports whether the host's devices are those of libvirt's test driver.
func (f facts) hasTestDriver(cfg config) bool { return f.hypervisor == testDriver && cfg.Chroot == "/" }

// discoverMachine reads /sys and compares it with libvirt. If libvirt's host is invented and chroot
// is not set, it uses libvirt's host, which has no NUMA cells and no CPU topology.
func (d *Driver) discoverMachine(ctx context.Context, cfg config, l *hypervisor.Link, f *facts) error {
	if f.hasTestDriver(cfg) {
		devices, err := nodeDevices(ctx, l)
		if err != nil {
			return err
		}
		f.machine, f.threaded = inventedMachine(f.answers, devices).InOnlyCell(), f.caps.Threaded()
		return nil
	}
	host, err := d.readHost(ctx, cfg)
	if err != nil {
		return d.hostError(err)
	}
	if cfg.pmem.Configured() {
		if f.pmem, err = discovery.ReadPMEM(cfg.Chroot); err != nil {
			return d.hostError(err)
		}
	}
	if host.Odd == nil {
		d.lastHostError = ""
	}
	f.machine, f.sev = host.Machine(f.caps.Arch), host.KVM.SEV
	f.threaded = threaded(f.machine)
	d.discrepancies.add(unreadDiscrepancies(f.machine.Unread))
	if f.hypervisor != testDriver {
		if len(cfg.power.Switchable()) == 0 && host.Odd == nil { // libvirt knows less of CPUs that are offline
			d.checkThreads(*f)
		}
		discrepancies, err := d.compare(ctx, cfg, l, *f)
		if err != nil {
			return err
		}
		d.discrepancies.add(discrepancies)
	}
	if err := d.ignoreCells(cfg, f); err != nil {
		return err
	}
	f.machine = f.machine.InOnlyCell() // not before it is compared with libvirt's
	return d.markPowered(cfg, discovery.Root(cfg.Chroot), f)
}

// ignoreCells leaves out the configured cells. Their memory is part of libvirt's figure.
func (d *Driver) ignoreCells(cfg config, f *facts) error {
	if len(cfg.IgnoredCells) == 0 {
		return nil
	}
	if f.machine.Odd != nil {
		d.discrepancies.addIf(true, "numa-ignore", "numa_ignore_cells has no effect: %v", f.machine.Odd)
		return nil //nolint:nilerr // it is a warning here, and checkCells decides whether it is more
	}
	ignored := machine.SetOf(cfg.IgnoredCells)
	for _, c := range f.machine.Cells {
		if ignored[c.ID] {
			f.memoryKiB -= min(f.memoryKiB, c.MemoryKiB)
			delete(ignored, c.ID)
		}
	}
	d.discrepancies.addIf(len(ignored) > 0, "numa-ignore",
		"numa_ignore_cells has NUMA cells that the host does not have: %s",
		machine.FormatCPUs(slices.Sorted(maps.Keys(ignored))))
	for _, set := range []struct {
		key  string
		cpus []int
	}{{selection.SharedCPUsKey, cfg.sets.Shared}, {selection.DedicatedCPUsKey, cfg.sets.Dedicated}} {
		var lost []int
		for _, c := range f.machine.CPUs {
			if slices.Contains(cfg.IgnoredCells, c.Cell) && slices.Contains(set.cpus, c.ID) {
				lost = append(lost, c.ID)
			}
		}
		if len(lost) > 0 {
			return &plugins.ConfigError{Key: set.key, Problem: fmt.Sprintf(
				"has CPUs of NUMA cells that numa_ignore_cells leaves out (%s); remove them from one of the two",
				machine.FormatCPUs(lost))}
		}
	}
	if f.machine = f.machine.WithoutCells(cfg.IgnoredCells); len(f.machine.Cells) == 0 {
		return &plugins.ConfigError{Key: "numa_ignore_cells", Problem: "leaves out all NUMA cells of the host"}
	}
	return nil
}

// checkCells refuses a tree of NUMA cells whose CPUs cannot be relied on. A flat one needs only the
// CPUs that are online.
func (d *Driver) checkCells(m machine.Machine, nested bool) error {
	if m.Odd == nil {
		return nil
	}
	if nested {
		return driverError(d.hostError(fmt.Errorf("a tree of NUMA cells (numa = \"nested\") needs cells that each "+
			"have CPUs of their own: %w. This is temporary while CPUs are switched on or off. If it persists, start "+
			"the kernel without numa=fake, run the agent where it sees all of the host's /sys, or set numa = \"flat\"",
			m.Odd)))
	}
	d.discrepancies.addIf(true, "numa-odd",
		"NUMA cells do not have CPUs of their own: %v. The driver reports the CPUs that are online; guests are not "+
			"placed near their devices", m.Odd)
	return nil
}

// unreadDiscrepancies name the PCI devices that are left out, one by one unless there are many.
func unreadDiscrepancies(unread []machine.UnreadDevice) (out []machine.Discrepancy) {
	const most = 8
	for i, u := range unread {
		if i == most {
			return append(out, machine.Discrepancyf("pci-unread",
				"%d more PCI devices are left out for the same or other reasons (%s is the first of these)",
				len(unread)-most, u.Name))
		}
		out = append(out, machine.Discrepancy{Key: "pci-unread-" + u.Name, Text: u.Problem})
	}
	return out
}

// hostError makes the first error of /sys a temporary one: while devices are added or removed, the
// kernel's files contradict each other. An error that the last pass had too is permanent.
func (d *Driver) hostError(err error) error {
	before := d.lastHostError
	if d.lastHostError = err.Error(); d.lastHostError != before {
		return &notReadyError{err}
	}
	return err
}

func threaded(m machine.Machine) bool {
	type core struct{ pkg, number int }
	seen := map[core]bool{}
	for _, c := range m.CPUs {
		if !c.Online {
			continue
		}
		at := core{c.Package, c.Core}
		if seen[at] {
			return true
		}
		seen[at] = true
	}
	return false
}

// checkThreads goes by the siblings in libvirt's NUMA cells, not by the topology of its CPU
// element, which libvirt does not vouch for.
func (d *Driver) checkThreads(f facts) {
	if len(f.caps.Cells) > 0 {
		libvirt := f.caps.Threaded()
		d.discrepancies.addIf(f.threaded != libvirt,
			"threads", "cores with several threads: libvirt reports %v, the kernel %v; the driver uses the kernel's",
			libvirt, f.threaded)
	}
}

// compare compares the host's cells and devices with those of libvirt and ghw. Cells are compared
// in each pass. Devices are compared after a change of the kernel's list, the connection or the
// configuration, and in the pass after a new discrepancy; while there is one, also after device
// events and every lookAgain passes.
func (d *Driver) compare(ctx context.Context, cfg config, l *hypervisor.Link, f facts) ([]machine.Discrepancy, error) {
	if len(f.caps.Cells) == 0 {
		return nil, nil // a hypervisor without an idea of them
	}
	reported := capabilities.Libvirt{Caps: f.caps, Online: f.onlineCPUs()}
	cells := f.machine
	cells.Devices, cells.Parents = nil, nil
	ignored := cfg.power.Switchable() // go on and off between the two answers
	if cells.Odd != nil {
		ignored = reported.Online
	}
	discrepancies := machine.Compare(cells.Without(ignored),
		capabilities.FromLibvirt(reported).Without(ignored), cfg.types.Enabled)
	w, err := d.compareDevices(ctx, cfg, l, f.machine)
	if err != nil {
		return nil, err
	}
	return append(discrepancies, w.discrepancies...), nil
}

func (d *Driver) compareDevices(
	ctx context.Context, cfg config, l *hypervisor.Link, m machine.Machine,
) (deviceComparison, error) {
	w := deviceComparison{connection: d.known.connection,
		config: cfg.number, events: d.eventLog.Devices(), devices: m.Devices, unread: m.Unread,
		parents: m.Parents}
	if d.deviceComparison.holds(w) {
		d.deviceComparison.since++
		return d.deviceComparison, nil
	}
	devices, err := nodeDevices(ctx, l)
	var gone *hypervisor.Unavailable
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
	case errors.As(err, &gone):
		return deviceComparison{}, err
	case err != nil: // libvirt lists a device that cannot be read: the kernel's list is used
		w.found = []machine.Discrepancy{
			machine.Discrepancyf("node-devices", "cannot compare libvirt's devices with the kernel's: %v", err),
		}
	default:
		kernel := machine.Machine{Devices: m.Devices, Parents: m.Parents}
		libvirt := capabilities.FromLibvirt(capabilities.Libvirt{Devices: devices})
		unread := machine.UnreadAddresses(m.Unread)
		libvirt.Devices = slices.DeleteFunc(libvirt.Devices, func(d machine.Device) bool { return unread[d.Address] })
		w.found = machine.Compare(kernel, libvirt, cfg.types.Enabled)
	}
	w.found = append(w.found, discovery.ComparePCI(cfg.Chroot, m)...)
	w.report(d.deviceComparison)
	d.deviceComparison = w
	return w, nil
}

// report chooses what is reported of what was found.
func (d *deviceComparison) report(before deviceComparison) {
	earlier := before.discrepancies
	switch {
	case d.connection != before.connection || d.config != before.config:
		earlier = d.found
	case d.events == before.events:
		earlier = before.found
	}
	for _, one := range d.found {
		if slices.ContainsFunc(earlier, func(s machine.Discrepancy) bool { return s.Key == one.Key }) {
			d.discrepancies = append(d.discrepancies, one)
		}
	}
}

// holds reports whether the last comparison is still valid.
func (d deviceComparison) holds(now deviceComparison) bool {
	switch {
	case d.config != now.config || d.connection != now.connection:
		return false
	case len(d.found) > len(d.discrepancies):
		return false
	case len(d.found) > 0 && (d.events != now.events || d.since+1 >= lookAgain):
		return false
	}
	return reflect.DeepEqual(d.devices, now.devices) && reflect.DeepEqual(d.unread, now.unread) &&
		reflect.DeepEqual(d.parents, now.parents)
}

// nodeDevices are the devices that are active. Cost: two calls, and one for each device.
func nodeDevices(ctx context.Context, l *hypervisor.Link) ([]capabilities.Device, error) {
	list, err := hypervisor.Call(ctx, l,
		"the host's devices", func(c hypervisor.Conn) ([]hypervisor.NodeDevice, error) {
			return c.NodeDevices(func(d hypervisor.NodeDevice) bool { return d.Active }, hypervisor.PCIDevices,
				hypervisor.MdevParents, hypervisor.Mdevs)
		})
	if err != nil {
		return nil, fmt.Errorf("asking libvirt for the host's devices: %w", err)
	}
	var out []capabilities.Device
	for _, d := range list {
		if !d.Active {
			continue
		}
		device, err := capabilities.ParseDevice(d.XML)
		if err != nil {
			return nil, fmt.Errorf("reading libvirt's XML of device %.80q: %w", d.Name, err)
		}
		out = append(out, device)
	}
	return out, nil
}

// inventedMachine is the host of libvirt's test driver: a number of CPUs, an amount of memory, and
// devices.
func inventedMachine(a answers, devices []capabilities.Device) machine.Machine {
	m := capabilities.FromLibvirt(capabilities.Libvirt{Caps: a.caps, Devices: devices})
	m.CPUs, m.Cells = nil, []machine.Cell{{MemoryKiB: a.node.MemoryKiB, Distances: map[int]int{0: 10}}}
	for cpu := range int(a.node.CPUs) {
		m.CPUs = append(m.CPUs, machine.CPU{ID: cpu, Online: true, Core: cpu})
		m.Cells[0].CPUs = append(m.Cells[0].CPUs, cpu)
	}
	for i := range m.Devices {
		m.Devices[i].Cell = machine.NoCell
	}
	for i := range m.Parents {
		m.Parents[i].Cell = machine.NoCell
	}
	return m
}

// discoverFeatures goes by the expanded CPU. Where libvirt cannot expand it, the kernel's flags
// stand in for the features behind the model's name. They are read once for each connection: it
// takes a look at each CPU.
func (d *Driver) discoverFeatures(a answers, chroot string) []string {
	flags, err := d.known.flags, error(nil)
	if flags == nil || d.known.chroot != chroot {
		flags, err = discovery.Root(chroot).CPUFlags()
		d.known.flags, d.known.chroot = flags, chroot
	}
	d.discrepancies.addIf(err != nil, "cpu-flags",
		"cannot compare the kernel's CPU flags with libvirt's features: %v", err)
	if a.expanded == nil {
		d.discrepancies.addIf(true, "cpu-expansion",
			"this hypervisor (%s) does not list all features of the host's CPU (model %q); the driver uses the "+
				"kernel's flags instead", a.hypervisor, a.caps.Model)
		return append(inventory.FeaturesOfFlags(a.caps.Arch, flags), a.caps.Features...)
	}
	if err == nil && a.hypervisor != testDriver {
		libvirt, kernel := inventory.CompareFeatures(a.caps.Arch, a.expanded, flags)
		d.discrepancies.addIf(len(libvirt)+len(kernel) > 0, "cpu-features",
			"CPU features that only libvirt reports: [%s]; that only the kernel reports: [%s]; the driver "+
				"uses libvirt's", strings.Join(libvirt, " "), strings.Join(kernel, " "))
	}
	return a.expanded
}

// discoverHostname is the node's name where neither configuration nor agent has one.
func discoverHostname(ctx context.Context, l *hypervisor.Link) (string, error) {
	name, err := hypervisor.Call(ctx, l, "hostname", func(c hypervisor.Conn) (string, error) { return c.Hostname() })
	if err == nil && strings.TrimSpace(name) == "" {
		err = errors.New("it is empty; set host in the driver's configuration")
	}
	if err != nil {
		return "", fmt.Errorf("asking libvirt for the host's name: %w", err)
	}
	return name, nil
}
