// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// TestANodeThatIsNoLongerNamedIsShown, once in the log, and nothing of it is touched; and it comes
// back as if nothing had been.
func TestANodeThatIsNoLongerNamedIsShown(t *testing.T) {
	const other = "11111111-0000-4000-8000-000000000002"
	synctest.Test(t, func(t *testing.T) {
		both := []plugins.Node{{Name: "cn1"}, {Name: "cn2", UUID: other}}
		s := start(t, func(s *scene) {
			s.records = ownership.Open(t.TempDir())
			s.placement.tree = &providertree.Tree{}
			must(s, s.placement.tree.Populate([]providertree.Provider{{UUID: nodeUUID, Name: "cn1"}, {UUID: other, Name: "cn2"}}))
			s.driver.nodes = both
		})
		<-s.tracker.Ready()
		writes := s.writes()
		s.driver.set(func(d *fakeDriver) { d.nodes = both[:1] })
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		st := s.tracker.Status()
		if len(st.Nodes) != 2 || st.Nodes[1].State != resourcetracker.Orphaned || st.Nodes[1].Name != "cn2" || st.Nodes[1].Orphaned == "" || st.State != resourcetracker.Reporting {
			t.Errorf("%+v", st)
		}
		if s.logged("no longer names a node") != 1 || s.writes() != writes || !s.said().Exists(other) {
			t.Errorf("logged %d times, %d writes", s.logged("no longer names a node"), s.writes()-writes)
		}
		// An operator has it removed, and asks for a pass: it is gone at once, not at the next
		// look.
		kept, err := s.records.Load(other)
		must(s, err)
		must(s, s.records.Remove(other))
		s.tracker.Refresh("a node was removed")
		synctest.Wait()
		if st := s.tracker.Status(); len(st.Nodes) != 1 {
			t.Errorf("%+v", st)
		}
		must(s, s.records.Save(kept))

		s.driver.set(func(d *fakeDriver) { d.nodes = both })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if st := s.tracker.Status(); len(st.Nodes) != 2 || st.Nodes[1].State != resourcetracker.Reporting || s.writes() != writes {
			t.Errorf("%+v, %d writes", st, s.writes()-writes)
		}
	})
}
