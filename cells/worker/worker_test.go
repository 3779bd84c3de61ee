// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// inScene runs a test with a clock of its own.
func inScene(t *testing.T, f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newScene(t)) })
}

// pass lets time go by.
func (s *scene) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// end is what became of a server: what its row says, its guest, and whether it holds allocations.
func (s *scene) end(n int) string {
	r := s.cell.row(n)
	return fmt.Sprintf("%s power %d, guest %d, allocations %t",
		r.server.VMState, r.server.PowerState, s.driver.power(n), s.placement.holds(n))
}

func (s *scene) expect(n int, want string) {
	s.Helper()
	testproc.Equal(s, s.end(n), want, "server %d: %s", n)
}

const (
	active  = "active power 1, guest 1, allocations true"
	failed  = "error power 0, guest -1, allocations false"
	deleted = "deleted power 0, guest -1, allocations false"
)

// TestDesiredStates: each want with each answer of the driver, and what becomes of the server.
func TestDesiredStates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	spawn := func(errs ...error) func(*scene) {
		return func(s *scene) { s.driver.spawnErrs = errs; s.placement.grant(1); s.cell.boot(1) }
	}
	booted := func(after func(s *scene)) func(*scene) {
		return func(s *scene) {
			s.placement.grant(1)
			s.cell.boot(1)
			s.start()
			s.pass(time.Minute)
			after(s)
		}
	}
	never := func(after func(s *scene)) func(*scene) {
		return func(s *scene) {
			s.placement.grant(1)
			s.cell.change(1, func(r *row) { r.want, r.server.TaskState = cellwire.WantGone, cellwire.TaskDeleting })
			after(s)
		}
	}
	for name, c := range map[string]struct {
		before  func(s *scene)
		want    string
		reports []string
		spawns  int
		fault   string
	}{
		"it is made": {before: spawn(), want: active, reports: []string{"spawned 1 1"}, spawns: 1},
		"the driver is not ready": {before: spawn(&plugins.NotReady{}, &plugins.NotReady{}), want: active,
			reports: []string{"spawned 1 1"}, spawns: 3},
		"the outcome is unknown": {before: spawn(errors.New("no answer")), want: active,
			reports: []string{"spawned 1 1"}, spawns: 2},
		"the driver refuses": {before: spawn(&plugins.InstanceFault{Reason: "no such image"}), want: failed,
			reports: []string{"failed 1 0"}, spawns: 1,
			fault: "Build of instance " + serverUUID(1) + " aborted: no such image"},
		"the driver makes none": {before: spawn(plugins.ErrUnsupported), want: failed, reports: []string{"failed 1 0"},
			spawns: 1, fault: "its host cannot create guests"},
		"unknown, then it makes none": {before: spawn(errors.New("no answer"), plugins.ErrUnsupported), want: failed,
			reports: []string{"failed 1 0"}, spawns: 2,
			fault: "its host cannot create guests"},
		"the driver makes none at all": {before: func(s *scene) { s.driver.err = plugins.ErrUnsupported; spawn()(s) },
			want: failed, reports: []string{"failed 1 0"}, fault: "its host cannot create guests"},
		"nor did it when it was deleted": {before: never(func(s *scene) { s.driver.err = plugins.ErrUnsupported }),
			want: deleted, reports: []string{"gone 1 0"}},
		"softly deleted, and started by another process": {before: booted(func(s *scene) {
			s.cell.change(1,
				func(r *row) { r.want, r.server.TaskState = cellwire.WantShutdown, cellwire.TaskSoftDeleting })
			s.pass(time.Minute)
			s.driver.set(func() { s.driver.guests[serverUUID(1)] = plugins.PowerRunning })
			s.w.Changed(host, serverUUID(1))
		}), want: "soft-delete power 4, guest 4, allocations true",
			reports: []string{"spawned 1 1", "settled 1 4", "power 1 1", "settled 1 4"}, spawns: 1},
		"nothing is allocated": {before: func(s *scene) { s.cell.boot(1) }, want: failed,
			reports: []string{"failed 1 0"}, fault: "its allocations were removed"},
		"nothing is allocated any more, and a half of it is there": {before: func(s *scene) {
			s.driver.spawnErrs = []error{errors.New("no answer"), errors.New("no answer")}
			s.placement.grant(1)
			s.cell.boot(1)
			s.start()
			s.pass(time.Second / 4)
			s.placement.clear()
		}, want: failed, reports: []string{"failed 1 0"}, spawns: 1, fault: "its allocations were removed"},
		"nothing is allocated, and it runs": {before: func(s *scene) {
			s.driver.guests[serverUUID(1)] =
				plugins.PowerRunning
			s.cell.boot(1)
		},
			want: "active power 1, guest 1, allocations false", reports: []string{"spawned 1 1"}},
		"its allocations are elsewhere": {before: func(s *scene) {
			s.placement.grantOf(1,
				"22222222-2222-4222-8222-222222222222")
			s.cell.boot(1)
		}, want: failed,
			reports: []string{"failed 1 0"}, fault: "its allocations are not on its host"},
		"its user data is not base64": {before: func(s *scene) {
			s.placement.grant(1)
			s.cell.change(1,
				func(r *row) { r.server.UserData = "%" })
		}, want: failed,
			reports: []string{"failed 1 0"}, fault: "its user data is not base64"},
		"an unmanaged guest has the uuid": {before: func(s *scene) {
			s.driver.foreign[serverUUID(1)] =
				true
			spawn()(s)
		}, want: failed,
			reports: []string{"failed 1 0"}, spawns: 1, fault: "Build of instance"},
		"it is deleted": {before: booted(func(s *scene) { s.cell.delete(1) }),
			want: deleted, reports: []string{"spawned 1 1", "gone 1 0"}, spawns: 1},
		"it is deleted and never was made": {before: never(func(*scene) {}), want: deleted,
			reports: []string{"gone 1 0"}},
		"deleted, without allocations": {before: never(func(s *scene) { s.placement.clear() }),
			want: deleted, reports: []string{"gone 1 0"}},
		"deleted, and another's guest, but never active": {before: never(
			func(s *scene) { s.driver.foreign[serverUUID(1)] = true }), want: deleted, reports: []string{"gone 1 0"}},
		"deleted, and the mark of the guest is lost": {before: booted(
			func(s *scene) { s.driver.set(func() { s.driver.foreign[serverUUID(1)] = true }); s.cell.delete(1) }),
			want: active, reports: []string{"spawned 1 1"}, spawns: 1},
		"deleted, the mark is lost, and nothing is allocated": {before: booted(func(s *scene) {
			s.driver.set(func() { s.driver.foreign[serverUUID(1)] = true })
			s.placement.clear()
			s.cell.delete(1)
		}), want: "deleted power 0, guest 1, allocations false",
			reports: []string{"spawned 1 1", "gone 1 0"}, spawns: 1},
		"deleted while the host was down": {before: booted(func(s *scene) {
			s.placement.clear()
			s.cell.change(1, func(r *row) { r.want, r.cleanup, r.server.Deleted = cellwire.WantGone, true, true })
		}), want: deleted, reports: []string{"spawned 1 1", "gone 1 0"}, spawns: 1},
		"it is softly deleted": {before: booted(func(s *scene) {
			s.cell.change(1,
				func(r *row) { r.want, r.server.TaskState = cellwire.WantShutdown, cellwire.TaskSoftDeleting })
		}), want: "soft-delete power 4, guest 4, allocations true",
			reports: []string{"spawned 1 1", "settled 1 4"}, spawns: 1},
		"softly deleted, and restored": {before: booted(func(s *scene) {
			s.cell.change(1,
				func(r *row) { r.want, r.server.TaskState = cellwire.WantShutdown, cellwire.TaskSoftDeleting })
			s.pass(time.Minute)
			s.cell.change(1, func(r *row) { r.want, r.server.TaskState = cellwire.WantRunning, cellwire.TaskRestoring })
		}), want: active, reports: []string{"spawned 1 1", "settled 1 4", "settled 1 1"}, spawns: 1},
		"softly deleted, and its guest is lost": {before: booted(func(s *scene) {
			s.driver.set(func() { delete(s.driver.guests, serverUUID(1)) })
			s.cell.change(1,
				func(r *row) { r.want, r.server.TaskState = cellwire.WantShutdown, cellwire.TaskSoftDeleting })
		}), want: "soft-delete power 0, guest -1, allocations true",
			reports: []string{"spawned 1 1", "settled 1 0"}, spawns: 1},
		"its guest is lost": {before: booted(func(s *scene) {
			s.driver.set(func() { delete(s.driver.guests, serverUUID(1)) })
			s.w.Changed(host, serverUUID(1))
		}),
			want:    "active power 0, guest -1, allocations true",
			reports: []string{"spawned 1 1", "power 1 0"}, spawns: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				c.before(s)
				if s.w == nil {
					s.start()
				}
				s.pass(30 * time.Minute)
				for range 2 { // and another one, which remembers nothing, changes nothing
					want := c.want
					if name == "deleted, and the mark of the guest is lost" {
						want = strings.Replace(want, "active power 1", s.cell.row(1).server.VMState+" power 1", 1)
						if st := s.w.Status(); len(st.Stuck) != 1 ||
							!strings.Contains(st.Stuck[0].Problem, "this agent did not create") {
							s.Errorf("stuck: %+v", st.Stuck)
						}
					}
					s.expect(1, want)
					testproc.Samef(s, cmp.Diff(c.reports, s.cell.taken()), "reports")
					if n := s.driver.spawns[serverUUID(1)]; n != c.spawns {
						s.Errorf("%d spawns, want %d", n, c.spawns)
					}
					if f := s.cell.row(1).server.Fault; c.fault != "" &&
						(f == nil || f.Code != 500 || !strings.Contains(f.Message, c.fault)) {
						s.Errorf("fault: %+v", f)
					}
					if s.driver.half[serverUUID(1)] {
						s.Error("a half of a guest is left")
					}
					s.start()
					s.pass(30 * time.Minute)
				}
			})
		})
	}
}

// TestDeleteOvertakesSpawn: the newest want decides, before a slot is free and after a slow spawn.
func TestDeleteOvertakesSpawn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.driver.slow = 5 * time.Minute
		for n := 1; n <= 5; n++ { // three at a time
			s.placement.grant(n)
			s.cell.boot(n)
		}
		s.start()
		s.pass(time.Minute)
		if s.driver.busiest != 3 {
			s.Fatalf("%d at a time", s.driver.busiest)
		}
		beats := len(s.cell.heartbeats())
		for n := 1; n <= 5; n++ {
			s.cell.delete(n)
		}
		s.pass(time.Minute)
		waiting := 0
		for n := 1; n <= 5; n++ {
			if s.cell.row(n).server.Deleted {
				waiting++
				if s.driver.spawns[serverUUID(n)] != 0 {
					s.Errorf("server %d was deleted while it was queued, and made all the same", n)
				}
			}
		}
		testproc.Equal(s, waiting, 2, "%d of those that waited are gone")
		if len(s.cell.heartbeats())-beats < 5 {
			s.Error("slow spawns delay heartbeats")
		}
		s.pass(10 * time.Minute)
		for n := 1; n <= 5; n++ {
			s.expect(n, deleted)
		}
		for _, r := range s.cell.taken() {
			if !strings.HasPrefix(r, "gone") {
				s.Errorf("reported: %s", r)
			}
		}
	})
}

// TestPower: an event is reported within a second, a storm of them costs few calls, and a change
// without an event is found in ten minutes.
func TestPower(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		power := func(p plugins.PowerState) { s.driver.set(func() { s.driver.guests[serverUUID(1)] = p }) }
		power(plugins.PowerShutdown)
		s.w.Changed(host, serverUUID(1))
		s.pass(time.Second)
		s.expect(1, "active power 4, guest 4, allocations true")
		listed := s.driver.listed
		for range 10_000 {
			s.w.Changed(host, serverUUID(1))
			time.Sleep(time.Millisecond)
		}
		s.pass(time.Second)
		if n := s.driver.listed - listed; n > 50 {
			s.Errorf("%d calls for a storm of ten seconds", n)
		}
		reports := s.cell.called("reports")
		power(plugins.PowerRunning)
		s.pass(10*time.Minute + time.Second)
		s.expect(1, active)
		testproc.Equal(s, s.cell.called("reports")-reports, 1, "%d reports of one change")
		s.pass(time.Hour)
		if n := s.cell.called("reports") - reports; n != 1 {
			s.Errorf("%d reports of nothing", n-1)
		}
	})
}

// TestService: what the cell says of the service is passed on once, repeated until it is kept.
func TestService(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.start()
		s.pass(time.Minute)
		s.mu.Lock()
		s.failing = errors.New("no space")
		s.mu.Unlock()
		s.cell.set(func() { s.cell.service.Disabled, s.cell.service.DisabledReason = true, "a fan" })
		s.pass(35 * time.Second)
		s.mu.Lock()
		tries := len(s.disables)
		s.failing = nil
		s.mu.Unlock()
		s.pass(time.Minute)
		s.cell.set(func() { s.cell.service.Disabled, s.cell.service.DisabledReason = false, "" })
		s.pass(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if tries < 4 || len(s.disables) != tries+2 {
			s.Errorf("%d tries, %q", tries, s.disables)
		}
		if d := cmp.Diff([]string{"false ", "true a fan"}, s.disables[:2]); d != "" ||
			s.disables[len(s.disables)-1] != "false " {
			s.Errorf("%q", s.disables)
		}
	})
}

// TestStopping: the last report says so, a slow spawn does not delay it, and no guest is touched.
func TestStopping(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.driver.slow = time.Hour
		s.driver.guests[serverUUID(7)] = plugins.PowerRunning
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		begun := time.Now()
		s.stop()
		if d := time.Since(begun); d > time.Second {
			s.Errorf("it took %v", d)
		}
		last := s.cell.last()
		if !last.Stopping || len(last.Nodes) != 1 || s.cell.heartbeats()[0].Stopping {
			s.Errorf("%+v", s.cell.heartbeats())
		}
		if s.driver.power(7) != 1 || !s.driver.half[serverUUID(1)] {
			s.Error("a guest was touched")
		}
		s.driver.slow = 0
		s.start()
		s.pass(time.Minute)
		s.expect(1, active)
	})
}

// TestStoppingDuringAHeartbeat: the last word is the last report that the cell gets, also when the
// agent stops while a heartbeat is under way, be it the first. A cell that does not answer within
// three seconds delays the stop by these, and gets the last word then.
func TestStoppingDuringAHeartbeat(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		before, late, most time.Duration
	}{
		"the first":                 {0, 2 * time.Second, 2 * time.Second},
		"a later one":               {9 * time.Second, 2 * time.Second, 2 * time.Second},
		"one that is answered late": {9 * time.Second, time.Minute, 3 * time.Second},
		"the first, answered late":  {0, time.Minute, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				late := func() { s.cell.late = c.late }
				if c.before == 0 {
					late()
				}
				s.start()
				s.pass(c.before)
				s.cell.set(late)
				s.pass(time.Second + time.Second/4) // they are sent at 0 s, 10 s, 20 s
				begun := time.Now()
				s.stop()
				if d := time.Since(begun); d > c.most {
					t.Errorf("stopping took %v, want at most %v", d, c.most)
				}
				if c.late < 3*time.Second {
					s.pass(c.late)
				}
				if beats := s.cell.heartbeats(); len(beats) == 0 || !beats[len(beats)-1].Stopping {
					t.Errorf("the last report is not the last word: %+v", beats)
				}
				s.pass(c.late)
			})
		})
	}
}

// TestNodes: a node whose driver makes no guests is not reported to the cell, and one whose driver
// does is reported at once.
func TestNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.driver.err = plugins.ErrUnsupported
		s.start()
		s.pass(time.Minute)
		for _, b := range s.cell.heartbeats() {
			if len(b.Nodes) != 0 {
				s.Errorf("%+v", b)
			}
		}
		s.driver.set(func() { s.driver.err = nil })
		s.w.Changed("", "") // the driver was configured again
		s.pass(time.Second)
		if last := s.cell.last(); len(last.Nodes) != 1 || last.Nodes[0].UUID != nodeUUID || last.Nodes[0].Name != host {
			s.Errorf("%+v", last)
		}
		s.driver.set(func() { s.driver.err = &plugins.NotReady{} }) // that is no ability lost
		s.w.Changed("", "")
		s.pass(time.Minute)
		if last := s.cell.last(); len(last.Nodes) != 1 {
			s.Errorf("%+v", last)
		}
		s.cell.set(func() { s.cell.refuse = []string{nodeUUID} })
		s.pass(time.Minute)
		if st := s.w.Status(); len(st.Refused) != 1 || strings.Count(s.log.String(), "another host owns it") != 1 {
			s.Errorf("%+v", st)
		}
	})
}

// TestDriverDown: what could not be done is done as soon as the driver is back, not when the next
// retry is due.
func TestDriverDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.start()
		s.pass(time.Minute)
		s.driver.set(func() { s.driver.err = errors.New("unavailable") })
		s.placement.grant(1)
		s.cell.boot(1)
		s.pass(time.Hour)
		if st := s.w.Status(); len(st.Stuck) != 1 || st.Busy != 1 {
			s.Fatalf("%+v", st)
		}
		s.driver.set(func() { s.driver.err = nil })
		s.w.Changed("", "")
		s.pass(time.Second)
		s.expect(1, active)
		if st := s.w.Status(); len(st.Stuck) != 0 || st.Busy != 0 {
			s.Errorf("%+v", st)
		}
	})
}

// TestInvalidReport: one that the cell calls invalid does not keep the others from being taken.
func TestInvalidReport(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.cell.invalid = serverUUID(2)
		for n := 1; n <= 4; n++ {
			s.placement.grant(n)
			s.cell.boot(n)
		}
		s.start()
		s.pass(time.Minute)
		for _, n := range []int{1, 3, 4} {
			s.expect(n, active)
		}
		if st := s.w.Status(); st.Waiting != 0 || strings.Count(s.log.String(), "rejected a report as invalid") != 1 {
			s.Errorf("%+v", st)
		}
	})
}

// TestPlacementAway: no server is made, and none is gone, before it is known what is allocated.
func TestPlacementAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.placement.grant(2)
		s.cell.boot(2)
		s.start()
		s.pass(time.Minute)
		s.placement.set(errors.New("503"))
		s.cell.boot(1)
		s.cell.delete(2)
		s.pass(time.Hour)
		if s.driver.spawns[serverUUID(1)] != 0 || s.cell.row(2).server.Deleted {
			s.Error("without Placement")
		}
		s.placement.set(nil)
		s.pass(3 * time.Minute)
		s.expect(1, active)
		s.expect(2, deleted)
	})
}

// TestDenied: Status shows that the cell rejects the agent's identity.
func TestDenied(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		err    error
		denied bool
	}{
		"another host": {&cellwire.Error{Status: http.StatusForbidden, Code: cellwire.CodeForbidden,
			Message: "you are another host"}, true},
		"its certificate": {&cellclient.Failure{Kind: cellclient.Broken,
			Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, true},
		"the host's": {&cellclient.Failure{Kind: cellclient.Broken,
			Err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}}, true},
		"it is not there": {&cellclient.Failure{Kind: cellclient.Refused,
			Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, false},
		"it has other cares": {&cellwire.Error{Status: http.StatusConflict, Code: cellwire.CodeConflict}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.cell.away = fmt.Errorf("reporting: %w", c.err)
				s.start()
				s.pass(time.Minute)
				if st := s.w.Status(); st.Up || st.Denied != c.denied || st.Since.IsZero() {
					s.Errorf("%+v", st)
				}
			})
		})
	}
}

// TestDeletedWhileAllocationsAreRead: what was wanted when the question was asked does not count
// any more.
func TestDeletedWhileAllocationsAreRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.placement.reading = func() {
			s.placement.reading = nil
			s.cell.delete(1)
			time.Sleep(time.Minute)
		}
		s.cell.boot(1)
		s.start()
		s.pass(10 * time.Minute)
		s.expect(1, deleted)
		testproc.Equal(s, s.driver.spawns[serverUUID(1)], 0, "it was made %d times")
	})
}
