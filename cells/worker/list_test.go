// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBackupThatGrewPastUs: a cell that was down may be back with a backup, and have a higher
// revision by the time it is asked: it sends everything again then, too.
func TestBackupThatGrewPastUs(t *testing.T) {
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

// TestStandingStill: a cell that says again and again that there is more, and never gets on, is not
// asked without pause.
func TestStandingStill(t *testing.T) {
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
