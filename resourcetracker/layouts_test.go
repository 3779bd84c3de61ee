// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"errors"
	"fmt"
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
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// threeSteps makes the scene that of a driver whose layouts are 1: VGPU on the root, 2: VGPU on a
// child, 3: called CUSTOM_GPU_SLICE, 4: below a NUMA cell.
func threeSteps(s *scene) {
	vgpus(s)
	s.records = ownership.Open(s.stateDir())
	s.driver.layout = 4
	s.driver.answer = func(tree *providertree.Tree,
		allocations providertree.Allocations) (providertree.Allocations, error) {
		if p, _ := tree.Provider(nodeUUID); p.Generation != providertree.NoGeneration &&
			len(p.Inventories) > 0 && !tree.Exists(gpu) {
			return nil, errors.New("the driver was asked about a tree that no step has been made on")
		}
		if !tree.Exists(gpu) {
			if err := layGPU(tree); err != nil {
				return nil, err
			}
		}
		_, err1 := tree.SetInventory(nodeUUID, "VCPU", providertree.Inventory{Total: 8})
		_, err2 := tree.SetInventory(gpu, "CUSTOM_GPU_SLICE", providertree.Inventory{Total: 4})
		return allocations, errors.Join(err1, err2)
	}
	s.driver.step = func(tree *providertree.Tree, from int,
		allocations providertree.Allocations) (providertree.Allocations, map[string]string, error) {
		switch from {
		case 0:
			return allocations, nil, nil
		case 1:
			// that there are children says nothing: a refused reshape leaves them, empty
			if _, there := tree.Inventory(nodeUUID, "VGPU"); !there {
				return allocations, nil, nil
			}
			after, err := moveVGPUs(tree, allocations)
			return after, nil, err
		case 2:
			if _, there := tree.Inventory(gpu, "VGPU"); !there {
				return allocations, nil, nil
			}
			_, err1 := tree.RemoveInventory(gpu, "VGPU")
			_, err2 := tree.SetInventory(gpu, "CUSTOM_GPU_SLICE", providertree.Inventory{Total: 4})
			after, err3 := plugins.MoveAll(allocations, plugins.Place{Provider: gpu, Class: "VGPU"},
				plugins.Place{Provider: gpu, Class: "CUSTOM_GPU_SLICE"}).Apply(allocations)
			return after, map[string]string{"VGPU": "CUSTOM_GPU_SLICE"}, errors.Join(err1, err2, err3)
		case 3:
			if tree.Exists(numa) {
				return allocations, nil, nil
			}
			err := tree.AddChild(nodeUUID, numa, "cn1_numa0")
			_, err2 := tree.Move(gpu, numa)
			return allocations, nil, errors.Join(err, err2)
		}
		return nil, nil, fmt.Errorf("there is no step from %d", from)
	}
}

const numa = "11111111-0000-4000-8000-0000000000bb"

func layGPU(tree *providertree.Tree) error {
	return errors.Join(tree.AddChild(nodeUUID, numa, "cn1_numa0"), tree.AddChild(numa, gpu, "cn1_gpu"))
}

var layoutFour = map[string]providertree.ProviderResources{
	guest1: {nodeUUID: {"VCPU": 2}, gpu: {"CUSTOM_GPU_SLICE": 2}}, guest2: {gpu: {"CUSTOM_GPU_SLICE": 1}},
}

func TestAHostThreeLayoutsBehindArrivesInOneStart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, recorded := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, threeSteps, func(s *scene) {
				if recorded > 0 {
					must(s,
						s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake", Layout: recorded,
							Providers: map[string]ownership.Provider{}}))
				}
			})
			<-s.tracker.Ready()
			s.checkLayout(layoutFour)
			want := []int{0, 1, 2, 3}[recorded:]
			testproc.Samef(t, cmp.Diff(want, s.driver.steps), "steps from")
			if d := cmp.Diff([]string{"happened"}, s.outcomes()); d != "" || s.gathered() != 1 {
				t.Errorf("it took the reshapes %v, and allocations were gathered %d times", s.outcomes(), s.gathered())
			}
			if parent, _ := s.said().Provider(gpu); parent.ParentUUID != numa ||
				!s.said().HasTraits(nodeUUID, "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_4") {
				t.Errorf("the tree is not in layout 4: %+v", parent)
			}
			record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
			if record.Layout != 4 || s.tracker.Status().Nodes[0].Layout != 4 {
				t.Errorf("recorded is layout version %d, reported %d",
					record.Layout, s.tracker.Status().Nodes[0].Layout)
			}
			writes, calls := s.writes(), len(s.driver.steps)
			must(s, s.end())

			again := start(t, func(n *scene) {
				n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
			})
			<-again.tracker.Ready()
			if s.writes() != writes || len(s.driver.steps) != calls {
				t.Errorf("the next start wrote %d times and made %d steps",
					s.writes()-writes, len(s.driver.steps)-calls)
			}
		})
	}
}

// TestATreeThatHasTheLayoutAlreadyIsAdoptedAsItIs: a tree that another client made, and that has
// the newest layout as it is, costs no write. Only the state directory has its layout version then.
func TestATreeThatHasTheLayoutAlreadyIsAdoptedAsItIs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, threeSteps)
		<-s.tracker.Ready()
		must(s, s.end())
		writes := s.writes()
		s.placement.set(func(p *fakePlacement) {
			testproc.Try(p.tree.RemoveTraits(nodeUUID, "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_4")).Or(s.t)
		})
		records := ownership.Open(t.TempDir())
		for _, steps := range [][]int{{0, 1, 2, 3}, nil} {
			s.driver.steps = nil
			again := start(t, func(n *scene) { n.placement, n.driver, n.records = s.placement, s.driver, records })
			<-again.tracker.Ready()
			if d := cmp.Diff(steps, s.driver.steps); d != "" || again.writes() != writes {
				t.Errorf("%d writes; steps from (-want +got):\n%s", again.writes()-writes, d)
			}
			record := testproc.Try(records.Load(nodeUUID)).Or(s.t)
			testproc.Equal(t, record.Layout, 4, "recorded is layout version %d")
			must(s, again.end())
		}
	})
}

func TestALostStateDirectoryIsNoMatterToTheLayout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, threeSteps)
		<-s.tracker.Ready()
		must(s, s.end())
		writes := s.writes()
		s.driver.steps = nil
		again := start(t, func(n *scene) {
			n.placement, n.driver, n.records = s.placement, s.driver, ownership.Open(t.TempDir())
		})
		<-again.tracker.Ready()
		if again.writes() != writes || len(s.driver.steps) > 0 {
			t.Errorf("without its state directory the agent made the steps %v and %d writes, although a trait has "+
				"the layout version", s.driver.steps, again.writes()-writes)
		}
	})
}

func TestANewNodeIsMadeInTheNewestLayout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, threeSteps, func(s *scene) { s.placement.tree, s.placement.allocations = nil, nil })
		<-s.tracker.Ready()
		if len(s.driver.steps) > 0 || s.gathered() > 0 ||
			!s.said().HasTraits(nodeUUID, "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_4") {
			t.Errorf("steps %v, gathered %d, tree %v", s.driver.steps, s.gathered(), slices.Collect(s.said().All()))
		}
	})
}

func TestTheStepThatIsWrongIsNamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		wrong   func(after providertree.Allocations) error
		problem string // of the refusal; "": it is no refusal
		error   string
	}{
		"allocations are lost": {func(after providertree.Allocations) error { delete(after, guest2); return nil },
			"step from layout version 2 to 3: the driver's reshape does not pass the agent's checks", guest2},
		"a reshape is asked for": {func(providertree.Allocations) error {
			return &plugins.ReshapeNeeded{Reason: "again and again"}
		},
			"the driver was given all allocations for the step from layout version 2 to 3, but asks for a reshape",
			"again and again"},
		"allocations cannot move": {func(providertree.Allocations) error {
			return &plugins.ReshapeFailed{Reason: "stale",
				Violations: []plugins.Violation{{Consumer: guest1, Class: "VGPU", Provider: gpu, Problem: "no guest"}}}
		}, "step from layout version 2 to 3: the driver cannot move the allocations: stale",
			"2 VGPU of cn1_gpu: no guest"},
		"the driver fails": {func(providertree.Allocations) error { return plugins.ErrNotReady }, "",
			"asking the driver for the step from layout version 2 to 3: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, threeSteps, func(s *scene) {
					honest := s.driver.step
					s.driver.step = func(tree *providertree.Tree, from int,
						allocations providertree.Allocations) (providertree.Allocations, map[string]string, error) {
						after, renames, err := honest(tree, from, allocations)
						if from == 2 {
							err = errors.Join(err, c.wrong(after))
						}
						return after, renames, err
					}
				})
				var err error
				if c.problem == "" {
					<-s.tracker.Ready()
					err = errors.New(s.tracker.Status().Nodes[0].Error)
				} else {
					err = <-s.ended
				}
				var fatal *resourcetracker.FatalError
				var refused *reshape.Error
				if errors.As(err, &fatal) != (c.problem != "") || errors.As(err, &refused) &&
					refused.Problem != c.problem || !strings.Contains(err.Error(), c.error) {
					t.Errorf("the start ended with %v", err)
				}
				s.checkLayout(oldLayout)
			})
		})
	}
}

// TestADriverThatIsOlderThanTheTreeIsHeld: one with a lower layout version, or without any. The
// agent stays up and writes nothing for the node. A reshape that is taken back lets the older
// driver go on.
func TestADriverThatIsOlderThanTheTreeIsHeld(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, threeSteps, func(s *scene) {
			must(s, s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake", Layout: 1,
				Providers: map[string]ownership.Provider{
					nodeUUID: {Name: "cn1", Owner: ownership.Driver,
						Inventories: map[string]ownership.OwnedInventory{"VCPU": {Owner: ownership.Driver,
							Inventory: providertree.Inventory{Total: 8}},
							"VGPU": {Owner: ownership.Driver, Inventory: providertree.Inventory{Total: 4}}}},
				}}))
		})
		<-s.tracker.Ready()
		must(s, s.end())
		writes := s.writes()
		for layout, text := range map[int]string{2: "has layout version 4, but this driver has layout version 2",
			0: "has layout version 4, but this driver has no layout version"} {
			s.driver.layout = layout
			undo := layout > 0 // the tree had layout version 1 before the reshape: a driver without is held then, too
			old := start(t, func(n *scene) {
				n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
			})
			<-old.tracker.Ready()
			time.Sleep(time.Hour)
			n := old.tracker.Status().Nodes[0]
			if n.Cause != resourcetracker.CauseDriverOlder || !strings.Contains(n.Error, text) ||
				strings.Contains(n.Hint, "reshape undo 1") != undo || s.writes() != writes {
				t.Errorf("a driver of version %d: %+v, %d writes", layout, n, s.writes()-writes)
			}
			must(s, old.end())
		}

		// The newer one takes its reshape back, and then the older one starts.
		s.driver.layout = 4
		newer := start(t, func(n *scene) {
			n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
		})
		<-newer.tracker.Ready()
		history := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
		must(s, newer.tracker.Undo(t.Context(), history, 1))
		must(s, newer.end())
		s.checkLayout(oldLayout)
		if record, err := s.records.Load(nodeUUID); err != nil || record.Layout != 1 {
			t.Errorf("after the undo the record says layout version %d, %v", record.Layout, err)
		}
		s.driver.layout = 1
		s.driver.answer = func(tree *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
			_, err := tree.SetInventory(nodeUUID, "VGPU", providertree.Inventory{Total: 4})
			if tree.Exists(numa) {
				_, err2 := tree.Remove(numa)
				err = errors.Join(err, err2)
			}
			return a, err
		}
		older := start(t, func(n *scene) {
			n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
		})
		<-older.tracker.Ready()
		s.checkLayout(oldLayout)
		tree := s.said()
		if n := older.tracker.Status().Nodes[0]; tree.Len() != 1 || len(n.Kept) > 0 ||
			!tree.HasTraits(nodeUUID, "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_1") ||
			tree.HasTraits(nodeUUID, "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_4") {
			t.Errorf("the older driver's tree: %v, node %+v", slices.Collect(tree.All()), n)
		}
	})
}

// TestALayoutOfARunningAgent: a driver that a reload brings does not reshape a tree that is known
// to have had a layout version, by its record or by itself; any other it is simply asked about.
func TestALayoutOfARunningAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		recorded int
		inTree   bool
		asked    bool
		layout   int // of the status
	}{
		"the record has one":   {recorded: 1},
		"the tree has one":     {inTree: true},
		"neither has":          {asked: true},
		"both have the newest": {recorded: 4, inTree: true, asked: true, layout: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, threeSteps, func(s *scene) {
					s.running = true
					s.driver.answer = onRoot
					if c.inTree {
						testproc.Try(s.placement.tree.AddTraits(nodeUUID, "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_4")).Or(s.t)
					}
					must(s,
						s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake",
							Layout: c.recorded, Providers: map[string]ownership.Provider{}}))
				})
				<-s.tracker.Ready()
				n := s.tracker.Status().Nodes[0]
				if s.calls() > 0 != c.asked || len(s.driver.steps) > 0 ||
					(n.Cause == resourcetracker.CauseReshapeLate) == c.asked || n.Layout != c.layout {
					t.Errorf("asked %d times, %+v", s.calls(), n)
				}
			})
		})
	}
}

// TestAStepSeesNothingOfTheOperators, and what guests hold of it stays in the tree.
func TestAStepSeesNothingOfTheOperators(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		license := providertree.Inventory{Total: 4}
		s := start(t, threeSteps, func(s *scene) {
			testproc.Try(s.placement.tree.SetInventory(nodeUUID, "CUSTOM_LICENSE", license)).Or(s.t)
			s.placement.allocations[guest1].Resources[nodeUUID]["CUSTOM_LICENSE"] = 3
			honest := s.driver.step
			s.driver.step = func(tree *providertree.Tree,
				from int, allocations providertree.Allocations) (providertree.Allocations, map[string]string, error) {
				if _, there := tree.Inventory(nodeUUID, "CUSTOM_LICENSE"); there {
					t.Errorf("the step from %d sees it", from)
				}
				return honest(tree, from, allocations)
			}
			must(s, s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake", Layout: 1,
				Providers: map[string]ownership.Provider{
					nodeUUID: {Name: "cn1", Owner: ownership.Driver,
						Inventories: map[string]ownership.OwnedInventory{"CUSTOM_LICENSE": {Owner: ownership.Operator,
							Inventory: license},
							"VGPU": {Owner: ownership.Driver, Inventory: providertree.Inventory{Total: 4}}}},
				}}))
		})
		<-s.tracker.Ready()
		if n := s.tracker.Status().Nodes[0]; n.State != resourcetracker.Reporting || n.Layout != 4 {
			t.Errorf("the node: got %+v, want it reported with layout 4", n)
		}
		if _, there := s.said().Inventory(nodeUUID, "VGPU"); there {
			t.Error("VGPU is still on the root")
		}
	})
}

func TestNoStepIsMadeWhileTheAgentRuns(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, threeSteps)
		<-s.tracker.Ready()
		s.driver.set(func(d *fakeDriver) { d.layout = 5 })
		writes, steps := s.writes(), len(s.driver.steps)
		s.tracker.Refresh("a newer driver")
		synctest.Wait()
		n := s.tracker.Status().Nodes[0]
		if s.writes() != writes || len(s.driver.steps) != steps || n.State != resourcetracker.Degraded || n.Hint == "" {
			t.Errorf("%d writes, steps %v, node %+v", s.writes()-writes, s.driver.steps, n)
		}
	})
}

// TestARefusedReshapeLeavesTheLayoutUnknown: if no layout version is recorded, the next start makes
// all steps. The trait with the new version is there by then: it is written before the reshape, so
// that nothing raises a generation after the reshape and keeps it from being undone.
func TestARefusedReshapeLeavesTheLayoutUnknown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, threeSteps, func(s *scene) {
			s.placement.onReshape = func() error {
				return fmt.Errorf("%w: the role service is needed",
					reportclient.ErrReshapeRefused)
			}
		})
		var fatal *resourcetracker.FatalError
		if err := <-s.ended; !errors.As(err, &fatal) {
			t.Fatalf("the start ended with %v", err)
		}
		s.checkLayout(oldLayout)
		s.placement.onReshape, s.driver.steps = nil, nil
		again := start(t, func(n *scene) {
			n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
		})
		<-again.tracker.Ready()
		again.checkLayout(layoutFour)
		testproc.Samef(t, cmp.Diff([]int{0, 1, 2, 3}, s.driver.steps), "steps from")
	})
}

// TestAChainFromAnUnknownLayoutIsUndone: the running agent leaves it undone, and the next one to
// start begins from the unknown layout.
func TestAChainFromAnUnknownLayoutIsUndone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, next := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, threeSteps)
			<-s.tracker.Ready()
			history := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
			must(s, s.tracker.Undo(t.Context(), history, 1))
			s.checkLayout(oldLayout)
			writes := s.writes()
			s.tracker.Refresh("a person asks")
			synctest.Wait()
			s.checkLayout(oldLayout)
			if n := s.tracker.Status().Nodes[0]; s.writes() != writes || n.State != resourcetracker.Degraded ||
				n.Cause != resourcetracker.CauseReshapeLate {
				t.Errorf("after the undo the agent wrote %d times, node %+v", s.writes()-writes, n)
			}
			must(s, s.end())
			s.driver.layout, s.driver.steps = next, nil
			if next == 1 {
				s.driver.answer = func(tree *providertree.Tree,
					a providertree.Allocations) (providertree.Allocations, error) {
					_, err := tree.SetInventory(nodeUUID, "VGPU", providertree.Inventory{Total: 4})
					return a, err
				}
			}
			again := start(t, func(n *scene) {
				n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
			})
			<-again.tracker.Ready()
			if want := []int{0, 1, 2, 3}[:next]; cmp.Diff(want, s.driver.steps) != "" {
				t.Errorf("steps from %v, want %v", s.driver.steps, want)
			}
			if next == 4 {
				again.checkLayout(layoutFour)
			} else {
				again.checkLayout(oldLayout)
			}
		})
	}
}

// TestAPlacementThatWasPutBackFromACopy has the tree of before the reshape, and without the trait
// that has the layout version.
func TestAPlacementThatWasPutBackFromACopy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var copied *providertree.Tree
		var allocations providertree.Allocations
		s := start(t, threeSteps,
			func(s *scene) { copied, allocations = s.placement.tree.Clone(), s.placement.allocations.Clone() })
		<-s.tracker.Ready()
		s.checkLayout(layoutFour)
		s.placement.set(func(p *fakePlacement) { p.tree, p.allocations = copied, allocations })
		writes := s.writes()
		s.tracker.Refresh("a person asks")
		synctest.Wait()
		if n := s.tracker.Status().Nodes[0]; s.writes() != writes || n.Cause != resourcetracker.CauseReshapeLate {
			t.Errorf("the agent wrote %d times, node %+v", s.writes()-writes, n)
		}
		must(s, s.end())
		s.driver.steps = nil
		again := start(t, func(n *scene) {
			n.placement, n.driver, n.records, n.journal = s.placement, s.driver, s.records, s.journal
		})
		<-again.tracker.Ready()
		again.checkLayout(layoutFour)
		testproc.Samef(t, cmp.Diff([]int{0, 1, 2, 3}, s.driver.steps), "steps from")
	})
}
