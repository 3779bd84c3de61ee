// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// BenchmarkSteadyPass is a pass over a node of so many providers in which nothing changed: no
// request, no file written.
func BenchmarkSteadyPass(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			placement := &fakePlacement{}
			tracker := resourcetracker.New(resourcetracker.Config{
				Name: "fake", Placement: placement, Identity: nodeUUID, Logger: zerolog.Nop(),
				Records: ownership.Open(b.TempDir()),
				Timings: resourcetracker.Timings{PassDeadline: time.Minute},
				Driver: &fakeDriver{vcpus: 8, nodes: []plugins.Node{{Name: "cn1"}},
					edit: func(tree *providertree.Tree) {
						for i := range n - 1 {
							uuid := fmt.Sprintf("22222222-0000-4000-8000-%012x", i)
							if !tree.Exists(uuid) {
								_ = tree.AddChild(nodeUUID, uuid, fmt.Sprintf("cn1_dev%d", i))
							}
							_, _ = tree.SetInventory(uuid, "CUSTOM_DEV", providertree.Inventory{Total: 1})
							_, _ = tree.AddTraits(uuid, "CUSTOM_X", "HW_CPU_X86_AVX")
						}
					}},
			})
			testproc.Check(b, tracker.RunOnce(context.Background()))
			writes := placement.writes
			b.ReportAllocs()
			for b.Loop() {
				testproc.Check(b, tracker.RunOnce(context.Background()))
			}
			if placement.writes != writes {
				b.Errorf("%d writes in steady passes", placement.writes-writes)
			}
		})
	}
}
