// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// deviceTree is a root and n-1 providers below it in groups of a hundred, each with an inventory
// and two traits: a host with many devices.
func deviceTree(tb testing.TB, n int) *providertree.Tree {
	tb.Helper()
	tree := &providertree.Tree{}
	providers := make([]providertree.Provider, 0, n)
	group := ""
	for i := range n {
		uuid := testproc.Try(providertree.ChildUUID(someUUID, fmt.Sprint(i))).Or(tb)
		p := providertree.Provider{UUID: uuid, Name: fmt.Sprint("cn1_", i), Generation: int64(i)}
		switch {
		case i == 0:
		case i%100 == 1:
			p.ParentUUID, group = providers[0].UUID, uuid
		default:
			p.ParentUUID = group
			p.Inventories = providertree.Inventories{"VGPU": {Total: 4}}
			p.Traits = []string{"CUSTOM_A", "CUSTOM_B"}
		}
		providers = append(providers, p)
	}
	testproc.Check(tb, tree.Populate(providers))
	return tree
}

// guestAllocations is what n guests hold of the root and of a device each.
func guestAllocations(tb testing.TB, tree *providertree.Tree, n int) providertree.Allocations {
	tb.Helper()
	uuids := tree.UUIDs()
	out := make(providertree.Allocations, n)
	for i := range n {
		uuid := testproc.Try(providertree.ChildUUID(someUUID, fmt.Sprint("guest", i))).Or(tb)
		generation := int64(1)
		out[uuid] = providertree.ConsumerAllocations{
			Resources: providertree.ProviderResources{
				uuids[0]:              {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20},
				uuids[i%len(uuids)/2]: {"VGPU": 1},
			},
			Generation: &generation, ProjectID: "0f0f0f0f0f0f4f0f8f0f0f0f0f0f0f0f",
			UserID: "1f0f0f0f0f0f4f0f8f0f0f0f0f0f0f0f", ConsumerType: "INSTANCE",
		}
	}
	return out
}

// BenchmarkTree is what a tree costs on its way, step by step.
func BenchmarkTree(b *testing.B) {
	for _, n := range []int{100, 1000} {
		tree := deviceTree(b, n)
		msg := FromTree(tree)
		raw := testproc.Try(proto.Marshal(msg)).Or(b)
		b.Run(fmt.Sprint("FromTree/", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				FromTree(tree)
			}
		})
		b.Run(fmt.Sprint("Marshal/", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				testproc.Try(proto.Marshal(msg)).Or(b)
			}
		})
		b.Run(fmt.Sprint("Unmarshal/", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				testproc.Check(b, proto.Unmarshal(raw, &driverv1.ProviderTree{}))
			}
		})
		b.Run(fmt.Sprint("ToTree/", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testproc.Try(ToTree(msg)).Or(b)
			}
		})
	}
}

// BenchmarkAllocations is the same for what guests hold.
func BenchmarkAllocations(b *testing.B) {
	tree := deviceTree(b, 1000)
	const n = 10_000
	allocations := guestAllocations(b, tree, n)
	msg := FromAllocations(allocations)
	raw := testproc.Try(proto.Marshal(msg)).Or(b)
	b.Run(fmt.Sprint("FromAllocations/", n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			FromAllocations(allocations)
		}
	})
	b.Run(fmt.Sprint("Unmarshal/", n), func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			testproc.Check(b, proto.Unmarshal(raw, &driverv1.Allocations{}))
		}
	})
	b.Run(fmt.Sprint("ToAllocations/", n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			testproc.Try(ToAllocations(msg)).Or(b)
		}
	})
}
