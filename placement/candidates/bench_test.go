// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// perfload is a forest as in Placement's own nested load test: trees of seven providers, a compute
// node with disk, two NUMA nodes with processors and memory, and two FPGAs below each of them.
func perfload(trees int) placementtest.Forest {
	var f placementtest.Forest
	for i := range trees {
		cn := fmt.Sprint("cn", i)
		child := func(name, parent string, traits []string, inventories ...placementtest.Inventory) {
			f = append(f, placementtest.Provider{Name: cn +
				name, Parent: parent, Inventories: inventories, Traits: traits})
		}
		child("", "", []string{"COMPUTE_VOLUME_MULTI_ATTACH"},
			placementtest.Inventory{Class: "DISK_GB", Total: 20_480, Ratio: 1})
		for n := range 2 {
			numa := fmt.Sprintf("%s_n%d", cn, n)
			child(fmt.Sprintf("_n%d", n), cn, []string{"HW_NUMA_ROOT"},
				placementtest.Inventory{Class: "VCPU", Total: 32, Ratio: 16},
				placementtest.Inventory{Class: "MEMORY_MB", Total: 65_536, MinUnit: 256, StepSize: 256})
			for d := range 2 {
				child(fmt.Sprintf("_n%d_f%d", n, d), numa,
					[]string{"CUSTOM_FPGA"}, placementtest.Inventory{Class: fpga, Total: 8})
			}
		}
	}
	return f
}

// BenchmarkSearch measures searches of forests of typical forms.
func BenchmarkSearch(b *testing.B) {
	nested := candidates.Request{
		Groups: []candidates.Group{
			{Suffix: "", Resources: []candidates.Resource{{Class: "DISK_GB", Amount: 10}}},
			{Suffix: "_COMPUTE",
				Resources: []candidates.Resource{{Class: "VCPU", Amount: 1}, {Class: "MEMORY_MB", Amount: 256}}},
			requiring(asks("_ACCEL", fpga, 1), "CUSTOM_FPGA"),
		},
		SameSubtree: [][]string{{"_COMPUTE", "_ACCEL"}},
		Root:        candidates.RootConditions{Required: []string{"COMPUTE_VOLUME_MULTI_ATTACH"}},
	}
	flat := placementtest.Forest{}
	for i := range 10_000 {
		flat = append(flat, placementtest.Provider{Name: fmt.Sprint("h", i), Inventories: []placementtest.Inventory{
			{Class: "VCPU", Total: 64, Ratio: 4}, {Class: "MEMORY_MB", Total: 262_144},
			{Class: "DISK_GB", Total: 2_000}}})
	}
	plain := candidates.Request{Groups: []candidates.Group{{Resources: []candidates.Resource{
		{Class: "VCPU", Amount: 4}, {Class: "MEMORY_MB", Amount: 8_192}, {Class: "DISK_GB", Amount: 40}}}}}
	sparse := append(placementtest.Forest{}, flat...)
	sparse[7_777].Inventories = append(has("VGPU", 1), sparse[7_777].Inventories...)
	rare := candidates.Request{Groups: append([]candidates.Group{asks("_G", "VGPU", 1)}, plain.Groups...)}
	for _, e := range []struct {
		name   string
		f      placementtest.Forest
		r      candidates.Request
		limits []int
	}{
		{"nested 1000x7", perfload(1000), nested, []int{10, 1000, 0}},
		{"wide 2x21, 21 groups", wide(2, 21, 0), candidates.Request{Groups: devices(21)}, []int{1000}},
		{"wide 100x21, one too few", wide(100, 21, 1), candidates.Request{Groups: devices(21)}, []int{1000}},
		{"1 of 10000", sparse, rare, []int{1000}},
		{"flat 10000", flat, plain, []int{10, 1000, 0}},
	} {
		s := plant(b, ground(b), e.f)
		for _, limit := range e.limits {
			for order, o := range map[string]candidates.Options{
				"of numbers": {Limit: limit},
				"rotated":    {Limit: limit, Rotation: candidates.Rotation{Window: limit, Phase: 1}},
				"random":     {Limit: limit, Seed: 1},
			} {
				b.Run(fmt.Sprintf("%s/limit %d/order %s", e.name, limit, order), func(b *testing.B) {
					b.ReportAllocs()
					given := 0
					for b.Loop() {
						stats, err := candidates.Search(ctx, s, &e.r, o,
							func(*candidates.Candidate) bool { return true })
						testproc.Check(b, err)
						given = stats.Candidates
						if order == "rotated" {
							o.Rotation.At += uint64(stats.Passed)
						}
					}
					b.ReportMetric(float64(given), "candidates")
				})
			}
		}
	}
}

// BenchmarkExplain explains why there is nothing, where every tree has to be looked at.
func BenchmarkExplain(b *testing.B) {
	s := plant(b, ground(b), perfload(1000))
	r := &candidates.Request{Groups: []candidates.Group{
		{Suffix: "_COMPUTE",
			Resources: []candidates.Resource{{Class: "VCPU", Amount: 1}, {Class: "MEMORY_MB", Amount: 256}}},
		requiring(asks("_ACCEL", fpga, 9), "CUSTOM_FPGA"),
	}}
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(candidates.Explain(ctx, s, r, candidates.Options{})).Or(b)
	}
}
