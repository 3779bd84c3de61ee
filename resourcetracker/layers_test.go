// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const bridge = "77777777-0000-4000-8000-000000000001"

// shared makes the scene that of a node on which others have written, too.
func shared(s *scene) {
	s.placement.tree = &providertree.Tree{}
	must(s, s.placement.tree.Populate([]providertree.Provider{
		{
			UUID: nodeUUID, Name: "cn1", Generation: 5, Traits: []string{"COMPUTE_NODE", "OWNER_NOVA", "CUSTOM_RACK_7"},
			Inventories: providertree.Inventories{"VCPU": {Total: 8}}, Aggregates: []string{bridge},
		},
		{
			UUID: bridge, Name: "cn1:NIC Switch agent:br0",
			ParentUUID: nodeUUID, Generation: 3, Traits: []string{"CUSTOM_PHYSNET"},
			Inventories: providertree.Inventories{"NET_BW_EGR_KILOBIT_PER_SEC": {Total: 1000}},
		},
	}))
	s.records = ownership.Open(s.t.TempDir())
}

func TestATreeThatOthersWroteToIsAdoptedWithoutAWrite(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared)
		<-s.tracker.Ready()
		if s.writes() != 0 || s.calls() != 2 {
			t.Errorf("%d writes, %d calls of the driver: %v",
				s.writes(), s.calls(), s.tracker.Status().Nodes[0].Changes)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		testproc.Equal(t, s.writes(), 0, "%d writes later")
		record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		root := record.Providers[nodeUUID]
		if root.Inventories["VCPU"].Owner != ownership.Driver || root.Traits["COMPUTE_NODE"] != ownership.Agent ||
			root.Traits["CUSTOM_RACK_7"] != "" {
			t.Errorf("recorded: %+v", root)
		}
		if _, ours := record.Providers[bridge]; ours {
			t.Error("neutron's provider is taken for ours")
		}
		if was, err := s.records.LoadAdopted(nodeUUID); err != nil || was == nil ||
			len(was.Providers) != 2 || len(was.Changed) > 0 {
			t.Errorf("what it was before: %+v, %v", was, err)
		}
	})
}

// TestWhatOthersWroteOutlivesADriverThatWipes: the driver sets all traits and aggregates, and
// deletes what it does not know.
func TestWhatOthersWroteOutlivesADriverThatWipes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared, func(s *scene) {
			s.driver.edit = func(tree *providertree.Tree) {
				_, err1 := tree.SetTraits(nodeUUID, []string{"HW_CPU_X86_AVX"})
				_, err2 := tree.SetAggregates(nodeUUID, nil)
				must(s, err1)
				must(s, err2)
				if tree.Exists(bridge) {
					testproc.Try(tree.Remove(bridge)).Or(s.t)
				}
			}
		})
		<-s.tracker.Ready()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		root, _ := s.said().Provider(nodeUUID)
		if !root.HasTrait("CUSTOM_RACK_7") || !root.HasTrait("HW_CPU_X86_AVX") ||
			len(root.Aggregates) != 1 || !s.said().Exists(bridge) {
			t.Errorf("root %+v, neutron's provider there: %v", root, s.said().Exists(bridge))
		}
		kept := s.tracker.Status().Nodes[0].Kept
		if len(kept) != 3 || s.logged("does not own. It was left", "CUSTOM_RACK_7") != 1 ||
			s.logged("does not own. It was left") != 3 {
			t.Errorf("kept %q, logged %d times", kept, s.logged("does not own. It was left"))
		}
		testproc.Equal(t, s.writes(), 1, "%d writes")
	})
}

func TestCapabilities(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared, func(s *scene) {
			// Nova's, or an administrator's
			testproc.Try(s.placement.tree.AddTraits(nodeUUID, "COMPUTE_RESCUE_BFV")).Or(s.t)
			s.driver.capabilities = map[string]bool{"COMPUTE_NET_ATTACH_INTERFACE": true, "COMPUTE_RESCUE_BFV": false}
			s.driver.edit = func(tree *providertree.Tree) {
				testproc.Try(tree.RemoveTraits(nodeUUID, "COMPUTE_RESCUE_BFV")).Or(s.t)
			}
		})
		<-s.tracker.Ready()
		if s.logged("does not own. It was left") > 0 {
			t.Error("the log says that a trait stays, and it is removed")
		}
		if !s.said().HasTraits(nodeUUID, "COMPUTE_NET_ATTACH_INTERFACE") ||
			s.said().HasTraits(nodeUUID, "COMPUTE_RESCUE_BFV") {
			t.Errorf("the tree in Placement: got %v, want the driver's capabilities alone",
				slices.Collect(s.said().All()))
		}
		s.driver.set(func(d *fakeDriver) { d.capabilities = nil })
		s.tracker.Refresh("the driver changed")
		synctest.Wait()
		if s.said().HasTraits(nodeUUID, "COMPUTE_NET_ATTACH_INTERFACE") {
			t.Error("a capability stays that the driver does not name any more")
		}
	})
}

func TestProviderYAML(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const both = `
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [{CUSTOM_LICENSE: {total: 4}}]}
    traits: {additional: [CUSTOM_FAST]}
  - identification: {name: 'cn1:NIC Switch agent:br0'}
    traits: {additional: [CUSTOM_BLUE]}
  - identification: {name: absent}
    traits: {additional: [CUSTOM_BLUE]}
`
	dir := t.TempDir()
	var mu sync.Mutex
	var now *providerconfig.Config
	write := func(content string) {
		t.Helper()
		testproc.Check(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(content), 0o600))
		c, _, err := providerconfig.Load(dir)
		testproc.Check(t, err)
		mu.Lock()
		defer mu.Unlock()
		now = c
	}
	write(both)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared, func(s *scene) {
			s.providerConfig = func() *providerconfig.Config {
				mu.Lock()
				defer mu.Unlock()
				return now
			}
		})
		<-s.tracker.Ready()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		tree := s.said()
		if inv, _ := tree.Inventory(nodeUUID, "CUSTOM_LICENSE"); inv.Total != 4 ||
			!tree.HasTraits(nodeUUID, "CUSTOM_FAST") || !tree.HasTraits(bridge, "CUSTOM_BLUE", "CUSTOM_PHYSNET") {
			t.Errorf("the tree in Placement: got %v, want what provider.yaml has", slices.Collect(tree.All()))
		}
		// Three names are new, two providers get traits, one an inventory, and then there is
		// nothing to write any more, many passes on.
		if n := s.tracker.Status().Nodes[0]; n.Passes < 9 || s.writes() != 6 || len(n.Conflicts) != 1 ||
			!strings.Contains(n.Conflicts[0], "absent") {
			t.Errorf("%d writes, %+v", s.writes(), n)
		}

		// What leaves the file leaves Placement, and nothing else; guests that hold a licence keep
		// it.
		s.placement.set(func(p *fakePlacement) {
			p.allocations = providertree.Allocations{guest1: {
				Resources: providertree.ProviderResources{nodeUUID: {"CUSTOM_LICENSE": 3}},
			}}
		})
		write("meta: {schema_version: '1.0'}\nproviders: []\n")
		s.tracker.Refresh("the file changed")
		synctest.Wait()
		tree = s.said()
		if tree.HasTraits(nodeUUID, "CUSTOM_FAST") || tree.HasTraits(bridge, "CUSTOM_BLUE") ||
			!tree.HasTraits(bridge, "CUSTOM_PHYSNET") || !tree.HasTraits(nodeUUID, "CUSTOM_RACK_7") {
			t.Errorf("the tree after a change of provider.yaml: got %v", slices.Collect(tree.All()))
		}
		if inv, _ := tree.Inventory(nodeUUID, "CUSTOM_LICENSE"); inv.Total != 3 || inv.Reserved != 3 {
			t.Errorf("of 4 licences, 3 of them in use, stay: %+v", inv)
		}
		if r := s.tracker.Status().Nodes[0].Draining; len(r) != 1 ||
			!strings.Contains(r[0], "held by the consumer "+guest1+".") {
			t.Errorf("draining: %q", r)
		}
		s.placement.set(func(p *fakePlacement) {
			p.allocations = nil
			must(s, p.tree.SetGeneration(nodeUUID, 99))
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, there := s.said().Inventory(nodeUUID, "CUSTOM_LICENSE"); there {
			t.Error("no guest uses it any more, and it is still there")
		}
	})
}

// TestANameThatAnotherClientHas: a provider that cannot be made waits, and is shown. Allocations
// are not moved to one.
func TestANameThatAnotherClientHas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, inUse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, vgpus, func(s *scene) {
				s.records = ownership.Open(s.stateDir())
				must(s, s.placement.tree.Populate(
					[]providertree.Provider{{UUID: bridge, Name: "cn1_gpu", ParentUUID: nodeUUID, Generation: 3,
						Inventories: providertree.Inventories{"CUSTOM_A": {Total: 1}}}}))
				must(s, s.records.Save(
					&ownership.Record{Root: nodeUUID,
						Node: "cn1", Driver: "fake", Providers: map[string]ownership.Provider{
							nodeUUID: {Name: "cn1",
								Owner: ownership.Driver,
								Inventories: map[string]ownership.OwnedInventory{"VGPU": {Owner: ownership.Driver,
									Inventory: providertree.Inventory{Total: 4}}}},
						}}))
				s.driver.answer = func(tree *providertree.Tree,
					allocations providertree.Allocations) (providertree.Allocations, error) {
					if tree.Exists(bridge) {
						testproc.Try(tree.Remove(bridge)).Or(s.t)
					}
					if inUse {
						return moveVGPUs(tree, allocations)
					}
					return nil, tree.AddChild(nodeUUID, gpu, "cn1_gpu")
				}
			})
			<-s.tracker.Ready()
			n := s.tracker.Status().Nodes[0]
			const text = "its name is that of "
			if s.checkLayout(oldLayout); s.said().Exists(gpu) {
				t.Error("it was made")
			}
			if inUse && !strings.Contains(n.Error, text) ||
				!inUse &&
					(n.Error != "" || len(n.Kept) != 2 || !strings.Contains(n.Kept[1], text) || len(n.Conflicts) > 0) {
				t.Errorf("the node: got %+v, want the name in use in an error or among what is kept", n)
			}
		})
	}
}

// TestADryRunAdoptsNothing: what a dry run reads of a node is not recorded, and the first pass
// adopts.
func TestADryRunAdoptsNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var tree *providertree.Tree
		s := start(t, shared, func(s *scene) {
			// a Placement that is being put back from a copy
			tree, s.placement.tree = s.placement.tree, nil
			s.driver.nodes = []plugins.Node{{Name: "other", UUID: bridge}}
			s.placement.readErr = reportclient.ErrUnavailable
		})
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) { p.readErr = nil })
		s.driver.set(func(d *fakeDriver) { d.nodes = []plugins.Node{{Name: "cn1"}} })
		plans := testproc.Try(s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})).Or(s.t)
		if len(plans) != 1 || plans[0].Err != nil || plans[0].Plan.Empty() {
			t.Fatalf("Plan: got %+v, want one plan with writes", plans)
		}
		s.placement.set(func(p *fakePlacement) { p.tree = tree })
		s.tracker.Refresh("a person asks")
		synctest.Wait()
		record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		if record.Providers[nodeUUID].Inventories["VCPU"].Owner != ownership.Driver || record.Created {
			t.Errorf("recorded: %+v", record)
		}
	})
}

// TestAnotherDriverTakesTheNodeOver: what only the former driver reported goes, what others put
// there stays, and what the agent laid upon it stays the agent's.
func TestAnotherDriverTakesTheNodeOver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, trait := range []string{"CUSTOM_COMPUTE_AGENT_LAYOUT_OTHER_4", "CUSTOM_COMPUTE_AGENT_SHAPE_OTHER_4"} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, shared, func(s *scene) {
				_, err := s.placement.tree.AddTraits(nodeUUID, "COMPUTE_RESCUE_BFV", trait, "HW_CPU_X86_AVX")
				must(s, err)
				agents := map[string]ownership.Owner{"COMPUTE_NODE": ownership.Agent,
					"COMPUTE_RESCUE_BFV": ownership.Agent, trait: ownership.Agent, "HW_CPU_X86_AVX": ownership.Driver}
				must(s, s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "other", Layout: 4,
					Created: true, Providers: map[string]ownership.Provider{
						nodeUUID: {Name: "cn1", Owner: ownership.Driver, Traits: agents},
						bridge:   {Name: "cn1:NIC Switch agent:br0", Parent: nodeUUID, Owner: ownership.Driver},
					}}))
			})
			<-s.tracker.Ready()
			tree := s.said()
			if tree.HasTraits(nodeUUID, "COMPUTE_RESCUE_BFV") || tree.HasTraits(nodeUUID, trait) ||
				tree.HasTraits(nodeUUID, "HW_CPU_X86_AVX") ||
				!tree.HasTraits(nodeUUID, "COMPUTE_NODE") || !tree.Exists(bridge) {
				t.Errorf("the tree of the new driver: got %v, want no traits of the former one",
					slices.Collect(tree.All()))
			}
			record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
			if record.Providers[bridge].Owner != ownership.Former || record.Driver != "fake" ||
				!record.Created || record.Layout != 0 {
				t.Errorf("recorded: %+v", record)
			}
		})
	}
}

// TestATraitThatPlacementDoesNotKnow is not taken for one that another client removed.
func TestATraitThatPlacementDoesNotKnow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		const future = "HW_CPU_X86_NOT_INVENTED_YET"
		s := start(t, shared, func(s *scene) {
			s.placement.unknown = future
			s.driver.edit = func(tree *providertree.Tree) {
				testproc.Try(tree.AddTraits(nodeUUID, future, "HW_CPU_X86_AVX")).Or(s.t)
			}
		})
		<-s.tracker.Ready()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := s.tracker.Status().Nodes[0]; len(n.Drift) > 0 ||
			s.logged("another client changed it") > 0 || s.writes() != 1 {
			t.Errorf("%d writes, drift %q, logged %d times", s.writes(), n.Drift, s.logged("another client changed it"))
		}
		if changes := strings.Join(s.tracker.Status().Nodes[0].Changes, "; "); s.logged(future) > 0 ||
			strings.Contains(changes, future) || !strings.Contains(changes, "+HW_CPU_X86_AVX") {
			t.Errorf("Placement refused the trait, and the changes or the log name it: %s", changes)
		}
		record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		if traits := record.Providers[nodeUUID].Traits; traits[future] != "" ||
			traits["HW_CPU_X86_AVX"] != ownership.Driver {
			t.Errorf("ours by the record: %v", traits)
		}
	})
}

// TestAReshapeClosesNothing that is in use: while it posts all that a consumer has, Placement
// before 14.0.0 (2025.2) takes a closed inventory for one that is too small. What left
// provider.yaml is closed by the next pass.
func TestAReshapeClosesNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		license := providertree.Inventory{Total: 4}
		s := start(t, vgpus, func(s *scene) {
			s.records = ownership.Open(s.stateDir())
			testproc.Try(s.placement.tree.SetInventory(nodeUUID, "CUSTOM_LICENSE", license)).Or(s.t)
			s.placement.allocations[guest1].Resources[nodeUUID]["CUSTOM_LICENSE"] = 3
			must(s, s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake",
				Providers: map[string]ownership.Provider{
					nodeUUID: {Name: "cn1", Owner: ownership.Driver,
						Inventories: map[string]ownership.OwnedInventory{"CUSTOM_LICENSE": {Owner: ownership.Operator,
							Inventory: license}}},
				}}))
		})
		<-s.tracker.Ready()
		history := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
		if len(history) != 1 {
			t.Fatalf("reshapes: %v", s.outcomes())
		}
		for _, p := range history[0].Reshape.Providers {
			if inv, found := p.After["CUSTOM_LICENSE"]; p.UUID == nodeUUID && (!found || !inv.Equal(license)) {
				t.Errorf("the reshape sets %+v", p.After)
			}
		}
		if r := s.tracker.Status().Nodes[0].Draining; len(r) != 1 {
			t.Errorf("draining: %q", r)
		}
		s.tracker.Refresh("the next pass")
		synctest.Wait()
		if inv, _ := s.said().Inventory(nodeUUID, "CUSTOM_LICENSE"); inv.Total != 3 || inv.Reserved != 3 {
			t.Errorf("of 4 licences, 3 of them in use, stay: %+v", inv)
		}
	})
}

// TestWhatStaysBehindDoesNotStopAReshape: a device that went away while guests use it is no reason
// to refuse the next release's reshape.
func TestWhatStaysBehindDoesNotStopAReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const dead = "11111111-0000-4000-8000-0000000000cc"
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			s.records = ownership.Open(s.stateDir())
			must(s, s.placement.tree.Populate([]providertree.Provider{
				{UUID: dead, Name: "cn1_dead", ParentUUID: nodeUUID, Generation: 2,
					Inventories: providertree.Inventories{"FPGA": {Total: 2, Reserved: 2}}},
			}))
			s.placement.allocations[guest1].Resources[dead] = map[string]int64{"FPGA": 2}
			must(s, s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake",
				Providers: map[string]ownership.Provider{
					dead: {Name: "cn1_dead", Parent: nodeUUID, Owner: ownership.Driver,
						Inventories: map[string]ownership.OwnedInventory{"FPGA": {Owner: ownership.Driver,
							Inventory: providertree.Inventory{Total: 2, Reserved: 2}}}},
				}}))
			s.driver.answer = func(tree *providertree.Tree,
				allocations providertree.Allocations) (providertree.Allocations, error) {
				after, err := moveVGPUs(tree, allocations)
				if err == nil && tree.Exists(dead) {
					_, err = tree.Remove(dead)
				}
				return after, err
			}
		})
		<-s.tracker.Ready()
		n := s.tracker.Status().Nodes
		want := map[string]providertree.ProviderResources{
			guest1: {nodeUUID: {"VCPU": 2}, gpu: {"VGPU": 2}, dead: {"FPGA": 2}}, guest2: {gpu: {"VGPU": 1}},
		}
		s.checkLayout(want)
		if inv, _ := s.said().Inventory(dead, "FPGA"); len(n) != 1 || n[0].State != resourcetracker.Reporting ||
			len(n[0].Draining) != 1 || inv.Total != 2 || inv.Reserved != 2 {
			t.Errorf("%+v, FPGA %+v", n, inv)
		}
	})
}
