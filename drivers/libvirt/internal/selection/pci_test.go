// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func at(t testing.TB, text string) machine.Address {
	return testproc.Try(machine.ParseAddress(text)).Or(t)
}

// aHost has a bridge, a card with two physical functions of which the first has three virtual ones,
// two accelerators, and a display.
func aHost(t testing.TB) machine.Machine {
	pf := at(t, "0000:06:00.0")
	m := machine.Machine{Devices: []machine.Device{
		{Address: at(t, "0000:00:01.0"), Class: 0x060400, Vendor: 0x8086, Product: 0x2f02, Driver: "pcieport", Cell: 0},
		{Address: pf, Class: 0x020000, Vendor: 0x15b3, Product: 0x1015, Driver: "mlx5_core", Cell: 1, MaxVirtual: 8},
		{Address: at(t, "0000:06:00.1"), Class: 0x020000,
			Vendor: 0x15b3, Product: 0x1015, Driver: "mlx5_core", Cell: 1, MaxVirtual: 8},
	}}
	for i := 2; i <= 4; i++ {
		vf := at(t, fmt.Sprintf("0000:06:00.%d", i))
		m.Devices[1].Virtual = append(m.Devices[1].Virtual, vf)
		m.Devices = append(m.Devices, machine.Device{Address: vf, Class: 0x020000, Vendor: 0x15b3, Product: 0x1016,
			Cell: machine.NoCell, Physical: &pf})
	}
	return machine.Machine{Devices: append(m.Devices,
		machine.Device{Address: at(t, "0000:0a:00.0"), Class: 0x120000, Vendor: 0x8086, Product: 0x0b25,
			Driver: "vfio-pci", GivesToGuests: true, Cell: 0},
		machine.Device{Address: at(t, "0000:0b:00.0"),
			Class: 0x120000, Vendor: 0x8086, Product: 0x0b25, Cell: machine.NoCell},
		machine.Device{Address: at(t, "0000:af:00.0"),
			Class: 0x030200, Vendor: 0x10de, Product: 0x1eb8, Driver: "nvidia", Cell: 1})}
}

// shortPCI is a provider in one line.
func shortPCI(providers []PCIProvider) []string {
	var out []string
	for _, p := range providers {
		var devices []string
		for _, d := range p.Devices {
			devices = append(devices, strings.TrimPrefix(d.Address.String(), "0000:")+" "+string(d.Kind))
		}
		out = append(out, fmt.Sprintf("%s cell %d %s=%d %s (%s)", p.Name("n"), p.Cell, p.Class, p.Total(),
			strings.Join(p.Traits, ","), strings.Join(devices, ", ")))
	}
	return out
}

func texts(discrepancies []machine.Discrepancy) []string {
	var out []string
	for _, d := range discrepancies {
		out = append(out, d.Key+": "+d.Text)
	}
	return out
}

func TestSelect(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		specs               string
		want, discrepancies []string
	}{
		"accelerators by class, with everything that can be said of them": {
			specs: `{"class": "0x12", "resource_class": "my-dsa", "traits": "HW_NUMA_ROOT,fast-one", ` +
				`"one_time_use": "yes", "live_migratable": true}`,
			want: []string{
				"n_0000:0A:00.0 cell 0 CUSTOM_MY_DSA=1 " +
					"COMPUTE_MANAGED_PCI_DEVICE,CUSTOM_FAST_ONE,HW_NUMA_ROOT,HW_PCI_LIVE_MIGRATABLE," +
					"HW_PCI_ONE_TIME_USE (0a:00.0 type-PCI)",
				"n_0000:0B:00.0 cell -1 CUSTOM_MY_DSA=1 " +
					"COMPUTE_MANAGED_PCI_DEVICE,CUSTOM_FAST_ONE,HW_NUMA_ROOT,HW_PCI_LIVE_MIGRATABLE," +
					"HW_PCI_ONE_TIME_USE (0b:00.0 type-PCI)",
			},
		},
		"virtual functions by product, under the name and in the cell of the physical one": {
			specs: `{"vendor_id": "15b3", "product_id": "1016"}`,
			want: []string{"n_0000:06:00.0 cell 1 CUSTOM_PCI_15B3_1016=3 COMPUTE_MANAGED_PCI_DEVICE (06:00.2 " +
				"type-VF, 06:00.3 type-VF, 06:00.4 type-VF)"},
		},
		"virtual functions by the address of the physical one": {
			specs: `{"product_id": "1016", "address": "0000:06:00.0"}`,
			want: []string{"n_0000:06:00.0 cell 1 CUSTOM_PCI_15B3_1016=3 COMPUTE_MANAGED_PCI_DEVICE (06:00.2 " +
				"type-VF, 06:00.3 type-VF, 06:00.4 type-VF)"},
		},
		"the same by expressions that are one address": {
			specs: `{"product_id": "1016", "address": {"domain": "0000", "bus": "06", "slot": "00", "function": "0"}}`,
			want: []string{"n_0000:06:00.0 cell 1 CUSTOM_PCI_15B3_1016=3 COMPUTE_MANAGED_PCI_DEVICE (06:00.2 " +
				"type-VF, 06:00.3 type-VF, 06:00.4 type-VF)"},
		},
		"one virtual function by its own address": {
			specs: `{"address": "0000:06:00.3"}`,
			want: []string{"n_0000:06:00.0 cell 1 CUSTOM_PCI_15B3_1016=1 COMPUTE_MANAGED_PCI_DEVICE " +
				"(06:00.3 type-VF)"},
		},
		"wildcards do not reach from the physical function to its virtual ones": {
			specs:         `{"product_id": "1016", "address": "*:06:00.0"}`,
			discrepancies: []string{"pci-unused-0: pci_device_spec[0] does nothing: no device of the host matches it"},
		},
		"physical functions by product; one has virtual ones switched on": {
			specs: `{"product_id": "1015"}`,
			want: []string{
				"n_0000:06:00.0 cell 1 CUSTOM_PCI_15B3_1015=1 COMPUTE_MANAGED_PCI_DEVICE (06:00.0 type-PF)",
				"n_0000:06:00.1 cell 1 CUSTOM_PCI_15B3_1015=1 COMPUTE_MANAGED_PCI_DEVICE (06:00.1 type-PF)",
			},
			discrepancies: []string{"pci-physical-0000:06:00.0: PCI device 0000:06:00.0 can be given to guests " +
				"while 3 of its virtual functions are enabled: they disappear when a guest gets it"},
		},
		"a physical function, and the virtual ones of another": {
			specs: `{"product_id": "1016"}, {"address": "06:00.1"}`,
			want: []string{
				"n_0000:06:00.0 cell 1 CUSTOM_PCI_15B3_1016=3 COMPUTE_MANAGED_PCI_DEVICE (06:00.2 type-VF, 06:00.3 " +
					"type-VF, 06:00.4 type-VF)",
				"n_0000:06:00.1 cell 1 CUSTOM_PCI_15B3_1015=1 COMPUTE_MANAGED_PCI_DEVICE (06:00.1 type-PF)",
			},
		},
		"devices of a network are Neutron's": {
			specs: `{"product_id": "1016", "physical_network": "physnet1", "trusted": "true"}, {"vendor_id": ` +
				`"8086", "physical_network": null, "address": "0a:00.0"}`,
			want: []string{"n_0000:0A:00.0 cell 0 CUSTOM_PCI_8086_0B25=1 COMPUTE_MANAGED_PCI_DEVICE " +
				"(0a:00.0 type-PCI)"},
		},
		"the first spec that matches governs": {
			specs: `{"address": "0a:00.0", "resource_class": "A"}, {"class": "1200", "resource_class": "B"}, ` +
				`{"product_id": "0B25", "resource_class": "C"}`,
			want: []string{
				"n_0000:0A:00.0 cell 0 CUSTOM_A=1 COMPUTE_MANAGED_PCI_DEVICE (0a:00.0 type-PCI)",
				"n_0000:0B:00.0 cell -1 CUSTOM_B=1 COMPUTE_MANAGED_PCI_DEVICE (0b:00.0 type-PCI)",
			},
			discrepancies: []string{"pci-unused-2: pci_device_spec[2] does nothing: earlier entries match all its " +
				"devices (2)"},
		},
		"nothing matches, or bridges alone": {
			specs: `{"address": "0000:ff:00.0"}, {"product_id": "2f02"}`,
			discrepancies: []string{
				"pci-unused-0: pci_device_spec[0] does nothing: no device of the host matches it",
				"pci-unused-1: pci_device_spec[1] does nothing: only bridges match it (0000:00:01.0), which cannot " +
					"be given to guests",
			},
		},
		"not managed: the driver must be there already": {
			specs: `{"class": "12", "managed": "no"}, {"class": "0302", "managed": false}`,
			want: []string{
				"n_0000:0A:00.0 cell 0 CUSTOM_PCI_8086_0B25=1 COMPUTE_MANAGED_PCI_DEVICE (0a:00.0 type-PCI)",
				"n_0000:0B:00.0 cell -1 CUSTOM_PCI_8086_0B25=1 COMPUTE_MANAGED_PCI_DEVICE (0b:00.0 type-PCI)",
				"n_0000:AF:00.0 cell 1 CUSTOM_PCI_10DE_1EB8=1 COMPUTE_MANAGED_PCI_DEVICE (af:00.0 type-PCI)",
			},
			discrepancies: []string{
				"pci-unmanaged-0000:0b:00.0: PCI device 0000:0b:00.0 is not managed by libvirt, but has no driver: " +
					"it cannot be given to guests until it is bound to vfio-pci, or to a variant of it for the device",
				"pci-unmanaged-0000:af:00.0: PCI device 0000:af:00.0 is not managed by libvirt, but has the driver " +
					"nvidia: it cannot be given to guests until it is bound to vfio-pci, or to a variant of it for " +
					"the device",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			specs := testproc.Try(configurePCI(reported(tc.specs))).Or(t)
			providers, discrepancies, err := specs.Select(aHost(t))
			testproc.Check(t, err)
			testproc.Samef(t, cmp.Diff(tc.want, shortPCI(providers)), "providers")
			testproc.Samef(t, cmp.Diff(tc.discrepancies, texts(discrepancies)), "discrepancies")
		})
	}
}

func TestRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for specs, want := range map[string]string{
		`{"address": "0000:06:00.0"}`: `pci_device_spec[0]: matches 0000:06:00.2, a virtual function of ` +
			`0000:06:00.0, which pci_device_spec[0] matches; only one of the two can be given to guests. ` +
			`Restrict one spec by address or product_id (1015 is the physical function, 1016 the virtual one)`,
		`{"product_id": "1015"}, {"address": "06:00.4"}`: `pci_device_spec[1]: matches 0000:06:00.4, a virtual ` +
			`function of 0000:06:00.0, which pci_device_spec[0] matches; only one of the two can be given to guests. ` +
			`Restrict one spec by address or product_id (1015 is the physical function, 1016 the virtual one)`,
		`{"address": "06:00.3", "resource_class": "A"}, {"product_id": "1016"}`: `pci_device_spec[0].resource_class:` +
			` is CUSTOM_A for 0000:06:00.3, but its sibling 0000:06:00.2 has CUSTOM_PCI_15B3_1016 ` +
			`(pci_device_spec[1]); ` +
			`all virtual functions of 0000:06:00.0 must have the same`,
		`{"address": "06:00.4", "one_time_use": true}, {"product_id": "1016"}`: `pci_device_spec[0].traits: are ` +
			`COMPUTE_MANAGED_PCI_DEVICE,HW_PCI_ONE_TIME_USE for 0000:06:00.4, but its sibling 0000:06:00.2 has ` +
			`COMPUTE_MANAGED_PCI_DEVICE ` +
			`(pci_device_spec[1]); all virtual functions of 0000:06:00.0 must have the same`,
		`{"product_id": "1015", "remote_managed": "true"}`: `pci_device_spec[0].remote_managed: matches the ` +
			`physical function 0000:06:00.0; only virtual functions can have remote_managed. Use their product_id`,
	} {
		parsed := testproc.Try(configurePCI(reported(specs))).Or(t)
		_, _, err := parsed.Select(aHost(t))
		var wrong *plugins.ConfigError
		if !errors.As(err, &wrong) || err.Error() != "configuration: "+want {
			t.Errorf("%s: %v, want\n%s", specs, err, want)
		}
	}
}

func TestPassedDevicesWithMdevsAreADiscrepancy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := aHost(t)
	gpu, vf := at(t, "0000:af:00.0"), at(t, "0000:06:00.3")
	m.Parents = []machine.MdevParent{
		{Name: "mtty_mtty", Mdevs: []machine.Mdev{{Active: true}}},
		{Name: gpu.DeviceName(), Address: &gpu, Mdevs: []machine.Mdev{{}}},
		{Name: vf.DeviceName(), Address: &vf, Mdevs: []machine.Mdev{{}, {Active: true}}},
	}
	specs, err := configurePCI(reported(`{"vendor_id": "10de"}, {"address": "0000:06:00.0", "product_id": "1015"}`))
	testproc.Check(t, err)
	_, discrepancies, err := specs.Select(m)
	if err != nil || !slices.ContainsFunc(discrepancies,
		func(d machine.Discrepancy) bool { return d.Key == "pci-mdevs-0000:06:00.0" }) || len(discrepancies) != 2 {
		t.Errorf("%v, %v: want only the card with an active mediated device", texts(discrepancies), err)
	}
}

func TestNoPCIProvidersWithoutReporting(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	specs, err := configurePCI(`{"pci_device_spec": [{"vendor_id": "8086"}, {"address": "0000:06:00.0"}]}`)
	testproc.Check(t, err)
	if providers, discrepancies, err := specs.Select(aHost(t)); providers != nil || discrepancies != nil || err != nil {
		t.Errorf("%v, %v, %v", providers, discrepancies, err)
	}
}

// TestSelectIsTheModel: the plain model: each device by itself, first spec that fits; then by
// physical function.
func TestSelectIsTheModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		var m machine.Machine
		products := []uint16{1, 2, 3}
		for slot := range rapid.IntRange(0, 6).Draw(t, "cards") {
			pf := machine.Address{Bus: 1, Slot: uint8(slot)}
			d := machine.Device{Address: pf, Vendor: 0x8086, Product: rapid.SampledFrom(products).Draw(t, "product"),
				Class: 0x020000, Cell: slot % 2}
			var vfs []machine.Device
			for f := range rapid.IntRange(0, 3).Draw(t, "functions") {
				vf := machine.Address{Bus: 2, Slot: uint8(slot), Function: uint8(f)}
				d.Virtual, d.MaxVirtual = append(d.Virtual, vf), 7
				vfs = append(vfs, machine.Device{Address: vf, Vendor: 0x8086, Product: d.Product + 0x100,
					Class: 0x020000, Cell: slot % 2, Physical: &pf})
			}
			m.Devices = append(append(m.Devices, vfs...), d)
		}
		type written struct {
			product uint16 // 0: any
			slot    int    // -1: any
			class   string
			network bool
		}
		var specs []written
		var texts []string
		for range rapid.IntRange(0, 4).Draw(t, "specs") {
			w := written{
				product: rapid.SampledFrom([]uint16{0, 1, 2, 3, 0x101, 0x102, 0x103}).Draw(t, "wanted product"),
				slot:    rapid.IntRange(-1, 6).Draw(t, "wanted slot"),
				class:   rapid.SampledFrom([]string{"CUSTOM_A", "CUSTOM_B"}).Draw(t, "class"),
				network: rapid.Bool().Draw(t, "network"),
			}
			product, address, network := "*", "*:*:*.*", ""
			if w.product != 0 {
				product = fmt.Sprintf("%x", w.product)
			}
			if w.slot >= 0 {
				address = fmt.Sprintf("*:%02x.*", w.slot)
			}
			if w.network {
				network = "physnet"
			}
			specs = append(specs, w)
			texts = append(texts,
				fmt.Sprintf(`{"product_id": %q, "address": %q, "resource_class": %q, "physical_network": %q}`,
					product, address, w.class, network))
		}
		want := map[string]string{}
		counts := map[string]int{}
		kinds := map[string]bool{}
		refused := false
		for _, d := range m.Devices {
			for _, w := range specs {
				if w.product != 0 && w.product != d.Product || w.slot >= 0 && uint8(w.slot) != d.Address.Slot {
					continue
				}
				if w.network {
					break
				}
				name := "n_" + strings.ToUpper(d.Address.String())
				if d.Physical != nil {
					name = "n_" + strings.ToUpper(d.Physical.String())
				}
				if class, there := want[name]; there && (class != w.class || kinds[name] != (d.Physical != nil)) {
					refused = true
				}
				want[name], kinds[name] = w.class, d.Physical != nil
				counts[name]++
				break
			}
		}
		parsed := testproc.Try(configurePCI(reported(strings.Join(texts, ",")))).Or(t)
		got, _, err := parsed.Select(m)
		if (err != nil) != refused {
			t.Fatalf("%v: %v, refused %v", texts, err, refused)
		}
		if refused {
			return
		}
		if len(got) != len(want) || !slices.IsSortedFunc(got,
			func(a, b PCIProvider) int { return a.Address.Compare(b.Address) }) {
			t.Fatalf("%v, want %v", shortPCI(got), want)
		}
		for _, p := range got {
			if want[p.Name("n")] != p.Class || counts[p.Name("n")] != p.Total() || p.Cell != int(p.Address.Slot)%2 {
				t.Fatalf("%v, want %v %v", shortPCI(got), want, counts)
			}
		}
	})
}

// BenchmarkSelect: a large host: 1024 virtual functions of 16 cards under 8 specs.
func BenchmarkSelect(b *testing.B) {
	var m machine.Machine
	for card := range 16 {
		pf := machine.Address{Bus: uint8(card)}
		d := machine.Device{Address: pf, Vendor: 0x15b3, Product: 0x1015, Class: 0x020000, MaxVirtual: 64}
		m.Devices = append(m.Devices, d)
		for i := range 64 {
			m.Devices = append(m.Devices, machine.Device{
				Address: machine.Address{Bus: uint8(card), Slot: uint8(i/8 + 1), Function: uint8(i % 8)},
				Vendor:  0x15b3, Product: 0x1016, Class: 0x020000, Physical: &pf,
			})
		}
	}
	c := PCIConfig{ReportPCI: true}
	for i := range 7 {
		c.PCISpecs = append(c.PCISpecs,
			PCISpec{VendorID: "10de", ProductID: fmt.Sprint(i), Address: json.RawMessage(`{"bus": "0[0-9]"}`)})
	}
	specs, err := ParsePCI(PCIConfig{ReportPCI: true, PCISpecs: append(c.PCISpecs, PCISpec{ProductID: "1016"})})
	testproc.Check(b, err)
	for b.Loop() {
		if providers, _, err := specs.Select(m); err != nil || len(providers) != 16 {
			b.Fatal(len(providers), err)
		}
	}
}
