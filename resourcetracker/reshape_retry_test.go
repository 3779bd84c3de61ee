// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestStartUpLastsUntilTheFirstGoodPass: an outage at the start is not fatal, and the reshape comes
// after it, however long it takes.
func TestStartUpLastsUntilTheFirstGoodPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	outages := map[string][2]func(*scene){
		"Placement is unavailable": {
			func(s *scene) { s.placement.readErr = reportclient.ErrUnavailable },
			func(s *scene) { s.placement.readErr = nil }},
		"the allocations cannot be read": {
			func(s *scene) { s.placement.gatherErr = reportclient.ErrUnavailable },
			func(s *scene) { s.placement.gatherErr = nil }},
		"the driver is not ready": {
			func(s *scene) {
				s.driver.answer = func(*providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
					return nil, plugins.ErrNotReady
				}
			},
			func(s *scene) { s.driver.answer = moveVGPUs }},
		"the driver has no nodes yet": {
			func(s *scene) { s.driver.nodes = nil },
			func(s *scene) { s.driver.nodes = []plugins.Node{{Name: "cn1"}} }},
		"the driver crashes when it is given allocations": {
			func(s *scene) {
				s.driver.answer = func(_ *providertree.Tree,
					a providertree.Allocations) (providertree.Allocations, error) {
					if a == nil {
						return nil, plugins.ErrReshapeNeeded
					}
					return nil, errors.New("the process has ended")
				}
			},
			func(s *scene) { s.driver.answer = moveVGPUs }},
		"the journal's disk is full": {
			func(s *scene) { s.placement.onReshape = nil; s.placement.log = fullDisk{} },
			func(s *scene) { s.placement.log = s.journal }},
	}
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, vgpus, outage[0])
				<-s.tracker.Ready()
				time.Sleep(time.Hour)
				synctest.Wait()
				if st := s.tracker.Status(); st.State != resourcetracker.Degraded {
					t.Fatalf("the status during the outage: got %+v, want it degraded", st)
				}
				s.checkLayout(oldLayout)
				s.driver.mu.Lock()
				s.placement.mu.Lock()
				outage[1](s)
				s.placement.mu.Unlock()
				s.driver.mu.Unlock()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				s.checkLayout(newLayout)
			})
		})
	}
}

// TestExpiredTokenIsAnOutage: a token that Placement does not take says nothing about the reshape.
func TestExpiredTokenIsAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			s.placement.onReshape = func() error {
				return fmt.Errorf("%w: %w", reportclient.ErrReshapeRefused,
					&reportclient.RequestError{Method: "POST", Path: "/reshaper", Status: 401,
						Kind: reportclient.ErrRefused})
			}
		})
		<-s.tracker.Ready()
		if n := s.tracker.Status().Nodes[0]; n.State != resourcetracker.Degraded ||
			!strings.Contains(n.Hint, "placement_client") {
			t.Errorf("the node with an expired token: got %+v, want it degraded, with a hint about placement_client", n)
		}
		s.placement.set(func(p *fakePlacement) { p.onReshape = nil })
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		s.checkLayout(newLayout)
	})
}

// TestRefusalAfterAnOutageIsFatalToo: start-up has not ended, so nothing is different.
func TestRefusalAfterAnOutageIsFatalToo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, refusals["guarded"].prepare,
			func(s *scene) { s.placement.readErr = reportclient.ErrUnavailable })
		<-s.tracker.Ready()
		time.Sleep(10 * time.Minute)
		s.placement.set(func(p *fakePlacement) { p.readErr = nil })
		var fatal *resourcetracker.FatalError
		if err := <-s.ended; !errors.As(err, &fatal) || !fatal.Protects {
			t.Errorf("the end of the tracker: got %v, want a FatalError that protects", err)
		}
	})
}

// TestLostRaceIsComputedFromScratch: what is gathered before a conflict is not used after it.
func TestLostRaceIsComputedFromScratch(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			races := 2
			s.placement.onReshape = func() error {
				if races--; races < 0 {
					return nil
				}
				// A guest came between the gathering and the request.
				s.placement.allocations[fmt.Sprintf("99999999-0000-4000-8000-00000000009%d", races)] =
					providertree.ConsumerAllocations{
						Resources: providertree.ProviderResources{nodeUUID: {"VGPU": 1}}, ProjectID: "p", UserID: "u",
					}
				s.placement.allocations[guest1].Resources[nodeUUID]["VGPU"] = 1
				return reportclient.ErrConflict
			}
		})
		<-s.tracker.Ready()
		want := map[string]providertree.ProviderResources{
			guest1: {nodeUUID: {"VCPU": 2}, gpu: {"VGPU": 1}}, guest2: {gpu: {"VGPU": 1}},
			"99999999-0000-4000-8000-000000000090": {gpu: {"VGPU": 1}},
			"99999999-0000-4000-8000-000000000091": {gpu: {"VGPU": 1}},
		}
		s.checkLayout(want)
		if s.gathered() != 3 || s.reads() != 3 || s.calls() != 7 {
			t.Errorf("gathered %d times, tree read %d times, driver asked %d times; want 3, 3 and 7 (the first "+
				"about an empty node)", s.gathered(), s.reads(), s.calls())
		}
		testproc.Samef(t, cmp.Diff([]string{"refused", "refused", "happened"}, s.outcomes()), "journal")
	})
}

// TestConflictStormIsBounded: another client writes before each try. The agent backs off, and
// start-up lasts.
func TestConflictStormIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus,
			func(s *scene) { s.placement.onReshape = func() error { return reportclient.ErrConflict } })
		begin := time.Now()
		<-s.tracker.Ready()
		testproc.Equal(t, s.gathered(), 4, "%d tries in one pass")
		if took := time.Since(begin); took < 800*time.Millisecond || took > 2*time.Second {
			t.Errorf("four tries took %v", took)
		}
		if st := s.tracker.Status(); st.State != resourcetracker.Degraded || st.Nodes[0].Held {
			t.Errorf("the status in a storm of conflicts: got %+v, want it degraded, and the node not held", st)
		}
		time.Sleep(10 * time.Minute)
		// a pass every half minute would be the least back-off of all
		if n := s.gathered(); n > 4*30 {
			t.Errorf("%d tries in ten minutes", n)
		}
		s.checkLayout(oldLayout)
		s.placement.set(func(p *fakePlacement) { p.onReshape = nil })
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		s.checkLayout(newLayout)
	})
}
