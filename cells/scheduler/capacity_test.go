// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCapacities: what trees have and use, what is reserved included, and nothing for a node that
// Placement does not know.
func TestCapacities(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	const child, unknown = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000099"
	var known struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	w.ask("GET", "/resource_providers?name=cell1-host1", nil, &known)
	root := known.Providers[0].UUID
	capacity := func() placementcalls.Capacity {
		t.Helper()
		found := testproc.Try(w.scheduler.Capacities(ctx, []string{unknown, root})).Or(w.t)
		if len(found) != 2 || found[0] != (placementcalls.Capacity{}) {
			t.Errorf("Capacities: got %+v, want two, the first one empty", found)
		}
		return found[1]
	}
	before := capacity()
	if before.CPUs == 0 || before.MemoryMB == 0 || before.DiskGB == 0 {
		t.Errorf("a host without servers has %+v", before)
	}
	w.created()
	w.schedule()
	w.ask("POST", "/resource_providers", map[string]any{"uuid": child, "name": "numa0",
		"parent_provider_uuid": root}, nil)
	w.ask("PUT", "/resource_providers/"+child+"/inventories", map[string]any{
		"resource_provider_generation": 0,
		"inventories": map[string]any{"PCPU": map[string]any{"total": 4, "reserved": 1},
			"VGPU": map[string]any{"total": 2}},
	}, nil)
	want := before
	want.CPUs, want.CPUsUsed, want.MemoryMBUsed, want.DiskGBUsed = want.CPUs+4, want.CPUsUsed+2,
		want.MemoryMBUsed+512, want.DiskGBUsed+1
	testproc.Equal(t, capacity(), want, "the capacity: %+v")
	w.plink.set(refused)
	if _, err := w.scheduler.Capacities(ctx, []string{root}); !errors.Is(err, placementcalls.ErrCapacityUnknown) {
		t.Errorf("without Placement: %v", err)
	}
}
