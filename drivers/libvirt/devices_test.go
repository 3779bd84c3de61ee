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
	if _, err := h.Sysfs(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range h.CPUs {
		cache := func(index string, id int, size string) {
			at := filepath.Join(dir, "sys/devices/system/cpu", fmt.Sprintf("cpu%d", c.ID), "cache", index)
			if err := os.MkdirAll(at, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"level": strings.TrimPrefix(index, "index"), "type": "Unified", "id": fmt.Sprint(id), "size": size} {
				if err := os.WriteFile(filepath.Join(at, name), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		cache("index2", 100*c.Package+c.Core, "512K")
		cache("index3", c.Package, "32768K")
	}
	var out bytes.Buffer
	if err := Devices(&out, append([]string{"--chroot", dir}, args...)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDevicesAreListedByName(t *testing.T) {
	got := devicesOf(t, testhost.Sample())
	golden.Text(t, "testdata/devices.txt", got)
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "libvirt.md"))
	if err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal([]byte(devicesOf(t, testhost.Sample(), "--output", "json")), &list); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := toml.Unmarshal([]byte(strings.Join(list.Configuration, "\n")), &keys); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := parseConfig(raw, plugins.HostInfo{Name: "cn1"})
	if err != nil {
		t.Fatal(err)
	}
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

// TestDevicesShowsProcessorsAndCells: numbers of cells are the kernel's, caches and models are
// ghw's.
func TestDevicesShowsProcessorsAndCells(t *testing.T) {
	h := testhost.Sample()
	var list hostDevices
	if err := json.Unmarshal([]byte(devicesOf(t, h, "--output", "json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Cells) != len(h.Cells) || len(list.Cells[1].Caches) != 5 || list.Cells[1].Caches[4].SizeKiB != 32768 || list.Cells[1].Caches[4].CPUs != list.Cells[1].CPUs {
		t.Errorf("%+v", list.Cells)
	}
	if !slices.Equal(list.Cells[1].Distances, h.Cells[1].Distances) {
		t.Errorf("distances %v, want %v", list.Cells[1].Distances, h.Cells[1].Distances)
	}
	if len(list.Processors) != 2 || list.Processors[0].Model != h.Processor.Name || len(list.Processors[1].Flags) != len(h.Processor.Flags) {
		t.Errorf("%+v", list.Processors)
	}
}

// TestDevicesWithoutNamesAreListed: what ghw misses has no name, and a note says so; no device is
// missing.
func TestDevicesWithoutNamesAreListed(t *testing.T) {
	h := testhost.Sample()
	h.Device("0000:05:00.0").NoModalias = true
	var list hostDevices
	if err := json.Unmarshal([]byte(devicesOf(t, h, "--output", "json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.GPUs) != 2 || len(list.NICs) != 5 || list.GPUs[0].Product != "" || *list.GPUs[1].Cell != 1 || len(list.Discrepancies) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestDevicesRefusesWrongArguments(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, args := range [][]string{{"--output", "xml"}, {"more"}, {"--nothing"}} {
		if err := Devices(&bytes.Buffer{}, args); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func machineOf(t *testing.T, h testhost.Host) machine.Machine {
	t.Helper()
	dir := t.TempDir()
	if _, err := h.Sysfs(dir); err != nil {
		t.Fatal(err)
	}
	host, err := discovery.Read(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return host.Machine("x86_64")
}
