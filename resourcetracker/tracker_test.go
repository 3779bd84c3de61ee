// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// In these tests time is virtual: a minute passes as soon as nothing else is to be done.

func TestFirstPassWritesAndSteadyPassesDoNot(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		testproc.Equal(t, s.writes(), 3, "%d writes for a new node")
		if !s.said().HasTraits(nodeUUID, "COMPUTE_NODE", "OWNER_NOVA") {
			t.Error("the root is not marked as a compute node")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		testproc.Equal(t, s.writes(), 3, "%d writes after an hour in which nothing changed")
		if p := s.tracker.Status().Nodes[0].Passes; p < 57 || p > 61 { // 60 to 63 s each
			t.Errorf("%d passes in an hour", p)
		}
		testproc.NoError(t, s.end())
	})
}

func TestChangeIsWrittenAtTheNextPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		s.driver.set(func(d *fakeDriver) { d.vcpus = 16 })
		time.Sleep(64 * time.Second)
		synctest.Wait()
		if inv, _ := s.said().Inventory(nodeUUID, "VCPU"); inv.Total != 16 || s.writes() != 4 {
			t.Errorf("VCPU %d after %d writes, want 16 after 4", inv.Total, s.writes())
		}
		if s.logged("VCPU total 8→16") != 1 {
			t.Error("the change is not in the log")
		}
	})
}

func TestRequestsForAPassCoalesce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		synctest.Wait()
		for range 10 {
			s.tracker.Refresh("hot-plug")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if p := s.tracker.Status().Nodes[0].Passes; p < 2 || p > 3 {
			t.Errorf("%d passes, want the first and one or two more", p)
		}
	})
}

func TestConflictIsComputedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) {
			s.placement.applyErr = []error{reportclient.ErrConflict, reportclient.ErrConflict}
		})
		<-s.tracker.Ready()
		synctest.Wait()
		if s.calls() != 3 || s.reads() != 3 {
			t.Errorf("driver asked %d times, Placement read %d times; want 3 each", s.calls(), s.reads())
		}
		testproc.Equal(t, s.tracker.Status().State, resourcetracker.Reporting, "state %s")
	})
}

func TestConflictsAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) {
			for range 4 {
				s.placement.applyErr = append(s.placement.applyErr, reportclient.ErrConflict)
			}
		})
		<-s.tracker.Ready()
		synctest.Wait()
		if st := s.tracker.Status(); st.State != resourcetracker.Degraded || s.calls() != 4 {
			t.Errorf("state %s after %d tries, want degraded after 4", st.State, s.calls())
		}
		time.Sleep(2 * time.Second) // the back-off after a first failure
		synctest.Wait()
		if st := s.tracker.Status(); st.State != resourcetracker.Reporting {
			t.Errorf("not recovered: %+v", st)
		}
	})
}

// TestSilenceIsNotAbsence: whatever a driver fails to say, what Placement says stays.
func TestSilenceIsNotAbsence(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	silences := map[string]func(*fakeDriver){
		"it is not ready":     func(d *fakeDriver) { d.err = &plugins.NotReady{Reason: "libvirtd does not answer"} },
		"its process is gone": func(d *fakeDriver) { d.err = errors.New("the process has ended") },
		"it names no node":    func(d *fakeDriver) { d.nodes = nil },
		"its root has nothing": func(d *fakeDriver) {
			d.edit = func(tr *providertree.Tree) {
				_, _ = tr.SetInventories(nodeUUID, nil)
			}
		},
		"it gives an empty tree": func(d *fakeDriver) {
			d.edit = func(tr *providertree.Tree) {
				_, _ = tr.Remove(nodeUUID)
			}
		},
		"it renames the root": func(d *fakeDriver) {
			d.edit = func(tr *providertree.Tree) {
				_, _ = tr.Rename(nodeUUID, "other")
			}
		},
		"it adds a root": func(d *fakeDriver) {
			d.edit = func(tr *providertree.Tree) { _ = tr.AddRoot("22222222-0000-4000-8000-000000000001", "x") }
		},
		"it names one node twice":  func(d *fakeDriver) { d.nodes = append(d.nodes, d.nodes...) },
		"its node has no name":     func(d *fakeDriver) { d.nodes = []plugins.Node{{}} },
		"its node's uuid is wrong": func(d *fakeDriver) { d.nodes = []plugins.Node{{Name: "cn1", UUID: "1"}} },
	}
	for name, silence := range silences {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t)
				<-s.tracker.Ready()
				good := s.said().Clone()
				s.driver.set(silence)
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				st := s.tracker.Status()
				if st.State != resourcetracker.Degraded || s.writes() != 3 || !s.said().Equal(good) {
					t.Errorf("state %s, %d writes", st.State, s.writes())
				}
				if warnings := s.logged(`"level":"warn"`); warnings < 1 || warnings > 10 {
					t.Errorf("%d warnings in half an hour", warnings)
				}
				s.driver.set(func(d *fakeDriver) {
					d.err, d.edit, d.nodes = nil, nil, []plugins.Node{{Name: "cn1"}}
				})
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if st := s.tracker.Status(); st.State != resourcetracker.Reporting || s.logged("reported again") != 1 {
					t.Errorf("not recovered: %+v", st)
				}
			})
		})
	}
}

func TestPlacementAwayAndBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) { p.readErr = reportclient.ErrUnavailable })
		s.driver.set(func(d *fakeDriver) { d.vcpus = 4 })
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if st := s.tracker.Status(); st.State != resourcetracker.Degraded || st.Nodes[0].Hint == "" {
			t.Errorf("status: %+v", st)
		}
		s.placement.set(func(p *fakePlacement) { p.readErr = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if inv, _ := s.said().Inventory(nodeUUID, "VCPU"); inv.Total != 4 {
			t.Errorf("not caught up: VCPU %d", inv.Total)
		}
	})
}

func TestFatalOnlyAtStartUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, cause := range []error{reportclient.ErrIdentity,
		plugins.ErrReshapeNeeded, &plugins.ReshapeFailed{Reason: "x"}} {
		t.Run(cause.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, func(s *scene) { s.driver.err = cause })
				var fatal *resourcetracker.FatalError
				if err := <-s.ended; !errors.As(err, &fatal) || !fatal.Protects {
					t.Errorf("start-up went on: %v", err)
				}
				if refused := s.logged("The reshape is refused") == 1; refused == errors.Is(cause,
					reportclient.ErrIdentity) {
					t.Errorf("logged as a refused reshape: %v", refused)
				}
				s = start(t)
				<-s.tracker.Ready()
				s.driver.set(func(d *fakeDriver) { d.err = cause })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				testproc.NoErrorf(t, s.end(), "a periodic pass ended the agent")
			})
		})
	}
}

func TestPassUnderWayIsFinishedAtTheEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) {
			s.placement.onApply = func() {
				s.stop()
				time.Sleep(3 * time.Second) // a slow answer
			}
		})
		testproc.Check(t, <-s.ended)
		testproc.Equal(t, s.writes(), 3, "%d writes")
	})
}

// TestNoLifeWithoutProgress: the watchdog must fire for a driver that holds a pass beyond every
// deadline, and not for one that is merely slow.
func TestNoLifeWithoutProgress(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := start(t, func(s *scene) { s.driver.block = func(context.Context) { <-release } })
		begin := time.Now()
		time.Sleep(25*time.Second + time.Millisecond)
		if age := time.Since(s.tracker.LastHeartbeat()); age != time.Millisecond {
			t.Errorf("no life for %v in a pass that is within its deadline", age)
		}
		time.Sleep(3 * time.Minute)
		// life ends two deadlines and five seconds after the beginning
		testproc.Equal(t, s.tracker.LastHeartbeat().Sub(begin), 64*time.Second,
			"the last life of a pass that hangs is after %v")
		close(release)
		<-s.tracker.Ready()
		time.Sleep(2 * time.Second)
		if age := time.Since(s.tracker.LastHeartbeat()); age > 2*time.Second {
			t.Errorf("no life for %v after the pass ended", age)
		}
	})
}

func TestPlanWritesNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		s.driver.set(func(d *fakeDriver) { d.vcpus = 16 })
		plans, err := s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})
		if err != nil || len(plans) != 1 || len(plans[0].Plan.Operations) != 1 {
			t.Fatalf("Plan: got %v, %v, want one plan with one operation", plans, err)
		}
		if s.writes() != 3 {
			t.Error("the dry run wrote")
		}
	})
}
