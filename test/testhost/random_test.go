// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestOddHostsAreDrawn: the oddities that Random promises are among the first hosts that it draws.
func TestOddHostsAreDrawn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	device := func(is func(Device) bool) func(Host) bool {
		return func(h Host) bool { return slices.ContainsFunc(h.Devices, is) }
	}
	cpu := func(is func(CPU) bool) func(Host) bool {
		return func(h Host) bool { return slices.ContainsFunc(h.CPUs, is) }
	}
	cell := func(is func(Host, Cell) bool) func(Host) bool {
		return func(h Host) bool {
			return slices.ContainsFunc(h.Cells, func(c Cell) bool { return is(h, c) })
		}
	}
	odd := map[string]func(Host) bool{
		"kernel without NUMA": func(h Host) bool { return h.NoNUMA },
		"SEV":                 func(h Host) bool { return h.SEV != nil && h.SEV.SEV },
		"cell above 9":        cell(func(_ Host, c Cell) bool { return c.ID > 9 }),
		"cell without memory": cell(func(_ Host, c Cell) bool { return c.MemoryKiB == 0 }),
		"cell without CPUs":   cell(func(h Host, c Cell) bool { return len(h.CellCPUs(c.ID)) == 0 }),
		"cell of several packages": func(h Host) bool {
			return len(h.Cells) == 1 && slices.ContainsFunc(h.CPUs, func(c CPU) bool { return c.Package > 0 })
		},
		"cell without huge pages": cell(
			func(_ Host, c Cell) bool { return len(c.HugePages) == 0 && c.MemoryKiB > 0 }),
		"offline CPU":                cpu(func(c CPU) bool { return c.Offline }),
		"gap in the numbers of CPUs": func(h Host) bool { return h.CPUs[len(h.CPUs)-1].ID >= len(h.CPUs) },
		"core with a thread offline": func(h Host) bool {
			return slices.ContainsFunc(h.CPUs, func(c CPU) bool {
				return c.Offline && len(h.Siblings(c)) > 0
			})
		},
		"no hyperthreads": func(h Host) bool {
			return len(h.CPUs) > 4 && !slices.ContainsFunc(h.CPUs, func(c CPU) bool { return len(h.Siblings(c)) > 1 })
		},
		"cell with all CPUs offline": cell(func(h Host, c Cell) bool {
			return len(h.CellCPUs(c.ID)) == 0 && slices.ContainsFunc(h.CPUs, func(p CPU) bool { return p.Cell == c.ID })
		}),
		"isolated CPU":            cpu(func(c CPU) bool { return c.Isolated }),
		"second die":              cpu(func(c CPU) bool { return c.Die > 0 }),
		"long PCI domain":         device(func(d Device) bool { return len(d.Address) > len("0000:00:00.0") }),
		"device without cell":     device(func(d Device) bool { return d.Cell == None }),
		"device without group":    device(func(d Device) bool { return d.IOMMUGroup == None }),
		"device without driver":   device(func(d Device) bool { return d.Driver == "" }),
		"device without modalias": device(func(d Device) bool { return d.NoModalias }),
		"all functions disabled":  device(func(d Device) bool { return d.TotalVFs > 0 && len(d.VFs) == 0 }),
		"many functions":          device(func(d Device) bool { return len(d.VFs) > 8 }),
		"mediated on a function":  device(func(d Device) bool { return d.PF != "" && len(d.Active()) > 0 }),
		"none available": device(
			func(d Device) bool { return len(d.Types) > 0 && d.Types[0].Available == 0 }),
		"only defined":                device(func(d Device) bool { return len(d.Mdevs) > len(d.Active()) }),
		"device behind a bridge":      device(func(d Device) bool { return d.Parent != "" }),
		"parent that is no PCI one":   func(h Host) bool { return len(h.Virtual) > 0 },
		"host without a PCI device":   func(h Host) bool { return len(h.Devices) == 0 },
		"device of another NUMA cell": device(func(d Device) bool { return d.Cell > 0 }),
	}
	const hosts = 300
	for seed := range hosts {
		h := Random().Example(seed)
		for what, is := range odd {
			if is(h) {
				delete(odd, what)
			}
		}
	}
	for what := range odd {
		t.Errorf("none of %d hosts has: %s", hosts, what)
	}
}
