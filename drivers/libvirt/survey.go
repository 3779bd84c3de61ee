// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

const (
	kibPerMiB = 1024
	// maxMemoryKiB is more than any host has (4 PiB): a figure above it is damaged.
	maxMemoryKiB = 1 << 42
)

// facts are what the driver knows of the host.
type facts struct {
	machine   machine.Machine
	memoryKiB uint64
	disk      discovery.Filesystem
	// features are those of the CPU that guests see; featuresUnknown: libvirt does not say.
	features        []string
	featuresUnknown bool
	threaded        bool
	// guests is what libvirt says that guests can have, sev what the kernel may encrypt, nil if it knows nothing of it.
	answers
	sev  *discovery.SEV
	pmem []machine.Namespace
	// domains are all on the host but the unread, of which is known only what is wrong with them, by uuid. domainsKnown is false where the
	// hypervisor has no list of them.
	domains      []domain.Domain
	unread       map[string]string
	domainsKnown bool
}

// witness remembers the last comparison of the host's devices, which costs a call for each of them.
type witness struct {
	// What it depends on: the connection, which is 0 before the first, the number of the configuration, the events about devices so far.
	connection uint64
	config     int
	events     uint64
	devices    []machine.Device
	parents    []machine.MdevParent

	doubts []machine.Discrepancy
	// since is for how many passes it has stood.
	since int
}

// survey asks libvirt and the kernel what the host is. An answer that cannot be true is an error; what the two do not agree about is told to the
// doubts. The kernel counts for processors, NUMA cells and devices, libvirt for all of the host's memory, as in Nova, and for the CPU's features.
//
// Cost: four calls of libvirt, two for the domains, and a file of /sys or some for each CPU and device.
func (d *Driver) survey(ctx context.Context, cfg config, l *hypervisor.Link, fresh bool) (facts, error) {
	a, err := d.ask(ctx, l, cfg.GuestCPU)
	if err != nil {
		return facts{}, err
	}
	f := facts{answers: a}
	if f.disk, err = d.disks.survey(ctx, cfg.guestsDirectory()); err != nil {
		return facts{}, err
	}
	d.doubts.begin()
	d.doubts.take(a.guests.doubts)
	d.judgeAccess(ctx, cfg, f)
	root := discovery.Root(cfg.Chroot)
	if err := f.checkCPUs(root, &d.doubts); err != nil {
		return facts{}, err
	}
	if f.memoryKiB, err = surveyMemory(a, root, &d.doubts); err != nil {
		return facts{}, err
	}
	if err := d.surveyMachine(ctx, cfg, l, &f); err != nil {
		return facts{}, err
	}
	f.features = d.surveyFeatures(a, cfg.Chroot)
	if cfg.ModelsFor(a.caps.Arch) != nil {
		f.features, f.featuresUnknown = a.modelFeatures, a.modelProblem != ""
		d.doubts.judge("cpu-models", f.featuresUnknown, "libvirt does not say which features the CPU models of guests have, so that the traits of the CPU stay as they are: %s",
			a.modelProblem)
	}
	f.features = cfg.Apply(f.features)
	var odd []machine.Discrepancy
	switch f.domains, odd, err = d.roster.list(ctx, l, fresh); {
	case err == nil:
		f.domainsKnown, f.unread = true, unread(odd)
		d.doubts.take(odd)
	case !errors.Is(err, hypervisor.ErrUnsupported):
		return facts{}, err
	}
	return f, nil
}

// checkCPUs looks whether libvirt's figures can be true, and whether they are the kernel's. libvirt's test driver has an invented CPU map, other
// hypervisors may have none.
func (f *facts) checkCPUs(root discovery.Root, d *doubts) error {
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
	d.judge("cpu-count", len(cpus) != int(a.node.CPUs), "libvirt's CPU map has %d CPUs online (%s), its node information says %d; what the kernel says counts",
		len(cpus), machine.FormatCPUs(cpus), a.node.CPUs)
	if len(a.caps.Cells) > 0 {
		return nil // cell by cell, see compare
	}
	online, err := root.OnlineCPUs()
	if err != nil {
		return err
	}
	d.judge("cpu-sysfs", machine.FormatCPUs(online) != machine.FormatCPUs(cpus), "libvirt says that CPUs %s are online, the kernel says %s; the kernel counts",
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

// surveyMemory goes by the node's figures. The kernel's MemTotal may differ: libvirt adds up the NUMA nodes, and memory
// can be hot-plugged.
func surveyMemory(a answers, root discovery.Root, d *doubts) (uint64, error) {
	kib := a.node.MemoryKiB
	if kib < kibPerMiB || kib > maxMemoryKiB {
		return 0, fmt.Errorf("libvirt's node information says that the host has %d KiB of memory", kib)
	}
	if a.hypervisor == testDriver {
		return kib, nil
	}
	total, err := root.MemTotalKiB()
	if err != nil {
		d.judge("memory", true, "the kernel's memory cannot be compared with libvirt's: %v", err)
		return kib, nil
	}
	differs := kib > total+total/100 || total > kib+kib/100
	d.judge("memory", differs, "libvirt says that the host has %d MiB of memory, /proc/meminfo says %d; libvirt counts, so MEMORY_MB may be wrong",
		kib/kibPerMiB, total/kibPerMiB)
	return kib, nil
}

// surveyMachine reads /sys, and compares it with libvirt. Where libvirt's host is an invented one, and no other directory is said to be its /sys, that
// one counts: it has no NUMA cells and no processors that are told apart.
func (d *Driver) surveyMachine(ctx context.Context, cfg config, l *hypervisor.Link, f *facts) error {
	invented := f.hypervisor == testDriver
	if invented && cfg.Chroot == "/" {
		devices, err := nodeDevices(ctx, l)
		if err != nil {
			return err
		}
		f.machine, f.threaded = inventedMachine(f.answers, devices), f.caps.Threaded()
		return nil
	}
	host, err := discovery.Read(cfg.Chroot, cfg.types.Wants)
	if err != nil {
		return d.brokenHost(err)
	}
	if cfg.pmem.Configured() {
		if f.pmem, err = discovery.ReadPMEM(cfg.Chroot); err != nil {
			return d.brokenHost(err)
		}
	}
	d.broken = ""
	f.machine, f.sev = host.Machine(f.caps.Arch), host.KVM.SEV
	f.threaded = threaded(f.machine)
	if invented {
		return nil
	}
	d.judgeThreads(*f)
	doubts, err := d.compare(ctx, cfg, l, *f)
	if err != nil {
		return err
	}
	d.doubts.take(doubts)
	return nil
}

// brokenHost says what an error of /sys is. While devices come and go the kernel's files contradict each other, which passes by itself. What was
// wrong in the last pass already, in the same words, does not.
func (d *Driver) brokenHost(err error) error {
	before := d.broken
	if d.broken = err.Error(); d.broken != before {
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

// judgeThreads goes by the siblings in libvirt's NUMA cells, not by the topology of its CPU element, which libvirt does not vouch for.
func (d *Driver) judgeThreads(f facts) {
	if len(f.caps.Cells) > 0 {
		libvirt := f.caps.Threaded()
		d.doubts.judge("threads", f.threaded != libvirt, "cores with several threads: libvirt says %v, the kernel says %v; the kernel counts", libvirt, f.threaded)
	}
}

// compare compares the host's cells and devices with what libvirt and ghw say of them. The cells are compared each time. The devices are when
// the kernel says something else of them, after another connection or configuration; and where somebody disagreed, after events about devices
// and after lookAgain passes too.
func (d *Driver) compare(ctx context.Context, cfg config, l *hypervisor.Link, f facts) ([]machine.Discrepancy, error) {
	if len(f.caps.Cells) == 0 {
		return nil, nil // a hypervisor without an idea of them
	}
	said := capabilities.Libvirt{Caps: f.caps, Online: f.onlineCPUs()}
	cells := f.machine
	cells.Devices, cells.Parents = nil, nil
	doubts := machine.Compare(cells, capabilities.FromLibvirt(said), cfg.types.Wants)
	w, err := d.compareDevices(ctx, cfg, l, f.machine)
	if err != nil {
		return nil, err
	}
	return append(doubts, w.doubts...), nil
}

func (d *Driver) compareDevices(ctx context.Context, cfg config, l *hypervisor.Link, m machine.Machine) (witness, error) {
	w := witness{connection: d.known.connection, config: cfg.number, events: d.news.Devices(), devices: m.Devices, parents: m.Parents}
	if d.witness.holds(w) {
		d.witness.since++
		return d.witness, nil
	}
	devices, err := nodeDevices(ctx, l)
	var gone *hypervisor.Unavailable
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
	case errors.As(err, &gone):
		return witness{}, err
	case err != nil: // a witness that cannot be understood; the kernel counts
		w.doubts = append(w.doubts, machine.Discrepancyf("node-devices", "libvirt's devices cannot be compared with the kernel's, so that a disagreement would not be seen: %v", err))
	default:
		kernel := machine.Machine{Devices: m.Devices, Parents: m.Parents}
		w.doubts = machine.Compare(kernel, capabilities.FromLibvirt(capabilities.Libvirt{Devices: devices}), cfg.types.Wants)
	}
	w.doubts = append(w.doubts, discovery.ComparePCI(cfg.Chroot, m)...)
	d.witness = w
	return w, nil
}

// holds tells whether a comparison need not be made anew.
func (w witness) holds(now witness) bool {
	switch {
	case w.config != now.config || w.connection != now.connection:
		return false
	case len(w.doubts) > 0 && (w.events != now.events || w.since+1 >= lookAgain):
		return false
	}
	return reflect.DeepEqual(w.devices, now.devices) && reflect.DeepEqual(w.parents, now.parents)
}

// nodeDevices are the devices that are active. Cost: two calls, and one for each device.
func nodeDevices(ctx context.Context, l *hypervisor.Link) ([]capabilities.Device, error) {
	list, err := hypervisor.Call(ctx, l, "the host's devices", func(c hypervisor.Conn) ([]hypervisor.NodeDevice, error) {
		return c.NodeDevices(func(d hypervisor.NodeDevice) bool { return d.Active }, hypervisor.PCIDevices, hypervisor.MdevParents, hypervisor.Mdevs)
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
			return nil, fmt.Errorf("what libvirt says of the device %.80q: %w", d.Name, err)
		}
		out = append(out, device)
	}
	return out, nil
}

// inventedMachine is the host of libvirt's test driver: a number of CPUs, an amount of memory, and devices.
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

// surveyFeatures goes by the expanded CPU. Where libvirt cannot expand it, the kernel's flags stand in for the features
// behind the model's name. They are read once for each connection: it takes a look at each CPU.
func (d *Driver) surveyFeatures(a answers, chroot string) []string {
	flags, err := d.known.flags, error(nil)
	if flags == nil || d.known.chroot != chroot {
		flags, err = discovery.Root(chroot).CPUFlags()
		d.known.flags, d.known.chroot = flags, chroot
	}
	d.doubts.judge("cpu-flags", err != nil, "the kernel's CPU flags cannot be compared with libvirt's features: %v", err)
	if a.expanded == nil {
		d.doubts.judge("cpu-expansion", true, "this hypervisor (%s) does not tell all features of the host's CPU (model %q); the kernel's flags stand in for them", a.hypervisor, a.caps.Model)
		return append(inventory.FeaturesOfFlags(a.caps.Arch, flags), a.caps.Features...)
	}
	if err == nil && a.hypervisor != testDriver {
		libvirt, kernel := inventory.CompareFeatures(a.caps.Arch, a.expanded, flags)
		d.doubts.judge("cpu-features", len(libvirt)+len(kernel) > 0, "CPU features that only libvirt sees: [%s]; that only the kernel sees: [%s]; libvirt counts",
			strings.Join(libvirt, " "), strings.Join(kernel, " "))
	}
	return a.expanded
}

// surveyHostname is the node's name where neither configuration nor agent has one.
func surveyHostname(ctx context.Context, l *hypervisor.Link) (string, error) {
	name, err := hypervisor.Call(ctx, l, "hostname", func(c hypervisor.Conn) (string, error) { return c.Hostname() })
	if err == nil && strings.TrimSpace(name) == "" {
		err = errors.New("it is empty; set host in the driver's configuration")
	}
	if err != nil {
		return "", fmt.Errorf("asking libvirt for the host's name: %w", err)
	}
	return name, nil
}
