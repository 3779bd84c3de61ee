// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const gpu = `<device>
  <name>pci_0000_82_00_0</name>
  <path>/sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0</path>
  <parent>pci_0000_80_02_0</parent>
  <driver><name>nvidia</name></driver>
  <capability type='pci'>
    <class>0x030200</class>
    <domain>0</domain><bus>130</bus><slot>0</slot><function>0</function>
    <product id='0x1eb8'>TU104GL [Tesla T4]</product>
    <vendor id='0x10de'>NVIDIA Corporation</vendor>
    <capability type='mdev_types'>
      <type id='nvidia-231'><name>GRID T4-2Q</name><deviceAPI>vfio-pci</deviceAPI><availableInstances>8</availableInstances></type>
      <type id='nvidia-222'><name>GRID T4-1B</name><deviceAPI>vfio-pci</deviceAPI><availableInstances>16</availableInstances></type>
    </capability>
    <iommuGroup number='40'><address domain='0x0000' bus='0x82' slot='0x00' function='0x0'/></iommuGroup>
    <numa node='1'/>
  </capability>
</device>`

const physical = `<device><name>pci_0000_06_00_0</name><parent>computer</parent><driver><name>mlx5_core</name></driver>
  <capability type='pci'><class>0x020000</class><domain>0</domain><bus>6</bus><slot>0</slot><function>0</function>
  <product id='0x1015'/><vendor id='0x15b3'/>
  <capability type='virt_functions' maxCount='8'>
    <address domain='0x0000' bus='0x06' slot='0x00' function='0x3'/><address domain='0x0000' bus='0x06' slot='0x00' function='0x2'/>
  </capability></capability></device>`

const virtual = `<device><name>pci_0000_06_00_2</name><capability type='pci'><class>0x020000</class><domain>0</domain><bus>6</bus><slot>0</slot><function>2</function>
  <product id='0x1016'/><vendor id='0x15b3'/><capability type='phys_function'><address domain='0x0000' bus='0x06' slot='0x00' function='0x0'/></capability>
  <numa node='-1'/></capability></device>`

const mdev = `<device><name>mdev_b7c7d4b0_0c1e_4a3d_8a3e_000000000001_0000_05_00_0</name><parent>pci_0000_05_00_0</parent>
  <capability type='mdev'><type id='nvidia-222'/><uuid>B7C7D4B0-0c1e-4a3d-8a3e-000000000001</uuid><parent_addr>0000:05:00.0</parent_addr><iommuGroup number='900'/></capability></device>`

const mtty = `<device><name>mtty_mtty</name><parent>computer</parent><capability type='mdev_types'>
  <type id='mtty-2'><name>Dual port serial</name><deviceAPI>vfio-pci</deviceAPI><availableInstances>12</availableInstances></type></capability></device>`

func at(text string) machine.Address {
	a, err := machine.ParseAddress(text)
	if err != nil {
		panic(err)
	}
	return a
}

func TestParse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	pf := at("0000:06:00.0")
	for name, c := range map[string]struct {
		text string
		want Device
	}{
		"a GPU": {gpu, Device{
			Name: "pci_0000_82_00_0", Parent: "pci_0000_80_02_0",
			PCI: &machine.Device{Address: at("0000:82:00.0"), Class: 0x030200, Vendor: 0x10de,
				Product: 0x1eb8, Driver: "nvidia", Cell: 1},
			Types: []machine.MdevType{{ID: "nvidia-222", Name: "GRID T4-1B", API: "vfio-pci", Available: 16},
				{ID: "nvidia-231", Name: "GRID T4-2Q", API: "vfio-pci", Available: 8}},
		}},
		"a physical function": {physical, Device{
			Name: "pci_0000_06_00_0", Parent: "computer",
			PCI: &machine.Device{
				Address: pf, Class: 0x020000, Vendor: 0x15b3, Product: 0x1015,
				Driver: "mlx5_core", Cell: machine.NoCell,
				Virtual: []machine.Address{at("0000:06:00.2"), at("0000:06:00.3")}, MaxVirtual: 8,
			},
		}},
		"a virtual function": {virtual, Device{
			Name: "pci_0000_06_00_2",
			PCI: &machine.Device{Address: at("0000:06:00.2"), Class: 0x020000, Vendor: 0x15b3, Product: 0x1016,
				Cell: machine.NoCell, Physical: &pf},
		}},
		"a mediated device": {mdev, Device{
			Name: "mdev_b7c7d4b0_0c1e_4a3d_8a3e_000000000001_0000_05_00_0", Parent: "pci_0000_05_00_0",
			Mdev: &machine.Mdev{UUID: "b7c7d4b0-0c1e-4a3d-8a3e-000000000001", Type: "nvidia-222", Active: true},
		}},
		"a parent that is no PCI device": {mtty, Device{
			Name: "mtty_mtty", Parent: "computer",
			Types: []machine.MdevType{{ID: "mtty-2", Name: "Dual port serial", API: "vfio-pci", Available: 12}},
		}},
		"another device": {`<device><name>net_ens1</name><capability ` +
			`type='net'><interface>ens1</interface></capability></device>`, Device{Name: "net_ens1"}},
	} {
		got, err := ParseDevice(c.text)
		testproc.NoErrorf(t, err, "%s", name)
		testproc.Samef(t, cmp.Diff(c.want, got), "%s", name)
	}
}

func TestParseDeviceRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct{ text, says string }{
		"nothing":          {"", "empty"},
		"another document": {"<domain/>", "cannot be read"},
		"cut off":          {gpu[:300], "cannot be read"},
		"too much":         {"<device><name>" + strings.Repeat("x", MaxXML) + "</name></device>", "more than"},
		"no name":          {"<device/>", "no name"},
		"no bus": {strings.Replace(gpu, "<bus>130</bus>", "", 1),
			`"pci_0000_82_00_0": its PCI address has no bus`},
		"a bus too high": {strings.Replace(gpu, "<bus>130</bus>", "<bus>256</bus>", 1), `256 is not a bus`},
		"no class":       {strings.Replace(gpu, "0x030200", "", 1), "class is"},
		"no instances": {strings.Replace(gpu, "<availableInstances>8<", "<availableInstances>many<", 1),
			"invalid syntax"},
		"negative": {strings.Replace(gpu, "<availableInstances>8<", "<availableInstances>-8<", 1), "invalid syntax"},
		"no type":  {strings.Replace(mdev, "<type id='nvidia-222'/>", "", 1), "without a type"},
	} {
		if got, err := ParseDevice(c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v; want an error with %q", name, got, err, c.says)
		}
	}
}

func FuzzParseDevice(f *testing.F) {
	for _, seed := range []string{gpu, physical, virtual, mdev, mtty, "", "<device/>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDevice(text)
		if err == nil && d.Name == "" {
			t.Error("a device without a name")
		}
	})
}
