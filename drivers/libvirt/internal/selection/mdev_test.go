// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// parent writes a parent in short: types as "name=available", devices as "type" or "type-defined"
// for an inactive one.
func parent(t testing.TB, name string, cell int, types string, mdevs ...string) machine.MdevParent {
	p := machine.MdevParent{Name: name, Cell: cell}
	if strings.HasPrefix(name, "pci_") {
		a := testproc.Try(machine.ParseDeviceName(name)).Or(t)
		p.Address = &a
	}
	for text := range strings.FieldsSeq(types) {
		var mt machine.MdevType
		id, available, _ := strings.Cut(text, "=")
		mt.ID = id
		testproc.Try(fmt.Sscan(available, &mt.Available)).Or(t)
		p.Types = append(p.Types, mt)
	}
	for i, mdev := range mdevs {
		id, defined := strings.CutSuffix(mdev, "-defined")
		p.Mdevs = append(p.Mdevs, machine.Mdev{UUID: fmt.Sprint(i), Type: id, Active: !defined})
	}
	return p
}

func shortMdevs(providers []MdevProvider) []string {
	var out []string
	for _, p := range providers {
		out = append(out,
			strings.TrimSpace(fmt.Sprintf("%s cell %d %s %s=%d/%d %s",
				p.Name("n"), p.Cell, p.TypeTrait, p.Class, p.Active, p.Total, strings.Join(p.Traits, ","))))
	}
	return out
}

func textsM(discrepancies []machine.Discrepancy) []string {
	var out []string
	for _, d := range discrepancies {
		out = append(out, d.Key+": "+d.Text)
	}
	return out
}

func TestChooseMdevs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	two := []machine.MdevParent{
		parent(t, "mtty_mtty", machine.NoCell, "mtty-1=24 mtty-2=12"),
		parent(t, "pci_0000_82_00_0", 1, "nvidia-222=16 nvidia-231=4"),
		parent(t, "pci_0000_06_00_0", 0, "nvidia-222=14 nvidia-231=0", "nvidia-222",
			"nvidia-222", "nvidia-222-defined"),
	}
	// Four virtual functions of a GPU that has three devices at most.
	functions := []machine.MdevParent{
		parent(t, "pci_0000_06_00_4", 0, "a=1"), parent(t, "pci_0000_06_00_5", 0, "a=1"),
		parent(t, "pci_0000_06_00_6", 0, "a=1"), parent(t, "pci_0000_06_00_7", 0, "a=0", "a"),
	}
	for name, tc := range map[string]struct {
		config              string
		parents             []machine.MdevParent
		held                []string
		want, discrepancies []string
	}{
		"nothing enabled": {config: `{}`, parents: two},
		"one type for all; defined devices take nothing": {
			config:  `{"enabled_mdev_types": ["nvidia-222"]}`,
			parents: two,
			want: []string{"n_pci_0000_06_00_0 cell 0 CUSTOM_NVIDIA_222 VGPU=2/16",
				"n_pci_0000_82_00_0 cell 1 CUSTOM_NVIDIA_222 VGPU=0/16"},
		},
		"a type for a device, in another class; a virtual parent": {
			config: `{"enabled_mdev_types": ["nvidia-222", "nvidia-231", "mtty-2"], "mdev_types": {"nvidia-231": {"device_addresses": ["0000:82:00.0"], "mdev_class": "CUSTOM_BIG", "traits": ["big one"]},
				"mtty-2": {"device_addresses": ["mtty_mtty"], "mdev_class": "CUSTOM_SERIAL"}}}`,
			parents: two,
			want: []string{
				"n_pci_0000_06_00_0 cell 0 CUSTOM_NVIDIA_222 VGPU=2/16",
				"n_pci_0000_82_00_0 cell 1 CUSTOM_NVIDIA_231 CUSTOM_BIG=0/4 CUSTOM_BIG_ONE",
				"n_mtty_mtty cell -1 CUSTOM_MTTY_2 CUSTOM_SERIAL=0/12",
			},
		},
		"devices of another type": {
			config:  `{"enabled_mdev_types": ["nvidia-231"]}`,
			parents: two,
			want: []string{"n_pci_0000_06_00_0 cell 0 CUSTOM_NVIDIA_231 VGPU=0/0",
				"n_pci_0000_82_00_0 cell 1 CUSTOM_NVIDIA_231 VGPU=0/4"},
			discrepancies: []string{"mdev-other-pci_0000_06_00_0: pci_0000_06_00_0 is configured for mediated " +
				"devices of type nvidia-231, but has 2 of another (nvidia-222): " +
				"those are not reported, and they may reduce how many nvidia-231 can be created"},
		},
		"a second type without addresses": {
			config:  `{"enabled_mdev_types": ["nvidia-222", "nvidia-231"]}`,
			parents: two[1:2],
			want:    []string{"n_pci_0000_82_00_0 cell 1 CUSTOM_NVIDIA_222 VGPU=0/16"},
			discrepancies: []string{"mdev-dropped-nvidia-231: mediated device type nvidia-231 is enabled but not " +
				"used: it names no device_addresses, and nvidia-222 takes precedence for devices that no type names"},
		},
		"addresses that lead nowhere": {
			config: `{"enabled_mdev_types": ["a"], "mdev_types": {"a": {"device_addresses": ["0000:ff:00.0", ` +
				`"pci_0000_82_00_0"]}}}`,
			parents: two,
			discrepancies: []string{
				`mdev-address-pci_0000_ff_00_0: mdev_types."a".device_addresses has pci_0000_ff_00_0, which the ` +
					`host does not have, or which cannot create mediated devices`,
				`mdev-address-pci_0000_82_00_0: mdev_types."a".device_addresses has pci_0000_82_00_0, which does ` +
					`not support this type (it supports: nvidia-222, nvidia-231)`,
				"mdev-unused-a: mediated device type a is enabled, but no device that is configured for it supports it",
			},
		},
		"max_instances: what exists, then in order": {
			config:  `{"enabled_mdev_types": ["a"], "mdev_types": {"a": {"max_instances": 3}}}`,
			parents: functions,
			want: []string{
				"n_pci_0000_06_00_4 cell 0 CUSTOM_A VGPU=0/1", "n_pci_0000_06_00_5 cell 0 CUSTOM_A VGPU=0/1",
				"n_pci_0000_06_00_6 cell 0 CUSTOM_A VGPU=0/0", "n_pci_0000_06_00_7 cell 0 CUSTOM_A VGPU=1/1",
			},
		},
		"max_instances: providers that are in the tree come before new ones": {
			config:  `{"enabled_mdev_types": ["a"], "mdev_types": {"a": {"max_instances": 2}}}`,
			parents: functions,
			held:    []string{"pci_0000_06_00_6"},
			want: []string{
				"n_pci_0000_06_00_4 cell 0 CUSTOM_A VGPU=0/0",
				"n_pci_0000_06_00_5 cell 0 CUSTOM_A VGPU=0/0",
				"n_pci_0000_06_00_6 cell 0 CUSTOM_A VGPU=0/1", "n_pci_0000_06_00_7 cell 0 CUSTOM_A VGPU=1/1",
			},
		},
		"max_instances: a device counts as a whole, and what exists is never taken away": {
			config:  `{"enabled_mdev_types": ["nvidia-222"], "mdev_types": {"nvidia-222": {"max_instances": 15}}}`,
			parents: two,
			want: []string{
				"n_pci_0000_06_00_0 cell 0 CUSTOM_NVIDIA_222 VGPU=2/2",
				"n_pci_0000_82_00_0 cell 1 CUSTOM_NVIDIA_222 VGPU=0/0",
			},
		},
		"max_instances below what exists, and below what one device offers": {
			config: `{"enabled_mdev_types": ["nvidia-222", "mtty-2"], "mdev_types": {"nvidia-222": {"max_instances": 1},
				"mtty-2": {"device_addresses": ["mtty_mtty"], "max_instances": 11}}}`,
			parents: two,
			want: []string{
				"n_pci_0000_06_00_0 cell 0 CUSTOM_NVIDIA_222 VGPU=2/2",
				"n_pci_0000_82_00_0 cell 1 CUSTOM_NVIDIA_222 VGPU=0/0",
				"n_mtty_mtty cell -1 CUSTOM_MTTY_2 VGPU=0/0",
			},
			discrepancies: []string{
				`mdev-max-nvidia-222: mdev_types."nvidia-222".max_instances is 1, but 2 exist: only the existing ` +
					`ones are reported`,
				"mdev-max-mtty-2: nothing of mtty-2 is reported: each device offers more than max_instances (11), " +
					"or nothing at all (mtty_mtty is the first); a device is reported as a whole or not at all",
			},
		},
		"a type that the parent no longer offers, of which devices exist": {
			config:  `{"enabled_mdev_types": ["a"]}`,
			parents: []machine.MdevParent{parent(t, "pci_0000_06_00_4", 0, "b=1", "a")},
			want:    []string{"n_pci_0000_06_00_4 cell 0 CUSTOM_A VGPU=1/1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			types := testproc.Try(configureMdevs(t, tc.config)).Or(t)
			held := map[string]bool{}
			for _, h := range tc.held {
				held[h] = true
			}
			providers, discrepancies := types.Choose(machine.Machine{Parents: tc.parents}, held)
			testproc.Samef(t, cmp.Diff(tc.want, shortMdevs(providers)), "providers")
			testproc.Samef(t, cmp.Diff(tc.discrepancies, textsM(discrepancies)), "discrepancies")
		})
	}
}

// TestTypeTraits: those of all types are known, so that the one of a type that is another now can
// be taken away.
func TestTypeTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	first, second := parent(t, "pci_0000_06_00_4", 0, "nvidia-222=1 i915-GVTg_V5_4=0"),
		parent(t, "pci_0000_06_00_5", 0, "nvidia-222=1")
	second.Others = []string{"nvidia-231", strings.Repeat("x", 250)}
	got := MdevTypeTraits(machine.Machine{Parents: []machine.MdevParent{first, second}})
	testproc.Same(t, cmp.Diff([]string{"CUSTOM_I915_GVTG_V5_4", "CUSTOM_NVIDIA_222", "CUSTOM_NVIDIA_231"}, got))
}

func TestDescriptionIsThatOfTheChosenType(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	types := testproc.Try(configureMdevs(t, `{"enabled_mdev_types": ["b"]}`)).Or(t)
	p := parent(t, "pci_0000_06_00_4", 0, "a=1 b=1")
	p.Types[0].Description, p.Types[1].Description = "num_heads=1", "num_heads=4"
	if got, _ := types.Choose(machine.Machine{Parents: []machine.MdevParent{p}}, nil); len(got) != 1 ||
		got[0].Description != "num_heads=4" {
		t.Errorf("%+v", got)
	}
}

// TestWrongTypeNamesTheSupportedOnes: also those that the configuration does not name.
func TestWrongTypeNamesTheSupportedOnes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	types, err := configureMdevs(t,
		`{"enabled_mdev_types": ["a"], "mdev_types": {"a": {"device_addresses": ["pci_0000_06_00_4"]}}}`)
	testproc.Check(t, err)
	p := parent(t, "pci_0000_06_00_4", 0, "")
	p.Others = []string{"c", "b"}
	_, discrepancies := types.Choose(machine.Machine{Parents: []machine.MdevParent{p}}, nil)
	if len(discrepancies) == 0 || !strings.Contains(discrepancies[0].Text, "(it supports: b, c)") ||
		p.Others[0] != "c" {
		t.Errorf("%v", textsM(discrepancies))
	}
}

// drawHost is up to eight virtual functions with up to two types and devices of them.
func drawHost(t *rapid.T) machine.Machine {
	var m machine.Machine
	for i := range rapid.IntRange(0, 8).Draw(t, "parents") {
		a := machine.Address{Bus: 6, Function: uint8(i)}
		p := machine.MdevParent{Name: a.DeviceName(), Address: &a}
		for _, id := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, "offers "+id) {
				p.Types = append(p.Types,
					machine.MdevType{ID: id, Available: rapid.IntRange(0, 4).Draw(t, "available")})
			}
			for range rapid.IntRange(0, 2).Draw(t, "devices of "+id) {
				p.Mdevs = append(p.Mdevs, machine.Mdev{Type: id, Active: rapid.Bool().Draw(t, "active")})
			}
		}
		m.Parents = append(m.Parents, p)
	}
	return m
}

// TestBounds: whatever the host and the bounds: what exists is reported; bounds hold unless what
// exists exceeds them; a parent adds all or nothing; and one that was left out would not have
// fitted.
func TestBounds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		m := drawHost(t)
		bound := rapid.IntRange(0, 12).Draw(t, "max_instances")
		var named []string
		for _, p := range m.Parents {
			if rapid.Bool().Draw(t, "makes b") {
				named = append(named, p.Name)
			}
		}
		held := map[string]bool{}
		for _, p := range m.Parents {
			held[p.Name] = rapid.Bool().Draw(t, "held")
		}
		c := MdevConfig{EnabledTypes: []string{"a"}, MdevTypes: map[string]MdevTypeConfig{"a": {MaxInstances: bound}}}
		if len(named) > 0 {
			c.EnabledTypes = append(c.EnabledTypes, "b")
			c.MdevTypes["b"] = MdevTypeConfig{DeviceAddresses: named}
		}
		types := testproc.Try(ParseMdevs(c)).Or(t)
		providers, _ := types.Choose(m, held)
		byDevice := map[string]MdevProvider{}
		sum, active := 0, 0
		for _, p := range providers {
			byDevice[p.Device] = p
			if p.Type == "a" {
				sum, active = sum+p.Total, active+p.Active
			}
		}
		if bound > 0 && sum > max(bound, active) {
			t.Fatalf("%d of a with max_instances %d, %d exist", sum, bound, active)
		}
		for _, parent := range m.Parents {
			want := "a"
			if slices.Contains(named, parent.Name) {
				want = "b"
			}
			there, offered, available := 0, false, 0
			for _, mdev := range parent.Mdevs {
				if mdev.Active && mdev.Type == want {
					there++
				}
			}
			for _, offer := range parent.Types {
				if offer.ID == want {
					offered, available = true, offer.Available
				}
			}
			p, listed := byDevice[parent.Name]
			if listed != (offered || there > 0) {
				t.Fatalf("%s is listed: %v", parent.Name, listed)
			}
			if !listed {
				continue
			}
			if p.Type != want || p.Active != there || p.Total != there && p.Total != there+available {
				t.Fatalf("%+v of %+v", p, parent)
			}
			if p.Total < there+available && (want == "b" || bound == 0 || sum+available <= bound) {
				t.Fatalf("%+v was left out, although %d of %d are taken", p, sum, bound)
			}
		}
	})
}

// TestCreatingAnMdevKeepsTheTotal: making a device where the provider says that one can be made
// moves no other provider.
func TestCreatingAnMdevKeepsTheTotal(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		var m machine.Machine
		for i := range rapid.IntRange(1, 8).Draw(t, "functions") {
			a := machine.Address{Bus: 6, Function: uint8(i)}
			m.Parents = append(m.Parents,
				machine.MdevParent{Name: a.DeviceName(),
					Address: &a, Types: []machine.MdevType{{ID: "a", Available: 1}}})
		}
		types, err := ParseMdevs(MdevConfig{EnabledTypes: []string{"a"},
			MdevTypes: map[string]MdevTypeConfig{"a": {MaxInstances: rapid.IntRange(1, 8).Draw(t, "max_instances")}}})
		testproc.Check(t, err)
		before, _ := types.Choose(m, nil)
		for range 8 {
			held := map[string]bool{}
			var free []int
			for i, p := range before {
				held[p.Device] = p.Total > 0
				if p.Total > p.Active {
					free = append(free, i)
				}
			}
			if len(free) == 0 {
				return
			}
			i := rapid.SampledFrom(free).Draw(t, "one more")
			m.Parents[i].Types[0].Available--
			m.Parents[i].Mdevs = append(m.Parents[i].Mdevs, machine.Mdev{Type: "a", Active: true})
			after, _ := types.Choose(m, held)
			for j := range after {
				if after[j].Total != before[j].Total {
					t.Fatalf("a device on %s: %s went from %d to %d",
						m.Parents[i].Name, after[j].Device, before[j].Total, after[j].Total)
				}
			}
			before = after
		}
	})
}

// TestGPUsThatMakeNoVGPUs: a GPU that is configured for a type, and makes no vGPUs, is named with
// what helps.
func TestGPUsThatMakeNoVGPUs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	types := testproc.Try(ParseMdevs(MdevConfig{EnabledTypes: []string{"nvidia-1151"}})).Or(t)
	at := machine.Address{Bus: 0x41}
	gpu := machine.Device{Address: at, Class: 0x030200, Vendor: 0x10de, Driver: "nvidia", MaxVirtual: 32}
	vf := machine.Device{Address: machine.Address{Bus: 0x41, Function: 4}, Vendor: 0x10de, Driver: "vfio-pci",
		Physical: &at}
	bound := gpu
	bound.Virtual = []machine.Address{vf.Address}
	unread := machine.MdevParent{Name: at.DeviceName(), Address: &at, Problem: "current_vgpu_type: no"}
	other := gpu
	other.Driver = "vfio-pci"
	for name, c := range map[string]struct {
		m    machine.Machine
		want string
	}{
		"no functions": {machine.Machine{Devices: []machine.Device{gpu}},
			"vgpu-functions-pci_0000_41_00_0: pci_0000_41_00_0 is configured for type nvidia-1151, but has no " +
				"virtual functions, so it makes no vGPUs: run /usr/lib/nvidia/sriov-manage -e 0000:41:00.0, and at " +
				"each boot before the guests start"},
		"functions of another driver": {machine.Machine{Devices: []machine.Device{bound, vf}},
			"vgpu-driver-pci_0000_41_00_0: pci_0000_41_00_0 is configured for type nvidia-1151, but its virtual " +
				"function 0000:41:00.4 has the driver vfio-pci: it makes no vGPUs until its functions have the " +
				"driver nvidia"},
		"an unreadable file": {
			machine.Machine{Devices: []machine.Device{bound, vf}, Parents: []machine.MdevParent{unread}},
			"vgpu-unread-pci_0000_41_00_0: pci_0000_41_00_0 is configured for type nvidia-1151, but makes no " +
				"vGPUs, because a file of its driver cannot be read: current_vgpu_type: no"},
		"given to guests as a whole": {machine.Machine{Devices: []machine.Device{other}}, ""},
	} {
		providers, discrepancies := types.Choose(c.m, nil)
		texts := slices.DeleteFunc(textsM(discrepancies),
			func(text string) bool { return strings.HasPrefix(text, "mdev-unused-") })
		if len(providers) > 0 || strings.Join(texts, "\n") != c.want {
			t.Errorf("%s: %d providers, got %q, want %q", name, len(providers), texts, c.want)
		}
	}
}

// BenchmarkChoose: 16 GPUs with 32 functions each.
func BenchmarkChoose(b *testing.B) {
	var m machine.Machine
	for gpu := range 16 {
		for f := range 32 {
			a := machine.Address{Bus: uint8(gpu), Slot: uint8(f / 8), Function: uint8(f % 8)}
			m.Parents = append(m.Parents,
				machine.MdevParent{Name: a.DeviceName(),
					Address: &a, Types: []machine.MdevType{{ID: "a", Available: 1}, {ID: "b", Available: 1}}})
		}
	}
	var c MdevConfig
	testproc.Check(b, json.Unmarshal(
		[]byte(`{"enabled_mdev_types": ["a"], "mdev_types": {"a": {"max_instances": 256}}}`), &c))
	types := testproc.Try(ParseMdevs(c)).Or(b)
	for b.Loop() {
		if providers, _ := types.Choose(m, nil); len(providers) != 512 {
			b.Fatal(len(providers))
		}
	}
}
