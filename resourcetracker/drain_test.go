// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestUsagesThatWereReadAreKept when not all could be: else a node with very many that go would
// never come to an end.
func TestUsagesThatWereReadAreKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		const n = 10
		uuid := func(i int) string { return fmt.Sprintf("22222222-0000-4000-8000-%012d", i) }
		s := start(t, shared, func(s *scene) {
			s.driver.edit = func(tree *providertree.Tree) {
				for i := range n {
					if !tree.Exists(uuid(i)) {
						must(s, tree.AddChild(nodeUUID, uuid(i), fmt.Sprint("cn1_dev", i)))
					}
					testproc.Try(tree.SetInventory(uuid(i), "CUSTOM_DEV", providertree.Inventory{Total: 1})).Or(s.t)
				}
			}
		})
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) { p.askMost = 6 })
		s.driver.set(func(d *fakeDriver) {
			d.edit = func(tree *providertree.Tree) {
				for i := range n {
					if tree.Exists(uuid(i)) {
						testproc.Try(tree.Remove(uuid(i))).Or(s.t)
					}
				}
			}
		})
		s.tracker.Refresh("the devices went")
		synctest.Wait()
		s.placement.set(func(p *fakePlacement) { p.askMost = 0 })
		s.tracker.Refresh("Placement is back")
		synctest.Wait()
		s.placement.mu.Lock()
		defer s.placement.mu.Unlock()
		if s.placement.asked != n+1 || s.placement.tree.Len() != 2 {
			t.Errorf("asked %d times for %d providers, of which %d are left",
				s.placement.asked, n, s.placement.tree.Len()-2)
		}
	})
}

// TestUsagesAreReadAgain after five minutes, to the second, although the generation stays.
func TestUsagesAreReadAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared, func(s *scene) {
			s.placement.allocations =
				providertree.Allocations{guest1: {Resources: providertree.ProviderResources{nodeUUID: {"VGPU": 2}}}}
			testproc.Try(s.placement.tree.SetInventory(nodeUUID, "VGPU", providertree.Inventory{Total: 8})).Or(s.t)
			s.driver.edit = func(tree *providertree.Tree) {
				testproc.Try(tree.RemoveInventory(nodeUUID, "VGPU")).Or(s.t)
			}
			s.config = func(c *resourcetracker.Config) { c.Rand = func() float64 { return 0 } }
		})
		begin := time.Now()
		var reads []time.Duration
		for range 12 {
			synctest.Wait()
			s.placement.mu.Lock()
			if s.placement.asked > len(reads) {
				reads = append(reads, time.Since(begin))
			}
			s.placement.mu.Unlock()
			time.Sleep(time.Minute)
		}
		if want := []time.Duration{0, 5 * time.Minute, 10 * time.Minute}; !slices.Equal(reads, want) {
			t.Errorf("read after %v, want %v", reads, want)
		}
	})
}

// TestWhatIsFreeGoesAlthoughTheGenerationStays: a DELETE of allocations, and a move of all that a
// guest has to another provider, do not raise the generation of the one that it leaves.
func TestWhatIsFreeGoesAlthoughTheGenerationStays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared, func(s *scene) {
			s.placement.allocations =
				providertree.Allocations{guest1: {Resources: providertree.ProviderResources{nodeUUID: {"VGPU": 2}}}}
			testproc.Try(s.placement.tree.SetInventory(nodeUUID, "VGPU", providertree.Inventory{Total: 8})).Or(s.t)
			s.driver.edit = func(tree *providertree.Tree) {
				testproc.Try(tree.RemoveInventory(nodeUUID, "VGPU")).Or(s.t)
			}
		})
		<-s.tracker.Ready()
		if inv, _ := s.said().Inventory(nodeUUID, "VGPU"); inv.Total != 2 || inv.Reserved != 2 {
			t.Errorf("of 8, 2 of them in use, stay: %+v", inv)
		}
		s.placement.set(func(p *fakePlacement) { p.allocations = nil })
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		if inv, there := s.said().Inventory(nodeUUID, "VGPU"); there {
			t.Errorf("no guest uses it any more, and it is still there: %+v", inv)
		}
	})
}

// TestADeviceThatIsGoneStaysWhileGuestsUseIt, costs one request for each generation, and keeps
// nothing else from being written.
func TestADeviceThatIsGoneStaysWhileGuestsUseIt(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		withGPU := func(tree *providertree.Tree) {
			if !tree.Exists(gpu) {
				_ = tree.AddChild(nodeUUID, gpu, "cn1_gpu")
			}
			_, _ = tree.SetInventory(gpu, "VGPU", providertree.Inventory{Total: 8})
		}
		s := start(t, shared, func(s *scene) { s.driver.edit = withGPU })
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) {
			p.allocations =
				providertree.Allocations{guest1: {Resources: providertree.ProviderResources{gpu: {"VGPU": 2}}}}
		})
		s.driver.set(func(d *fakeDriver) {
			d.vcpus = 6
			d.edit = func(tree *providertree.Tree) {
				if tree.Exists(gpu) {
					_, _ = tree.Remove(gpu)
				}
			}
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		inv, _ := s.said().Inventory(gpu, "VGPU")
		vcpu, _ := s.said().Inventory(nodeUUID, "VCPU")
		if inv.Total != 2 || inv.Reserved != 2 || vcpu.Total != 6 {
			t.Errorf("VGPU %+v, VCPU %+v", inv, vcpu)
		}
		s.placement.mu.Lock()
		asked := s.placement.asked
		s.placement.mu.Unlock()
		if n := s.tracker.Status().Nodes[0]; asked > 3 || len(n.Draining) != 1 || n.State != resourcetracker.Reporting {
			t.Errorf("asked %d times, %+v", asked, n)
		}
		s.placement.set(func(p *fakePlacement) {
			p.allocations = nil
			must(s, p.tree.SetGeneration(gpu, 99))
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.said().Exists(gpu) {
			t.Error("no guest uses it any more, and it is still there")
		}
	})
}
