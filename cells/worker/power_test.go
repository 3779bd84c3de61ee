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

// power begins a power action in the cell.
func (c *fakeCell) power(n int, action cellwire.PowerAction) {
	c.change(n, func(r *row) {
		r.server.TaskState, r.want = action.Task(), cellwire.WantShutdown
		if action == cellwire.PowerStart {
			r.want = cellwire.WantRunning
		}
	})
}

// TestPowerActions: what a guest is asked, and how often, whatever gets in the way. A guest that is
// rebooted goes off once and on once.
func TestPowerActions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	on, off := plugins.PowerRunning.String(), plugins.PowerShutdown.String()
	const stopped = "stopped power 4, guest 4, allocations true"
	lost := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		action  cellwire.PowerAction
		before  func(s *scene) // the guest runs
		powers  []string
		end     string
		reports []string
		fault   string
	}{
		"stop": {action: cellwire.PowerStop, powers: []string{off}, end: stopped, reports: []string{"settled 1 4"}},
		"start": {action: cellwire.PowerStart, before: (*scene).switchOff, powers: []string{on}, end: active,
			reports: []string{"settled 1 1"}},
		"reboot": {
			action: cellwire.PowerReboot, powers: []string{off, on}, end: active,
			reports: []string{"settled 1 4", "settled 1 1"},
		},
		"hard reboot": {
			action: cellwire.PowerRebootHard, powers: []string{off + " hard", on}, end: active,
			reports: []string{"settled 1 4", "settled 1 1"},
		},
		"hard reboot of a guest that is off": {
			action: cellwire.PowerRebootHard, before: (*scene).switchOff, powers: []string{on}, end: active,
			reports: []string{"settled 1 4", "settled 1 1"},
		},
		"the outcome is unknown": {
			action: cellwire.PowerReboot, before: func(s *scene) { s.driver.powerErrs = []error{lost, nil, lost} },
			powers: []string{off, on}, end: active, reports: []string{"settled 1 4", "settled 1 1"},
		},
		"answers of the cell are lost": {
			action: cellwire.PowerReboot, before: func(s *scene) { s.cell.set(func() { s.cell.lose = 3 }) },
			powers: []string{off, on}, end: active, reports: []string{"settled 1 4", "settled 1 1"},
		},
		"the agent is restarted when the guest is off": {
			action: cellwire.PowerReboot, before: func(s *scene) {
				s.driver.powered = func(plugins.PowerState) {
					s.driver.powered = nil
					s.cell.set(func() { s.cell.away = lost })
					go func() {
						time.Sleep(time.Second)
						s.start()
						s.cell.set(func() { s.cell.away = nil })
					}()
				}
			},
			powers: []string{off, on}, end: active, reports: []string{"settled 1 4", "settled 1 1"},
		},
		"the cell goes when the guest is off": {
			action: cellwire.PowerReboot, before: func(s *scene) {
				s.driver.powered = func(plugins.PowerState) {
					s.driver.powered = nil
					s.cell.set(func() { s.cell.away = lost })
					go func() {
						time.Sleep(time.Minute)
						if s.driver.power(1) != plugins.PowerRunning {
							s.Error("the guest stays off as long as the cell is down")
						}
						s.w.Changed(host, serverUUID(1))
						time.Sleep(time.Minute)
						s.cell.set(func() { s.cell.away = nil })
					}()
				}
			},
			powers: []string{off, on}, end: active, reports: []string{"settled 1 4", "power 1 1", "settled 1 1"},
		},
		"it cannot be started": {
			action: cellwire.PowerStart, before: func(s *scene) {
				s.switchOff()
				s.driver.powerErrs = []error{&plugins.InstanceFault{Reason: "its disk is gone"}}
			},
			end: stopped, reports: []string{"settled 1 4"},
			fault: "Start of instance " + serverUUID(1) + " failed: its disk is gone",
		},
		"it cannot be started in a reboot": {
			action: cellwire.PowerReboot,
			before: func(s *scene) {
				s.driver.powerErrs =
					[]error{nil, &plugins.InstanceFault{Reason: "its disk is gone"}}
			},
			powers: []string{off}, end: stopped, reports: []string{"settled 1 4", "settled 1 4"},
			fault: "Reboot of instance " + serverUUID(1) + " failed: its disk is gone",
		},
		"its guest is lost": {
			action: cellwire.PowerStop,
			before: func(s *scene) { s.driver.set(func() { delete(s.driver.guests, serverUUID(1)) }) },
			end:    "stopped power 0, guest -1, allocations true", reports: []string{"settled 1 0"},
			fault: "Stop of instance " + serverUUID(1) + " failed: its guest does not exist",
		},
		"deleted in the middle of a reboot": {
			action: cellwire.PowerReboot, before: func(s *scene) {
				s.driver.powered = func(plugins.PowerState) { s.driver.powered = nil; s.cell.delete(1) }
			},
			powers: []string{off}, end: deleted, reports: []string{"gone 1 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.placement.grant(1)
				s.cell.boot(1)
				s.start()
				s.pass(time.Minute)
				if c.before != nil {
					c.before(s)
				}
				before := len(s.cell.taken())
				s.cell.power(1, c.action)
				for range 2 { // and another agent, which remembers nothing, changes nothing
					s.pass(30 * time.Minute)
					s.expect(1, c.end)
					testproc.Samef(s, cmp.Diff(c.reports, s.cell.taken()[before:]), "reports")
					testproc.Samef(s, cmp.Diff(c.powers, s.driver.powers), "changes of power")
					if f := s.cell.row(1).server.Fault; (f != nil) != (c.fault != "") || f != nil &&
						!strings.Contains(f.Message, c.fault) {
						s.Errorf("fault: %+v", f)
					}
					s.start()
				}
			})
		})
	}
}

// switchOff has the guest off, and its server stopped.
func (s *scene) switchOff() {
	s.driver.set(func() { s.driver.guests[serverUUID(1)] = plugins.PowerShutdown })
	s.cell.change(1, func(r *row) { r.server.VMState, r.server.PowerState = cellwire.VMStopped, plugins.PowerShutdown })
	s.pass(time.Minute)
}
