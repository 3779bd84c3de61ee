// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// step is one thing that happens.
type step struct {
	What string
	N    int // which server, or how many
	Then int // seconds until the next
}

var happenings = []string{
	"boot", "boot", "boot", "delete", "delete", "soft", "restore", "rename", "local", // the cell
	"cell away", "cell back", "lose answers", "backup", // the way to it
	"restart", "restart", // the worker
	"crash", "not ready", "unsure", "ready", "stop guest", "start guest", "driver event", // the driver
	"placement away", "placement back",
}

const servers = 5

// happen does one step. made has the servers that ever became active, as the cell saw it.
func (s *scene) happen(x step) {
	r := s.cell.row(x.N)
	there := r.server.UUID != "" && !r.server.Deleted && r.want != cellwire.WantGone
	running := there && r.server.VMState == cellwire.VMActive && r.server.TaskState == ""
	switch x.What {
	case "boot":
		if r.server.UUID == "" {
			s.placement.grant(x.N)
			s.cell.boot(x.N)
		}
	case "delete":
		if there {
			s.cell.delete(x.N)
		}
	case "local": // the cell takes the host for down: the API removes the allocations
		if there {
			s.placement.mu.Lock()
			delete(s.placement.held, serverUUID(x.N))
			s.placement.mu.Unlock()
			s.cell.change(x.N, func(r *row) {
				r.want, r.cleanup, r.server.Deleted, r.server.VMState, r.server.TaskState = cellwire.WantGone,
					true, true, cellwire.VMDeleted, ""
			})
		}
	case "soft":
		if running {
			s.cell.change(x.N,
				func(r *row) { r.want, r.server.TaskState = cellwire.WantShutdown, cellwire.TaskSoftDeleting })
		}
	case "restore":
		if there && r.server.VMState == cellwire.VMSoftDeleted && r.server.TaskState == "" {
			s.cell.change(x.N,
				func(r *row) { r.want, r.server.TaskState = cellwire.WantRunning, cellwire.TaskRestoring })
		}
	case "rename":
		if there {
			s.cell.change(x.N, func(r *row) { r.server.Name += "!" })
		}
	case "cell away":
		s.cell.set(func() { s.cell.away = errors.New("connection refused") })
	case "cell back":
		s.cell.set(func() { s.cell.away = nil })
	case "lose answers":
		s.cell.set(func() { s.cell.lose = x.N })
	case "backup": // its revisions begin again, and it sends everything
		s.cell.set(func() { s.cell.epoch += "'" })
	case "restart":
		s.start()
	case "crash":
		s.driver.crash()
		s.w.Changed("", "")
	case "not ready":
		s.driver.set(func() { s.driver.err = &plugins.NotReady{} })
	case "unsure":
		s.driver.set(func() { s.driver.spawnErrs = slices.Repeat([]error{errors.New("outcome unknown")}, x.N) })
	case "ready":
		s.driver.set(func() { s.driver.err = nil })
		s.w.Changed("", "")
	case "stop guest", "start guest":
		s.driver.set(func() {
			if _, there := s.driver.guests[serverUUID(x.N)]; there {
				s.driver.guests[serverUUID(x.N)] = map[string]plugins.PowerState{"stop guest": plugins.PowerShutdown,
					"start guest": plugins.PowerRunning}[x.What]
			}
		})
		s.w.Changed(host, serverUUID(x.N))
	case "driver event":
		s.w.Changed(host, "")
	case "placement away":
		s.placement.set(errors.New("503"))
	case "placement back":
		s.placement.set(nil)
	}
}

// judge compares what is with what the cell wants, after everybody has had time.
func (s *scene) judge(faults map[int]bool) string {
	for n := 1; n <= servers; n++ {
		r := s.cell.row(n)
		power, holds := s.driver.power(n), s.placement.holds(n)
		bad := func(why string) string {
			return fmt.Sprintf("server %d: %s: row %s/%s/%d want %s, guest %d, allocations %t, reported %q",
				n, why, r.server.VMState, r.server.TaskState,
				r.server.PowerState, r.want, power, holds, s.cell.taken())
		}
		switch {
		case s.driver.half[serverUUID(n)]:
			return bad("a half of a guest is left")
		case r.server.UUID == "" || r.server.Deleted || r.server.VMState == cellwire.VMError:
			if power != -1 || holds || r.cleanup {
				return bad("something is left of it")
			}
			if r.server.VMState == cellwire.VMError && !faults[n] {
				return bad("it failed, and nothing was wrong")
			}
		case r.server.VMState == cellwire.VMBuilding, r.server.TaskState != "", r.want == cellwire.WantGone,
			r.want == cellwire.WantRunning:
			return bad("it is not finished")
		case !holds:
			return bad("its allocations are gone")
		case power != r.server.PowerState:
			return bad("its power state is wrong")
		case r.want == cellwire.WantShutdown && power != plugins.PowerShutdown:
			return bad("it is not shut down")
		case faults[n]:
			return bad("it cannot be made, and is")
		}
	}
	if s.driver.power(9) != 1 {
		return "a guest that does not belong to the cell was touched"
	}
	if st := s.w.Status(); st.Busy != 0 || st.Waiting != 0 || len(st.Unknown) != 1 || !st.Up {
		return fmt.Sprintf("%+v", st)
	}
	if len(s.driver.problems) > 0 {
		return s.driver.problems[0]
	}
	return ""
}

// TestWorkerProperties: servers come and go, the worker is restarted, cell, driver and Placement
// come and go. When all are back, guests are what the cell wants, there was never more than one
// call about one at a time, and allocations are gone of exactly those servers that are gone or
// failed.
func TestWorkerProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				What: rapid.SampledFrom(happenings).Draw(rt, "what"), N: rapid.IntRange(1, servers).Draw(rt, "n"),
				Then: rapid.SampledFrom([]int{0, 0, 1, 3, 20, 200}).Draw(rt, "then"),
			}
		}), 1, 40).Draw(rt, "steps")
		slow := rapid.SampledFrom([]time.Duration{0, 2 * time.Second, 100 * time.Second}).Draw(rt, "slow")
		faults := map[int]bool{}
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, servers), 0, 2).Draw(rt, "faults") {
			faults[n] = true
		}
		problem := ""
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.driver.slow = slow
			s.driver.guests[serverUUID(9)] = plugins.PowerRunning
			for n := range faults {
				s.driver.faults[serverUUID(n)] = "no"
			}
			s.start()
			for _, x := range steps {
				s.happen(x)
				s.pass(time.Duration(x.Then) * time.Second)
			}
			for _, what := range []string{"cell back", "ready", "placement back"} {
				s.happen(step{What: what})
			}
			s.cell.set(func() { s.cell.lose = 0 })
			s.pass(30 * time.Minute)
			problem = s.judge(faults)
			if problem != "" {
				problem += "\n" + s.log.String()
			}
			s.driver.problems = nil
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}
