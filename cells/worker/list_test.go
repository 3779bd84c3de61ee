// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCellAway: guests are not touched, reports are kept, no call is made without pause, and when
// the cell is back nothing is done twice.
func TestCellAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.placement.grant(2)
		s.cell.boot(1)
		s.cell.boot(2)
		s.start()
		s.pass(time.Minute)
		s.cell.set(func() { s.cell.away = errors.New("connection refused") })
		s.driver.set(func() { s.driver.guests[serverUUID(1)] = plugins.PowerShutdown })
		s.w.Changed(host, serverUUID(1))
		s.cell.change(2, func(r *row) { r.server.Name = "renamed" })
		before := s.cell.called("report") + s.cell.called("work") + s.cell.called("reports")
		s.pass(time.Hour)
		if n := s.cell.called("report") + s.cell.called("work") +
			s.cell.called("reports") - before; n < 100 || n > 900 {
			s.Errorf("%d calls in an hour", n)
		}
		if st := s.w.Status(); st.Up || st.Waiting != 1 ||
			!strings.Contains(st.Error, "refused") || time.Since(st.Since) < 59*time.Minute {
			s.Errorf("%+v", st)
		}
		if s.driver.power(2) != 1 || len(s.placement.removed) != 0 {
			s.Error("something was done without the cell")
		}
		s.cell.set(func() { s.cell.away = nil })
		s.pass(time.Minute)
		s.expect(1, "active power 4, guest 4, allocations true")
		testproc.Same(s, cmp.Diff([]string{"power 1 4"}, s.cell.taken()[2:]))
		if names := s.w.Names(); len(names) != 2 || names[serverUUID(2)] != "renamed" {
			s.Errorf("the names of the servers are %q", names)
		}
		if st := s.w.Status(); !st.Up || st.Waiting != 0 || st.Servers != 2 || st.Spawns.Succeeded != 2 {
			s.Errorf("%+v", st)
		}
		testproc.Equal(s, strings.Count(s.log.String(), "The cell is unavailable"), 1, "that is logged %d times")
	})
}

// TestAnotherDatabase: a cell with an empty database removes no guest.
func TestAnotherDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		for n := 1; n <= 2; n++ {
			s.placement.grant(n)
			s.cell.boot(n)
		}
		s.start()
		s.pass(time.Minute)
		s.cell.set(func() { s.cell.epoch, s.cell.revision, s.cell.rows = "e2", 1, map[string]*row{} })
		s.pass(time.Minute)
		if s.driver.power(1) != 1 || s.driver.power(2) != 1 || len(s.placement.removed) != 0 {
			s.Error("guests were touched")
		}
		if st := s.w.Status(); len(st.Unknown) != 2 || st.Epoch != "e2" || st.Servers != 0 {
			s.Errorf("%+v", st)
		}
		s.pass(time.Hour)
		if n := strings.Count(s.log.String(), "guest that this agent created has no server"); n != 2 {
			s.Errorf("two guests are logged %d times", n)
		}
		// it comes back from a backup
		s.cell.change(1, func(r *row) { r.server.VMState, r.server.TaskState = cellwire.VMActive, "" })
		s.pass(30 * time.Minute)
		s.expect(1, active)
		if st := s.w.Status(); len(st.Unknown) != 1 || s.driver.spawns[serverUUID(1)] != 1 {
			s.Errorf("%+v", st)
		}
	})
}

// TestOlderBackup: the same epoch with an older revision is a backup that was restored: the cell
// sends everything again, and a server that was building then is not made twice.
func TestOlderBackup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		s.cell.set(func() {
			s.cell.revision = 1
			r := s.cell.rows[serverUUID(1)]
			r.server.VMState, r.server.TaskState, r.server.PowerState, r.server.LaunchedAt, r.server.Revision =
				cellwire.VMBuilding, cellwire.TaskSpawning, 0, nil, 1
		})
		s.pass(time.Minute)
		s.expect(1, active)
		if st := s.w.Status(); len(st.Stuck) != 0 || len(st.Unknown) != 0 {
			s.Errorf("%+v", st)
		}
	})
}

// TestBackupWithAHigherRevisionIsReadAgain: a cell that was down may be back with a backup, and
// have a higher revision by the time it is asked: it sends everything again then, too.
func TestBackupWithAHigherRevisionIsReadAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		s.cell.set(func() { s.cell.away = errLost })
		s.pass(time.Minute)
		s.cell.set(func() {
			s.cell.away = nil
			s.cell.revision += 100 // by what other hosts did
			r := s.cell.rows[serverUUID(1)]
			r.server.VMState, r.server.TaskState, r.server.PowerState, r.server.LaunchedAt, r.server.Revision =
				cellwire.VMBuilding, cellwire.TaskSpawning, 0, nil, 1
		})
		s.pass(time.Minute)
		s.expect(1, active)
	})
}

// TestAllInPages: what is too much for one answer comes in several. Until the last one nothing is
// forgotten, and no guest is called unknown.
func TestAllInPages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.cell.page = 2
		for n := range 7 {
			s.placement.grant(n + 1)
			s.cell.boot(n + 1)
		}
		s.start()
		s.pass(time.Minute)
		for n := range 7 {
			s.expect(n+1, active)
		}
		s.cell.set(func() { delete(s.cell.rows, serverUUID(7)) })
		asked := s.cell.called("work")
		s.cell.set(func() { s.cell.turning = 5 * time.Second })
		s.start() // knows nothing
		s.pass(time.Minute)
		if n := s.cell.called("work") - asked; n > 8 {
			s.Errorf("6 servers, 2 in an answer, were asked for with %d requests", n)
		}
		if st := s.w.Status(); st.Servers != 6 || len(st.Unknown) != 1 || st.Unknown[0].UUID != serverUUID(7) {
			s.Errorf("after a restart: %+v", st)
		}
		s.cell.set(func() { // another database, without the sixth
			delete(s.cell.rows, serverUUID(6))
			s.cell.epoch = "e2"
		})
		s.pass(time.Minute)
		if st := s.w.Status(); st.Servers != 5 || len(st.Unknown) != 2 || st.Busy != 0 {
			s.Errorf("of another database: %+v", st)
		}
		if n := strings.Count(s.log.String(), "guest that this agent created has no server"); n != 2 {
			s.Errorf("two guests that no row is about are logged %d times", n)
		}
		for n := range 7 {
			if s.driver.power(n+1) != 1 || s.driver.spawns[serverUUID(n+1)] != 1 {
				s.Errorf("server %d: power %d, made %d times",
					n+1, s.driver.power(n+1), s.driver.spawns[serverUUID(n+1)])
			}
		}
	})
}

// TestCellUpIsUsedAtOnce: a host shows life within a report interval after its cell is back,
// however long that was down.
func TestCellUpIsUsedAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.start()
		s.pass(time.Minute)
		s.cell.set(func() { s.cell.away = errLost })
		s.pass(time.Hour)
		before := len(s.cell.heartbeats())
		s.cell.set(func() { s.cell.away = nil })
		s.pass(10 * time.Second)
		if len(s.cell.heartbeats()) == before {
			s.Error("the cell is back for a report interval and did not hear of the host")
		}
	})
}

// TestCellWithoutProgressIsPolledWithPauses: a cell that says again and again that there is more,
// and never gets on, is not asked without pause.
func TestCellWithoutProgressIsPolledWithPauses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.cell.boot(1)
		s.cell.stuck, s.cell.turning = true, time.Millisecond
		s.start()
		s.pass(time.Minute)
		if n := s.cell.called("work"); n > 130 {
			s.Errorf("asked %d times in a minute", n)
		}
	})
}

// TestServersAreUnknownWhileTheListIsOld: heartbeats that the cell takes do not make the list of
// servers current.
func TestServersAreUnknownWhileTheListIsOld(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		expect := func(when, why string) {
			t.Helper()
			s.pass(time.Minute)
			servers, unknown := s.w.Servers()
			if len(servers) != 1 || (unknown == "") != (why == "") ||
				!strings.Contains(unknown, why) || !s.w.Status().Up {
				s.Errorf("%s: %v, unknown %q, want %q; %+v", when, servers, unknown, why, s.w.Status())
			}
		}
		s.start()
		expect("the cell answers", "")
		s.cell.set(func() { s.cell.untold = errLost })
		expect("it answers heartbeats alone", "last asked for the servers")
		s.cell.set(func() { s.cell.untold = nil })
		expect("it answers again", "")
	})
}

// TestOlderListHidesNoNewGuest: a list of guests says nothing of one that was made while the list
// was on its way.
func TestOlderListHidesNoNewGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.start()
		s.pass(time.Minute)
		s.cell.set(func() {})
		s.placement.grant(1)
		s.driver.slow = 10 * time.Second
		s.cell.boot(1)
		s.pass(5 * time.Second) // it is being made
		s.driver.listing = func() { time.Sleep(20 * time.Second) }
		s.w.Changed(host, "")
		s.pass(time.Minute)
		s.expect(1, active)
		testproc.Same(s, cmp.Diff([]string{"spawned 1 1"}, s.cell.taken()))
	})
}
