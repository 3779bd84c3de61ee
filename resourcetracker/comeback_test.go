// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestADeviceThatComesBackIsNotTakenForAReservedOne: a driver that leaves to operators what is
// reserved of a device, as Nova's does, finds it as it was before the agent closed it, after a
// restart too.
func TestADeviceThatComesBackIsNotTakenForAReservedOne(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		withGPU := func(tree *providertree.Tree) {
			inv, _ := tree.Inventory(gpu, "FPGA")
			if !tree.Exists(gpu) {
				_ = tree.AddChild(nodeUUID, gpu, "cn1_gpu")
			}
			_, err := tree.SetInventory(gpu, "FPGA", providertree.Inventory{Total: 1, Reserved: min(inv.Reserved, 1)})
			testproc.NoError(t, err)
		}
		s := start(t, shared, func(s *scene) { s.driver.edit = withGPU })
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) {
			p.allocations =
				providertree.Allocations{guest1: {Resources: providertree.ProviderResources{gpu: {"FPGA": 1}}}}
		})
		s.driver.set(func(d *fakeDriver) {
			d.edit = func(tree *providertree.Tree) {
				if tree.Exists(gpu) {
					_, _ = tree.Remove(gpu)
				}
			}
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if inv, _ := s.said().Inventory(gpu, "FPGA"); inv.Total != 1 || inv.Reserved != 1 {
			t.Fatalf("gone while it is in use: %+v", inv)
		}
		must(s, s.end())
		again := start(t, func(n *scene) { n.placement, n.records, n.driver.edit = s.placement, s.records, withGPU })
		<-again.tracker.Ready()
		if inv, _ := again.said().Inventory(gpu, "FPGA"); inv.Total != 1 || inv.Reserved != 0 {
			t.Errorf("it is back: %+v", inv)
		}
		writes := again.writes()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := again.tracker.Status().Nodes[0]; again.writes() != writes || len(n.Draining) > 0 {
			t.Errorf("%d writes more, %+v", again.writes()-writes, n)
		}
	})
}
