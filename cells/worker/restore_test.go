// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// restorable is what a driver that restores guests has of them.
type restorable struct {
	// disks are those of guests that can be restored; restored are guests that were.
	disks    map[string]bool
	restored []string
	// restoreErrs are the errors of the next Restores, nil: none.
	restoreErrs []error
}

// Restore makes a guest again over its disk.
func (d *fakeDriver) Restore(
	_ context.Context, _ string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	if _, err := d.enter(spec.UUID); err != nil {
		return plugins.Instance{}, err
	}
	defer d.leave(spec.UUID)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(spec.Allocations) == 0 || tree == nil {
		d.problems = append(d.problems, "a restore without allocations or tree")
	}
	var err error
	if len(d.restoreErrs) > 0 {
		err, d.restoreErrs = d.restoreErrs[0], d.restoreErrs[1:]
	}
	switch {
	case d.disks == nil:
		return plugins.Instance{}, plugins.ErrUnsupported
	case !d.disks[spec.UUID]:
		return plugins.Instance{}, &plugins.InstanceFault{UUID: spec.UUID, Reason: "its disks are not on its host"}
	case err != nil:
		return plugins.Instance{}, err
	}
	d.guests[spec.UUID] = plugins.PowerShutdown
	d.restored = append(d.restored, spec.UUID)
	return plugins.Instance{UUID: spec.UUID, Power: plugins.PowerShutdown}, nil
}

// vanish removes the guest of server 1 behind the agent's back; its disk is left or not.
func (s *scene) vanish(disks map[string]bool) {
	s.driver.set(func() {
		delete(s.driver.guests, serverUUID(1))
		s.driver.disks = disks
	})
	s.w.Changed(host, serverUUID(1))
	s.pass(time.Minute)
}

// TestMissingGuests: a server whose guest disappears is reported as missing, also by an agent that
// was restarted, and by none after its guest is back.
func TestMissingGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		for n := range 2 {
			s.placement.grant(n + 1)
			s.cell.boot(n + 1)
		}
		s.start()
		s.pass(time.Minute)
		missing := func(when string, want ...worker.Missing) {
			s.Helper()
			testproc.Samef(s, cmp.Diff(want, s.w.Status().Missing), "%s", when)
		}
		missing("at first")
		s.vanish(nil)
		gone := worker.Missing{UUID: serverUUID(1), Name: "server 1", Node: host}
		missing("after it disappeared", gone)
		s.start()
		s.pass(time.Minute)
		missing("after a restart", gone)
		s.cell.power(1, cellwire.PowerStop) // which finds it missing, too
		s.pass(time.Minute)
		missing("after a stop", gone)
		s.driver.set(func() { s.driver.guests[serverUUID(1)] = plugins.PowerRunning })
		s.w.Changed(host, serverUUID(1))
		s.pass(time.Minute)
		missing("after it is back")
	})
}

// TestHardRebootRestoresAGuest over its disks, whatever gets in the way; where that cannot be, the
// fault says why. No other action makes a guest.
func TestHardRebootRestoresAGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const stopped = "stopped power 0, guest -1, allocations true"
	disk := map[string]bool{serverUUID(1): true}
	for name, c := range map[string]struct {
		action cellwire.PowerAction
		disks  map[string]bool
		before func(s *scene)
		end    string
		fault  string
	}{
		"a hard reboot": {action: cellwire.PowerRebootHard, disks: disk, end: active},
		"the outcome is unknown": {action: cellwire.PowerRebootHard, disks: disk, before: func(s *scene) {
			s.driver.restoreErrs = []error{errors.New("connection reset by peer")}
		}, end: active},
		"of a server in error": {action: cellwire.PowerRebootHard, disks: disk, before: func(s *scene) {
			s.cell.change(1, func(r *row) { r.want, r.server.VMState = cellwire.WantIdle, cellwire.VMError })
			s.pass(time.Minute)
		}, end: active},
		"another reboot": {action: cellwire.PowerReboot, disks: disk, end: stopped, fault: "Reboot of instance " +
			serverUUID(1) + " failed: its guest does not exist"},
		"a start": {action: cellwire.PowerStart, disks: disk, end: stopped, fault: "Start of instance " +
			serverUUID(1) + " failed: its guest does not exist"},
		"without disks": {
			action: cellwire.PowerRebootHard, disks: map[string]bool{}, end: stopped,
			fault: "Reboot of instance " + serverUUID(1) +
				" failed: its guest does not exist: its disks are not on its host",
		},
		"a driver that cannot": {
			action: cellwire.PowerRebootHard, end: stopped,
			fault: "Reboot of instance " + serverUUID(1) +
				" failed: its guest does not exist: the driver of its host cannot make it again over its disks",
		},
		"without allocations": {
			action: cellwire.PowerRebootHard, disks: disk, before: func(s *scene) { s.placement.clear() },
			end:   "stopped power 0, guest -1, allocations false",
			fault: "its guest does not exist: its allocations were removed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.placement.grant(1)
				s.cell.boot(1)
				s.start()
				s.pass(time.Minute)
				s.vanish(c.disks)
				if c.before != nil {
					c.before(s)
				}
				s.cell.power(1, c.action)
				s.pass(30 * time.Minute)
				s.expect(1, c.end)
				if f := s.cell.row(1).server.Fault; (f != nil) != (c.fault != "") || f != nil &&
					!strings.Contains(f.Message, c.fault) {
					s.Errorf("fault: %+v, want %q", f, c.fault)
				}
				restored := len(s.driver.restored)
				if st := s.w.Status(); (len(st.Missing) == 0) != (c.end == active) ||
					restored != map[bool]int{true: 1}[c.end == active] || s.driver.spawns[serverUUID(1)] != 1 {
					s.Errorf("%d missing, %d restored, %d spawns",
						len(st.Missing), restored, s.driver.spawns[serverUUID(1)])
				}
			})
		})
	}
}

// TestNoGuestIsRestoredOnACopy: while several agents report as the host, a guest that is missing on
// one may run on the other over the same disks. It is made again when one of them has stopped.
func TestNoGuestIsRestoredOnACopy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		s.vanish(map[string]bool{serverUUID(1): true})
		s.cell.set(func() {
			s.cell.problems = []cellwire.NodeProblem{{UUID: nodeUUID, Code: cellwire.NodeSeveralAgents,
				Message: "2 agents report as host h1: a; b."}}
		})
		s.pass(time.Minute)
		s.cell.power(1, cellwire.PowerRebootHard)
		s.pass(30 * time.Minute)
		const want = "its guest is not made again as long as 2 agents report as host h1: a; b: stop the agent " +
			"on the copy"
		if st := s.w.Status(); len(s.driver.restored) > 0 || len(st.Stuck) != 1 ||
			!strings.Contains(st.Stuck[0].Problem, want) {
			s.Fatalf("%d restored, stuck: %+v", len(s.driver.restored), st.Stuck)
		}
		s.cell.set(func() { s.cell.problems = nil })
		s.pass(30 * time.Minute)
		s.expect(1, active)
		testproc.Equal(s, len(s.driver.restored), 1, "%d guests are restored")
	})
}

// TestGuestsOfIdleServersAreKnown: a guest about whose server nothing is to be done, because that
// is in error, is not called unknown. It says whose it is.
func TestGuestsOfIdleServersAreKnown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		s.placement.grant(1)
		s.cell.boot(1)
		s.start()
		s.pass(time.Minute)
		s.cell.change(1, func(r *row) {
			r.want, r.server.VMState, r.server.ProjectID = cellwire.WantIdle, cellwire.VMError, "p1"
		})
		want := []worker.Idle{{UUID: serverUUID(1),
			Name: "server 1", Node: host, ProjectID: "p1", VMState: cellwire.VMError}}
		for _, when := range []string{"as it changes", "after a restart"} {
			s.w.Changed(host, "")
			s.pass(time.Minute)
			st := s.w.Status()
			testproc.Samef(s, cmp.Diff(want, st.Idle), "%s", when)
			if len(st.Unknown) > 0 || len(st.Missing) > 0 || s.driver.power(1) != plugins.PowerRunning {
				s.Errorf("%s: %+v", when, st)
			}
			s.start()
		}
		s.cell.power(1, cellwire.PowerRebootHard)
		s.pass(time.Minute)
		s.expect(1, active)
		if st := s.w.Status(); len(st.Idle) > 0 {
			s.Errorf("it is active again, and idle: %+v", st.Idle)
		}
	})
}
