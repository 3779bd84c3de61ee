// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRefusedIdentityIsHeld: the node that may be another host's is held, and says which one and
// what to do. The other node of the driver is reported, and the agent stays up.
func TestRefusedIdentityIsHeld(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const other = "11111111-0000-4000-8000-000000000002"
	for name, refusal := range map[string]error{
		"by Placement": fmt.Errorf("%w: resource provider \"cn1\" has uuid X there", reportclient.ErrIdentity),
		"by its records": &identity.Error{Problem: "this Placement does not have node cn1",
			Hint: "restore its database"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, func(s *scene) {
					s.hold = true
					s.driver.nodes = []plugins.Node{{Name: "cn1", UUID: nodeUUID}, {Name: "cn2", UUID: other}}
					s.placement.refusals = map[string]error{nodeUUID: refusal}
				})
				<-s.tracker.Ready()
				reads := s.reads()
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				st := s.tracker.Status()
				held, reported := st.Nodes[0], st.Nodes[1]
				if st.State != resourcetracker.Degraded || held.State != resourcetracker.Degraded || !held.Held ||
					held.Cause != resourcetracker.CauseIdentity ||
					!strings.Contains(held.Error, "cn1") ||
					!containsAll(held.Hint, "compute-agent adopt", "compute-agent refresh") {
					t.Errorf("status: %+v", st)
				}
				if strings.Contains(held.Error, "what to do") {
					t.Errorf("the hint is repeated: %s", held.Error)
				}
				if reported.State != resourcetracker.Reporting || reported.Passes < 100 ||
					!s.said().Exists(other) || s.said().Exists(nodeUUID) {
					t.Errorf("the other node: %+v", reported)
				}
				testproc.Equal(t, s.logged("The identity of the node is refused and the node is held"), 1,
					"logged %d times")
				if n := s.reads() - reads; n > int(reported.Passes) {
					t.Errorf("%d reads in %d passes of the other node: the held one is tried again", n, reported.Passes)
				}
				s.placement.set(func(p *fakePlacement) { p.refusals = map[string]error{} })
				s.tracker.Refresh("an operator asked")
				time.Sleep(time.Second)
				synctest.Wait()
				if st := s.tracker.Status(); st.State != resourcetracker.Reporting || st.Nodes[0].Held {
					t.Errorf("not released: %+v", st)
				}
				testproc.NoError(t, s.end())
			})
		})
	}
}
