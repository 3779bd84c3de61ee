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
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
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
			UUID: bridge, Name: "cn1:NIC Switch agent:br0", ParentUUID: nodeUUID, Generation: 3, Traits: []string{"CUSTOM_PHYSNET"},
			Inventories: providertree.Inventories{"NET_BW_EGR_KILOBIT_PER_SEC": {Total: 1000}},
		},
	}))
	s.records = ownership.Open(s.t.TempDir())
}

func TestATreeThatOthersWroteToIsAdoptedWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared)
		<-s.tracker.Ready()
		if s.writes() != 0 || s.calls() != 2 {
			t.Errorf("%d writes, %d calls of the driver: %v", s.writes(), s.calls(), s.tracker.Status().Nodes[0].Changes)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s.writes() != 0 {
			t.Errorf("%d writes later", s.writes())
		}
		record, err := s.records.Load(nodeUUID)
		must(s, err)
		root := record.Providers[nodeUUID]
		if root.Inventories["VCPU"].Owner != ownership.Driver || root.Traits["COMPUTE_NODE"] != ownership.Agent || root.Traits["CUSTOM_RACK_7"] != "" {
			t.Errorf("recorded: %+v", root)
		}
		if _, ours := record.Providers[bridge]; ours {
			t.Error("neutron's provider is taken for ours")
		}
	})
}

// TestWhatOthersWroteOutlivesADriverThatWipes: the driver sets all traits and aggregates, and deletes what it does not know.
func TestWhatOthersWroteOutlivesADriverThatWipes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared, func(s *scene) {
			s.driver.edit = func(tree *providertree.Tree) {
				_, err1 := tree.SetTraits(nodeUUID, []string{"HW_CPU_X86_AVX"})
				_, err2 := tree.SetAggregates(nodeUUID, nil)
				must(s, err1)
				must(s, err2)
				if tree.Exists(bridge) {
					_, err := tree.Remove(bridge)
					must(s, err)
				}
			}
		})
		<-s.tracker.Ready()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		root, _ := s.said().Provider(nodeUUID)
		if !root.HasTrait("CUSTOM_RACK_7") || !root.HasTrait("HW_CPU_X86_AVX") || len(root.Aggregates) != 1 || !s.said().Exists(bridge) {
			t.Errorf("root %+v, neutron's provider there: %v", root, s.said().Exists(bridge))
		}
		kept := s.tracker.Status().Nodes[0].Kept
		if len(kept) != 3 || s.logged("not its own. It stays", "CUSTOM_RACK_7") != 1 || s.logged("not its own. It stays") != 3 {
			t.Errorf("kept %q, logged %d times", kept, s.logged("not its own. It stays"))
		}
		if s.writes() != 1 {
			t.Errorf("%d writes", s.writes())
		}
	})
}

func TestDisabledAndEnabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reason := "maintenance"
		s := start(t, shared, func(s *scene) {
			s.disabled = func(plugins.Node) (string, bool) {
				mu.Lock()
				defer mu.Unlock()
				return reason, reason != ""
			}
		})
		<-s.tracker.Ready()
		if !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) || s.tracker.Status().Nodes[0].DisabledReason != "maintenance" {
			t.Errorf("not disabled: %+v", s.tracker.Status().Nodes[0])
		}
		mu.Lock()
		reason = ""
		mu.Unlock()
		s.tracker.Refresh("enabled")
		synctest.Wait()
		if s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Error("our own trait stays")
		}

		// Somebody else sets it. That is theirs, until a person enables the node.
		s.placement.set(func(p *fakePlacement) {
			_, err := p.tree.AddTraits(nodeUUID, resourcetracker.TraitStatusDisabled)
			must(s, err)
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Error("what somebody else set is gone")
		}
		s.tracker.Enable(func(node string) bool { return node == "cn1" })
		synctest.Wait()
		if s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Error("the node was enabled, and is disabled still")
		}
		s.placement.set(func(p *fakePlacement) {
			_, err := p.tree.AddTraits(nodeUUID, resourcetracker.TraitStatusDisabled)
			must(s, err)
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Error("enabling once goes on for ever")
		}
	})
}

func TestCapabilities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared, func(s *scene) {
			_, err := s.placement.tree.AddTraits(nodeUUID, "COMPUTE_RESCUE_BFV") // Nova's, or an administrator's
			must(s, err)
			s.driver.capabilities = map[string]bool{"COMPUTE_NET_ATTACH_INTERFACE": true, "COMPUTE_RESCUE_BFV": false}
		})
		<-s.tracker.Ready()
		if !s.said().HasTraits(nodeUUID, "COMPUTE_NET_ATTACH_INTERFACE") || s.said().HasTraits(nodeUUID, "COMPUTE_RESCUE_BFV") {
			t.Errorf("%v", slices.Collect(s.said().All()))
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
	const both = `
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [{CUSTOM_LICENSE: {total: 4}}]}
    traits: {additional: [CUSTOM_FAST]}
  - identification: {name: 'cn1:NIC Switch agent:br0'}
    traits: {additional: [CUSTOM_BLUE]}
  - identification: {name: nobody}
    traits: {additional: [CUSTOM_BLUE]}
`
	dir := t.TempDir()
	var mu sync.Mutex
	var now *providerconfig.Config
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := providerconfig.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
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
		if inv, _ := tree.Inventory(nodeUUID, "CUSTOM_LICENSE"); inv.Total != 4 || !tree.HasTraits(nodeUUID, "CUSTOM_FAST") || !tree.HasTraits(bridge, "CUSTOM_BLUE", "CUSTOM_PHYSNET") {
			t.Errorf("%v", slices.Collect(tree.All()))
		}
		// Three names are new, two providers get traits, one an inventory, and then there is nothing to write any more, many passes on.
		if n := s.tracker.Status().Nodes[0]; n.Passes < 9 || s.writes() != 6 || len(n.Conflicts) != 1 || !strings.Contains(n.Conflicts[0], "nobody") {
			t.Errorf("%d writes, %+v", s.writes(), n)
		}

		// What leaves the file leaves Placement, and nothing else; guests that hold a licence keep it.
		s.placement.set(func(p *fakePlacement) {
			p.allocations = providertree.Allocations{guest1: {Resources: map[string]map[string]int64{nodeUUID: {"CUSTOM_LICENSE": 3}}}}
		})
		write("meta: {schema_version: '1.0'}\nproviders: []\n")
		s.tracker.Refresh("the file changed")
		synctest.Wait()
		tree = s.said()
		if tree.HasTraits(nodeUUID, "CUSTOM_FAST") || tree.HasTraits(bridge, "CUSTOM_BLUE") || !tree.HasTraits(bridge, "CUSTOM_PHYSNET") || !tree.HasTraits(nodeUUID, "CUSTOM_RACK_7") {
			t.Errorf("%v", slices.Collect(tree.All()))
		}
		if inv, _ := tree.Inventory(nodeUUID, "CUSTOM_LICENSE"); inv.Total != 3 || inv.Reserved != 3 {
			t.Errorf("of 4 licences, 3 of them in use, stay: %+v", inv)
		}
		if r := s.tracker.Status().Nodes[0].Retiring; len(r) != 1 {
			t.Errorf("retiring: %q", r)
		}
		s.placement.set(func(p *fakePlacement) {
			p.allocations = nil
			must(s, p.tree.SetGeneration(nodeUUID, 99))
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, there := s.said().Inventory(nodeUUID, "CUSTOM_LICENSE"); there {
			t.Error("nobody uses it any more, and it is still there")
		}
	})
}

// TestADeviceThatIsGoneStaysWhileGuestsUseIt, costs one request for each generation, and keeps nothing else from being written.
func TestADeviceThatIsGoneStaysWhileGuestsUseIt(t *testing.T) {
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
			p.allocations = providertree.Allocations{guest1: {Resources: map[string]map[string]int64{gpu: {"VGPU": 2}}}}
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
		if n := s.tracker.Status().Nodes[0]; asked > 3 || len(n.Retiring) != 1 || n.State != resourcetracker.Reporting {
			t.Errorf("asked %d times, %+v", asked, n)
		}
		s.placement.set(func(p *fakePlacement) {
			p.allocations = nil
			must(s, p.tree.SetGeneration(gpu, 99))
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s.said().Exists(gpu) {
			t.Error("nobody uses it any more, and it is still there")
		}
	})
}
