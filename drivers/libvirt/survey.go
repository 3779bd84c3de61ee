// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/cpulist"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hostfs"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hosttraits"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
)

// maxMemoryKiB is more than any host has (4 PiB): a figure above it is damaged.
const maxMemoryKiB = 1 << 42

// facts are what the driver knows of the host.
type facts struct {
	cpus        []int // online
	memoryKiB   uint64
	disk        hostfs.Filesystem
	arch        string
	features    []string
	threaded    bool
	guestArches []string
}

func (f facts) traits() []string {
	return hosttraits.Host{Arch: f.arch, Features: f.features, Threaded: f.threaded, GuestArches: f.guestArches}.Traits()
}

// answers are what libvirt said, as it said it.
type answers struct {
	hypervisor string
	node       hypervisor.NodeInfo
	cpuMap     []bool // nil where the hypervisor has none
	caps       capabilities.Host
	expanded   []string // nil where libvirt does not know what the CPU's model stands for
}

// expansion remembers the last CPU that libvirt expanded: it is the same in every pass, and asking costs a round trip.
type expansion struct {
	cpu      string
	features []string
}

// ask makes all calls of one pass. Cost: five round trips, four if the CPU is the one in known.
func ask(c hypervisor.Conn, known expansion) (answers, error) {
	var a answers
	var err error
	if a.hypervisor, err = c.Type(); err != nil {
		return a, fmt.Errorf("asking libvirt for its type: %w", err)
	}
	if a.node, err = c.NodeInfo(); err != nil {
		return a, fmt.Errorf("asking libvirt for the node's figures: %w", err)
	}
	if a.cpuMap, err = c.CPUMap(); err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return a, fmt.Errorf("asking libvirt for the CPU map: %w", err)
	}
	text, err := c.Capabilities()
	if err != nil {
		return a, fmt.Errorf("asking libvirt for its capabilities: %w", err)
	}
	if a.caps, err = capabilities.Parse(text); err != nil {
		return a, err
	}
	if known.features != nil && known.cpu == a.caps.CPU {
		a.expanded = known.features
		return a, nil
	}
	if a.caps.Model == "" {
		return a, nil // nothing to expand: libvirt does not know this CPU
	}
	text, err = c.ExpandCPU(a.caps.CPU)
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return a, nil
	case err != nil:
		return a, fmt.Errorf("asking libvirt for the features of the host's CPU: %w", err)
	}
	a.expanded, err = capabilities.ParseCPU(text)
	return a, err
}

// survey turns what libvirt and the kernel say into facts. An answer that cannot be true is an error; a disagreement
// between the two is told to doubts.
func survey(a answers, disk hostfs.Filesystem, root hostfs.Root, doubts *doubts) (facts, error) {
	f := facts{disk: disk, arch: a.caps.Arch, guestArches: a.caps.GuestArches}
	var err error
	if f.cpus, err = surveyCPUs(a, root, doubts); err != nil {
		return facts{}, err
	}
	if f.memoryKiB, err = surveyMemory(a, root, doubts); err != nil {
		return facts{}, err
	}
	if f.threaded, err = surveyThreads(a, root, doubts); err != nil {
		return facts{}, err
	}
	f.features = surveyFeatures(a, root, doubts)
	return f, nil
}

// surveyCPUs goes by the CPU map. libvirt's test driver has an invented one, other hypervisors may have none: there the
// number of CPUs in the node's figures counts.
func surveyCPUs(a answers, root hostfs.Root, d *doubts) ([]int, error) {
	if a.node.CPUs == 0 || a.node.CPUs > cpulist.MaxCPU {
		return nil, fmt.Errorf("libvirt's node information says that the host has %d CPUs", a.node.CPUs)
	}
	var cpus []int
	if a.cpuMap == nil || a.hypervisor == "TEST" {
		for cpu := range int(a.node.CPUs) {
			cpus = append(cpus, cpu)
		}
		return cpus, nil
	}
	for cpu, online := range a.cpuMap {
		if online {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) == 0 {
		return nil, errors.New("libvirt's CPU map says that no CPU is online")
	}
	d.judge("cpu-count", len(cpus) != int(a.node.CPUs), "libvirt's CPU map has %d CPUs online (%s), its node information says %d; the map counts",
		len(cpus), cpulist.Format(cpus), a.node.CPUs)
	online, err := root.OnlineCPUs()
	switch {
	case err != nil:
		d.judge("cpu-sysfs", true, "the kernel's list of online CPUs cannot be compared with libvirt's: %v", err)
	default:
		d.judge("cpu-sysfs", cpulist.Format(online) != cpulist.Format(cpus), "libvirt says that CPUs %s are online, the kernel says %s; libvirt counts",
			cpulist.Format(cpus), cpulist.Format(online))
	}
	return cpus, nil
}

// surveyMemory goes by the node's figures. The kernel's MemTotal may differ: libvirt adds up the NUMA nodes, and memory
// can be hot-plugged.
func surveyMemory(a answers, root hostfs.Root, d *doubts) (uint64, error) {
	kib := a.node.MemoryKiB
	if kib < kibPerMiB || kib > maxMemoryKiB {
		return 0, fmt.Errorf("libvirt's node information says that the host has %d KiB of memory", kib)
	}
	if a.hypervisor == "TEST" {
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

// surveyThreads goes by the siblings in libvirt's NUMA cells (not by the topology of its CPU element, which libvirt does
// not vouch for), and by sysfs where libvirt lists no cells.
func surveyThreads(a answers, root hostfs.Root, d *doubts) (bool, error) {
	kernel, err := root.Threaded()
	if len(a.caps.Cells) == 0 {
		if err != nil {
			return false, fmt.Errorf("libvirt lists no NUMA cells, and the kernel's cannot be read: %w", err)
		}
		return kernel, nil
	}
	libvirt := a.caps.Threaded()
	if a.hypervisor != "TEST" {
		d.judge("threads", err == nil && kernel != libvirt, "cores with several threads: libvirt says %v, the kernel says %v; libvirt counts", libvirt, kernel)
	}
	return libvirt, nil
}

// surveyFeatures goes by the expanded CPU. Where libvirt cannot expand it, the kernel's flags stand in for the features
// behind the model's name.
func surveyFeatures(a answers, root hostfs.Root, d *doubts) []string {
	flags, err := root.CPUFlags()
	d.judge("cpu-flags", err != nil, "the kernel's CPU flags cannot be compared with libvirt's features: %v", err)
	if a.expanded == nil {
		d.judge("cpu-expansion", true, "this hypervisor (%s) does not tell all features of the host's CPU (model %q); the kernel's flags stand in for them", a.hypervisor, a.caps.Model)
		return append(hosttraits.FromKernel(a.caps.Arch, flags), a.caps.Features...)
	}
	if err == nil && a.hypervisor != "TEST" {
		libvirt, kernel := hosttraits.Disagreement(a.caps.Arch, a.expanded, flags)
		d.judge("cpu-features", len(libvirt)+len(kernel) > 0, "CPU features that only libvirt sees: [%s]; that only the kernel sees: [%s]; libvirt counts",
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
