// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPlanOfAReshape: everything is computed, nothing is written, also after start-up.
func TestPlanOfAReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			s.running = true
			must(s, s.placement.tree.Populate(
				[]providertree.Provider{{UUID: child2, Name: "cn1_untouched", ParentUUID: nodeUUID,
					Inventories: providertree.Inventories{"FPGA": {Total: 1}}}}))
		})
		<-s.tracker.Ready()
		plans, err := s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{Reshape: true})
		if err != nil || plans[0].Err != nil {
			t.Fatal(err, plans[0].Err)
		}
		r := plans[0].Reshape
		r.Payload.Bytes = 0 // it depends on the journal's form
		want := &reshape.Preview{Consumers: 2,
			Moved: 2, Payload: &reshape.PayloadPreview{Providers: 2, Consumers: 2},
			Providers: []reshape.ProviderPreview{
				{UUID: nodeUUID, Name: "cn1", Before: 2,
					After: 1,
					Classes: []reshape.ClassPreview{{Class: "VGPU",
						Before: &reshape.InventoryCount{Total: 4, Used: 3}}}},
				{UUID: gpu, Name: "cn1_gpu", Parent: nodeUUID, New: true, After: 2,
					Classes: []reshape.ClassPreview{{Class: "VGPU",
						After: &reshape.InventoryCount{Total: 4, Used: 3}}}},
			}}
		testproc.Same(t, cmp.Diff(want, r))
		if len(plans[0].Plan.Operations) != 2 || s.writes() != 0 || len(s.outcomes()) != 0 {
			t.Errorf("plan %v; %d writes, journal %v", plans[0].Plan.Operations, s.writes(), s.outcomes())
		}
		s.checkLayout(oldLayout)
		// Without leave to reshape, it is an error that says how to see more.
		plans, err = s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})
		if err != nil || !errors.Is(plans[0].Err, plugins.ErrReshapeNeeded) || plans[0].Reshape != nil {
			t.Errorf("Plan without Reshape: got %v, %+v, want ErrReshapeNeeded", err, plans[0])
		}
	})
}

// TestPlanOfARefusedReshapeShowsItAllTheSame.
func TestPlanOfARefusedReshapeShowsItAllTheSame(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, refusals["guarded"].prepare, func(s *scene) { s.hold = true })
		<-s.tracker.Ready()
		plans, err := s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{Reshape: true})
		var refused *reshape.Error
		if err != nil || !errors.As(plans[0].Err, &refused) || len(refused.Violations) != 2 ||
			plans[0].Reshape == nil || len(plans[0].Plan.Operations) != 0 {
			t.Errorf("Plan of a refused reshape: got %v, %+v, want it with two violations and no operations",
				err, plans[0])
		}
	})
}
