// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// able lets a host show life whose node has abilities.
func (w *world) able(host string, abilities ...string) {
	w.t.Helper()
	do[cellwire.HostState](w, "PUT", "/v1/hosts/"+host, cellwire.HostReport{
		Version: "9", Nodes: []cellwire.ReportedNode{{UUID: nodeUUID(host),
			Name: host + "-node", Abilities: abilities}},
	})
}

// TestRebuildOfAStoppedServer: an older agent is not asked; then the two halves, what the server is
// made of, and that it is stopped again as in Nova; a report of the first half that comes once more
// does not count for the second.
func TestRebuildOfAStoppedServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	w.active(1, "h1")
	w.call("stop", 1)
	off := w.work("h1", 0, "").Items[0]
	w.report("h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown,
		Revision: off.Server.Revision})
	before := w.server(1)
	name, request := "renamed",
		cellwire.RebuildRequest{ImageRef: "new", Key: &cellwire.ServerKey{Name: "k", Data: "ssh-rsa A"}}
	request.Patch = cellwire.ServerPatch{Name: &name,
		Metadata: &cellwire.MetadataPatch{Replace: true, Set: map[string]string{"b": "2"}}}
	path := "/v1/servers/" + sid(1) + "/rebuild"
	if got := w.send("POST", path, request); got.Code != http.StatusConflict ||
		decodeAs[cellwire.Error](t, got.Body.Bytes()).Code != cellwire.CodeUnable {
		t.Errorf("with an agent that cannot: %d %s", got.Code, got.Body)
	}
	same(t, "the server is unchanged", w.server(1), before)
	w.able("h1", plugins.AbilityRebuild)
	rebuilding := do[cellwire.Server](w, "POST", path, request)
	want := before
	want.Name, want.ImageRef, want.KeyName, want.KeyData,
		want.Metadata = "renamed", "new", "k", "ssh-rsa A", map[string]string{"b": "2"}
	want.TaskState, want.Revision, want.UpdatedAt = cellwire.TaskRebuilding, rebuilding.Revision, rebuilding.UpdatedAt
	same(t, "rebuilding", rebuilding, want)
	same(t, "in the database", w.server(1), want)
	if got := w.send("POST", path, request); got.Code != http.StatusConflict {
		t.Errorf("once more: %d %s", got.Code, got.Body)
	}
	settle := func(want cellwire.Want, power plugins.PowerState) cellwire.Report {
		t.Helper()
		item := w.work("h1", 0, "").Items[0]
		if item.Want != want || item.Server.ImageRef != "new" {
			t.Fatalf("the want is %s, of image %s", item.Want, item.Server.ImageRef)
		}
		report := cellwire.Report{UUID: sid(1), Kind: cellwire.ReportSettled, PowerState: power,
			Revision: item.Server.Revision}
		w.report("h1", report)
		return report
	}
	first := settle(cellwire.WantCleared, plugins.PowerNoState)
	if why := w.reports("h1", first); why[0] == "" {
		t.Error("a report of the first half was taken for one of the second")
	}
	settle(cellwire.WantRebuilt, plugins.PowerRunning)
	settle(cellwire.WantShutdown, plugins.PowerShutdown)
	if got := w.server(1); got.VMState != cellwire.VMStopped || got.TaskState != "" ||
		got.PowerState != plugins.PowerShutdown {
		t.Errorf("rebuilt: %+v", got)
	}
	actions := do[cellwire.ActionsAnswer](w, "GET", "/v1/servers/"+sid(1)+"/actions", nil).Actions
	if a := actions[0]; a.Name != cellwire.ActionRebuild || a.FinishedAt == nil || a.Failed {
		t.Errorf("the action is %+v", a)
	}
}

// TestRebuildFails: the server is in error, and can be rebuilt again.
func TestRebuildFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.able("h1", plugins.AbilityRebuild)
	w.active(1, "h1")
	path := "/v1/servers/" + sid(1) + "/rebuild"
	for _, fault := range []*cellwire.Fault{{Code: 500, Message: "no such image"}, nil} {
		do[cellwire.Server](w, "POST", path, cellwire.RebuildRequest{ImageRef: "new"})
		for _, report := range []cellwire.Report{{}, {Fault: fault, PowerState: plugins.PowerRunning}} {
			report.UUID, report.Kind, report.Revision = sid(1), cellwire.ReportSettled, w.server(1).Revision
			w.report("h1", report)
		}
		got := w.server(1)
		actions := do[cellwire.ActionsAnswer](w, "GET", "/v1/servers/"+sid(1)+"/actions", nil).Actions
		if fault != nil && (got.VMState != cellwire.VMError || got.TaskState != "" || got.Fault == nil ||
			got.Fault.Message != "no such image" || !actions[0].Failed || got.Host != "h1") {
			t.Errorf("failed: %+v, %+v", got, actions[0])
		}
		if fault == nil && (got.VMState != cellwire.VMActive || got.TaskState != "" || actions[0].Failed) {
			t.Errorf("rebuilt: %+v, %+v", got, actions[0])
		}
	}
}

// TestRefusedRebuild: a host that can tell before it removes anything leaves the server as it was,
// and the failed action says why.
func TestRefusedRebuild(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.able("h1", plugins.AbilityRebuild)
	w.active(1, "h1")
	before, name, data := w.server(1), "renamed", "IyE="
	do[cellwire.Server](w, "POST", "/v1/servers/"+sid(1)+"/rebuild", cellwire.RebuildRequest{
		ImageRef: "new", UserData: &data, Key: &cellwire.ServerKey{Name: "k", Data: "ssh-rsa A"},
		Patch: cellwire.ServerPatch{Name: &name,
			Metadata: &cellwire.MetadataPatch{Replace: true, Set: map[string]string{"b": "2"}}},
	})
	w.report("h1", cellwire.Report{
		UUID: sid(1), Kind: cellwire.ReportSettled, PowerState: before.PowerState, Revision: w.server(1).Revision,
		Fault: &cellwire.Fault{Code: 500, Message: "no such image"},
	})
	got := w.server(1)
	if got.Fault == nil || got.Fault.Message != "no such image" {
		t.Errorf("the fault is %+v", got.Fault)
	}
	want := before
	want.Fault, want.Revision, want.UpdatedAt = got.Fault, got.Revision, got.UpdatedAt
	same(t, "the server", got, want)
	actions := do[cellwire.ActionsAnswer](w, "GET", "/v1/servers/"+sid(1)+"/actions", nil).Actions
	if a := actions[0]; a.Name != cellwire.ActionRebuild ||
		!a.Failed || a.FinishedAt == nil || a.Details != "no such image" {
		t.Errorf("the action is %+v", a)
	}
}

// TestRebuildOnItsHostOnly: a rebuild that is for a server on one host is refused when it is on
// another one, before anything is changed.
func TestRebuildOnItsHostOnly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.able("h1", plugins.AbilityRebuild)
	w.active(1, "h1")
	before, data, path := w.server(1), "IyE=", "/v1/servers/"+sid(1)+"/rebuild"
	got := w.refused(409, cellwire.CodeConflict,
		"POST", path, cellwire.RebuildRequest{ImageRef: "new", UserData: &data, Host: "h2"})
	same(t, "the refusal", got, "Instance "+sid(1)+" has moved to another host. Send the request again.")
	same(t, "the server", w.server(1), before)
	if after := do[cellwire.Server](w, "POST", path,
		cellwire.RebuildRequest{ImageRef: "new", UserData: &data, Host: "h1"}); after.UserData != data {
		t.Errorf("on its host: %+v", after)
	}
}
