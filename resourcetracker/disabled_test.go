// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestDisabledAndEnabled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
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
		if !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) ||
			s.tracker.Status().Nodes[0].DisabledReason != "maintenance" {
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

		// Another client sets it. That is theirs, until an operator enables the node.
		s.placement.set(func(p *fakePlacement) {
			testproc.Try(p.tree.AddTraits(nodeUUID, resourcetracker.TraitStatusDisabled)).Or(s.t)
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Error("what another client set is gone")
		}
		s.tracker.Enable(func(node string) bool { return node == "cn1" })
		synctest.Wait()
		if s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Error("the node was enabled, and is disabled still")
		}
		s.placement.set(func(p *fakePlacement) {
			testproc.Try(p.tree.AddTraits(nodeUUID, resourcetracker.TraitStatusDisabled)).Or(s.t)
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Error("enabling once removes the trait again and again")
		}
	})
}

// TestDisablingAHostInTroubleIsTriedAgain, and then recorded as the agent's own beside all else
// that is.
func TestDisablingAHostInTroubleIsTriedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		disabled := func(plugins.Node) (string, bool) { return "broken", true }
		s := start(t, shared)
		<-s.tracker.Ready()
		must(s, s.end())
		s.driver.set(func(d *fakeDriver) { d.err = plugins.ErrNotReady })
		s.placement.set(func(p *fakePlacement) { p.applyErr = []error{reportclient.ErrConflict} })
		const line = "Failed to write to Placement whether the node is disabled"
		again := start(t, func(n *scene) {
			n.placement, n.driver, n.records, n.disabled = s.placement, s.driver, s.records, disabled
		})
		<-again.tracker.Ready()
		if again.logged(line) != 1 || s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
			t.Errorf("logged %d times", again.logged(line))
		}
		again.tracker.Refresh("a person asks")
		synctest.Wait()
		record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		root := record.Providers[nodeUUID]
		if again.logged(line) != 1 || !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) ||
			root.Name != "cn1" ||
			root.Traits[resourcetracker.TraitStatusDisabled] != ownership.Agent ||
			root.Traits[resourcetracker.TraitComputeNode] != ownership.Agent {
			t.Errorf("logged %d times, recorded %+v", again.logged(line), root)
		}
	})
}

// TestDisablingClaimsNothingOfAnotherDriver: what is recorded of a node that another driver
// reported stays as it is until a pass of this driver has succeeded.
func TestDisablingClaimsNothingOfAnotherDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared)
		<-s.tracker.Ready()
		must(s, s.end())
		record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		record.Driver = "another"
		must(s, s.records.Save(record))
		s.driver.set(func(d *fakeDriver) { d.err = plugins.ErrNotReady })
		again := start(t, func(n *scene) {
			n.placement, n.driver, n.records = s.placement, s.driver, s.records
			n.disabled = func(plugins.Node) (string, bool) { return "broken", true }
		})
		<-again.tracker.Ready()
		after := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
		owner, claimed := after.Providers[nodeUUID].Traits[resourcetracker.TraitStatusDisabled]
		disabled := s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled)
		if claimed || after.Driver != "another" || !disabled {
			t.Errorf("recorded driver %q, owner of the trait %q; Placement has the trait: %v",
				after.Driver, owner, disabled)
		}
	})
}

// TestAHostInTroubleCanBeDisabled: its driver is down or reports too much, or its reshape waits for
// an operator; and it can be enabled again.
func TestAHostInTroubleCanBeDisabled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	troubles := map[string]func(*scene){
		"the driver cannot tell the tree": func(s *scene) {
			s.driver.set(func(d *fakeDriver) { d.err = plugins.ErrNotReady })
		},
		"the driver cannot tell its nodes": func(s *scene) {
			s.driver.set(func(d *fakeDriver) { d.nodes = nil })
		},
		"Placement does not admit what the driver reports": func(s *scene) {
			const trait = "HW_CPU_X86_VMX"
			s.placement.set(func(p *fakePlacement) { p.unadmitted = trait })
			s.driver.set(func(d *fakeDriver) {
				d.answer = func(tree *providertree.Tree, _ providertree.Allocations) (providertree.Allocations, error) {
					_, err := tree.AddTraits(nodeUUID, trait)
					return nil, err
				}
			})
		},
		"a reshape waits for a restart": func(s *scene) {
			s.driver.set(func(d *fakeDriver) {
				d.answer = func(*providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
					return nil, plugins.ErrReshapeNeeded
				}
			})
		},
	}
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				reason := ""
				set := func(r string) {
					mu.Lock()
					defer mu.Unlock()
					reason = r
				}
				s := start(t, shared, func(s *scene) {
					s.disabled = func(plugins.Node) (string, bool) {
						mu.Lock()
						defer mu.Unlock()
						return reason, reason != ""
					}
				})
				<-s.tracker.Ready()
				trouble(s)
				s.tracker.Refresh("an operator asked")
				synctest.Wait()
				set("it is broken")
				s.tracker.Refresh("disabled")
				synctest.Wait()
				st := s.tracker.Status().Nodes[0]
				if !s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled, "CUSTOM_RACK_7") ||
					st.DisabledReason != "it is broken" || st.State != resourcetracker.Degraded {
					t.Errorf("not disabled: %+v", st)
				}
				writes := s.writes()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if s.writes() != writes {
					t.Errorf("%d more writes", s.writes()-writes)
				}
				set("")
				s.tracker.Refresh("enabled")
				synctest.Wait()
				if s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled) {
					t.Error("not enabled")
				}
			})
		})
	}
}
