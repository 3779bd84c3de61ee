// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestTraitOfAFormerAgentIsReplaced: agents up to 0.2.0 gave the layout version's trait another
// prefix. It counts, with and without the record of the state directory, and is written again as it
// is now, once.
func TestTraitOfAFormerAgentIsReplaced(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const former, current = "CUSTOM_COMPUTE_AGENT_SHAPE_FAKE_4", "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_4"
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, threeSteps)
			<-s.tracker.Ready()
			must(s, s.end())
			s.placement.set(func(p *fakePlacement) {
				testproc.Try(p.tree.RemoveTraits(nodeUUID, current)).Or(s.t)
				testproc.Try(p.tree.AddTraits(nodeUUID, former)).Or(s.t)
			})
			record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
			traits := record.Providers[nodeUUID].Traits
			delete(traits, current)
			traits[former] = ownership.Agent
			must(s, s.records.Save(record))
			records := s.records
			if lost {
				records = ownership.Open(t.TempDir())
			}
			s.driver.steps = nil
			for _, writes := range []bool{true, false} {
				before := s.writes()
				again := start(t, func(n *scene) { n.placement, n.driver, n.records = s.placement, s.driver, records })
				<-again.tracker.Ready()
				tree := again.said()
				if tree.HasTraits(nodeUUID, former) || !tree.HasTraits(nodeUUID, current) || len(s.driver.steps) > 0 ||
					s.writes() > before != writes {
					t.Errorf("lost %v: steps %v, %d writes, tree %v",
						lost, s.driver.steps, s.writes()-before, slices.Collect(tree.All()))
				}
				n := again.tracker.Status().Nodes[0]
				if n.Layout != 4 || n.Shape != 4 || len(n.Kept) > 0 {
					t.Errorf("lost %v: %+v", lost, n)
				}
				if traits := testproc.Try(records.Load(nodeUUID)).Or(s.t).
					Providers[nodeUUID].Traits; traits[former] != "" || traits[current] != ownership.Agent {
					t.Errorf("lost %v: ours by the record: %v", lost, traits)
				}
				s.checkLayout(layoutFour)
				must(s, again.end())
			}
		})
	}
}

// TestTraitThatIsGoneIsWrittenAgain where the record says that the tree had it: the tree was
// created with one (an agent of release 0.2.0, put back for a while, removes it from tree and
// record), or another client removed it. Without its state directory the agent knows the layout
// version then. A tree that was adopted in its layout gets no write.
func TestTraitThatIsGoneIsWrittenAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const trait = "CUSTOM_COMPUTE_AGENT_LAYOUT_FAKE_4"
	for name, c := range map[string]struct {
		created, recorded bool
		steps             []int
	}{
		"created, and 0.2.0 was put back":  {true, false, nil},
		"created, and removed by a client": {true, true, []int{0, 1, 2, 3}},
		"adopted, and removed by a client": {false, true, []int{0, 1, 2, 3}},
		"adopted, and never had it":        {false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, threeSteps, func(s *scene) {
					if c.created {
						s.placement.tree, s.placement.allocations = nil, nil
					}
				})
				<-s.tracker.Ready()
				must(s, s.end())
				s.placement.set(func(p *fakePlacement) { testproc.Try(p.tree.RemoveTraits(nodeUUID, trait)).Or(s.t) })
				record := testproc.Try(s.records.Load(nodeUUID)).Or(s.t)
				if record.Created != c.created ||
					record.Layout != 4 || record.Providers[nodeUUID].Traits[trait] != ownership.Agent {
					t.Fatalf("recorded: %+v", record)
				}
				if !c.recorded {
					delete(record.Providers[nodeUUID].Traits, trait)
					must(s, s.records.Save(record))
				}
				wanted := c.created || c.recorded
				for i, records := range []*ownership.Store{s.records, s.records, ownership.Open(t.TempDir())} {
					before, steps := s.writes(), []int(nil)
					if i == 0 {
						steps = c.steps
					} else if i == 2 && !wanted {
						steps = []int{0, 1, 2, 3} // without the record nothing says the layout version
					}
					s.driver.steps = nil
					again := start(t,
						func(n *scene) { n.placement, n.driver, n.records = s.placement, s.driver, records })
					<-again.tracker.Ready()
					testproc.Samef(t, cmp.Diff(steps, s.driver.steps), "start %d: steps from", i)
					if has := again.said().HasTraits(nodeUUID, trait); has != wanted ||
						s.writes() > before != (wanted && i == 0) {
						t.Errorf("start %d: %d writes; the trait is there: %v", i, s.writes()-before, has)
					}
					if n := again.tracker.Status().Nodes[0]; n.Layout != 4 || n.State != resourcetracker.Reporting {
						t.Errorf("start %d: %+v", i, n)
					}
					must(s, again.end())
				}
			})
		})
	}
}

// TestTraitOfAFormerAgentCountsAsRecorded: the record says that the trait was written by its former
// name, and Placement does not have it: the reshape was undone, or Placement restored.
func TestTraitOfAFormerAgentCountsAsRecorded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, threeSteps, func(s *scene) {
			must(s, s.records.Save(&ownership.Record{Root: nodeUUID, Node: "cn1", Driver: "fake", Layout: 2,
				Providers: map[string]ownership.Provider{
					nodeUUID: {Name: "cn1", Owner: ownership.Driver,
						Traits: map[string]ownership.Owner{"CUSTOM_COMPUTE_AGENT_SHAPE_FAKE_2": ownership.Agent}},
				}}))
		})
		<-s.tracker.Ready()
		testproc.Samef(t, cmp.Diff([]int{0, 1, 2, 3}, s.driver.steps), "steps from")
		s.checkLayout(layoutFour)
	})
}
