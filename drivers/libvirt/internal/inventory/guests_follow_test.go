// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestGuestsFollow is the whole way of a host with guests, as a driver goes it: VGPU on the root,
// as Nova once had it, then on the GPUs, then the host nested, then flat again. At each step the
// guests go where Moving, Sites and Put say, and hold what they held.
func TestGuestsFollow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		pinned, floating = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
		mdev             = "00000000-0000-4000-8000-0000000000aa"
	)
	h := twoSockets(t)
	h.Mdevs[1].Class = "VGPU"
	host := machine.Machine{Arch: "x86_64", Cells: h.Cells}
	for _, c := range h.Cells {
		for _, cpu := range c.CPUs {
			host.CPUs = append(host.CPUs, machine.CPU{ID: cpu, Online: true, Cell: c.ID, Package: c.ID, Core: cpu})
		}
	}
	for i, m := range h.Mdevs {
		host.Parents = append(host.Parents,
			machine.MdevParent{Name: m.Device, Address: m.Address, Cell: i, Types: []machine.MdevType{{ID: m.Type}}})
	}
	host.Parents[1].Mdevs = []machine.Mdev{{UUID: mdev, Type: "nvidia-231", Active: true}}
	domains := []domain.Domain{
		{UUID: pinned, VCPUs: 1, Pins: [][]int{{7}},
			MemoryKiB: 4 << 20, Memory: domain.NUMATune{Mode: "strict", Nodes: []int{1}}, Mdevs: []string{mdev}},
		{UUID: floating, VCPUs: 2, MemoryKiB: 8 << 20},
	}
	allocations := providertree.Allocations{
		pinned: {Resources: providertree.ProviderResources{root: {"PCPU": 1,
			"MEMORY_MB": 4096, "DISK_GB": 20, "VGPU": 1}}},
		floating: {Resources: providertree.ProviderResources{root: {"VCPU": 2, "MEMORY_MB": 8192, "DISK_GB": 20}}},
	}
	totals := func() providertree.ProviderResources {
		out := providertree.ProviderResources{}
		for consumer, held := range allocations {
			out[consumer] = held.Totals()
		}
		return out
	}
	before := totals()

	tree := novas(t)
	for _, gpu := range []string{novaGPU0, novaGPU1} {
		testproc.Try(tree.Remove(gpu)).Or(t)
	}
	testproc.Try(tree.SetInventory(root, "VGPU", providertree.Inventory{Total: 5})).Or(t)

	step := func(s inventory.Settings, expected providertree.ProviderResources) {
		t.Helper()
		w := want(t, h, s)
		moving := testproc.Try(w.Moving(tree, root)).Or(t)
		if len(moving) == 0 {
			t.Fatal("nothing is moving")
		}
		sites := testproc.Try(w.Sites(tree, root)).Or(t)
		tree = put(t, w, tree)
		result := testproc.Try(assignment.Move(assignment.MoveRequest{
			Tree: tree, Root: root, Moving: moving, Sites: sites, Machine: host, Domains: domains,
			Dedicated: h.Dedicated, Allocations: allocations,
		})).Or(t)
		allocations = result.Allocations
		if diff := cmp.Diff(before, totals()); diff != "" {
			t.Fatalf("what the guests hold in all (-before +after):\n%s", diff)
		}
		names := providertree.ProviderResources{}
		for provider, amounts := range allocations[pinned].Resources {
			p, found := tree.Provider(provider)
			if !found {
				t.Fatalf("%v is allocated on %s, which is gone", amounts, provider)
			}
			names[p.Name] = maps.Clone(amounts)
		}
		if diff := cmp.Diff(expected, names); diff != "" {
			t.Fatalf("the pinned guest (-want +got):\n%s\n%s", diff, dump(tree))
		}
		for p := range tree.All() {
			for class, n := range allocations.Used(p.UUID) {
				if inv := p.Inventories[class]; n > inv.Capacity() {
					t.Fatalf("%d of %s are allocated on %s, which has %d free", n, class, p.Name, inv.Capacity())
				}
			}
		}
	}
	flat := providertree.ProviderResources{"cn1": {"PCPU": 1, "MEMORY_MB": 4096, "DISK_GB": 20},
		"cn1_pci_0000_82_00_0": {"VGPU": 1}}
	step(settings(), flat)
	step(nestedSettings(), providertree.ProviderResources{"cn1": {"DISK_GB": 20},
		"cn1_numa_1": {"PCPU": 1, "MEMORY_MB": 4096}, "cn1_pci_0000_82_00_0": {"VGPU": 1}})
	step(settings(), flat)
}
