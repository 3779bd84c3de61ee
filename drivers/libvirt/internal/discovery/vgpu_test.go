// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// vgpuParentsOf are the parents of a tree, in short: functions with their types, what is there, and
// what can be made of the types that are wanted.
func vgpuParentsOf(t *testing.T, tree testhost.Tree, wanted ...string) map[string]string {
	t.Helper()
	want := func(id string) bool { return strings.Contains(strings.Join(wanted, " "), id) }
	h := testproc.Try(Read(string(tree), want)).Or(t).Machine("x86_64")
	out := map[string]string{}
	for _, p := range h.Parents {
		if !p.MakesVGPUs() {
			out[p.Name] = p.Problem
			continue
		}
		var types []string
		for _, mt := range p.Types {
			types = append(types, fmt.Sprintf("%s %d", mt.ID, mt.Available))
		}
		var mdevs []string
		for _, m := range p.Mdevs {
			mdevs = append(mdevs, m.UUID+" "+m.Type)
		}
		out[p.Name] = fmt.Sprintf("cell %d, %d functions, has [%s], makes [%s] and %d others", p.Cell, len(p.Functions),
			strings.Join(mdevs, ", "), strings.Join(types, ", "), len(p.Others))
	}
	return out
}

const (
	firstCard  = "pci_0000_41_00_0"
	secondCard = "pci_0000_c1_00_0"
)

// TestVGPUs: an empty card makes as many of a type as fit, one with a vGPU the rest of that size
// and nothing of another one.
func TestVGPUs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.VGPUHost()
	tree := render(t, h, scratch(t))
	testproc.Same(t, cmp.Diff(map[string]string{
		firstCard: "cell 0, 16 functions, has [], makes [nvidia-1151 8, nvidia-1153 4] and 9 others",
		secondCard: "cell 1, 16 functions, has [0000:c1:00.4 nvidia-1151], makes [nvidia-1151 7, nvidia-1153 0] " +
			"and 9 others",
	}, vgpuParentsOf(t, tree, "nvidia-1151", "nvidia-1153")))

	for made := 1; made <= 8; made++ { // until nothing fits
		testproc.Check(t, tree.SetVGPU(h, h.Device("0000:41:00.0").VFs[made-1], 1151))
		got := vgpuParentsOf(t, tree, "nvidia-1151", "nvidia-1153")[firstCard]
		if want := fmt.Sprintf("makes [nvidia-1151 %d, nvidia-1153 0] and 9", 8-made); !strings.Contains(got, want) {
			t.Errorf("with %d: %s, want %s", made, got, want)
		}
	}
}

// TestVGPUsDescribe: what vgpuConfig.xml says of a type reads as that of a mediated device.
func TestVGPUsDescribe(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tree := render(t, testhost.VGPUHost(), scratch(t))
	h := testproc.Try(Read(string(tree), func(id string) bool { return id == "nvidia-1151" })).Or(t)
	testproc.Same(t, cmp.Diff([]machine.MdevType{{
		ID: "nvidia-1151", Name: "NVIDIA L40S-6Q", API: "vfio-pci", Available: 8,
		Description: "num_heads=4, framebuffer=6144M, max_resolution=7680x4320, max_instance=8",
	}}, h.Parents[0].Types))
}

// TestVGPUsOfSeveralSizes: beside another size, or without vgpuConfig.xml, one more is certain, as
// long as the kernel says so.
func TestVGPUsOfSeveralSizes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.VGPUHost()
	h.Device("0000:41:00.0").VGPU.Heterogeneous = true
	tree := render(t, h, scratch(t))
	testproc.Check(t, tree.SetVGPU(h, "0000:41:00.4", 1153))
	mixed := vgpuParentsOf(t, tree, "nvidia-1151", "nvidia-1153")[firstCard]
	if !strings.Contains(mixed, "makes [nvidia-1151 1, nvidia-1153 1]") {
		t.Errorf("beside one of 12 GiB: %s", mixed)
	}
	for _, config := range []string{"", "<vgpuconfig>", "<vgpuconfig><pgpu/><vgpuType id='x'/></vgpuconfig>",
		strings.Repeat("<a>", 1000)} {
		testproc.Check(t, tree.Write(vgpuConfigFile, config))
		unknown := vgpuParentsOf(t, tree, "nvidia-1151", "nvidia-1153")[secondCard]
		if !strings.Contains(unknown, "makes [nvidia-1151 1] and") {
			t.Errorf("with the configuration %.20q: %s", config, unknown)
		}
	}
	testproc.Check(t, tree.Remove(vgpuConfigFile))
	if unknown := vgpuParentsOf(t, tree, "nvidia-1151")[secondCard]; !strings.Contains(unknown, "nvidia-1151 1]") {
		t.Errorf("without vgpuConfig.xml: %s", unknown)
	}
}

// TestVGPUsThatCannotBeRead: a card with a file that makes no sense makes nothing and says why; the
// host and its other card stay.
func TestVGPUsThatCannotBeRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const current, creatable = machine.CurrentVGPUType, machine.CreatableVGPUTypes
	for name, c := range map[string]struct{ file, text, want string }{
		"a type without a number":  {current, "none\n", `current_vgpu_type: "none"`},
		"an empty file":            {current, "", "current_vgpu_type"},
		"a huge number":            {current, "99999999999\n", "current_vgpu_type"},
		"a table of something":     {creatable, "ID    : vGPU Name\nL40S-1Q\n", `creatable_vgpu_types: "L40S-1Q"`},
		"names first":              {creatable, "NVIDIA L40S-1Q : 1147\n", "creatable_vgpu_types"},
		"a type without a name":    {creatable, "1147  :\n", "creatable_vgpu_types"},
		"more types than possible": {creatable, strings.Repeat("1147  : a\n", 2000), "creatable_vgpu_types"},
	} {
		t.Run(name, func(t *testing.T) {
			h := testhost.VGPUHost()
			tree := render(t, h, scratch(t))
			at := testproc.Try(tree.DevicePath("0000:41:00.5")).Or(t)
			testproc.Check(t, tree.Write(at+"/nvidia/"+c.file, c.text))
			got := vgpuParentsOf(t, tree, "nvidia-1151")
			if !strings.Contains(got[firstCard], c.want) || !strings.Contains(got[secondCard], "nvidia-1151 7") {
				t.Errorf("%q", got)
			}
		})
	}
	h := testhost.VGPUHost()
	tree := render(t, h, scratch(t))
	at := testproc.Try(tree.DevicePath("0000:41:00.5")).Or(t)
	testproc.Check(t, os.Remove(tree.Path(at+"/nvidia/"+current)))
	if got := vgpuParentsOf(t, tree, "nvidia-1151"); !strings.Contains(got[firstCard], "no such file") {
		t.Errorf("without the file: %q", got)
	}
}

// TestVGPUsNeedTheirDriver: functions that another driver has, and cards without functions, make no
// vGPUs.
func TestVGPUsNeedTheirDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.VGPUHost()
	for i := range h.Devices {
		if h.Devices[i].PF == "0000:41:00.0" {
			h.Devices[i].Driver = "vfio-pci"
		}
	}
	got := vgpuParentsOf(t, render(t, h, scratch(t)), "nvidia-1151")
	if _, makes := got[firstCard]; makes || len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// TestWhatIsAvailableCanBeMade: whatever was made and removed on a card, as many of a type as count
// as available can be made one after the other, and if one can be made, it counts.
func TestWhatIsAvailableCanBeMade(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		card := *testhost.L40S(0x41, "", 0, 1, 0)[0].VGPU
		card.Heterogeneous = rapid.Bool().Draw(t, "heterogeneous")
		functions := rapid.IntRange(1, 12).Draw(t, "functions")
		address := func(i int) machine.Address { return machine.Address{Bus: 0x41, Function: uint8(i)} }
		config := map[string]vgpuSize{}
		for _, mt := range card.Types {
			config[machine.VGPUTypeID(mt.ID)] = vgpuSize{framebuffer: uint64(mt.FramebufferMiB) << 20, fit: mt.Fit}
		}
		if rapid.Bool().Draw(t, "without vgpuConfig.xml") {
			config = nil
		}
		look := func() (c vgpuCard) {
			c.names = map[string]string{}
			for i := range functions {
				f := machine.VGPUFunction{Address: address(i)}
				if has := card.Current[f.Address.String()]; has != 0 {
					f.Type = machine.VGPUTypeID(has)
				} else {
					for _, mt := range card.Creatable() {
						f.Creatable = append(f.Creatable, machine.VGPUTypeID(mt.ID))
						c.names[machine.VGPUTypeID(mt.ID)] = mt.Name
					}
				}
				c.functions = append(c.functions, f)
			}
			return c
		}
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			id := 0
			if rapid.Bool().Draw(t, "make") {
				id = rapid.SampledFrom(card.Types).Draw(t, "type").ID
			}
			_ = card.Set(address(rapid.IntRange(0, functions-1).Draw(t, "function")).String(), id) // some are refused
			mt := rapid.SampledFrom(card.Types).Draw(t, "asked for")
			available := look().available(machine.VGPUTypeID(mt.ID), config)
			more := card
			more.Current = maps.Clone(card.Current)
			made := 0
			for i := range functions {
				if more.Current[address(i).String()] == 0 && made < available &&
					more.Set(address(i).String(), mt.ID) == nil {
					made++
				}
			}
			free := len(card.Current) < functions && slices.Contains(card.Creatable(), mt)
			if made != available || free != (available > 0) {
				t.Fatalf("%d of %s count as available, %d could be made, one can: %v; the card has %v",
					available, mt.Name, made, free, card.Current)
			}
		}
	})
}
