// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestChattyDriverDoesNotDefeatTheBackoff: while Placement is down, a driver that tells of a change
// ten times a second does not make the agent ask Placement ten times a second.
func TestChattyDriverDoesNotDefeatTheBackoff(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) { s.placement.readErr = reportclient.ErrUnavailable })
		<-s.tracker.Ready()
		for range 600 { // a minute
			s.tracker.Changed("the driver sees a change")
			time.Sleep(100 * time.Millisecond)
		}
		s.placement.mu.Lock()
		reads := s.placement.reads
		s.placement.mu.Unlock()
		if reads > 60 { // one a second would be generous: the back-off begins with that and doubles
			t.Errorf("%d tries within a minute of an outage", reads)
		}
	})
}

// TestDrainIsBounded: a dry run that hangs in the driver does not keep the tracker from ending.
func TestDrainIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		asked := make(chan struct{})
		s.driver.set(func(d *fakeDriver) {
			d.block = func(ctx context.Context) {
				select {
				case <-asked:
				default:
					close(asked)
				}
				<-ctx.Done()
			}
		})
		planned := make(chan struct{})
		go func() {
			defer close(planned)
			_, _ = s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})
		}()
		<-asked
		s.tracker.Refresh("a pass that waits for the dry run")
		synctest.Wait()
		begin := time.Now()
		_ = s.end()
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("the tracker took %v to end, ten seconds are allowed", took)
		}
		<-planned // at its own deadline
	})
}

// TestAnotherCauseIsLogged: a pass that fails for another reason than before is logged, however
// often it has failed.
func TestAnotherCauseIsLogged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) { s.placement.readErr = reportclient.ErrUnavailable })
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) { p.readErr = reportclient.ErrRefused })
		time.Sleep(10 * time.Second) // a few tries
		synctest.Wait()
		if s.logged("rejects the credentials") == 0 {
			t.Errorf("after %d failures the log does not say that the credentials are refused",
				s.tracker.Status().Failures)
		}
	})
}

// TestWritesBeforeAConflictAreReported: the log and the status list what a pass wrote before a
// conflict.
func TestWritesBeforeAConflictAreReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) {
			s.placement.tree = &providertree.Tree{}
			testproc.Check(t,
				s.placement.tree.Populate([]providertree.Provider{{UUID: nodeUUID, Name: "cn1", Generation: 1}}))
			s.placement.onApply = func() { // the inventory is taken, the traits meet a conflict
				s.placement.onApply = nil
				testproc.Try(s.placement.tree.SetInventory(nodeUUID, "VCPU", providertree.Inventory{Total: 8})).Or(t)
				s.placement.applyErr =
					[]error{&reportclient.ApplyError{Done: 1, Failed: []*reportclient.OperationError{{
						Operation: reportclient.Operation{Kind: reportclient.SetTraits, UUID: nodeUUID,
							Provider: "cn1"}, Provider: "cn1", Err: reportclient.ErrConflict,
					}}}}
			}
		})
		<-s.tracker.Ready()
		if s.logged("Set the inventory of cn1") == 0 {
			t.Error("the log does not say that the inventory was written")
		}
		testproc.Equal(t, s.tracker.Status().Nodes[0].Writes, 2, "the status counts %d writes, Placement took 2")
	})
}

// TestTrackerThatHasNotBegunIsNotDead: the watchdog must not take a tracker that waits for its
// plugin's first start for one that hangs.
func TestTrackerThatHasNotBegunIsNotDead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		tracker := resourcetracker.New(resourcetracker.Config{Name: "fake"})
		time.Sleep(time.Minute)
		if age := time.Since(tracker.LastHeartbeat()); age > 30*time.Second {
			t.Errorf("a tracker that is not running yet looks dead for %v", age)
		}
	})
}

// TestManyChangesAreOnePassASecond: the functions of a card that appear one after another are one
// change to Placement.
func TestManyChangesAreOnePassASecond(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-s.tracker.Ready()
		before := s.calls()
		for range 1000 { // ten seconds
			s.tracker.Changed("the driver sees a change")
			time.Sleep(10 * time.Millisecond)
		}
		if passes := s.calls() - before; passes < 9 || passes > 11 {
			t.Errorf("%d passes in ten seconds of changes", passes)
		}
		s.driver.set(func(d *fakeDriver) { d.vcpus = 9 })
		s.tracker.Changed("the driver sees a change")
		time.Sleep(1500 * time.Millisecond)
		if inv, _ := s.said().Inventory(nodeUUID, "VCPU"); inv.Total != 9 {
			t.Error("a change is not told within a second")
		}
	})
}

// at records when the driver is asked, since the start; every random number is a half.
func (s *scene) at() func() []time.Duration {
	begin := time.Now()
	var mu sync.Mutex
	var at []time.Duration
	s.driver.block = func(context.Context) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Since(begin))
	}
	s.config = func(c *resourcetracker.Config) { c.Rand = func() float64 { return 0.5 } }
	return func() []time.Duration {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		out := at
		at, begin = nil, time.Now()
		return out
	}
}

func seconds(all ...float64) []time.Duration {
	var out []time.Duration
	for _, s := range all {
		out = append(out, time.Duration(s*float64(time.Second)))
	}
	return out
}

// TestWhenPassesAreMade: the interval and a fortieth of it (a twentieth at most); after a failure
// three quarters (a half to the whole) of a wait that doubles up to the interval; on a change a
// second after the last pass, and after a failure of the driver the shortest wait from then on.
func TestWhenPassesAreMade(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var at func() []time.Duration
		s := start(t, func(s *scene) { at = s.at() })
		expect := func(what string, want ...float64) {
			t.Helper()
			testproc.Samef(t, cmp.Diff(seconds(want...), at()), "%s", what)
		}
		time.Sleep(2 * time.Minute)
		expect("steady", 0, 61.5)
		s.driver.set(func(d *fakeDriver) { d.err = errors.New("the process has ended") })
		time.Sleep(3*time.Minute + 3*time.Second)
		// 3 s after the minute and a half before, and then .75, 1.5, 3, 6, 12, 24, 45
		expect("after failures", 3, 3.75, 5.25, 8.25, 14.25, 26.25, 50.25, 95.25, 140.25)
		time.Sleep(time.Second)
		for range 3 { // the first counts
			s.tracker.Changed("the driver sees a change")
			time.Sleep(250 * time.Millisecond)
		}
		time.Sleep(time.Second)
		expect("on a change after failures", 2)
		s.driver.set(func(d *fakeDriver) { d.err = nil })
		s.tracker.Refresh("a person asks")
		expect("on request", 0)
		for range 3 {
			time.Sleep(250 * time.Millisecond)
			s.tracker.Changed("the driver sees a change")
		}
		time.Sleep(10 * time.Second)
		expect("on a change", 1)
		s.tracker.Changed("the driver sees a change")
		expect("on a change, long after the last pass", 0)
	})
}

// TestWhenAConflictIsRetried: three times, after three quarters (a half to the whole) of a quarter,
// half and whole second.
func TestWhenAConflictIsRetried(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var at func() []time.Duration
		_ = start(t, func(s *scene) {
			at = s.at()
			s.placement.applyErr = []error{reportclient.ErrConflict, reportclient.ErrConflict,
				reportclient.ErrConflict, reportclient.ErrConflict}
		})
		time.Sleep(2 * time.Second)
		testproc.Same(t, cmp.Diff(seconds(0, 0.1875, 0.5625, 1.3125), at()))
	})
}

// TestFailuresAreLoggedWithAllThatHelps, the first and each tenth, and counted in the status.
func TestFailuresAreLoggedWithAllThatHelps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(s *scene) {
			s.config = func(c *resourcetracker.Config) { c.Logger = c.Logger.Level(zerolog.DebugLevel) }
		})
		<-s.tracker.Ready()
		if s.logged("already up to date") > 0 {
			t.Error("the log says that a new node is up to date")
		}
		lines := func() []map[string]any {
			s.logMu.Lock()
			defer s.logMu.Unlock()
			var out []map[string]any
			for l := range strings.Lines(s.log.String()) {
				line := map[string]any{}
				must(s, json.Unmarshal([]byte(l), &line))
				if strings.HasPrefix(fmt.Sprint(line["message"]), "The pass failed") {
					delete(line, "message")
					out = append(out, line)
				}
			}
			s.log.Reset()
			return out
		}
		fail := func(times int, failure func(*fakeDriver)) {
			t.Helper()
			s.driver.set(failure)
			for range times {
				s.tracker.Refresh("a person asks")
				synctest.Wait()
			}
			st := s.tracker.Status()
			if st.Failures != times || st.Nodes[0].Failures != times {
				t.Errorf("%d and %d failures, want %d", st.Failures, st.Nodes[0].Failures, times)
			}
			s.driver.set(func(d *fakeDriver) { d.err, d.nodes = nil, []plugins.Node{{Name: "cn1"}} })
			s.tracker.Refresh("a person asks")
			synctest.Wait()
			if s.logged("reported again", fmt.Sprintf(`"failed_passes":%d`, times)) != 1 {
				t.Error("the log does not say that it is reported again")
			}
		}
		fail(21, func(d *fakeDriver) { d.err = plugins.ErrNotReady })
		var levels []string
		for n, line := range lines() {
			if line["failures"] != float64(n+1) || line["node"] != "cn1" || line["driver"] != "fake" ||
				line["hint"] == nil || line["offenders"] != nil || line["error"] == nil {
				t.Errorf("the line of a failure: got %v, want its number, node, driver, hint and error", line)
			}
			if line["level"] == "warn" {
				levels = append(levels, fmt.Sprint(line["failures"]))
			}
		}
		testproc.Samef(t, cmp.Diff([]string{"1", "10", "20"}, levels), "warnings")
		fail(1, func(d *fakeDriver) {
			d.err = &plugins.ReshapeFailed{Reason: "x", Violations: []plugins.Violation{{Problem: "stale"}}}
		})
		if l := lines(); len(l) != 1 || fmt.Sprint(l[0]["offenders"]) != "[stale]" {
			t.Errorf("the lines of a refused reshape: got %v, want one with the violation", l)
		}
		fail(1, func(d *fakeDriver) { d.nodes = nil })
		if l := lines(); len(l) != 1 || l[0]["node"] != nil || l[0]["hint"] != nil ||
			!strings.Contains(fmt.Sprint(l[0]["error"]), "the list is empty") {
			t.Errorf("the lines of an empty list of nodes: got %v, want one without node and hint", l)
		}
	})
}

// TestANodeThatIsUpToDateIsLoggedOnce.
func TestANodeThatIsUpToDateIsLoggedOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		testproc.Equal(t, s.logged("already up to date", nodeUUID), 1, "logged %d times")
	})
}
