// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// anyHost is a host with a nested tree, on which any processors are shared, dedicated, neither or
// offline.
func anyHost(t *rapid.T) assignment.Request {
	m := host(rapid.IntRange(1, 3).Draw(t, "cells"), rapid.IntRange(2, 6).Draw(t, "cores"))
	r := assignment.Request{Providers: map[string]assignment.Provider{"root": {Kind: assignment.Root}}, Shared: []int{}}
	for i := range m.CPUs {
		switch rapid.IntRange(0, 9).Draw(t, "use") {
		case 0, 1:
			r.Shared = append(r.Shared, i)
		case 2:
		case 3:
			m.CPUs[i] = machine.CPU{ID: i, Cell: -1, Package: -1, Core: -1}
			r.Dedicated = append(r.Dedicated, i)
		default:
			r.Dedicated = append(r.Dedicated, i)
		}
	}
	for cell := range m.Cells {
		r.Providers[fmt.Sprint("cell", cell)] = assignment.Provider{Kind: assignment.Cell, Cell: cell}
		m.Parents[cell].Types[0].Available = 4
		r.Providers[fmt.Sprint("gpu", cell)] = assignment.Provider{Kind: assignment.MdevParent,
			Parent: gpu(cell).DeviceName(), Type: "nvidia-222"}
		r.Providers[fmt.Sprint("nic", cell)] = assignment.Provider{Kind: assignment.PCI,
			Devices: managed(m.Devices[5*cell+4].Virtual...)}
	}
	r.Machine = m
	return r
}

// anyInstance is one that Placement might have granted resources of the host to.
func anyInstance(t *rapid.T, r assignment.Request, n int) plugins.InstanceSpec {
	s := plugins.InstanceSpec{UUID: id(0x1000 + n), Name: "a", Allocations: allocations{},
		Flavor: plugins.Flavor{ExtraSpecs: map[string]string{}}}
	grant := func(provider, class string, amount int64) {
		if amount > 0 {
			if s.Allocations[provider] == nil {
				s.Allocations[provider] = map[string]int64{}
			}
			s.Allocations[provider][class] += amount
		}
	}
	cells := []int{-1} // a flat tree
	if rapid.Bool().Draw(t, "nested") {
		cells = rapid.SliceOfNDistinct(rapid.IntRange(0, len(r.Machine.Cells)-1), 1, 2, rapid.ID).Draw(t, "granted of")
	}
	pages := rapid.IntRange(0, 5).Draw(t, "pages") == 0
	for _, cell := range cells {
		provider := "root"
		if cell >= 0 {
			provider = fmt.Sprint("cell", cell)
		}
		pcpu, vcpu, memory := rapid.Int64Range(0, 2).Draw(t, "PCPU"), rapid.Int64Range(0, 2).Draw(t, "VCPU"),
			rapid.Int64Range(1, 64).Draw(t, "memory")*2
		grant(provider, "PCPU", pcpu)
		grant(provider, "VCPU", vcpu)
		if pages {
			grant(provider, "CUSTOM_HUGEPAGES_2M", memory/2)
		} else {
			grant(provider, "MEMORY_MB", memory)
		}
		s.Flavor.VCPUs += pcpu + vcpu
		s.Flavor.MemoryMB += memory
	}
	for _, key := range []string{"gpu", "nic"} {
		grant(fmt.Sprint(key, rapid.IntRange(0, len(r.Machine.Cells)-1).Draw(t, key)),
			"CUSTOM_X", rapid.Int64Range(0, 2).Draw(t, "devices"))
	}
	s.Flavor.ExtraSpecs["hw:cpu_thread_policy"] = rapid.SampledFrom([]string{"prefer", "isolate", "require"}).
		Draw(t, "threads")
	switch rapid.IntRange(0, 4).Draw(t, "emulator") {
	case 0:
		s.Flavor.ExtraSpecs["hw:emulator_threads_policy"] = "share"
	case 1:
		s.Flavor.ExtraSpecs["hw:emulator_threads_policy"] = "isolate"
		s.Flavor.VCPUs--
	}
	return s
}

// TestDecideNeverGivesHardwareTwice: whatever instances come one after the other, nothing is given
// twice, and nothing that was not granted. Between them, decisions go the whole way: into XML and
// out of it.
func TestDecideNeverGivesHardwareTwice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		r := anyHost(t)
		owners := map[string]string{} // of what cannot be shared, by name
		own := func(what, uuid string) {
			if other, taken := owners[what]; taken && other != uuid {
				t.Fatalf("%s is given to %s and %s", what, other, uuid)
			}
			owners[what] = uuid
		}
		isolated := map[int]string{} // by processor
		for n := range rapid.IntRange(1, 6).Draw(t, "instances") {
			r.Instance = anyInstance(t, r, n)
			d, err := assignment.Decide(r)
			if again, errAgain := assignment.Decide(shuffled(t, r)); cmp.Diff(d, again) != "" ||
				(err == nil) != (errAgain == nil) {
				t.Fatalf("the order of what there is decides: %s, %v, %v", cmp.Diff(d, again), err, errAgain)
			}
			if err != nil {
				if fault := (*plugins.InstanceFault)(nil); !errors.As(err, &fault) {
					t.Fatal(err)
				}
				continue
			}
			made++
			check(t, r, d)
			for _, cpu := range dedicatedOf(r, d) {
				own(fmt.Sprint("processor ", cpu), r.Instance.UUID)
				for _, other := range r.Machine.CPUs {
					if at := r.Machine.CPUs[cpu]; other.Online && other.Package == at.Package && other.Core == at.Core {
						if owner := isolated[other.ID]; owner != "" && owner != r.Instance.UUID {
							t.Fatalf("%s is beside %s, which is isolated, on processor %d", r.Instance.UUID, owner, cpu)
						}
						if d.Isolated {
							isolated[other.ID] = r.Instance.UUID
							if owner, taken := owners[fmt.Sprint("processor ", other.ID)]; taken &&
								owner != r.Instance.UUID || slices.Contains(r.Shared, other.ID) {
								t.Fatalf("%s is isolated, and others are on processor %d", r.Instance.UUID, other.ID)
							}
						}
					}
				}
			}
			for _, device := range d.PCI {
				own("device "+device.Address.String(), r.Instance.UUID)
			}
			for _, mdev := range d.Mdevs {
				own("mdev "+mdev.UUID, r.Instance.UUID)
				for i := range r.Machine.Parents {
					if p := &r.Machine.Parents[i]; p.Name == mdev.Parent && mdev.Made {
						p.Mdevs = append(slices.Clone(p.Mdevs),
							machine.Mdev{UUID: mdev.UUID, Type: mdev.Type, Active: true})
						p.Types = slices.Clone(p.Types)
						if p.Types[0].Available--; p.Types[0].Available < 0 {
							t.Fatalf("%s makes more than it can", p.Name)
						}
					}
				}
			}
			r.Domains = append(r.Domains, writtenAndRead(t, r, d))
		}
	})
	t.Logf("%d instances were made", made)
	if made == 0 {
		t.Error("no instance was ever made")
	}
}

func dedicatedOf(r assignment.Request, d domain.Decision) []int {
	var out []int
	for _, set := range append(slices.Clone(d.VCPUs), d.Emulator) {
		if !slices.ContainsFunc(set, func(cpu int) bool { return !slices.Contains(r.Dedicated, cpu) }) {
			out = append(out, set...)
		}
	}
	return out
}

// check compares a decision with what was granted.
func check(t *rapid.T, r assignment.Request, d domain.Decision) {
	cellOf := func(set []int) string {
		cell := r.Machine.CPUs[set[0]].Cell
		for _, cpu := range set {
			if !r.Machine.CPUs[cpu].Online {
				t.Fatalf("processor %d is offline", cpu)
			}
			if r.Machine.CPUs[cpu].Cell != cell {
				return "root"
			}
		}
		return fmt.Sprint("cell", cell)
	}
	_, nested := r.Instance.Allocations["root"]
	nested = !nested
	got := allocations{}
	count := func(provider, class string, n int64) {
		if !nested && provider != "root" && class != "CUSTOM_X" {
			provider = "root"
		}
		if got[provider] == nil {
			got[provider] = map[string]int64{}
		}
		got[provider][class] += n
	}
	for _, set := range d.VCPUs {
		class := "VCPU"
		if len(set) == 1 && slices.Contains(r.Dedicated, set[0]) {
			class = "PCPU"
		} else if slices.ContainsFunc(set, func(cpu int) bool { return !slices.Contains(r.Shared, cpu) }) {
			t.Fatalf("%v are neither shared nor dedicated", set)
		}
		count(cellOf(set), class, 1)
	}
	if r.Instance.Flavor.ExtraSpecs["hw:emulator_threads_policy"] == "isolate" {
		count(cellOf(d.Emulator), "PCPU", 1)
	}
	memory := func(provider string, mb int64) {
		if d.PageKiB > 0 {
			count(provider, "CUSTOM_HUGEPAGES_2M", mb*1024/int64(d.PageKiB))
		} else {
			count(provider, "MEMORY_MB", mb)
		}
	}
	for _, share := range d.Cells {
		memory(fmt.Sprint("cell", share.Host), int64(share.MemoryKiB/1024))
	}
	if len(d.Cells) == 0 {
		memory("root", r.Instance.Flavor.MemoryMB)
	}
	provider := func(is func(assignment.Provider) bool) string {
		for name, p := range r.Providers {
			if is(p) {
				return name
			}
		}
		return "nobody"
	}
	for _, mdev := range d.Mdevs {
		count(provider(func(p assignment.Provider) bool { return p.Parent == mdev.Parent && p.Type == mdev.Type }),
			"CUSTOM_X", 1)
	}
	for _, device := range d.PCI {
		count(provider(func(p assignment.Provider) bool { return slices.Contains(p.Devices, device) }), "CUSTOM_X", 1)
	}
	want := r.Instance.Allocations
	if !nested { // afterwards, the root's amounts and the cells' cannot be distinguished
		want = allocations{}
		for name, classes := range r.Instance.Allocations {
			for class, n := range classes {
				at := name
				if class != "CUSTOM_X" {
					at = "root"
				}
				if want[at] == nil {
					want[at] = map[string]int64{}
				}
				want[at][class] += n
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("granted and given: %s\n%+v", diff, d)
	}
}

// shuffled is the same request with everything that has no order in another one.
func shuffled(t *rapid.T, r assignment.Request) assignment.Request {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	r.Domains, r.Shared, r.Dedicated = mixed(random, r.Domains), mixed(random, r.Shared), mixed(random, r.Dedicated)
	r.Machine.Devices = mixed(random, r.Machine.Devices)
	r.Machine.Parents = mixed(random, r.Machine.Parents)
	for i := range r.Machine.Parents {
		r.Machine.Parents[i].Mdevs = mixed(random, r.Machine.Parents[i].Mdevs)
	}
	return r
}

func mixed[T any](random *rand.Rand, from []T) []T {
	out := slices.Clone(from)
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func BenchmarkDecide(b *testing.B) {
	r := assignment.Request{
		Machine: host(2, 64), Providers: map[string]assignment.Provider{"cell0": {Kind: assignment.Cell}},
		Instance: plugins.InstanceSpec{
			UUID: uuid, Flavor: plugins.Flavor{VCPUs: 8, MemoryMB: 1024},
			Allocations: allocations{"cell0": {"PCPU": 8, "MEMORY_MB": 1024}},
		},
	}
	for cpu := range r.Machine.CPUs {
		r.Dedicated = append(r.Dedicated, cpu)
	}
	for i := range 200 {
		r.Domains = append(r.Domains, domain.Domain{UUID: id(i), VCPUs: 4, CPUSet: []int{0, 1, 300}})
	}
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(assignment.Decide(r)).Or(b)
	}
}

// writtenAndRead is the domain of a decision, from its XML, which says all of the decision.
func writtenAndRead(t *rapid.T, r assignment.Request, d domain.Decision) domain.Domain {
	text, err := domain.Write(domain.Spec{Node: "cn1", Instance: r.Instance, Decision: d, Type: "kvm", Arch: "x86_64"})
	testproc.Check(t, err)
	parsed := testproc.Try(domain.Parse(text)).Or(t)
	if back, _ := parsed.Decision(); cmp.Diff(d, back) != "" {
		t.Fatal(cmp.Diff(d, back))
	}
	return parsed
}
