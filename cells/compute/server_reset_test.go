// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestResetState: in states, by callers and with bodies that allow it or do not.
func TestResetState(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const active, failed = `{"os-resetState":{"state":"active"}}`, `{"os-resetState":{"state":"error"}}`
	cannot := "conflictingRequest: Cannot 'os-resetState' instance " + uuid(1)
	for name, tt := range map[string]struct {
		who, body, vm, task string
		never, unplaced     bool
		status              int
		says                string
	}{
		"to active": {body: active, vm: cellwire.VMError, status: 202},
		"a task":    {body: active, vm: cellwire.VMActive, task: cellwire.TaskPoweringOff, status: 202},
		"to error":  {body: failed, vm: cellwire.VMStopped, status: 202},
		"a build to error": {body: failed, vm: cellwire.VMBuilding,
			task: cellwire.TaskSpawning, never: true, status: 202},
		"a build to active": {body: active, vm: cellwire.VMBuilding, never: true, status: 409, says: cannot +
			" to active, because it was never built"},
		"before it is placed": {body: failed, vm: cellwire.VMBuilding, never: true, unplaced: true, status: 409,
			says: "conflictingRequest: Instance " + uuid(1) + " is not ready"},
		"while it is deleted": {body: active, vm: cellwire.VMActive, task: cellwire.TaskDeleting, status: 409,
			says: cannot + " while it is in task_state deleting; delete it again"},
		"softly deleted": {body: active, vm: cellwire.VMSoftDeleted, status: 409, says: cannot +
			" while it is in vm_state soft-delete; restore it"},
		"while it is restored": {body: active, vm: cellwire.VMSoftDeleted, task: cellwire.TaskRestoring, status: 202},
		"by its owner": {who: member, body: active, vm: cellwire.VMError, status: 403,
			says: "forbidden: Policy doesn't allow os_compute_api:os-admin-actions:reset_state to be performed."},
		"to what is no state": {body: `{"os-resetState":{"state":"stopped"}}`, status: 400,
			says: "badRequest: Invalid input for field/attribute state. Value: stopped. 'stopped' is not one of " +
				"['active', 'error']"},
		"to nothing in a state": {body: `{"os-resetState":{}}`, status: 400,
			says: "badRequest: Invalid input for field/attribute os-resetState. Value: {}. 'state' is a " +
				"required property"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, Options{})
			c.withCalls()
			s, cell := server(1, "s1"), 1
			s.VMState, s.TaskState = tt.vm, tt.task
			if !tt.never {
				s.LaunchedAt = &start
			}
			if tt.unplaced {
				cell, s.Host, s.Node = nowhere, "", ""
			}
			c.has(cell, s)
			who := tt.who
			if who == "" {
				who = admin3
			}
			got := c.do(who, "2.71", "POST", "/v2.1/servers/"+uuid(1)+"/action", tt.body)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			if tt.status == 202 &&
				(c.cell(1).servers[0].TaskState != "" || c.cell(1).servers[0].VMState == tt.vm && tt.task == "") {
				t.Errorf("the server is %s (%s)", c.cell(1).servers[0].VMState, c.cell(1).servers[0].TaskState)
			}
		})
	}
}

// TestAbortMigration: by whom, from which microversion on, and what the cell refuses.
func TestAbortMigration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	none := func(id string) string {
		return "itemNotFound: Migration " + id + " is not found for instance " + uuid(1) + "."
	}
	for name, tt := range map[string]struct {
		who, version, id string
		err              error
		status           int
		says             string
	}{
		"aborted":   {id: "7", status: 202},
		"too early": {version: "2.23", id: "7", status: 404, says: "itemNotFound: The resource could not be found."},
		"unknown":   {id: "8", err: scheduler.ErrNoMigration, status: 404, says: none("8")},
		"no number": {id: "x", status: 404, says: none("x")},
		"by its owner": {who: member, id: "7", status: 403,
			says: "forbidden: Policy doesn't allow os_compute_api:servers:migrations:delete to be performed."},
		"its host is up": {
			id: "7", err: &cellwire.Error{
				Status: 409, Code: cellwire.CodeConflict, Message: "host h2, which is up, ends it",
			},
			status: 409, says: "conflictingRequest: host h2, which is up, ends it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, Options{})
			boots, _ := c.withCalls()
			boots.err = tt.err
			c.has(1, server(1, "s1"))
			who, version := tt.who, tt.version
			if who == "" {
				who = admin3
			}
			if version == "" {
				version = "2.71"
			}
			got := c.do(who, version, "DELETE", "/v2.1/servers/"+uuid(1)+"/migrations/"+tt.id, "")
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			if asked := len(boots.moved); (asked == 1) != (tt.status == 202) {
				t.Errorf("the scheduler was asked for %v", boots.moved)
			}
		})
	}
}
