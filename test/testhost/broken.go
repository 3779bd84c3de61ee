// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Breakage is a way in which the tree of [Sample] can be wrong.
type Breakage struct {
	Name string
	// File is what an error about it must name, from the tree's root (it may name what is below
	// it).
	File  string
	Apply func(Tree) error
	// Device is the kernel's name of the PCI device that is wrong, "" if it is the host.
	Device string
}

const (
	cell1  = "sys/devices/system/node/node1/"
	cpus   = "sys/devices/system/cpu/"
	gpu    = "sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0/"
	nic    = "sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/"
	vf1    = "sys/devices/pci0000:00/0000:00:02.0/0000:06:01.1/"
	byAddr = "sys/bus/pci/devices/"
	uuid   = "b7c7d4b0-0c1e-4a3d-8a3e-000000000001"
)

// Breakages returns all breakages of what concerns the whole host: a reader must return an error
// for each, and never a smaller machine.
func Breakages() []Breakage {
	return trimmed([]Breakage{
		Missing("a cell without meminfo", cell1+"meminfo"),
		Missing("a cell without distances", cell1+"distance"),
		Missing("a cell without a list of CPUs", cell1+"cpulist"),
		Missing("a pool of huge pages without a number", cell1+"hugepages/hugepages-2048kB/nr_hugepages"),
		Missing("no list of online CPUs", cpus+"online"),
		Missing("no list of present CPUs", cpus+"present"),
		Missing("a CPU without siblings", cpus+"cpu3/topology/thread_siblings_list"),
		Missing("a CPU without topology", cpus+"cpu3/topology"),
		Missing("a type without instances", gpu+"mdev_supported_types/nvidia-222/available_instances"),
		Missing("a type without API", gpu+"mdev_supported_types/nvidia-222/device_api"),
		Missing("a mediated device without type", gpu+uuid+"/mdev_type"),
		Missing("no devices on the PCI bus", "sys/bus/pci/devices"),

		Text("an empty list of cells", "sys/devices/system/node/online", ""),
		Text("an empty list of CPUs", cpus+"online", "\n"),
		Text("a cell with empty meminfo", cell1+"meminfo", ""),
		Text("a cell whose meminfo has other words", cell1+"meminfo", "Node 1 Memory: 5 kB\n"),
		Text("a cell whose meminfo is another's", cell1+"meminfo", "Node 0 MemTotal: 16777216 kB\n"),
		Text("a cell with memory in other units", cell1+"meminfo", "Node 1 MemTotal: 16384 MB\n"),
		Text("a cell with negative memory", cell1+"meminfo", "Node 1 MemTotal: -5 kB\n"),
		Text("a cell with more memory than there is", cell1+"meminfo", "Node 1 MemTotal: 99999999999999999999 kB\n"),
		Text("too few distances", cell1+"distance", "21\n"),
		Text("a distance in words", cell1+"distance", "far 10\n"),
		Text("a cell that is not nearest to itself", cell1+"distance", "21 0\n"),
		Text("a cell with another's CPUs", cell1+"cpulist", "0-3,8-11\n"),
		{Name: "a cell without one of its CPUs", File: "sys/devices/system/node",
			Apply: func(t Tree) error { return t.Write(cell1+"cpulist", "4-7,12-14\n") }},
		Text("garbage for a number of pages", cell1+"hugepages/hugepages-2048kB/nr_hugepages", "many\n"),
		Text("more pages free than there are", cell1+"hugepages/hugepages-2048kB/free_hugepages", "1025\n"),
		Text("more huge pages than memory", cell1+"hugepages/hugepages-1048576kB/nr_hugepages", "1000\n"),
		Text("a list of CPUs that ends in the middle", cpus+"online", "0-"),
		Text("a list of CPUs that goes backwards", cpus+"online", "7-0\n"),
		Text("a list of millions of CPUs", cpus+"online", "0-99999999\n"),
		Text("a CPU that is online but not present", cpus+"present", "0-14\n"),
		Text("isolated CPUs in words", cpus+"isolated", "most\n"),
		Text("siblings without the CPU itself", cpus+"cpu3/topology/thread_siblings_list", "11\n"),
		{Name: "siblings that do not agree", File: "topology/thread_siblings_list", Apply: func(t Tree) error {
			return t.Write(cpus+"cpu3/topology/thread_siblings_list", "3-4\n")
		}},
		Text("a core in words", cpus+"cpu3/topology/core_id", "three\n"),
		Text("instances in words", gpu+"mdev_supported_types/nvidia-222/available_instances", "plenty\n"),
		Text("negative instances", gpu+"mdev_supported_types/nvidia-222/available_instances", "-1\n"),

		Dangling("a mediated device without its directory", "sys/bus/mdev/devices/"+uuid),
		Huge("a list of CPUs without end", cpus+"online"),
	})
}

// OddCells returns what [Sample] can show of CPUs and cells that is not so on a host: a flat tree
// has the CPUs that are online nevertheless. A reader must name the file, and say the cause.
func OddCells() []Oddity {
	const (
		cell0  = "sys/devices/system/node/node0/"
		fake   = "numa=fake"
		inside = "in a container"
	)
	shared := func(t Tree) error {
		return errors.Join(t.Write(cell0+"cpulist", "0-15\n"), t.Write(cell1+"cpulist", "0-15\n"))
	}
	return []Oddity{
		{Breakage{Name: "cells of numa=fake", File: cell1 + "cpulist", Apply: func(t Tree) error {
			return errors.Join(shared(t), t.Write("proc/cmdline", "BOOT_IMAGE=/vmlinuz ro numa=fake=2U quiet\n"))
		}}, "the kernel was started with numa=fake", 16},
		{Breakage{Name: "cells that share CPUs", File: cell1 + "cpulist", Apply: shared}, fake, 16},
		{Text("a cell with a CPU that is not there", cell1+"cpulist", "4-7,12-16\n"), inside, 16},
		{Breakage{Name: "a container with some CPUs", File: cpus + "cpu0/topology/thread_siblings_list",
			Apply: func(t Tree) error { return t.Write(cpus+"online", "0-3\n") }}, inside, 4},
		{Breakage{Name: "a container with the second threads", File: cpus + "cpu9/topology/thread_siblings_list",
			Apply: func(t Tree) error { return t.Write(cpus+"online", "9,12\n") }}, inside, 2},
	}
}

// Oddity is a breakage that a flat tree survives.
type Oddity struct {
	Breakage
	// Cause is what an error about it must say, Online how many CPUs are online.
	Cause  string
	Online int
}

// DeviceBreakages returns what can be wrong with one PCI device: a reader must leave out that
// device, or another that its links name, and no more, and name the file.
func DeviceBreakages() []Breakage {
	list := trimmed([]Breakage{
		Missing("a device without vendor", gpu+"vendor"),
		Missing("a device without class", gpu+"class"),
		Missing("a physical function that does not say how many functions are enabled", nic+"sriov_numvfs"),
		Text("a vendor in words", gpu+"vendor", "nvidia\n"),
		Text("a vendor with too many digits", gpu+"vendor", "0x110de\n"),
		Text("an empty class", gpu+"class", ""),
		{Name: "a device of a cell that is not there",
			File: "0000:05:00.0/numa_node", Apply: func(t Tree) error { return t.Write(gpu+"numa_node", "7\n") }},
		Text("a device of a cell below none", gpu+"numa_node", "-2\n"),
		Text("more functions enabled than there can be", nic+"sriov_numvfs", "9\n"),
		Text("more functions enabled than shown", nic+"sriov_numvfs", "5\n"),
		Text("functions in words", nic+"sriov_totalvfs", "eight\n"),
		Dangling("a device without its directory", byAddr+"0000:05:00.0"),
		Dangling("a virtual function without its directory", nic+"virtfn2"),
		Loop("a device that is a link to itself", byAddr+"0000:05:00.0"),
		Loop("a file that is a link to itself", gpu+"vendor"),
		Escape("a device whose link leads out of the tree", byAddr+"0000:05:00.0"),
		Escape("a file whose link leads out of the tree", gpu+"vendor"),
		Huge("a vendor without end", gpu+"vendor"),
		Pipe("a file that never answers", gpu+"class"),
		Directory("a directory in the place of a file", gpu+"vendor"),
		{Name: "a device whose address is invalid",
			File: byAddr + "gpu0", Apply: func(t Tree) error { return t.Link(byAddr+"gpu0", gpu) }},
		{Name: "a virtual function without physical function", File: "0000:06:01.1", Apply: func(t Tree) error {
			return t.Remove(vf1 + "physfn")
		}},
		{Name: "a gap in the virtual functions", File: nic + "virtfn", Apply: func(t Tree) error {
			return os.Rename(t.Path(nic+"virtfn3"), t.Path(nic+"virtfn6"))
		}},
		Directory("a driver that is no link", gpu+"driver"),
		Dangling("a physical function that is no device", vf1+"physfn"),
	})
	for i, b := range list {
		elements := strings.Split(b.File, "/")
		list[i].Device = elements[len(elements)-1]
		for _, element := range elements {
			if strings.Count(element, ":") == 2 {
				list[i].Device = element
			}
		}
	}
	return list
}

func trimmed(list []Breakage) []Breakage {
	for i, b := range list {
		list[i].File = strings.TrimSuffix(b.File, "/")
	}
	return list
}

// Missing removes a file or directory.
func Missing(name, file string) Breakage {
	return Breakage{Name: name, File: file, Apply: func(t Tree) error { return t.Remove(file) }}
}

// Text puts another text into a file.
func Text(name, file, text string) Breakage {
	return Breakage{Name: name, File: file, Apply: func(t Tree) error { return t.Write(file, text) }}
}

// Dangling makes a link to what does not exist.
func Dangling(name, file string) Breakage {
	return replaced(name, file, func(t Tree) error {
		return t.Link(file, "sys/devices/missing/"+file[strings.LastIndexByte(file, '/')+1:])
	})
}

// Loop makes a link to itself.
func Loop(name, file string) Breakage {
	return replaced(name, file, func(t Tree) error { return t.Link(file, file) })
}

// Escape makes a link to outside of the tree.
func Escape(name, file string) Breakage {
	return replaced(name, file, func(t Tree) error { return os.Symlink("/etc/passwd", t.Path(file)) })
}

// Huge makes a file of 1 GiB, without space on disk.
func Huge(name, file string) Breakage {
	return replaced(name, file, func(t Tree) error {
		if err := t.Write(file, "0,"); err != nil {
			return err
		}
		return os.Truncate(t.Path(file), 1<<30)
	})
}

// Pipe makes a pipe that no process writes to: opening it blocks.
func Pipe(name, file string) Breakage {
	return replaced(name, file, func(t Tree) error { return syscall.Mkfifo(t.Path(file), 0o644) })
}

// Directory makes a directory.
func Directory(name, file string) Breakage {
	return replaced(name, file, func(t Tree) error { return t.Mkdir(file) })
}

// Unreadable removes the permission to read; root reads nevertheless.
func Unreadable(name, file string) Breakage {
	return Breakage{Name: name, File: file, Apply: func(t Tree) error { return os.Chmod(t.Path(file), 0) }}
}

func replaced(name, file string, with func(Tree) error) Breakage {
	return Breakage{Name: name, File: file, Apply: func(t Tree) error {
		if err := t.Remove(file); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return with(t)
	}}
}
