// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	gpu    = "11111111-0000-4000-8000-0000000000aa"
	guest1 = "99999999-0000-4000-8000-000000000001"
	guest2 = "99999999-0000-4000-8000-000000000002"
)

// vgpus makes the scene that of a node whose VGPUs, of which guests hold 3, must move from the root
// to a child.
func vgpus(s *scene) {
	s.placement.tree = &providertree.Tree{}
	must(s, s.placement.tree.Populate([]providertree.Provider{{
		UUID: nodeUUID, Name: "cn1", Generation: 5, Traits: []string{"COMPUTE_NODE", "OWNER_NOVA"},
		Inventories: providertree.Inventories{"VCPU": {Total: 8}, "VGPU": {Total: 4}},
	}}))
	one := int64(1)
	s.placement.allocations = providertree.Allocations{
		guest1: {Resources: providertree.ProviderResources{nodeUUID: {"VCPU": 2, "VGPU": 2}}, ProjectID: "p",
			UserID: "u", Generation: &one},
		guest2: {Resources: providertree.ProviderResources{nodeUUID: {"VGPU": 1}}, ProjectID: "p",
			UserID: "u", Generation: &one},
	}
	s.driver.answer = moveVGPUs
	s.journal = journal.New(s.t.TempDir())
	s.placement.log = s.journal
}

func must(s *scene, err error) {
	s.t.Helper()
	testproc.Check(s.t, err)
}

// moveVGPUs is an honest driver.
func moveVGPUs(tree *providertree.Tree, allocations providertree.Allocations) (providertree.Allocations, error) {
	_, onRoot := tree.Inventory(nodeUUID, "VGPU")
	if onRoot && allocations == nil {
		return nil, &plugins.ReshapeNeeded{Reason: "VGPU goes to one provider for each GPU"}
	}
	if !tree.Exists(gpu) {
		if err := tree.AddChild(nodeUUID, gpu, "cn1_gpu"); err != nil {
			return nil, err
		}
	}
	_, err1 := tree.RemoveInventory(nodeUUID, "VGPU")
	_, err2 := tree.SetInventory(gpu, "VGPU", providertree.Inventory{Total: 4})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return plugins.MoveAll(allocations, plugins.Place{Provider: nodeUUID, Class: "VGPU"},
		plugins.Place{Provider: gpu, Class: "VGPU"}).Apply(allocations)
}

func (s *scene) held() map[string]providertree.ProviderResources {
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	out := map[string]providertree.ProviderResources{}
	for consumer, c := range s.placement.allocations {
		out[consumer] = c.Clone().Resources
	}
	return out
}

var (
	oldLayout = map[string]providertree.ProviderResources{
		guest1: {nodeUUID: {"VCPU": 2, "VGPU": 2}}, guest2: {nodeUUID: {"VGPU": 1}},
	}
	newLayout = map[string]providertree.ProviderResources{
		guest1: {nodeUUID: {"VCPU": 2}, gpu: {"VGPU": 2}}, guest2: {gpu: {"VGPU": 1}},
	}
)

func (s *scene) checkLayout(want map[string]providertree.ProviderResources) {
	s.t.Helper()
	testproc.Samef(s.t, cmp.Diff(want, s.held()), "allocations")
}

// outcomes are those of the journal's entries.
func (s *scene) outcomes() []string {
	s.t.Helper()
	entries := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
	out := []string{}
	for _, e := range entries {
		o := string(e.Outcome)
		if e.Compared {
			o += ", compared"
		}
		out = append(out, o)
	}
	return out
}

func (s *scene) stateDir() string { return filepath.Dir(s.journal.Dir()) }

func (s *scene) gathered() int {
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	return s.placement.gathered
}

func TestReshapeAtStartUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus)
		<-s.tracker.Ready()
		s.checkLayout(newLayout)
		// the first about an empty node
		if d := cmp.Diff([]string{"happened"}, s.outcomes()); d != "" || s.gathered() != 1 || s.calls() != 3 {
			t.Errorf("journal %v, gathered %d times, driver asked %d times", s.outcomes(), s.gathered(), s.calls())
		}
		if inv, _ := s.said().Inventory(gpu, "VGPU"); inv.Total != 4 {
			t.Errorf("the child has %d VGPU", inv.Total)
		}
		entries := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
		if entries[0].Node != "cn1" || entries[0].Root != nodeUUID {
			t.Errorf("the journal's entry is of %s (%s)", entries[0].Node, entries[0].Root)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s.gathered() != 1 || s.tracker.Status().State != resourcetracker.Reporting {
			t.Errorf("after it: gathered %d times, %+v", s.gathered(), s.tracker.Status())
		}
	})
}

// TestReshapeGivesTheDriverFreshCopies: changes that a driver made to its tree before it asked for
// a reshape, or to its arguments, have no effect.
func TestReshapeGivesTheDriverFreshCopies(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var first *providertree.Tree
		s := start(t, vgpus, func(s *scene) {
			s.driver.answer = func(tree *providertree.Tree,
				allocations providertree.Allocations) (providertree.Allocations, error) {
				switch {
				case allocations == nil && !tree.Exists(gpu):
					first = tree
					_, err1 := tree.SetInventories(nodeUUID, nil)
					_, err2 := tree.SetTraits(nodeUUID, []string{"CUSTOM_SCRIBBLE"})
					must(s, errors.Join(err1, err2, tree.AddChild(nodeUUID, guest1, "scribble")))
					return nil, plugins.ErrReshapeNeeded
				case allocations != nil:
					if tree == first || tree.Exists(guest1) || tree.HasTraits(nodeUUID, "CUSTOM_SCRIBBLE") {
						t.Error("the second call got the scribbled tree")
					}
					// Edited in place, and nil returned.
					after, err := moveVGPUs(tree, allocations)
					for consumer, c := range after {
						allocations[consumer] = c
					}
					return nil, err
				}
				return moveVGPUs(tree, allocations)
			}
		})
		<-s.tracker.Ready()
		s.checkLayout(newLayout)
		if s.said().Exists(guest1) || s.said().HasTraits(nodeUUID, "CUSTOM_SCRIBBLE") {
			t.Error("the scribble was written")
		}
	})
}

func TestNodeWithoutConsumersIsReshaped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) { s.placement.allocations = nil })
		<-s.tracker.Ready()
		if _, onRoot := s.said().Inventory(nodeUUID, "VGPU"); onRoot ||
			s.tracker.Status().State != resourcetracker.Reporting {
			t.Errorf("the status: got %+v, want it reported, without VGPU on the root", s.tracker.Status())
		}
	})
}

// refusals are the ways in which a reshape is refused for good, and what must be said of each.
var refusals = map[string]struct {
	prepare func(*scene)
	said    []string
	// journalled is what the journal holds then.
	journalled []string
}{
	"needed again": {func(s *scene) { s.driver.err = &plugins.ReshapeNeeded{Reason: "again and again"} },
		[]string{"asks for a reshape again", "again and again", "defect of the driver"}, []string{}},
	"failed": {func(s *scene) {
		s.driver.answer = func(_ *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
			if a == nil {
				return nil, plugins.ErrReshapeNeeded
			}
			failed := &plugins.ReshapeFailed{Reason: "stale allocations"}
			for n := range 7 { // more than the error's own text names
				failed.Violations = append(failed.Violations,
					plugins.Violation{Consumer: fmt.Sprintf("consumer-%d", n), Problem: "has no guest"})
			}
			return nil, fmt.Errorf("driver fake: %w", failed)
		}
	}, []string{"stale allocations", "consumer-0", "has no guest", "consumer-6",
		"openstack resource provider allocation"}, []string{}},
	"guarded": {func(s *scene) {
		s.driver.answer = func(tree *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
			after, err := moveVGPUs(tree, a)
			if after != nil {
				delete(after[guest1].Resources, gpu)
				delete(after, guest2)
			}
			return after, err
		}
	}, []string{guest1, "2 would be lost", guest2, "all its allocations would be lost", "plan --reshape"}, []string{}},
	"inventory removed that is still allocated": {func(s *scene) {
		s.driver.answer = func(tree *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
			if a == nil {
				return nil, plugins.ErrReshapeNeeded
			}
			_, err := tree.RemoveInventory(nodeUUID, "VGPU")
			return a, err
		}
	}, []string{guest1, guest2, "cn1 would have no inventory of it"}, []string{}},
	"an allocation leaves inventory that stays": {func(s *scene) {
		s.driver.answer = moveVCPUs
	}, []string{guest1, "VCPU of cn1: it holds 2 there and would hold 0, but the inventory stays as it is",
		"defect of the driver"}, []string{}},
	"a guest gets another device than the driver lists": {func(s *scene) {
		s.driver.answer = moveToAnother
		guestsOf(&lister{guests: []plugins.Guest{
			{UUID: guest1, Resources: providertree.ProviderResources{nodeUUID: {"VCPU": 2}, gpu: {"VGPU": 2}}},
			{UUID: guest2, Resources: providertree.ProviderResources{gpu: {"VGPU": 1}}},
		}})(s)
	}, []string{guest2, "VGPU of cn1_gpu: it would hold 0 there, but the driver lists the guest with 1",
		"VGPU of cn1_gpu_2: it would hold 1 there, but the driver lists the guest with 0"}, []string{}},
	"guarded as any tree": {func(s *scene) {
		s.driver.answer = func(tree *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
			after, err := moveVGPUs(tree, a)
			if after != nil {
				must(s, tree.AddRoot(guest1, "another"))
			}
			return after, err
		}
	}, []string{"another", "it is new, and a root"}, []string{}},
	"renamed impossibly": {func(s *scene) { s.driver.renames = map[string]string{"VGPU": "VGPU"} },
		[]string{"VGPU is renamed to itself"}, []string{}},
	"refused by Placement": {func(s *scene) {
		s.placement.onReshape = func() error {
			return fmt.Errorf("%w: Unable to allocate inventory",
				reportclient.ErrReshapeRefused)
		}
	}, []string{"Unable to allocate inventory", "role service"}, []string{"refused"}},
	"not admitted by Placement": {func(s *scene) {
		s.placement.onReshape = func() error {
			return fmt.Errorf("%w: %w", reportclient.ErrReshapeRefused,
				reportclient.ErrNotAdmitted)
		}
	}, []string{"more than is admitted", "cells manage admit-host", "then `compute-agent refresh`"},
		[]string{"refused"}},
}

func TestRefusedReshapeIsFatalAtStartUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, vgpus, c.prepare)
				err := <-s.ended
				var fatal *resourcetracker.FatalError
				if !errors.As(err, &fatal) || !fatal.Protects || fatal.Node != "cn1" {
					t.Fatalf("start-up went on: %v", err)
				}
				for _, part := range append(c.said, "what to do: ") {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("the error does not say %q:\n%v", part, err)
					}
				}
				if n := s.logged("The reshape is refused: nothing was moved", `"offenders":[`); n != 1 {
					t.Errorf("logged %d times", n)
				}
				s.checkLayout(oldLayout)
				testproc.Samef(t, cmp.Diff(c.journalled, s.outcomes()), "journal")
			})
		})
	}
}

// TestRefusedReshapeIsHeld: the agent stays up, tries nothing on its own, and tries again when
// another client asks.
func TestRefusedReshapeIsHeld(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, vgpus, c.prepare, func(s *scene) { s.hold = true })
				<-s.tracker.Ready()
				calls, writes := s.calls(), s.writes()
				time.Sleep(3 * time.Hour)
				s.tracker.Changed("the driver sees a change")
				time.Sleep(time.Hour)
				synctest.Wait()
				st := s.tracker.Status()
				n := st.Nodes[0]
				if st.State != resourcetracker.Degraded || n.State != resourcetracker.Degraded || !n.Held ||
					n.Error == "" || strings.Count(n.Hint, "compute-agent refresh") != 1 {
					t.Errorf("status: %+v", st)
				}
				if all := n.Error + strings.Join(n.Violations, "\n") + n.Hint; !containsAll(all, c.said...) {
					t.Errorf("the status does not say all of %q:\n%s", c.said, all)
				}
				if s.calls() != calls || s.writes() != writes {
					t.Errorf("in four hours the driver was asked %d more times, and %d more things were written",
						s.calls()-calls, s.writes()-writes)
				}
				if s.logged("the node is held") != 1 {
					t.Error("the log does not say once that the node is held")
				}
				s.tracker.Refresh("an operator asked") // and nothing has changed
				time.Sleep(time.Second)
				synctest.Wait()
				if s.calls() == calls || !s.tracker.Status().Nodes[0].Held {
					t.Error("it was not tried again when an operator asked, or is not held any more")
				}
				s.checkLayout(oldLayout)
				s.driver.set(func(d *fakeDriver) { d.answer, d.renames, d.err = moveVGPUs, nil, nil })
				s.placement.set(func(p *fakePlacement) { p.onReshape = nil })
				s.tracker.Refresh("the configuration was read again")
				time.Sleep(time.Second)
				synctest.Wait()
				s.checkLayout(newLayout)
				if st := s.tracker.Status(); st.State != resourcetracker.Reporting || st.Nodes[0].Held ||
					len(st.Nodes[0].Violations) > 0 {
					t.Errorf("not released: %+v", st)
				}
				testproc.NoError(t, s.end())
			})
		})
	}
}

func containsAll(s string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
}

// TestOtherNodesGoOnBesideAHeldOne.
func TestOtherNodesGoOnBesideAHeldOne(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const other = "11111111-0000-4000-8000-000000000002"
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			s.hold = true
			s.driver.nodes = []plugins.Node{{Name: "cn1", UUID: nodeUUID}, {Name: "cn2", UUID: other}}
			must(s, s.placement.tree.Populate([]providertree.Provider{{UUID: other, Name: "cn2"}}))
			vcpus := int64(1)
			s.driver.answer = func(tree *providertree.Tree,
				a providertree.Allocations) (providertree.Allocations, error) {
				if s.driver.node == "cn1" {
					return nil, &plugins.ReshapeFailed{Reason: "stale"}
				}
				vcpus++
				_, err := tree.SetInventory(other, "VCPU", providertree.Inventory{Total: vcpus})
				return a, err
			}
		})
		<-s.tracker.Ready()
		before, _ := s.said().Inventory(other, "VCPU")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if after, _ := s.said().Inventory(other, "VCPU"); after.Total < before.Total+8 {
			t.Errorf("in ten minutes cn2 went from %d to %d", before.Total, after.Total)
		}
		if st := s.tracker.Status(); st.State != resourcetracker.Degraded || !st.Nodes[0].Held ||
			st.Nodes[1].State != resourcetracker.Reporting {
			t.Errorf("the status: got %+v, want cn1 held and cn2 reported", st)
		}
	})
}

// TestPeriodicPassDoesNotReshape: what needs a reshape after start-up waits for a restart, and says
// so.
func TestPeriodicPassDoesNotReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			s.driver.answer = func(_ *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
				return a, nil
			}
		})
		<-s.tracker.Ready()
		s.driver.set(func(d *fakeDriver) { d.answer = moveVGPUs })
		for range 3 {
			s.tracker.Refresh("an operator asked") // not even then
			time.Sleep(10 * time.Minute)
		}
		synctest.Wait()
		n := s.tracker.Status().Nodes[0]
		if n.State != resourcetracker.Degraded || n.Held ||
			s.gathered() != 0 || !containsAll(n.Error, "restart the agent", "nothing was written",
			"one provider for each GPU") || !strings.Contains(n.Hint, "systemctl restart") {
			t.Errorf("gathered %d times; %+v", s.gathered(), n)
		}
		s.checkLayout(oldLayout)
		testproc.NoErrorf(t, s.end(), "a periodic pass ended the agent")
	})
}

// TestDriverOfAReloadDoesNotReshape: only the start of the agent is a start-up.
func TestDriverOfAReloadDoesNotReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) { s.running = true })
		<-s.tracker.Ready()
		time.Sleep(10 * time.Minute)
		if n := s.tracker.Status().Nodes[0]; n.State != resourcetracker.Degraded || s.gathered() != 0 {
			t.Errorf("the node of a driver that was reloaded: got %+v, want it degraded, and no allocations read", n)
		}
		testproc.NoError(t, s.end())
	})
}

// TestNodeThatComesLaterDoesNotReshape.
func TestNodeThatComesLaterDoesNotReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			s.driver.nodes = []plugins.Node{{Name: "cn0", UUID: guest1}}
			s.driver.answer = func(_ *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
				return a, nil
			}
		})
		<-s.tracker.Ready()
		s.driver.set(func(d *fakeDriver) {
			d.nodes = []plugins.Node{{Name: "cn1", UUID: nodeUUID}}
			d.answer = moveVGPUs
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := s.tracker.Status().Nodes[0]; n.Name != "cn1" || !strings.Contains(n.Error, "restart the agent") {
			t.Errorf("the node that came later: got %+v, want the advice to restart the agent", n)
		}
		testproc.NoError(t, s.end())
	})
}
