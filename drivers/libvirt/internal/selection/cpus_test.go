// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// twoSockets has two cells of two cores with two threads: 0-3 and 4-7, where n and n+2 are of one
// core. CPU 8 is offline.
func twoSockets() machine.Machine {
	m := machine.Machine{Cells: []machine.Cell{{ID: 0, CPUs: []int{0, 1, 2, 3}}, {ID: 1, CPUs: []int{4, 5, 6, 7}}}}
	for id := range 8 {
		m.CPUs = append(m.CPUs, machine.CPU{ID: id, Online: true, Cell: id / 4, Package: id / 4, Core: id % 2})
	}
	m.CPUs = append(m.CPUs, machine.CPU{ID: 8, Cell: -1, Package: -1, Core: -1})
	return m
}

func TestChooseCPUs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		config        CPUConfig
		want          CPUs
		discrepancies []string
	}{
		"nothing configured: all online ones are shared": {
			want: CPUs{VCPU: []int{0, 1, 2, 3, 4, 5, 6, 7},
				Threaded: true, Cells: []CPUCell{{ID: 0, VCPU: []int{0, 1, 2, 3}}, {ID: 1, VCPU: []int{4, 5, 6, 7}}}},
		},
		"shared ones only": {
			config: CPUConfig{Shared: "1-5,^2"},
			want: CPUs{VCPU: []int{1, 3, 4, 5},
				Threaded: true, Cells: []CPUCell{{ID: 0, VCPU: []int{1, 3}}, {ID: 1, VCPU: []int{4, 5}}}},
		},
		"dedicated ones only: there is no VCPU": {
			config: CPUConfig{Dedicated: "5,7"},
			want: CPUs{PCPU: []int{5, 7}, Threaded: true,
				Cells: []CPUCell{{ID: 0}, {ID: 1, PCPU: []int{5, 7}, PCPUCores: []CPUCore{{PCPU: []int{5, 7}}}}}},
		},
		"both, with a core torn apart": {
			config: CPUConfig{Shared: "0-2", Dedicated: "3-7"},
			want: CPUs{VCPU: []int{0, 1, 2}, PCPU: []int{3, 4, 5, 6, 7}, Threaded: true, Cells: []CPUCell{
				{ID: 0, VCPU: []int{0, 1, 2}, PCPU: []int{3}, PCPUCores: []CPUCore{{PCPU: []int{3}, Others: []int{1}}}},
				{ID: 1, PCPU: []int{4, 5, 6, 7}, PCPUCores: []CPUCore{{PCPU: []int{4, 6}}, {PCPU: []int{5, 7}}}},
			}},
			discrepancies: []string{"cpu-siblings: dedicated CPUs 3 share their cores with CPUs that are not " +
				"dedicated: other guests disturb theirs, and the thread policies require and isolate do not work " +
				"there. Put whole cores into cpu_dedicated_set"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sets := testproc.Try(ParseCPUSets(tc.config)).Or(t)
			got, discrepancies, err := sets.Choose(twoSockets())
			testproc.Check(t, err)
			testproc.Same(t, cmp.Diff(tc.want, got))
			testproc.Samef(t, cmp.Diff(tc.discrepancies, textsC(discrepancies)), "discrepancies")
		})
	}
}

func textsC(discrepancies []machine.Discrepancy) []string {
	var out []string
	for _, d := range discrepancies {
		out = append(out, d.Key+": "+d.Text)
	}
	return out
}

func TestIsolatedCPUs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := twoSockets()
	m.CPUs[2].Isolated, m.CPUs[3].Isolated, m.CPUs[8].Isolated = true, true, true
	const says = "CPUs 2-3 are isolated from the kernel's scheduler (isolcpus), but are reported as VCPU: the " +
		"kernel does not balance guests' vCPUs over them. Remove them from cpu_shared_set, or dedicate them " +
		"(cpu_dedicated_set)"
	for _, sets := range []CPUSets{{}, {Shared: []int{2, 3, 4}}} {
		c, discrepancies, err := sets.Choose(m)
		if err != nil || !slices.Contains(c.VCPU, 2) {
			t.Errorf("%v: %v, %v: isolated CPUs count, as in Nova", sets, c.VCPU, err)
		}
		if diff := cmp.Diff([]machine.Discrepancy{{Key: "cpu-isolated", Text: says}}, discrepancies); diff != "" {
			t.Errorf("%v: discrepancies (-want +got):\n%s", sets, diff)
		}
	}
	if _, discrepancies, err := (CPUSets{Shared: []int{0}, Dedicated: []int{3, 1}}).Choose(m); err != nil ||
		len(discrepancies) != 0 {
		t.Errorf("dedicated isolated CPUs: %v, %v", discrepancies, err)
	}
}

func TestWrongSets(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for config, want := range map[CPUConfig]string{
		{Shared: "0-"}: `configuration: cpu_shared_set: is not a CPU set such as ` +
			`"4-12,^8,15": item "0-": "" is not a CPU number`,
		{Dedicated: "^1"}: `configuration: cpu_dedicated_set: is not a CPU set such as ` +
			`"4-12,^8,15": "^1": it leaves no CPUs`,
		{Shared: "0-3", Dedicated: "2-6,^3"}: `configuration: cpu_dedicated_set: has CPUs that are in ` +
			`cpu_shared_set too (2); a CPU is shared or dedicated, not both`,
		{Shared: "0-9,12"}: `configuration: cpu_shared_set: has CPUs that the host does not have (9,12)`,
		{Dedicated: "7-8"}: `configuration: cpu_dedicated_set: has CPUs that are offline (8); bring them online ` +
			`(chcpu -e 8) or remove them`,
		{Shared: "8"}: `configuration: cpu_shared_set: has CPUs that are offline (8); bring them online (chcpu -e ` +
			`8) or remove them`,
	} {
		sets, err := ParseCPUSets(config)
		if err == nil {
			_, _, err = sets.Choose(twoSockets())
		}
		var wrong *plugins.ConfigError
		if !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%+v: %v, want\n%s", config, err, want)
		}
	}
	m := twoSockets()
	m.CPUs[1].Cell = 5
	if _, _, err := (CPUSets{}).Choose(m); err == nil ||
		err.Error() != "CPU 1 is in NUMA cell 5, which the host does not have" {
		t.Errorf("a CPU in no cell: %v", err)
	}
}

// drawMachine is any host: holes in the numbers, offline and isolated CPUs, cells of memory alone,
// one or two threads in a core.
func drawMachine(t *rapid.T) machine.Machine {
	var m machine.Machine
	cells := rapid.IntRange(1, 4).Draw(t, "cells")
	for id := range cells {
		m.Cells = append(m.Cells, machine.Cell{ID: id * 3})
	}
	threads := rapid.IntRange(1, 2).Draw(t, "threads")
	for id := range rapid.IntRange(1, 24).Draw(t, "CPUs") {
		cpu := machine.CPU{ID: id, Online: rapid.Bool().Draw(t, "online"), Isolated: rapid.Bool().Draw(t, "isolated"),
			Cell: -1, Package: -1, Core: -1}
		if cpu.Online {
			core := id / threads
			cpu.Cell, cpu.Package, cpu.Core = core%cells*3, core%cells, core/cells
			i := core % cells
			m.Cells[i].CPUs = append(m.Cells[i].CPUs, id)
		}
		m.CPUs = append(m.CPUs, cpu)
	}
	return m
}

func TestTheSharesAreTheWhole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t)
		var s CPUSets
		for _, cpu := range m.CPUs {
			switch rapid.IntRange(0, 2).Draw(t, "set") {
			case 0:
				s.Shared = append(s.Shared, cpu.ID)
			case 1:
				s.Dedicated = append(s.Dedicated, cpu.ID)
			}
		}
		c, discrepancies, err := s.Choose(m)
		allOnline := true
		for _, id := range slices.Concat(s.Shared, s.Dedicated) {
			allOnline = allOnline && m.CPUs[id].Online
		}
		if (err == nil) != allOnline {
			t.Fatalf("%v: %v", s, err)
		}
		if err != nil {
			return
		}
		// The plain model, CPU by CPU.
		all := s.Shared == nil && s.Dedicated == nil
		siblings, isolated, torn := 0, false, false
		for _, cpu := range m.CPUs {
			vcpu := cpu.Online && (all || slices.Contains(s.Shared, cpu.ID))
			pcpu := slices.Contains(s.Dedicated, cpu.ID)
			isolated = isolated || vcpu && cpu.Isolated
			for _, other := range m.CPUs {
				if cpu.Online && other.Online &&
					cpu.ID != other.ID && cpu.Package == other.Package && cpu.Core == other.Core {
					siblings++
					torn = torn || pcpu && !slices.Contains(s.Dedicated, other.ID)
				}
			}
			if slices.Contains(c.VCPU, cpu.ID) != vcpu || slices.Contains(c.PCPU, cpu.ID) != pcpu {
				t.Fatalf("CPU %d: VCPU %v, PCPU %v", cpu.ID, c.VCPU, c.PCPU)
			}
			for _, cell := range c.Cells {
				here := cell.ID == cpu.Cell
				if slices.Contains(cell.VCPU, cpu.ID) != (vcpu && here) ||
					slices.Contains(cell.PCPU, cpu.ID) != (pcpu && here) {
					t.Fatalf("CPU %d of cell %d: %+v", cpu.ID, cpu.Cell, cell)
				}
			}
		}
		if c.Threaded != (siblings > 0) {
			t.Fatalf("threaded %v with %d siblings", c.Threaded, siblings)
		}
		if len(c.Cells) != len(m.Cells) || !slices.IsSorted(c.VCPU) || !slices.IsSorted(c.PCPU) {
			t.Fatalf("%+v", c)
		}
		for _, cell := range c.Cells {
			var again []int
			for _, core := range cell.PCPUCores {
				again = append(again, core.PCPU...)
			}
			slices.Sort(again)
			if !slices.Equal(again, cell.PCPU) {
				t.Fatalf("the cores of cell %d hold %v, its PCPU are %v", cell.ID, again, cell.PCPU)
			}
		}
		has := func(key string) bool {
			return slices.ContainsFunc(discrepancies, func(d machine.Discrepancy) bool { return d.Key == key })
		}
		if has("cpu-isolated") != isolated || has("cpu-siblings") != torn {
			t.Fatalf("discrepancies %v, isolated %v, torn %v", discrepancies, isolated, torn)
		}
	})
}
