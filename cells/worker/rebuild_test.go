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

// rebuild begins a rebuild in the cell.
func (c *fakeCell) rebuild(n int, image string) {
	c.change(n, func(r *row) {
		r.former = r.server
		r.server.TaskState, r.server.ImageRef, r.server.KeyName, r.server.KeyData, r.want = cellwire.TaskRebuilding,
			image, "k", "ssh-rsa A", cellwire.WantCleared
	})
}

// TestRebuild: whatever gets in the way, the old guest is removed once and the new one is made once
// and never removed, and the allocations stay; also if it cannot be made.
func TestRebuild(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	lost := errors.New("connection reset by peer")
	const failed = "error power 0, guest -1, allocations true"
	for name, c := range map[string]struct {
		before func(s *scene) // the guest runs
		made   []string
		end    string
		fault  string
		kept   bool // the guest is, and the server is what it was
	}{
		"rebuilt": {made: []string{"-", "new"}, end: active},
		"of a guest that is lost already": {before: func(s *scene) {
			s.driver.set(
				func() { delete(s.driver.guests, serverUUID(1)) })
		}, made: []string{"new"}, end: active},
		"answers of the cell are lost": {before: func(s *scene) { s.cell.set(func() { s.cell.lose = 3 }) },
			made: []string{"-", "new"}, end: active},
		"the outcome is unknown": {before: func(s *scene) { s.driver.spawnErrs = []error{lost, lost} },
			made: []string{"-", "new"}, end: active},
		"Placement is down for a while": {before: func(s *scene) {
			s.placement.set(lost)
			go func() { time.Sleep(time.Minute); s.placement.set(nil) }()
		}, made: []string{"-", "new"}, end: active},
		"the agent is restarted while the guest is made": {before: func(s *scene) {
			s.driver.set(func() { s.driver.slow = time.Minute })
			go func() { time.Sleep(30 * time.Second); s.start() }()
		}, made: []string{"-", "new"}, end: active},
		"the driver crashes while the guest is made": {before: func(s *scene) {
			s.driver.set(func() { s.driver.slow = time.Minute })
			go func() { time.Sleep(30 * time.Second); s.driver.crash() }()
		}, made: []string{"-", "new"}, end: active},
		"the agent is restarted while the cell does not know what was done": {before: func(s *scene) {
			s.placement.reading = func() {
				s.placement.reading = nil
				s.cell.set(func() { s.cell.away = lost })
				go func() {
					time.Sleep(time.Minute) // the guest is made, and the report is lost with the agent
					s.start()
					s.cell.set(func() { s.cell.away = nil })
				}()
			}
		}, made: []string{"-", "new"}, end: active},
		"there is no such image": {before: func(s *scene) {
			s.driver.set(
				func() { s.driver.faults[serverUUID(1)] = "there is no image new" })
		},
			end: active, kept: true, fault: "Rebuild of instance " + serverUUID(1) + " failed: there is no image new"},
		"there is no such image, and the driver cannot check": {before: func(s *scene) {
			s.driver.set(func() { s.driver.faults[serverUUID(1)], s.driver.unchecked = "there is no image new", true })
		}, made: []string{"-"}, end: failed, fault: "Rebuild of instance " + serverUUID(1) +
			" failed: there is no image new"},
		"there is no such image, and no guest to keep": {before: func(s *scene) {
			s.driver.set(func() {
				s.driver.faults[serverUUID(1)] = "there is no image new"
				delete(s.driver.guests, serverUUID(1))
			})
		}, end: failed, fault: "Rebuild of instance " + serverUUID(1) + " failed: there is no image new"},
		"the image vanishes while the guest is removed": {before: func(s *scene) {
			s.driver.set(func() {
				s.driver.checkErrs = []error{nil, &plugins.InstanceFault{Reason: "it is too late to ask"}}
				s.driver.removeErr = []error{lost}
			})
		}, made: []string{"-", "new"}, end: active},
		"the driver cannot tell for a while": {before: func(s *scene) {
			s.driver.set(func() { s.driver.checkErrs = []error{lost, &plugins.NotReady{Reason: "it starts"}, lost} })
		}, made: []string{"-", "new"}, end: active},
		"its allocations were removed": {before: func(s *scene) { s.placement.clear() },
			end: "active power 1, guest 1, allocations false", kept: true, fault: "Rebuild of instance " +
				serverUUID(1) + " failed: its allocations were removed"},
		"the driver manages no guests any more": {before: func(s *scene) {
			s.driver.spawnErrs =
				[]error{plugins.ErrUnsupported}
		},
			made: []string{"-"}, end: failed, fault: "its host cannot create guests"},
		"the guest is another client's": {before: func(s *scene) {
			s.driver.set(
				func() { s.driver.foreign[serverUUID(1)] = true })
		},
			end: active, kept: true, fault: "Rebuild of instance " + serverUUID(1) +
				" failed: it belongs to another client"},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.placement.grant(1)
				s.cell.boot(1)
				s.start()
				s.pass(time.Minute)
				s.expect(1, active)
				s.driver.set(func() { s.driver.made = nil })
				if c.before != nil {
					c.before(s)
				}
				s.cell.rebuild(1, "new")
				for range 2 { // and another agent, which remembers nothing, changes nothing
					s.pass(30 * time.Minute)
					s.expect(1, c.end)
					testproc.Samef(s, cmp.Diff(c.made, s.driver.made), "guests that were removed and made")
					if f := s.cell.row(1).server.Fault; (f != nil) != (c.fault != "") || f != nil &&
						!strings.Contains(f.Message, c.fault) {
						s.Errorf("fault: %+v", f)
					}
					s.start()
				}
				if is := s.cell.row(1).server; c.kept && (is.ImageRef != "" || is.KeyName != "" || is.TaskState != "") {
					s.Errorf("the server is %+v", is)
				}
				if spec := s.driver.specs[serverUUID(1)]; c.end == active && !c.kept &&
					(spec.Image != "new" || spec.KeyName != "k" || spec.PublicKey != "ssh-rsa A" ||
						len(spec.Allocations) == 0) {
					s.Errorf("made of %+v", spec)
				}
				if len(s.placement.removed) > 0 {
					s.Errorf("allocations were removed: %v", s.placement.removed)
				}
			})
		})
	}
}

// TestDeletedInARebuild: nothing is left, whichever half it is in.
func TestDeletedInARebuild(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, at := range map[string]time.Duration{"while the guest is made": 30 * time.Second,
		"when it has just begun": 0} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.placement.grant(1)
				s.cell.boot(1)
				s.start()
				s.pass(time.Minute)
				s.driver.set(func() { s.driver.slow = time.Minute })
				s.cell.rebuild(1, "new")
				s.pass(at)
				s.cell.delete(1)
				s.pass(30 * time.Minute)
				s.expect(1, deleted)
			})
		})
	}
}
