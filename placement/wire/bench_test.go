// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// BenchmarkDecodeReshape reads a reshape of 100 providers and 1,000 consumers with allocations of 9
// providers each, and beside it the same with encoding/json, which checks nothing.
func BenchmarkDecodeReshape(b *testing.B) {
	uuid := func(kind, i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, i) }
	reshape := wire.Reshape{Inventories: map[string]wire.Inventories{},
		Allocations: map[string]wire.ConsumerAllocations{}}
	for i := range 100 {
		reshape.Inventories[uuid(1, i)] = wire.Inventories{Generation: 1,
			Inventories: map[string]wire.Inventory{"VCPU": wire.DefaultInventory(64),
				"MEMORY_MB": wire.DefaultInventory(1 << 20)}}
	}
	for i := range 1000 {
		held := wire.ProviderResources{}
		for j := range 9 {
			held[uuid(1, (i+j)%100)] = providertree.Resources{"VCPU": 1, "MEMORY_MB": 512}
		}
		generation := int64(1)
		reshape.Allocations[uuid(2, i)] = wire.ConsumerAllocations{Allocations: held, ProjectID: uuid(3, i%10),
			UserID: uuid(4, i%10), ConsumerGeneration: &generation, ConsumerType: "INSTANCE"}
	}
	body := testproc.Try(json.Marshal(reshape)).Or(b)
	b.Run("strict", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			testproc.Try(wire.DecodeReshape(body, wire.MaxVersion)).Or(b)
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var s wire.Reshape
			testproc.Check(b, json.Unmarshal(body, &s))
		}
	})
}
