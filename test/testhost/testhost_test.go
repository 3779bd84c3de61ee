// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"encoding/xml"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestKernelNotations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tc := range []struct {
		ids        []int
		list, mask string
	}{
		{nil, "", "00000000,00000000"},
		{[]int{0}, "0", "00000000,00000001"},
		{[]int{0, 1, 2, 8, 40, 41}, "0-2,8,40-41", "00000300,00000107"},
	} {
		testproc.Equal(t, list(tc.ids), tc.list, "%v is %q", tc.ids)
		testproc.Equal(t, mask(tc.ids, 63), tc.mask, "%v is %q", tc.ids)
	}
}

func TestGrid(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cpus, cells := Grid{Packages: 2, CellsPerPackage: 2,
		CoresPerDie: 2, ThreadsPerCore: 2, Interleaved: true, MemoryKiB: 5}.Build()
	h := Host{CPUs: cpus, Cells: cells}.sort()
	if len(h.CPUs) != 16 || len(h.Cells) != 4 {
		t.Fatal(len(h.CPUs), len(h.Cells))
	}
	testproc.Same(t, cmp.Diff([]int{10, 12, 21, 21}, h.Cells[0].Distances))
	testproc.EqualList(t, h.CellCPUs(1), []int{2, 3, 10, 11}, "cell 1 has %v")
	testproc.EqualList(t, h.Siblings(h.CPUs[3]), []int{3, 11}, "siblings of CPU 3: %v")
	h.CPUs[11].Offline = true
	testproc.EqualList(t, h.Siblings(h.CPUs[3]), []int{3}, "siblings of CPU 3 when 11 is offline: %v")
}

// TestNoDanglingLinks: links lead where they should: none dangles in a tree that is whole.
func TestNoDanglingLinks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, h := range map[string]Host{"sample": Sample(), "GPU host": GPUHost(),
		"single node": SingleNode(), "many cells": ManyCells()} {
		dir := testproc.Try(Scratch()).Or(t)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		testproc.Try(h.Sysfs(dir)).Or(t)
		links := 0
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.Type()&fs.ModeSymlink == 0 {
				return err
			}
			links++
			_, err = os.Stat(p)
			return err
		})
		if err != nil || links == 0 {
			t.Errorf("%s: %v (%d links)", name, err, links)
		}
	}
}

func TestMediatedDevicesComeAndGo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tree := testproc.Try(Sample().Sysfs(t.TempDir())).Or(t)
	const gpu, id = "0000:82:00.0", "c0ffee00-0000-4000-8000-000000000002"
	available := func() string {
		t.Helper()
		text, err := tree.Read("sys/class/mdev_bus/" + gpu + "/mdev_supported_types/nvidia-222/available_instances")
		testproc.Check(t, err)
		return strings.TrimSpace(text)
	}
	at, err := tree.AddMdev(gpu, "nvidia-222", id, 7)
	if err != nil || at != "sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0/"+id || available() != "15" {
		t.Errorf("%s, %v, %s", at, err, available())
	}
	testproc.Try(tree.AddMdev(gpu, "nvidia-222", id, 7)).ErrorIs(t, fs.ErrExist, "made twice: %v")
	if removed, err := tree.RemoveMdev(id); err != nil || removed != at || available() != "16" {
		t.Errorf("%s, %v, %s", removed, err, available())
	}
	testproc.Try(tree.RemoveMdev(id)).ErrorIs(t, fs.ErrNotExist, "removed twice: %v")
	testproc.Check(t, tree.Write("sys/class/mdev_bus/"+
		gpu+"/mdev_supported_types/nvidia-222/available_instances", "0\n"))
	testproc.Try(tree.AddMdev(gpu, "nvidia-222", id, 7)).ErrorIs(t, ErrNoInstance, "made without instance: %v")
}

func TestXMLIsWellFormed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := ManyCells()
	h.Device("10000:01:00.4").Types[0].Name = `GRID <"T4"> & co`
	texts := []string{h.Capabilities("x86_64"),
		h.NodeXML(Domain{Name: "a<b", Metadata: "<x:y xmlns:x='z'/>"}, Domain{Name: "off", Off: true}),
		Domain{Name: "q", GuestCells: []GuestCell{{VCPUs: []int{0}}}}.XML("qemu")}
	for _, d := range h.NodeDevices() {
		texts = append(texts, d.XML)
	}
	for _, text := range texts {
		if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
}

func TestCloneSharesNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := Sample()
	c := h.Clone()
	c.CPUs[0].Offline, c.Cells[0].HugePages[0].Total = true, 1
	d := c.Device("0000:06:00.0")
	d.VFs[0], c.Device("0000:05:00.0").Types[0].Available = "x", 99
	testproc.Same(t, cmp.Diff(Sample(), h))
}
