// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jaypipes/ghw"
	"github.com/jaypipes/ghw/pkg/snapshot"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// snapshots are the machines that ghw was taught with: real trees, though without the files that
// ghw does not read. asIs is what the reader misses in them; the lists of CPUs are then made from
// the directories that are there, and the rest must do.
var snapshots = []struct {
	name, asIs, cpus, cells, devices string
	// gap is where ghw differs, and is wrong or silent.
	gap string
}{
	{
		name:    "linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d",
		asIs:    "openat sys/devices/system/cpu/present: no such file or directory",
		cpus:    "16 CPUs, 16 online, 12 cores, 1 packages",
		cells:   "0: CPUs 0-15, 32542668 KiB, pages 0x2048K 0x1048576K, distances [10]",
		devices: "23 devices, 0 in cells, 20 with drivers, 1 network, 1 display, 0 accelerators",
	},
	{
		name:    "linux-amd64-61797caf7c0b6bca1725ad7975ed4773",
		asIs:    "openat sys/devices/system/cpu/present: no such file or directory",
		cpus:    "openat sys/devices/system/node/node0/meminfo: no such file or directory",
		devices: "43 devices, 0 in cells, 0 with drivers, 4 network, 1 display, 0 accelerators",
		gap:     "no error, and 0 cells",
	},
	{
		name: "linux-amd64-8581cf3a529e5d8b97ea876eade2f60d",
		asIs: "openat sys/devices/system/cpu/present: no such file or directory",
		cpus: "24 CPUs, 24 online, 12 cores, 2 packages",
		cells: "0: CPUs 0,2,4,6,8,10,12,14,16,18,20,22, 32980312 KiB, pages 0x2048K 0x1048576K, distances [10 " +
			"20]; 1: CPUs 1,3,5,7,9,11,13,15,17,19,21,23, 32940968 KiB, pages 0x2048K 0x1048576K, distances [20 10]",
		devices: "82 devices, 10 in cells, 30 with drivers, 14 network, 1 display, 0 accelerators",
	},
	{
		name: "linux-amd64-accel", asIs: "openat sys/devices/system/cpu/present: no such file or directory",
		cpus:    "2 CPUs, 2 online, 2 cores, 2 packages",
		cells:   "0: CPUs 0-1, 2007536 KiB, pages 0x2048K 0x1048576K, distances [10]",
		devices: "26 devices, 0 in cells, 25 with drivers, 1 network, 1 display, 1 accelerators",
		gap:     "cell 0 has 1 cores, not 2",
	},
	{
		name: "linux-amd64-accel-nvidia", asIs: "openat sys/devices/system/cpu/present: no such file or directory",
		cpus:    "8 CPUs, 8 online, 8 cores, 1 packages",
		cells:   "0: CPUs 0-7, 30601816 KiB, pages 0x2048K, distances [10]",
		devices: "29 devices, 0 in cells, 25 with drivers, 1 network, 2 display, 0 accelerators",
	},
	{
		name: "linux-amd64-offlineCPUs", asIs: "nothing",
		cpus:    "4 CPUs, 2 online, 2 cores, 2 packages",
		cells:   "0: CPUs 0-1, 7881912 KiB, pages 0x2048K 0x1048576K, distances [10]",
		devices: "0 devices, 0 in cells, 0 with drivers, 0 network, 0 display, 0 accelerators",
		gap:     "cell 0 has 1 cores, not 2",
	},
	{
		name:    "linux-arm64-c288e0776090cd558ef793b2a4e61939",
		asIs:    "openat sys/devices/system/cpu/present: no such file or directory",
		cpus:    "1 CPUs, 1 online, 1 cores, 1 packages",
		cells:   "0: CPUs 0, 1888980 KiB, pages 0x64K 0x2048K 0x32768K 0x1048576K, distances [10]",
		devices: "4 devices, 1 in cells, 3 with drivers, 1 network, 0 display, 0 accelerators",
	},
	{
		name: "linux-s390x-snapshot", asIs: "openat sys/devices/system/cpu/present: no such file or directory",
		cpus:    "8 CPUs, 8 online, 4 cores, 1 packages",
		cells:   "0: CPUs 0-7, 112832212 KiB, pages 0x1024K, distances [10]",
		devices: "openat sys/bus/pci/devices: no such file or directory",
	},
}

func unpack(t *testing.T, name string) testhost.Tree {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/jaypipes/ghw").
		Output()
	testproc.Check(t, err)
	root := scratch(t)
	testproc.Check(t, snapshot.UnpackInto(
		filepath.Join(strings.TrimSpace(string(dir)), "testdata", "snapshots", name+".tar.gz"), root))
	return testhost.Tree(root)
}

// complete adds the lists of CPUs, from the directories of those that have a topology.
func complete(t *testing.T, tree testhost.Tree) {
	t.Helper()
	dirs := testproc.Try(filepath.Glob(tree.Path(cpuDir + "/cpu[0-9]*"))).Or(t)
	var present, online []int
	for _, d := range dirs {
		var id int
		testproc.Try(fmt.Sscanf(filepath.Base(d), "cpu%d", &id)).Or(t)
		present = append(present, id)
		if _, err := os.Stat(d + "/topology/thread_siblings_list"); err == nil {
			online = append(online, id)
		}
	}
	for name, set := range map[string][]int{"present": present, "online": online} {
		if _, err := os.Stat(tree.Path(cpuDir + "/" + name)); err == nil {
			continue
		}
		testproc.Check(t, tree.Write(cpuDir+"/"+name, machine.FormatCPUs(set)+"\n"))
	}
}

// short is an error without its hint and where the tree is.
func short(tree testhost.Tree, err error) string {
	var known *HostError
	if errors.As(err, &known) {
		err = known.cause
	}
	return strings.ReplaceAll(err.Error(), string(tree)+"/", "")
}

// summary is a host in three lines.
func summary(t *testing.T, tree testhost.Tree) (cpus, cells, devices string) {
	t.Helper()
	r := testproc.Try(Open(string(tree))).Or(t)
	defer func() { _ = r.Close() }()
	if top, err := r.Topology(); err != nil {
		cpus = short(tree, err)
	} else {
		cores := map[int]bool{}
		packages := map[int]bool{}
		online := 0
		for _, c := range top.CPUs {
			if c.Online {
				online++
				cores[c.Siblings[0]], packages[c.Package] = true, true
			}
		}
		cpus = fmt.Sprintf("%d CPUs, %d online, %d cores, %d packages",
			len(top.CPUs), online, len(cores), len(packages))
		var list []string
		for _, c := range top.Cells {
			var sizes []string
			for _, p := range c.HugePages {
				sizes = append(sizes, fmt.Sprintf("%dx%dK", p.Total, p.SizeKiB))
			}
			list = append(list, fmt.Sprintf("%d: CPUs %s, %d KiB, pages %s, distances %v",
				c.ID, machine.FormatCPUs(c.CPUs), c.MemoryKiB, strings.Join(sizes, " "), c.Distances))
		}
		cells = strings.Join(list, "; ")
	}
	list, unread, err := r.Devices()
	if err != nil {
		return cpus, cells, short(tree, err)
	}
	for _, u := range unread {
		t.Errorf("%+v", u)
	}
	classes := map[uint32]int{}
	inCells, drivers := 0, 0
	for _, d := range list {
		classes[d.Class>>16]++
		if d.Cell != None {
			inCells++
		}
		if d.Driver != "" {
			drivers++
		}
	}
	return cpus, cells, fmt.Sprintf("%d devices, %d in cells, %d with drivers, %d network, %d display, %d accelerators",
		len(list), inCells, drivers, classes[0x02], classes[0x03], classes[0x12])
}

func TestRecordedMachines(t *testing.T) {
	for _, s := range snapshots {
		t.Run(s.name, func(t *testing.T) {
			tree := unpack(t, s.name)
			asIs := "nothing"
			if _, err := Read(string(tree), nil); err != nil {
				asIs = short(tree, err)
			}
			complete(t, tree)
			cpus, cells, devices := summary(t, tree)
			got := []string{asIs, cpus, cells, devices, strings.Join(compareWithGHW(t, tree), "; ")}
			testproc.Same(t, cmp.Diff([]string{s.asIs, s.cpus, s.cells, s.devices, s.gap}, got))
		})
	}
}

// TestMadeUpMachinesForGHW: what is made up can be read by others, too; where ghw differs, the
// reader has the host's own word.
func TestMadeUpMachinesForGHW(t *testing.T) {
	for name, want := range map[string]string{
		"sample":      "",
		"single node": "0 of 1 cells", // it has no huge pages: ghw drops the cell, without an error
		// Cores of two packages in a cell are taken for one; a device without modalias makes all
		// others vanish.
		"many cells": "cell 0 has 2 cores, not 4; cell 2 has 2 cores, not 4; 0 of 5 devices",
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Same(t,
				cmp.Diff(want, strings.Join(compareWithGHW(t, render(t, presets[name](), scratch(t))), "; ")))
		})
	}
}

// compareWithGHW returns where ghw differs from the reader.
func compareWithGHW(t *testing.T, tree testhost.Tree) (gaps []string) {
	t.Helper()
	t.Setenv("PCIDB_PATH", pciIDs(t))
	options := []any{ghw.WithChroot(string(tree)),
		ghw.WithDisableTools(), ghw.WithLogger(slog.New(slog.DiscardHandler))}
	r := testproc.Try(Open(string(tree))).Or(t)
	defer func() { _ = r.Close() }()
	differ := func(format string, args ...any) { gaps = append(gaps, fmt.Sprintf(format, args...)) }
	if top, err := r.Topology(); err == nil {
		theirs := testproc.Try(ghw.Topology(options...)).Or(t)
		if len(theirs.Nodes) != len(top.Cells) {
			differ("%d of %d cells", len(theirs.Nodes), len(top.Cells))
		}
		for _, n := range theirs.Nodes {
			var cpus []int
			for _, core := range n.Cores {
				cpus = append(cpus, core.LogicalProcessors...)
			}
			slices.Sort(cpus)
			ours := top.Cell(n.ID)
			cores := map[int]bool{}
			for _, id := range ours.CPUs {
				cores[top.CPU(id).Siblings[0]] = true
			}
			if !slices.Equal(cpus, ours.CPUs) {
				differ("cell %d has CPUs %s, not %s", n.ID, machine.FormatCPUs(cpus), machine.FormatCPUs(ours.CPUs))
			}
			if len(n.Cores) != len(cores) {
				differ("cell %d has %d cores, not %d", n.ID, len(n.Cores), len(cores))
			}
			if !slices.Equal(n.Distances, ours.Distances) {
				differ("cell %d has distances %v, not %v", n.ID, n.Distances, ours.Distances)
			}
		}
	} else if theirs, err := ghw.Topology(options...); err == nil {
		differ("no error, and %d cells", len(theirs.Nodes))
	}
	devices, _, err := r.Devices()
	if err != nil {
		return gaps
	}
	theirs, err := ghw.PCI(options...)
	if err != nil {
		differ("PCI: %.40s", err)
		return gaps
	}
	if len(theirs.Devices) != len(devices) {
		differ("%d of %d devices", len(theirs.Devices), len(devices))
	}
	for _, d := range devices {
		i := slices.IndexFunc(theirs.Devices, func(p *ghw.PCIDevice) bool { return p.Address == d.Address.String() })
		if i < 0 {
			continue
		}
		p := theirs.Devices[i]
		ours := fmt.Sprintf("%04x:%04x %06x %s", d.Vendor, d.Product, d.Class, d.Driver)
		if their := fmt.Sprintf("%s:%s %s%s%s %s", p.Vendor.ID, p.Product.ID, p.Class.ID, p.Subclass.ID,
			p.ProgrammingInterface.ID, p.Driver); their != ours {
			differ("%s is %s, not %s", d.Address, their, ours)
		}
	}
	return gaps
}

// pciIDs is an empty database: ghw then knows no names, and takes a tenth of the time.
func pciIDs(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pci.ids")
	testproc.Check(t, os.WriteFile(file, nil, 0o600))
	return file
}
