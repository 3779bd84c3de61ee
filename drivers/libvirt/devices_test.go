// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// devicesOf runs --devices on a made-up host with the names of testdata/pci.ids.
func devicesOf(t *testing.T, h testhost.Host, args ...string) string {
	t.Helper()
	t.Setenv("PCIDB_PATH", filepath.Join("testdata", "pci.ids"))
	dir := t.TempDir()
	testproc.Try(h.Sysfs(dir)).Or(t)
	for _, c := range h.CPUs {
		cache := func(index string, id int, size string) {
			at := filepath.Join(dir, "sys/devices/system/cpu", fmt.Sprintf("cpu%d", c.ID), "cache", index)
			testproc.Check(t, os.MkdirAll(at, 0o755))
			for name, text := range map[string]string{"level": strings.TrimPrefix(index, "index"), "type": "Unified",
				"id": fmt.Sprint(id), "size": size} {
				testproc.Check(t, os.WriteFile(filepath.Join(at, name), []byte(text+"\n"), 0o644))
			}
		}
		cache("index2", 100*c.Package+c.Core, "512K")
		cache("index3", c.Package, "32768K")
	}
	var out bytes.Buffer
	testproc.Check(t, Devices(&out, append([]string{"--chroot", dir}, args...)))
	return out.String()
}

func TestDevicesAreListedByName(t *testing.T) {
	got := devicesOf(t, testhost.Sample())
	golden.Text(t, "testdata/devices.txt", got)
	docs := testproc.Try(os.ReadFile(filepath.Join("..", "..", "docs", "libvirt.md"))).Or(t)
	for line := range strings.Lines(got) {
		if !strings.Contains(string(docs), strings.TrimRight(line, " \n")) {
			t.Errorf("docs/libvirt.md does not show %q", line)
		}
	}
}

// TestDeviceLinesCanBePasted: the driver takes the lines as its configuration, and they select what
// is listed.
func TestDeviceLinesCanBePasted(t *testing.T) {
	var list hostDevices
	testproc.Check(t, json.Unmarshal([]byte(devicesOf(t, testhost.Sample(), "--output", "json")), &list))
	var keys map[string]any
	testproc.Check(t, toml.Unmarshal([]byte(strings.Join(list.Configuration, "\n")), &keys))
	raw := testproc.Try(json.Marshal(keys)).Or(t)
	cfg := testproc.Try(parseConfig(raw, plugins.HostInfo{Name: "cn1"})).Or(t)
	m := machineOf(t, testhost.Sample())
	providers, odd, err := cfg.specs.Select(m)
	if err != nil || len(odd) > 0 || len(providers) != 1 || providers[0].Total() != 4 {
		t.Errorf("%+v, %v, %v", providers, odd, err)
	}
	types, odd := cfg.types.Choose(m, nil)
	if len(odd) > 0 || len(types) != 2 {
		t.Errorf("%+v, %v", types, odd)
	}
}

// TestDevicesLikeTheirPhysicalFunction: virtual functions with the product of their physical one
// (Intel Flex, Max) are offered by their addresses, which select nothing else.
func TestDevicesLikeTheirPhysicalFunction(t *testing.T) {
	h := testhost.Sample()
	for i := range h.Devices {
		if d := &h.Devices[i]; d.PF != "" || d.TotalVFs > 0 {
			d.Product = 0x56c0
		}
	}
	h.Devices = append(h.Devices,
		testhost.Device{Address: "0000:07:00.0", Parent: "0000:00:02.0", Vendor: 0x8086, Product: 0x4940,
			Class: 0x0b4000, Driver: "4xxx", IOMMUGroup: 70},
		testhost.Device{Address: "0000:08:00.0", Parent: "0000:00:02.0", Vendor: 0x144d, Product: 0xa808,
			Class: 0x010802, Driver: "nvme", IOMMUGroup: 71})
	var list hostDevices
	testproc.Check(t, json.Unmarshal([]byte(devicesOf(t, h, "--output", "json")), &list))
	var keys map[string]any
	testproc.Check(t, toml.Unmarshal([]byte(strings.Join(list.Configuration, "\n")), &keys))
	cfg := testproc.Try(parseConfig(testproc.Try(json.Marshal(keys)).Or(t), plugins.HostInfo{Name: "cn1"})).Or(t)
	providers, odd, err := cfg.specs.Select(machineOf(t, h))
	testproc.Check(t, err)
	var selected []string
	for _, p := range providers {
		for _, passed := range p.Devices {
			selected = append(selected, passed.Address.String())
		}
	}
	want := append(slices.Clone(h.Device("0000:06:00.0").VFs), "0000:07:00.0")
	diff(t, "the devices that the lines select", want, selected)
	diff(t, "discrepancies", 0, len(odd))
	if len(list.NVMe) != 1 || list.NVMe[0].Address != "0000:08:00.0" {
		t.Errorf("the disk is not listed: %+v", list.NVMe)
	}
}

// TestDevicesOffersVGPUs: a GPU with vGPUs on virtual functions is offered by a type, and its
// functions are not offered as devices.
func TestDevicesOffersVGPUs(t *testing.T) {
	var list hostDevices
	testproc.Check(t, json.Unmarshal([]byte(devicesOf(t, testhost.VGPUHost(), "--output", "json")), &list))
	want := `enabled_mdev_types = ["nvidia-1151"] # one type per device; alternatives: `
	if len(list.Configuration) != 1 || !strings.HasPrefix(list.Configuration[0], want) {
		t.Errorf("got %q, want one line that begins with %q", list.Configuration, want)
	}
	i := slices.IndexFunc(list.Mdevs, func(m hostMdevType) bool { return m.Device == usedCard && m.Existing > 0 })
	if i < 0 || list.Mdevs[i].Name != "NVIDIA L40S-6Q" || list.Mdevs[i].Available != 7 {
		t.Errorf("the vGPU that an operator made is not listed: %+v", list.Mdevs)
	}
}

// TestDevicesShowsProcessorsAndCells: numbers of cells are the kernel's, caches and models are
// ghw's.
func TestDevicesShowsProcessorsAndCells(t *testing.T) {
	h := testhost.Sample()
	var list hostDevices
	testproc.Check(t, json.Unmarshal([]byte(devicesOf(t, h, "--output", "json")), &list))
	if len(list.Cells) != len(h.Cells) || len(list.Cells[1].Caches) != 5 || list.Cells[1].Caches[4].SizeKiB != 32768 ||
		list.Cells[1].Caches[4].CPUs != list.Cells[1].CPUs {
		t.Errorf("%+v", list.Cells)
	}
	testproc.EqualList(t, list.Cells[1].Distances, h.Cells[1].Distances, "distances %v")
	if len(list.Processors) != 2 || list.Processors[0].Model != h.Processor.Name ||
		len(list.Processors[1].Flags) != len(h.Processor.Flags) {
		t.Errorf("%+v", list.Processors)
	}
}

// TestDevicesWithoutNamesAreListed: what ghw misses has no name, and a note says so; no device is
// missing.
func TestDevicesWithoutNamesAreListed(t *testing.T) {
	h := testhost.Sample()
	h.Device("0000:05:00.0").NoModalias = true
	var list hostDevices
	testproc.Check(t, json.Unmarshal([]byte(devicesOf(t, h, "--output", "json")), &list))
	if len(list.GPUs) != 2 || len(list.NICs) != 5 || list.GPUs[0].Product != "" || *list.GPUs[1].Cell != 1 ||
		len(list.Discrepancies) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestDevicesRefusesWrongArguments(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, args := range [][]string{{"--output", "xml"}, {"more"}, {"--nothing"}} {
		testproc.ErrorHas(t, Devices(&bytes.Buffer{}, args), "usage", "%q: %v", args)
	}
}

func machineOf(t *testing.T, h testhost.Host) machine.Machine {
	t.Helper()
	dir := t.TempDir()
	testproc.Try(h.Sysfs(dir)).Or(t)
	host := testproc.Try(discovery.Read(dir, nil)).Or(t)
	return host.Machine("x86_64")
}
