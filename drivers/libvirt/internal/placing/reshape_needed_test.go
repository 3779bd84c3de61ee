// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/placing"
)

func TestNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		now, to shape
		domains []domain.Domain
		want    string
	}{
		"the same":           {shape{root: {"VCPU": of(8)}}, shape{root: {"VCPU": of(4)}}, nil, ""},
		"a GPU comes":        {shape{root: {"VCPU": of(8)}}, shape{root: {"VCPU": of(8)}, gpu0: {"VGPU": of(4)}}, nil, ""},
		"a GPU goes":         {shape{gpu0: {"VGPU": of(4)}, gpu1: {"VGPU": of(4)}}, shape{gpu0: {"VGPU": of(4)}}, nil, ""},
		"GPUs":               {shape{root: {"VGPU": of(8)}}, shape{gpu0: {"VGPU": of(4)}, gpu1: {"VGPU": of(4)}}, nil, "VGPU of cn1 moves to cn1_f3, cn1_f4"},
		"GPUs back":          {shape{gpu0: {"VGPU": of(4)}}, shape{root: {"VGPU": of(8)}}, nil, "VGPU of cn1_f3 moves to cn1"},
		"a new class":        {shape{nic0: {"CUSTOM_PCI_1_2": of(1)}}, shape{nic0: {"CUSTOM_NIC": of(1)}}, nil, "CUSTOM_PCI_1_2 of cn1_f5 moves to cn1_f5"},
		"encryption":         {shape{root: {"MEM_ENCRYPTION_CONTEXT": of(8)}}, shape{sev: {"MEM_ENCRYPTION_CONTEXT": of(8)}}, nil, "MEM_ENCRYPTION_CONTEXT of cn1 moves to cn1_f6"},
		"NUMA cells":         {shape{root: {"VCPU": of(8), "MEMORY_MB": of(8)}}, shape{cell0: {"VCPU": of(8)}, cell1: {"MEMORY_MB": of(8)}}, nil, "MEMORY_MB of cn1 moves to cn1_f2; VCPU of cn1 moves to cn1_f1"},
		"PCPU for nobody":    {shape{root: {"VCPU": of(8)}}, shape{root: {"VCPU": of(4), "PCPU": of(4)}}, []domain.Domain{floating(guestA, 2)}, ""},
		"PCPU":               {shape{root: {"VCPU": of(8)}}, shape{root: {"VCPU": of(4), "PCPU": of(4)}}, []domain.Domain{pinned(guestA, nil, 4), pinned(guestB, nil, 5)}, "VCPU of guests with dedicated processors becomes PCPU"},
		"more PCPU":          {shape{cell0: {"PCPU": of(8)}}, shape{cell0: {"PCPU": of(4)}, cell1: {"PCPU": of(4)}}, []domain.Domain{pinned(guestA, nil, 4)}, ""},
		"somebody else's":    {shape{abroad: {"VGPU": of(8)}}, shape{gpu0: {"VGPU": of(4)}}, nil, ""},
		"what nobody knows":  {shape{root: {"CUSTOM_OTHER": of(8)}}, shape{cell0: {"CUSTOM_OTHER": of(4)}}, nil, "CUSTOM_OTHER of cn1 moves to cn1_f1"},
		"many of the others": {shape{root: {"VGPU": of(8)}}, shape{cell0: {"VGPU": of(1)}, cell1: {"VGPU": of(1)}, gpu0: {"VGPU": of(1)}, gpu1: {"VGPU": of(1)}, nic0: {"VGPU": of(1)}}, nil, "VGPU of cn1 moves to cn1_f1, cn1_f2, cn1_f3, cn1_f4 and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			r := placing.Reshape{Machine: host(2, 4), Tree: c.to.tree(t), Providers: providers(), Domains: c.domains, Dedicated: []int{4, 5}}
			if got := r.Needed(c.now.tree(t)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Where something allocated moves to a place that comes, a reshape is needed; where the trees are the same, none is.
func TestNeededBeforeAnythingMoves(t *testing.T) {
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		r := anyReshape(t)
		before := shape{}
		for _, c := range r.Allocations {
			for provider, amounts := range c.Resources {
				for class := range amounts {
					if before[provider] == nil {
						before[provider] = inventories{}
					}
					before[provider][class] = of(1000)
				}
			}
		}
		now := before.tree(t)
		needed := false
		for _, m := range r.Plan().Moves {
			_, there := now.Inventory(m.To.Provider, m.To.Class)
			needed = needed || !there && m.To.Class != "PCPU"
		}
		if needed {
			moved++
		}
		if needed && r.Needed(now) == "" {
			t.Fatal("something moves, and nothing is needed")
		}
		if words := r.Needed(r.Tree); words != "" {
			t.Fatal(words)
		}
	})
	if moved == 0 {
		t.Error("nothing ever moved")
	}
}
