// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// everything is a host on which all is on that the driver can report. A field that is added to a
// host must be set here.
func everything(t tester) inventory.Host {
	h := twoSockets(t)
	h.Taken = map[machine.Address]bool{h.PCI[0].Devices[0].Address: true}
	h.MdevTraits = []string{"CUSTOM_NVIDIA_222"}
	h.Uncertain = map[string]bool{"0000:99:00.0": true}
	h.SharedDisk = true
	for field, value := range reflect.ValueOf(h).Fields() {
		if value.IsZero() {
			t.Fatalf("nothing is on of %s", field.Name)
		}
	}
	h.SharedDisk = false
	return h
}

// switchOff are the ways to report less of a host, by what is switched off.
var switchOff = map[string]func(h *inventory.Host){
	"shared CPUs":    func(h *inventory.Host) { h.Shared = nil },
	"dedicated CPUs": func(h *inventory.Host) { h.Dedicated = nil },
	"huge pages":     func(h *inventory.Host) { h.Memory = nil },
	"mdevs":          func(h *inventory.Host) { h.Mdevs = nil },
	"PCI devices":    func(h *inventory.Host) { h.PCI = nil },
	"encryption":     func(h *inventory.Host) { h.Encryption = nil },
	"PMEM":           func(h *inventory.Host) { h.PMEM = nil },
	"disk":           func(h *inventory.Host) { h.SharedDisk = true },
	"traits":         func(h *inventory.Host) { h.Traits = nil },
	"cells and memory": func(h *inventory.Host) {
		h.Cells, h.Memory, h.MemoryKiB, h.Shared, h.Dedicated = nil, nil, 0, nil, nil
	},
}

// TestDisablingEverythingLeavesAnEmptyRoot: whatever the driver can report, it also removes.
func TestDisablingEverythingLeavesAnEmptyRoot(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, s := range map[string]inventory.Settings{"flat": settings(), "nested": nestedSettings()} {
		t.Run(name, func(t *testing.T) {
			s.TypeTraits = true
			on := everything(t)
			tree := put(t, want(t, on, s), fresh(t))
			off := on
			for _, change := range switchOff {
				change(&off)
			}
			tree = put(t, want(t, off, s), tree)
			if !tree.Equal(fresh(t)) {
				t.Errorf("what is left:\n%s", dump(tree))
			}
		})
	}
}

// TestDisabledOptionLeavesNoTrace: with any of a host's resources switched off, the tree is
// that of a new node that never had them.
func TestDisabledOptionLeavesNoTrace(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ways := slices.Sorted(maps.Keys(switchOff))
	rapid.Check(t, func(t *rapid.T) {
		on := everything(t)
		if rapid.Bool().Draw(t, "any host") {
			on = anyHost(t)
		}
		s := anySettings(t)
		s.Nested = rapid.Bool().Draw(t, "nested")
		off := on
		for _, way := range rapid.SliceOfNDistinct(rapid.SampledFrom(ways), 1, -1, rapid.ID).Draw(t, "switched off") {
			switchOff[way](&off)
		}
		before, _, err := inventory.Want(on, s)
		after, _, offErr := inventory.Want(off, s)
		if err != nil || offErr != nil {
			t.Skip("more is reserved than there is")
		}
		got := put(t, after, put(t, before, fresh(t)))
		never := put(t, after, fresh(t))
		if !got.Equal(never) {
			t.Fatalf("(-never on +switched off):\n%s", cmp.Diff(dump(never), dump(got)))
		}
	})
}
