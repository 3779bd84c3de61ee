// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestAServersLife(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	in := building(1, "h1")
	hidden := do[cellwire.Server](w, "PUT", "/v1/servers/"+in.UUID, in)
	want := in
	want.ID, want.Hidden, want.Revision, want.HostUp = 1, true, hidden.Revision, true
	same(t, "the hidden row", hidden, want)
	if got := w.work("h1", 0, ""); len(got.Items) != 0 || !got.Complete {
		t.Errorf("a host sees what is hidden: %+v", got)
	}
	if got := do[cellwire.ServerPage](w, "POST",
		"/v1/servers/query", cellwire.ServerQuery{Limit: 10}); len(got.Rows) != 0 {
		t.Errorf("a list shows what is hidden: %+v", got)
	}
	released := do[cellwire.Server](w, "POST", "/v1/servers/"+in.UUID+"/release", nil)
	if released.Hidden || released.Revision <= hidden.Revision {
		t.Errorf("released: %+v", released)
	}
	same(t, "released again", do[cellwire.Server](w, "POST", "/v1/servers/"+in.UUID+"/release", nil), released)
	same(t, "inserted again", do[cellwire.Server](w, "PUT", "/v1/servers/"+in.UUID, in), released)

	work := w.work("h1", 0, "")
	same(t, "the work", wants(t, work), map[int]cellwire.Want{1: cellwire.WantPresent})
	w.pass(3 * time.Second)
	w.report("h1", cellwire.Report{UUID: in.UUID, Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
	active := w.server(1)
	if active.VMState != cellwire.VMActive || active.TaskState != "" || active.PowerState != plugins.PowerRunning ||
		!active.LaunchedAt.Equal(start.Add(3*time.Second)) {
		t.Errorf("spawned: %+v", active)
	}

	deleting := do[cellwire.DeleteAnswer](w, "POST",
		"/v1/servers/"+in.UUID+"/delete", cellwire.DeleteRequest{Kind: cellwire.DeleteNormal})
	if deleting.Local || deleting.Server.TaskState != cellwire.TaskDeleting || deleting.Server.Deleted {
		t.Errorf("deleting: %+v", deleting)
	}
	same(t, "deleted again", do[cellwire.DeleteAnswer](w,
		"POST", "/v1/servers/"+in.UUID+"/delete", cellwire.DeleteRequest{Kind: cellwire.DeleteNormal}), deleting)
	same(t, "the work of deleting", wants(t, w.work("h1", work.Revision, work.Epoch)),
		map[int]cellwire.Want{1: cellwire.WantGone})
	w.report("h1", cellwire.Report{UUID: in.UUID, Kind: cellwire.ReportGone})
	gone := w.server(1)
	if !gone.Deleted || gone.VMState != cellwire.VMDeleted || gone.TaskState != "" ||
		gone.DeletedAt == nil || gone.TerminatedAt == nil {
		t.Errorf("gone: %+v", gone)
	}
	same(t, "the work when all is done", wants(t, w.work("h1", 0, "")), map[int]cellwire.Want{})
	now := do[cellwire.CellInfo](w, "GET", "/v1/cell", nil)
	same(t, "what is unfinished", do[cellwire.Unfinished](
		w, "GET", "/v1/servers/unfinished?hidden_for=0&reclaim_after=1", nil),
		cellwire.Unfinished{Epoch: now.Epoch, Revision: now.Revision})
}
