// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPowerActions: states, callers and cells that allow them or do not, in Nova's words.
func TestPowerActions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		on     = `{"os-start":null}`
		off    = `{"os-stop":null}`
		reboot = `{"reboot":{"type":"SOFT"}}`
		hard   = `{"reboot":{"type":"hard"}}`
	)
	down := "computeFault: NovaException: The server's cell is not responding. Try again when it is back."
	gone := "itemNotFound: Instance " + uuid(1) + " could not be found."
	cannot := func(action, kind, state string) string {
		return "conflictingRequest: Cannot '" + action +
			"' instance " + uuid(1) + " while it is in " + kind + " " + state
	}
	policy := func(rule string) string {
		return "forbidden: Policy doesn't allow os_compute_api:servers:" + rule + " to be performed."
	}
	for _, tt := range []struct {
		name, who, body, vm, task string
		unplaced, never, down     bool
		status                    int
		says                      string
		becomes                   string // the task_state
	}{
		{name: "started", body: on, vm: cellwire.VMStopped, status: 202, becomes: "powering-on"},
		{name: "stopped", body: off, status: 202, becomes: "powering-off"},
		{name: "stopped, with any argument", body: `{"os-stop":{}}`, status: 202, becomes: "powering-off"},
		{name: "rebooted", body: reboot, status: 202, becomes: "rebooting"},
		{name: "rebooted hard", body: hard, status: 202, becomes: "rebooting_hard"},
		{name: "rebooted hard while it is stopped", body: hard, vm: cellwire.VMStopped,
			status: 202, becomes: "rebooting_hard"},
		{name: "rebooted hard while it is rebooted", body: hard, task: "reboot_started",
			status: 202, becomes: "rebooting_hard"},
		{name: "by an administrator of another project", who: admin3, body: off, status: 202, becomes: "powering-off"},

		{name: "started while it runs", body: on, status: 409, says: cannot("start", "vm_state", "active")},
		{name: "stopped while it is off", body: off, vm: cellwire.VMStopped, status: 409,
			says: cannot("stop", "vm_state", "stopped")},
		{name: "stopped while it is rebooted", body: off,
			task: "rebooting", status: 409, says: cannot("stop", "task_state", "rebooting"), becomes: "rebooting"},
		{name: "rebooted while it is off", body: reboot,
			vm: cellwire.VMStopped, status: 409, says: cannot("reboot", "vm_state", "stopped")},
		{name: "rebooted twice", body: reboot, task: "rebooting", status: 409,
			says: cannot("reboot", "task_state", "rebooting"), becomes: "rebooting"},
		{name: "rebooted hard while it is deleted", body: hard, task: "deleting", status: 409,
			says: cannot("reboot", "task_state", "deleting"), becomes: "deleting"},
		{name: "stopped while it is built", body: off, vm: cellwire.VMBuilding, never: true, status: 409,
			says: cannot("stop", "vm_state", "building")},
		{name: "stopped after its build failed", body: off, vm: cellwire.VMError, never: true, status: 409,
			says: "conflictingRequest: Instance " + uuid(1) + " is in an invalid state for 'stop'"},
		{name: "stopped before it is placed", body: off, vm: cellwire.VMBuilding, unplaced: true, never: true,
			status: 409, says: "conflictingRequest: Instance " + uuid(1) + " is not ready"},
		{name: "rebooted before it is placed", body: reboot, vm: cellwire.VMBuilding, unplaced: true, never: true,
			status: 409, says: cannot("reboot", "vm_state", "building")},

		{name: "its cell is down", body: off, down: true, status: 500, says: down},
		{name: "started by a reader", who: reader, body: on, status: 403, says: policy("start")},
		{name: "stopped by a reader", who: reader, body: off, status: 403, says: policy("stop")},
		{name: "rebooted by a reader", who: reader, body: hard, status: 403, says: policy("reboot")},
		{name: "stopped by another project", who: member2, body: off, status: 404, says: gone},
		{name: "rebooted in another way", body: `{"reboot":{"type":"WARM"}}`, status: 400,
			says: "badRequest: Invalid input for field/attribute type. Value: WARM. 'WARM' is not one of ['HARD', " +
				"'Hard', 'hard', 'SOFT', 'Soft', 'soft']"},
		{name: "rebooted in no way", body: `{"reboot":{}}`,
			status: 400,
			says:   "badRequest: Invalid input for field/attribute reboot. Value: {}. 'type' is a required property"},
		{name: "rebooted with null", body: `{"reboot":null}`, status: 400,
			says: "badRequest: Invalid input for field/attribute reboot. Value: None. None is not of type 'object'"},
		{name: "two at once", body: `{"os-start":null,"os-stop":null}`, status: 400,
			says: "badRequest: Malformed request body"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			s := server(1, "s1")
			s.VMState, s.TaskState = tt.vm, tt.task
			if !tt.never {
				s.LaunchedAt = &start
			}
			cell := 1
			if tt.unplaced {
				cell, s.Host, s.Node = nowhere, "", ""
			}
			c.has(cell, s)
			if tt.down {
				c.cell(1).fail = refused
			}
			who := tt.who
			if who == "" {
				who = member
			}
			got := c.do(who, "2.1", "POST", "/v2.1/servers/"+uuid(1)+"/action", tt.body)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			if tt.says == "" && got.text != "" {
				t.Errorf("there is a body: %s", got.text)
			}
			if !tt.unplaced {
				testproc.Equal(t, c.cell(1).servers[0].TaskState, tt.becomes, "task_state %q")
			}
		})
	}
}
