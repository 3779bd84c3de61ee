// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

func TestWhatStaysBehindHasNoRoomForOthers(t *testing.T) {
	const consumer = "00000000-0000-4000-8000-00000000000a"
	of := func(total, reserved int64, ratio float64) providertree.Inventory {
		return providertree.Inventory{Total: total, Reserved: reserved, MaxUnit: 16, AllocationRatio: ratio}.Normalize()
	}
	for name, c := range map[string]struct {
		was   providertree.Inventory
		is    *providertree.Inventory // nil: gone
		used  int64
		stays *providertree.Inventory
	}{
		"free":                             {was: of(16, 0, 1)},
		"gone while held":                  {was: of(16, 0, 1), used: 3, stays: new(of(3, 0, 1))},
		"gone while held, part reserved":   {was: of(16, 10, 1), used: 3, stays: new(of(3, 0, 1))},
		"gone while held, overcommitted":   {was: of(16, 0, 4), used: 7, stays: new(of(2, 0, 4))},
		"more held than there ever was":    {was: of(2, 0, 1), used: 3, stays: new(of(2, 0, 1))},
		"smaller, and large enough":        {was: of(16, 0, 1), is: new(of(8, 0, 1)), used: 8},
		"smaller than what is held":        {was: of(16, 0, 1), is: new(of(8, 0, 1)), used: 9, stays: new(of(9, 0, 1))},
		"smaller, and more of it reserved": {was: of(16, 0, 1), is: new(of(8, 2, 1)), used: 7, stays: new(of(7, 0, 1))},
		"as large, and held":               {was: of(16, 0, 1), is: new(of(16, 0, 1)), used: 16},
	} {
		t.Run(name, func(t *testing.T) {
			before := novas(t)
			_, err := before.SetInventory(novaGPU0, "VGPU", c.was)
			must(t, err)
			after := before.Clone()
			if c.is == nil {
				_, err = after.Remove(novaGPU0)
			} else {
				_, err = after.SetInventory(novaGPU0, "VGPU", *c.is)
			}
			must(t, err)
			allocations := providertree.Allocations{}
			if c.used > 0 {
				allocations[consumer] = providertree.ConsumerAllocations{Resources: providertree.ProviderResources{novaGPU0: {"VGPU": c.used}}}
			}
			want := map[plugins.Place]providertree.Inventory{}
			if c.stays != nil {
				want[plugins.Place{Provider: novaGPU0, Class: "VGPU"}] = *c.stays
			}
			if diff := cmp.Diff(want, inventory.Behind(before, after, root, allocations)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
