// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDeletesAndActions: calls of the scheduler, and the answers to its errors.
func TestDeletesAndActions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const hour = time.Hour
	isDown := &gather.DownError{Cell: apidb.Cell{Name: "cell1"}, Err: fmt.Errorf("connection refused")}
	down := "computeFault: NovaException: The server's cell is not responding. Try again when it is back."
	gone := "itemNotFound: Instance " + uuid(1) + " could not be found."
	for _, tt := range []struct {
		name, who string
		reclaim   time.Duration
		vm, task  string
		cell      int
		action    string // "": DELETE
		err       error
		fail      bool // the server's cell is down
		status    int
		says      string
		did       []string // deletions
		restored  bool
	}{
		{name: "deleted", cell: 1, status: 204, did: []string{uuid(1) + " soft=false"}},
		{name: "softly", cell: 1, reclaim: hour, status: 204, did: []string{uuid(1) + " soft=true"}},
		{name: "in cell0", cell: 0, status: 204, did: []string{uuid(1) + " soft=false"}},
		{name: "before it is placed", cell: nowhere, reclaim: hour, status: 204, did: []string{uuid(1) + " soft=true"}},
		{name: "by an administrator of another project",
			who: "operator", cell: 1, status: 204, did: []string{uuid(1) + " soft=false"}},
		{name: "by another project", who: member2, cell: 1, status: 404, says: gone},
		{name: "by a reader", who: reader, cell: 1,
			status: 403, says: "forbidden: Policy doesn't allow os_compute_api:servers:delete to be performed."},
		{name: "its cell is down", cell: 1, err: fmt.Errorf("delete: %w", isDown), status: 500, says: down},
		{name: "its cell does not have it", cell: 1,
			err: fmt.Errorf("delete: %w", apidb.ErrNotFound), status: 404, says: gone},
		{name: "its cell does not let it", cell: 1,
			err: fmt.Errorf("delete: %w", &cellwire.Error{Status: 409, Code: cellwire.CodeConflict}), status: 409,
			says: "conflictingRequest: Instance " + uuid(1) + " is in an invalid state for 'delete'"},

		{name: "for good", action: "forceDelete", reclaim: hour, cell: 1, status: 202,
			did: []string{uuid(1) + " soft=false"}},
		{name: "for good, after a soft delete", action: "forceDelete", reclaim: hour, vm: cellwire.VMSoftDeleted,
			cell: 1, status: 202, did: []string{uuid(1) + " soft=false"}},
		{name: "for good, by a reader", who: reader, action: "forceDelete", cell: 1, status: 403,
			says: "forbidden: Policy doesn't allow os_compute_api:os-deferred-delete:force to be performed."},
		{name: "for good, by another project", who: member2, action: "forceDelete", cell: 1, status: 404, says: gone},
		{name: "for good, its cell is down", action: "forceDelete", cell: 1, err: isDown, status: 500, says: down},

		{name: "restored", action: "restore", vm: cellwire.VMSoftDeleted, cell: 1, status: 202, restored: true},
		{name: "restored by an administrator", who: "operator", action: "restore", vm: cellwire.VMSoftDeleted, cell: 1,
			status: 202, restored: true},
		{name: "restored while it is being softly deleted",
			action: "restore", vm: cellwire.VMSoftDeleted, task: cellwire.TaskDeleting, cell: 1, status: 409,
			says: "conflictingRequest: Cannot 'restore' instance " + uuid(1) + " while it is in task_state deleting"},
		{name: "restored although it lives", action: "restore", cell: 1, status: 409,
			says: "conflictingRequest: Cannot 'restore' instance " + uuid(1) + " while it is in vm_state active"},
		{name: "restored before it is placed", action: "restore", vm: cellwire.VMBuilding, cell: nowhere, status: 409,
			says: "conflictingRequest: Cannot 'restore' instance " + uuid(1) + " while it is in vm_state building"},
		{name: "restored by a reader", who: reader, action: "restore", vm: cellwire.VMSoftDeleted, cell: 1, status: 403,
			says: "forbidden: Policy doesn't allow os_compute_api:os-deferred-delete:restore to be performed."},
		{name: "restored by another project", who: member2,
			action: "restore", vm: cellwire.VMSoftDeleted, cell: 1, status: 404, says: gone},
		{name: "restored over the quota", action: "restore", vm: cellwire.VMSoftDeleted, cell: 1,
			err: &quota.ExceededError{Resources: []string{"cores"}, Requested: []string{"1"},
				Used: []string{"4"}, Allowed: []string{"4"}}, status: 403,
			says: "forbidden: Quota exceeded for cores: Requested 1, but already used 4 of 4 cores"},
		{name: "restored when it was reclaimed meanwhile", action: "restore", vm: cellwire.VMSoftDeleted, cell: 1,
			err: &cellwire.Error{Status: 409, Code: cellwire.CodeConflict}, status: 409,
			says: "conflictingRequest: Instance " + uuid(1) + " is in an invalid state for 'restore'"},
		{name: "restored, its cell is down", action: "restore", vm: cellwire.VMSoftDeleted, cell: 1,
			fail: true, status: 500, says: down},
		{name: "an action that only Nova has", action: "resize", cell: 1, status: 400,
			says: "badRequest: This service does not support the action resize; docs/cells.md lists the calls " +
				"that it has"},
		{name: "another action", action: "explode",
			cell: 1, status: 400, says: "badRequest: There is no such action: explode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{Reclaim: tt.reclaim})
			boots, _ := c.withCalls()
			boots.err = tt.err
			s := server(1, "s1")
			s.VMState, s.TaskState = tt.vm, tt.task
			c.has(tt.cell, s)
			if tt.fail {
				c.cell(tt.cell).fail = refused
			}
			who := tt.who
			if who == "" {
				who = member
			}
			method, path, body := "DELETE", "/v2.1/servers/"+uuid(1), ""
			if tt.action != "" {
				method, path, body = "POST", path+"/action", `{"`+tt.action+`":null}`
			}
			got := c.do(who, "2.69", method, path, body)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			if tt.says == "" && got.text != "" {
				t.Errorf("there is a body: %s", got.text)
			}
			testproc.Same(t, gocmp.Diff(tt.did, boots.deleted))
			testproc.Equal(t, len(boots.restored) == 1, tt.restored, "restored: %t")
		})
	}
}

// TestDeletedBeforeItWasPlaced: what the owner deleted is not there any more, although its mapping
// is.
func TestDeletedBeforeItWasPlaced(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	c.has(nowhere, server(1, "s1"))
	testproc.Check(t, c.store.AbandonBuild(t.Context(), uuid(1)))
	for _, call := range [][3]string{
		{"DELETE", "", ""}, {"POST", "/action", `{"restore":null}`}, {"POST", "/action", `{"forceDelete":null}`},
	} {
		if got := c.do(member, "2.69", call[0], "/v2.1/servers/"+uuid(1)+call[1], call[2]); got.status != 404 ||
			len(boots.deleted) > 0 {
			t.Errorf("%v on a server that is not placed: got %d %s, want 404", call, got.status, got.text)
		}
	}
}
