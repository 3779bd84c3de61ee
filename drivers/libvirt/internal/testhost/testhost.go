// SPDX-License-Identifier: Apache-2.0

// Package testhost makes up hosts for tests: one model, rendered as what the kernel would show of it in /sys and /proc,
// as what libvirt would say of it in its capabilities, and as a file for libvirt's test driver.
//
// The renderers are written independently of what reads them, so that agreement means something.
package testhost

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// Host is the model. CPU numbers run through the nodes: node 0 has 0 to CPUsPerNode-1, and so on; the threads of a core
// are neighbours.
type Host struct {
	Nodes, CPUsPerNode, ThreadsPerCore int
	MemoryMiBPerNode                   int
	// Offline are the CPUs that are not online.
	Offline []int
	// Arch, Model and Features are libvirt's words for the CPU.
	Arch, Model string
	Features    []string
	// Flags are the kernel's words for all of its features.
	Flags []string
	// GuestArches are what the emulators can run.
	GuestArches []string
}

// Online are the numbers of the online CPUs.
func (h Host) Online() []int {
	var cpus []int
	for cpu := range h.Nodes * h.CPUsPerNode {
		if !slices.Contains(h.Offline, cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// CPUMap is libvirt's map of the CPUs.
func (h Host) CPUMap() []bool {
	m := make([]bool, h.Nodes*h.CPUsPerNode)
	for _, cpu := range h.Online() {
		m[cpu] = true
	}
	return m
}

// MemoryKiB is the memory of all nodes.
func (h Host) MemoryKiB() uint64 { return uint64(h.Nodes) * uint64(h.MemoryMiBPerNode) * 1024 }

// siblings are the online CPUs of a CPU's core.
func (h Host) siblings(cpu int) []int {
	first := cpu - cpu%h.ThreadsPerCore
	var list []int
	for s := first; s < first+h.ThreadsPerCore; s++ {
		if !slices.Contains(h.Offline, s) {
			list = append(list, s)
		}
	}
	return list
}

func list(cpus []int) string {
	words := make([]string, len(cpus))
	for i, c := range cpus {
		words[i] = fmt.Sprint(c)
	}
	return strings.Join(words, ",")
}

// Sysfs writes the host's sys and proc below a directory.
func (h Host) Sysfs(dir string) error {
	files := map[string]string{
		"sys/devices/system/cpu/online":  list(h.Online()) + "\n",
		"sys/devices/system/node/online": fmt.Sprintf("0-%d\n", h.Nodes-1),
		"proc/meminfo":                   fmt.Sprintf("MemTotal:       %d kB\nMemFree:        0 kB\n", h.MemoryKiB()),
	}
	var info strings.Builder
	for _, cpu := range h.Online() {
		node, core := cpu/h.CPUsPerNode, cpu%h.CPUsPerNode/h.ThreadsPerCore
		at := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", cpu)
		files[at+"online"] = "1\n"
		files[at+"topology/physical_package_id"] = fmt.Sprintf("%d\n", node)
		files[at+"topology/core_id"] = fmt.Sprintf("%d\n", core)
		files[at+"topology/thread_siblings_list"] = list(h.siblings(cpu)) + "\n"
		flags := "flags"
		if h.Arch == "aarch64" {
			flags = "Features"
		}
		fmt.Fprintf(&info, "processor\t: %d\nvendor_id\t: Made Up\nmodel name\t: %s\nphysical id\t: %d\ncore id\t\t: %d\n%s\t\t: %s\n\n",
			cpu, h.Model, node, core, flags, strings.Join(h.Flags, " "))
	}
	files["proc/cpuinfo"] = info.String()
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Capabilities is the XML of virConnectGetCapabilities.
func (h Host) Capabilities() (string, error) {
	cpu := &libvirtxml.CapsHostCPU{Arch: h.Arch, Model: h.Model, Vendor: "Made Up"}
	for _, f := range h.Features {
		cpu.FeatureFlags = append(cpu.FeatureFlags, libvirtxml.CapsHostCPUFeatureFlag{Name: f})
	}
	cells := &libvirtxml.CapsHostNUMACells{Num: uint(h.Nodes)}
	for node := range h.Nodes {
		cell := libvirtxml.CapsHostNUMACell{ID: node, Memory: &libvirtxml.CapsHostNUMAMemory{Unit: "KiB", Size: uint64(h.MemoryMiBPerNode) * 1024}}
		cell.CPUS = &libvirtxml.CapsHostNUMACPUs{Num: uint(h.CPUsPerNode)}
		for cpu := node * h.CPUsPerNode; cpu < (node+1)*h.CPUsPerNode; cpu++ {
			one := libvirtxml.CapsHostNUMACPU{ID: cpu}
			if !slices.Contains(h.Offline, cpu) {
				one.Siblings = list(h.siblings(cpu))
			}
			cell.CPUS.CPUs = append(cell.CPUS.CPUs, one)
		}
		cells.Cells = append(cells.Cells, cell)
	}
	caps := libvirtxml.Caps{Host: libvirtxml.CapsHost{UUID: "11111111-2222-4333-8444-555555555555", CPU: cpu, NUMA: &libvirtxml.CapsHostNUMATopology{Cells: cells}}}
	for _, arch := range h.GuestArches {
		caps.Guests = append(caps.Guests, libvirtxml.CapsGuest{OSType: "hvm", Arch: libvirtxml.CapsGuestArch{Name: arch}})
	}
	return caps.Marshal()
}

// TestDriverXML is the file behind test:///FILE.
func (h Host) TestDriverXML() string {
	return fmt.Sprintf("<node><cpu><mhz>2500</mhz><model>%s</model><active>%d</active><nodes>%d</nodes><sockets>1</sockets><cores>%d</cores><threads>%d</threads></cpu><memory>%d</memory></node>\n",
		h.Arch, len(h.Online()), h.Nodes, h.CPUsPerNode/h.ThreadsPerCore, h.ThreadsPerCore, h.MemoryKiB())
}

// Sample is a common server: two sockets with eight threads each.
func Sample() Host {
	return Host{
		Nodes: 2, CPUsPerNode: 8, ThreadsPerCore: 2, MemoryMiBPerNode: 16384, Arch: "x86_64", Model: "Skylake-Server",
		Features:    []string{"vmx", "pcid"},
		Flags:       []string{"fpu", "sse", "sse2", "ssse3", "sse4_1", "sse4_2", "aes", "avx", "avx2", "avx512f", "vmx", "pni", "pclmulqdq"},
		GuestArches: []string{"i686", "x86_64"},
	}
}
