// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// attempts has servers built on so many hosts at most.
func attempts(n int) func(*scheduler.Options, *quota.Options) {
	return func(o *scheduler.Options, _ *quota.Options) { o.MaxAttempts = n }
}

// brought lets all hosts and the scheduler do what they have to.
func (w *world) brought() {
	w.t.Helper()
	for range 5 {
		w.work()
		w.moves()
	}
	w.work()
}

// TestBuildOnAnotherHost: a server that a host says it cannot build is built on another one, on so
// many as are configured; each that was tried is an action.
func TestBuildOnAnotherHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		hosts, attempts, unable int
		forced                  bool
		tried                   int // hosts that could not
		active                  bool
	}{
		"the next one":               {hosts: 3, attempts: 3, unable: 1, tried: 1, active: true},
		"the last attempt":           {hosts: 3, attempts: 3, unable: 2, tried: 2, active: true},
		"no more attempts":           {hosts: 4, attempts: 3, unable: 4, tried: 3},
		"no more hosts":              {hosts: 2, attempts: 3, unable: 2, tried: 2},
		"one attempt":                {hosts: 2, attempts: 1, unable: 1, tried: 1},
		"a host that was chosen":     {hosts: 2, attempts: 3, unable: 2, forced: true, tried: 1},
		"as before, by the defaults": {hosts: 2, unable: 2, tried: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{c.hosts}, attempts(c.attempts))
			uuid := w.created(func(r *scheduler.CreateRequest) {
				if c.forced {
					r.ForcedHost = "cell1-host1"
				}
			})
			w.schedule()
			unable := 0
			w.host(uuid).fails = map[cellwire.Want]bool{cellwire.WantPresent: true}
			for _, a := range w.all() {
				if a != w.host(uuid) && unable < c.unable-1 {
					a.fails = map[cellwire.Want]bool{cellwire.WantPresent: true}
					unable++
				}
			}
			w.brought()
			for _, a := range w.all() {
				a.fails = nil
			}
			all := testproc.Try(w.sites[1].store.Actions(ctx, uuid)).Or(t)
			failed := 0
			for _, a := range all.Actions {
				said := strings.Contains(a.Details, a.Host+" cannot build it")
				if a.Name == cellwire.ActionCreate && a.Failed && said {
					failed++
				}
			}
			row := w.row(uuid)
			if c.active && c.unable > 1 && failed < c.tried { // the one that can may come earlier
				c.tried = failed
			}
			if failed != c.tried || (row.VMState == cellwire.VMActive) != c.active || !c.active &&
				(row.VMState != cellwire.VMError || row.Fault == nil) {
				t.Errorf("the server is %s on %s after %d attempts, with the fault %+v and %+v",
					row.VMState, row.Host, failed, row.Fault, all.Actions)
			}
			if c.active {
				w.holds(map[string]*agent{uuid: w.host(uuid)})
				w.consistent(map[string]bool{uuid: true})
			} else {
				w.holds(nil)
				if !strings.Contains(row.Fault.Message, " cannot build it") {
					t.Errorf("the fault is %+v", row.Fault)
				}
			}
		})
	}
}

// TestBuildOnAnotherHostEndsAfterEveryStep: the process ends once after each step, and another goes
// on.
func TestBuildOnAnotherHostEndsAfterEveryStep(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, step := range []string{"move", "destination", "fail"} {
		t.Run(step, func(t *testing.T) {
			w := begin(t, []int{2}, attempts(3))
			uuid := w.created()
			w.schedule()
			for _, a := range w.all() {
				if a == w.host(uuid) || step == "fail" {
					a.fails = map[cellwire.Want]bool{cellwire.WantPresent: true}
				}
			}
			reached := false
			w.scheduler.SetAfter(func(s string) error {
				if s != step {
					return nil
				}
				reached = true
				return errEnd
			})
			w.brought()
			if !reached {
				t.Fatal("the step was not reached")
			}
			w.restart()
			w.brought()
			if row := w.row(uuid); (row.VMState == cellwire.VMActive) != (step != "fail") {
				t.Errorf("the server is %s on %s: %+v", row.VMState, row.Host, row.Fault)
			}
			if step != "fail" {
				w.consistent(map[string]bool{uuid: true})
			}
		})
	}
}
