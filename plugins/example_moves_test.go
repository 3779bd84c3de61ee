// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// A node reported its VGPUs on the root; they move to one child per physical GPU. The driver knows
// the GPU of one guest; free capacity decides for the other.
func ExampleDistribution() {
	const root, gpu0, gpu1 = "a0000000-0000-0000-0000-000000000000", "a0000000-0000-0000-0000-000000000001",
		"a0000000-0000-0000-0000-000000000002"
	const guest, other = "b0000000-0000-0000-0000-000000000001", "b0000000-0000-0000-0000-000000000002"
	allocations := providertree.Allocations{
		guest: {Resources: providertree.ProviderResources{root: {"VCPU": 2, "VGPU": 1}}},
		other: {Resources: providertree.ProviderResources{root: {"VCPU": 4, "VGPU": 2}}},
	}
	var tree providertree.Tree // as UpdateProviderTree was given it, and edited so far
	_ = tree.AddRoot(root, "cn1")
	for i, uuid := range []string{gpu0, gpu1} {
		_ = tree.AddChild(root, uuid, fmt.Sprintf("cn1_gpu%d", i))
		_, _ = tree.SetInventory(uuid, "VGPU", providertree.Inventory{Total: 2})
	}

	moves, err := plugins.Distribution{
		From: plugins.Place{Provider: root, Class: "VGPU"},
		To:   []plugins.Place{{Provider: gpu0, Class: "VGPU"}, {Provider: gpu1, Class: "VGPU"}},
		Where: func(consumer string, amount int64) []plugins.Portion {
			if consumer == guest {
				return []plugins.Portion{{Place: plugins.Place{Provider: gpu1, Class: "VGPU"}, Amount: amount}}
			}
			return nil // not known
		},
	}.Distribute(&tree, allocations)
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := moves.Apply(allocations)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("guest: node", after[guest].Resources[root], "gpu1", after[guest].Resources[gpu1])
	fmt.Println("other: node", after[other].Resources[root], "gpu0", after[other].Resources[gpu0])
	// Output:
	// guest: node map[VCPU:2] gpu1 map[VGPU:1]
	// other: node map[VCPU:4] gpu0 map[VGPU:2]
}

// renamingDriver is embedded by a driver whose custom class became a standard one.
type renamingDriver struct{ own []string }

func (renamingDriver) ClassRenames() map[string]string {
	return map[string]string{"CUSTOM_MEMORY_SLICE": "MEMORY_MB"}
}

func (d renamingDriver) reshape(allocations providertree.Allocations) (providertree.Allocations, error) {
	var moves plugins.Moves
	for from, to := range d.ClassRenames() {
		moves = append(moves, plugins.RenameClass(allocations, from, to, d.own...)...)
	}
	return moves.Apply(allocations)
}

func ExampleRenamer() {
	const root = "a0000000-0000-0000-0000-000000000000"
	after, err := renamingDriver{own: []string{root}}.reshape(providertree.Allocations{
		"b0000000-0000-0000-0000-000000000001": {
			Resources: providertree.ProviderResources{root: {"CUSTOM_MEMORY_SLICE": 512}},
		},
	})
	fmt.Println(after["b0000000-0000-0000-0000-000000000001"].Resources, err)
	// Output: map[a0000000-0000-0000-0000-000000000000:map[MEMORY_MB:512]] <nil>
}
