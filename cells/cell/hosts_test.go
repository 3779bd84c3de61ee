// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestLifeOfAHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	state := w.register("h1")
	s := state.Service
	if state.ReportInterval != 10 || state.Epoch != w.work("h1", 0, "").Epoch || !s.Up || s.Host != "h1" ||
		s.Binary != "nova-compute" || s.Version != "9" || s.ID != 1 || s.Disabled || s.ForcedDown {
		t.Errorf("registered: %+v", state)
	}
	up := func() bool {
		t.Helper()
		return do[map[string][]cellwire.Service](w, "GET", "/v1/services", nil)["services"][0].Up
	}
	w.pass(time.Minute)
	if !up() {
		t.Error("down before its time")
	}
	w.pass(time.Microsecond)
	if up() {
		t.Error("up without a word for longer than service_down_time")
	}
	again := w.register("h1").Service
	if !again.Up || again.UUID != s.UUID || !again.LastSeenUp.Equal(start.Add(time.Minute+time.Microsecond)) ||
		!again.UpdatedAt.Equal(*again.LastSeenUp) {
		t.Errorf("a new word: %+v", again)
	}
	stop := do[cellwire.HostState](w, "PUT", "/v1/hosts/h1", cellwire.HostReport{Version: "9", Stopping: true})
	if stop.Service.Up || up() {
		t.Error("up after its last word")
	}
	if got := do[map[string][]cellwire.ComputeNode](w,
		"GET", "/v1/compute-nodes", nil)["compute_nodes"]; len(got) != 1 {
		t.Errorf("a host that stops has lost its nodes: %+v", got)
	}
	if w.register("h1"); !up() {
		t.Error("down although it is back")
	}
	yes, no := true, false
	if got := do[cellwire.Service](w, "PATCH", "/v1/services/"+s.UUID,
		cellwire.ServicePatch{ForcedDown: &yes}); got.Up || !got.ForcedDown {
		t.Errorf("forced down: %+v", got)
	}
	if w.register("h1").Service.Up {
		t.Error("a word undoes being forced down")
	}
	if got := do[cellwire.Service](w, "PATCH", "/v1/services/"+s.UUID,
		cellwire.ServicePatch{ForcedDown: &no}); !got.Up {
		t.Errorf("no longer forced down: %+v", got)
	}
}

// TestServiceIsDeleted: a host is forgotten with its nodes when it has no servers and its agent is
// silent, and not before; it can come back.
func TestServiceIsDeleted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	id := w.register("h1").Service.UUID
	w.register("h2")
	refused := func(why string, status int, code cellwire.Code) {
		t.Helper()
		got := w.send("DELETE", "/v1/services/"+id, nil)
		if got.Code != status || !strings.Contains(got.Body.String(), `"code":"`+string(code)+`"`) {
			t.Errorf("%s: %d %s", why, got.Code, got.Body)
		}
	}
	refused("it lives", 409, cellwire.CodeConflict)
	yes := true
	do[cellwire.Service](w, "PATCH", "/v1/services/"+id, cellwire.ServicePatch{ForcedDown: &yes})
	refused("it lives, and is forced down", 409, cellwire.CodeConflict)
	w.active(1, "h1")
	w.pass(time.Hour)
	refused("it has a server", 409, cellwire.CodeInUse)
	do[cellwire.DeleteAnswer](w, "POST", "/v1/servers/"+
		sid(1)+"/delete", cellwire.DeleteRequest{Kind: cellwire.DeleteNormal})
	do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(2), building(2, "h1"))
	refused("a server is about to come", 409, cellwire.CodeInUse)
	w.send("POST", "/v1/servers/"+sid(2)+"/discard", nil)
	if got := w.send("DELETE", "/v1/services/"+id, nil); got.Code != 204 {
		t.Errorf("not deleted: %d %s", got.Code, got.Body)
	}
	services := do[map[string][]cellwire.Service](w, "GET", "/v1/services", nil)["services"]
	nodes := do[map[string][]cellwire.ComputeNode](w, "GET", "/v1/compute-nodes", nil)["compute_nodes"]
	if len(services) != 1 || services[0].Host != "h2" || len(nodes) != 1 || nodes[0].Host != "h2" {
		t.Errorf("left are %+v, %+v", services, nodes)
	}
	refused("it is gone", 404, cellwire.CodeNotFound)
	if back := w.register("h1").Service; back.UUID == id || back.ForcedDown || back.ID == 1 {
		t.Errorf("back: %+v", back)
	}
	if items := w.work("h1", 0, "").Items; len(items) != 1 || items[0].Want != cellwire.WantGone {
		t.Errorf("the guest of a server that was deleted without its host: %+v", items)
	}
	do[cellwire.HostState](w, "PUT", "/v1/hosts/h1", cellwire.HostReport{Stopping: true})
	if got := w.send("DELETE", "/v1/services/"+services[0].UUID, nil); got.Code != 204 { // silent for an hour
		t.Errorf("h2: %d %s", got.Code, got.Body)
	}
}

// TestServersCarryTheirHost: each answer about a server says how its host is, by the cell's clock.
func TestServersCarryTheirHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	service := w.register("h1").Service
	w.active(1, "h1")
	yes := true
	do[cellwire.Service](w, "PATCH", "/v1/services/"+service.UUID, cellwire.ServicePatch{Disabled: &yes})
	if got := w.server(1); !got.HostUp || !got.HostDisabled {
		t.Errorf("up and disabled: %v, %v", got.HostUp, got.HostDisabled)
	}
	w.pass(time.Hour)
	page := do[cellwire.ServerPage](w, "POST", "/v1/servers/query", cellwire.ServerQuery{Limit: 1})
	if got := page.Rows[0].Server; got.HostUp || !got.HostDisabled {
		t.Errorf("down and disabled: %v, %v", got.HostUp, got.HostDisabled)
	}
	w.register("h1")
	if got := w.server(1); !got.HostUp || got.HostForcedDown {
		t.Errorf("back: up %v, forced down %v", got.HostUp, got.HostForcedDown)
	}
	do[cellwire.Service](w, "PATCH", "/v1/services/"+service.UUID, cellwire.ServicePatch{ForcedDown: &yes})
	if got := w.server(1); got.HostUp || !got.HostForcedDown {
		t.Errorf("forced down: up %v, forced down %v", got.HostUp, got.HostForcedDown)
	}
}

func TestNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	nodes := func(query string) []cellwire.ComputeNode {
		t.Helper()
		return do[map[string][]cellwire.ComputeNode](w, "GET", "/v1/compute-nodes"+query, nil)["compute_nodes"]
	}
	report := func(host string, n ...cellwire.ReportedNode) []string {
		t.Helper()
		return do[cellwire.HostState](w, "PUT", "/v1/hosts/"+host, cellwire.HostReport{Nodes: n}).Refused
	}
	a, b := cellwire.ReportedNode{UUID: uuid(1, 1), Name: "a"}, cellwire.ReportedNode{UUID: uuid(1, 2), Name: "b"}
	same(t, "refused at first", report("h1", a, b), []string(nil))
	do[any](w, "POST", "/v1/compute-nodes/mapped", cellwire.MappedRequest{UUIDs: []string{a.UUID, uuid(9, 9)}})
	ofA, ofB := cellwire.ComputeNode{UUID: a.UUID, Host: "h1", Name: "a", Mapped: true, Auth: "none"},
		cellwire.ComputeNode{UUID: b.UUID, Host: "h1", Name: "b", Auth: "none"}
	same(t, "the nodes", nodes(""), []cellwire.ComputeNode{ofA, ofB})
	same(t, "the unmapped ones", nodes("?unmapped=true"), []cellwire.ComputeNode{ofB})
	for range 2 {
		same(t, "refused as another host's",
			report("h2", cellwire.ReportedNode{UUID: a.UUID, Name: "mine"}), []string{a.UUID})
	}
	w.pass(time.Hour)
	same(t, "refused though that host is silent", report("h2", a), []string{a.UUID})
	same(t, "no longer reported", report("h1", b), []string(nil))
	same(t, "the nodes by then", nodes(""), []cellwire.ComputeNode{ofB})
	same(t, "not taken over", report("h2", a), []string{a.UUID})
	ofA.Claims = []cellwire.NodeClaim{{Host: "h2", Auth: "none"}}
	same(t, "back, though another host reports it", report("h1", a, b), []string(nil))
	same(t, "the nodes after that, as they were mapped", nodes(""), []cellwire.ComputeNode{ofA, ofB})
	report("h1", cellwire.ReportedNode{UUID: a.UUID, Name: "renamed"}, b)
	same(t, "another name", nodes("")[0].Name, "renamed")
}

// TestHostsSeeOnlyTheirServers: a host neither sees nor changes the servers of another, nor hidden
// ones of its own.
func TestHostsSeeOnlyTheirServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1", "h2")
	w.release(building(1, "h1"))
	w.release(building(2, "h2"))
	do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(3), building(3, "h1"))
	w.release(unplaced(4))
	same(t, "the work of h1", wants(t, w.work("h1", 0, "")), map[int]cellwire.Want{1: cellwire.WantPresent})
	before := []cellwire.Server{w.server(2), w.server(3), w.server(4)}
	spawned := func(n int) cellwire.Report {
		return cellwire.Report{UUID: sid(n), Kind: cellwire.ReportSpawned, PowerState: 1}
	}
	why := w.reports("h1", spawned(2), spawned(1), spawned(3), spawned(4), spawned(99),
		cellwire.Report{UUID: "\x00nonsense"})
	for i, refused := range []bool{true, false, true, true, true, true} {
		if (why[i] != "") != refused {
			t.Errorf("report %d: refused with %q", i, why[i])
		}
	}
	if foreign, unknown := why[0], why[4]; len(foreign) != len(unknown) {
		t.Errorf("a foreign server is refused with %q, one that is not there with %q: that tells something",
			foreign, unknown)
	}
	same(t, "what h1 may not change", []cellwire.Server{w.server(2), w.server(3), w.server(4)}, before)
	testproc.Equal(t, w.server(1).VMState, cellwire.VMActive, "its own server is %s")
}

// TestDrain: disabling a service is a change for its host and stops nothing.
func TestDrain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	service := w.register("h1", "h2").Service // of h2
	w.active(1, "h2")
	before := w.work("h2", 0, "")
	yes, no, why, none := true, false, "new disks", ""
	at := "/v1/services/" + service.UUID
	got := do[cellwire.Service](w, "PATCH", at, cellwire.ServicePatch{Disabled: &yes, DisabledReason: &why})
	if !got.Disabled || got.DisabledReason != why || !got.Up {
		t.Errorf("disabled: %+v", got)
	}
	after := w.work("h2", before.Revision, before.Epoch)
	if !after.Service.Disabled || after.Revision <= before.Revision || len(after.Items) != 0 {
		t.Errorf("the host gets %+v", after)
	}
	if state := w.register("h2"); !state.Service.Disabled {
		t.Errorf("its next report is answered with %+v", state)
	}
	same(t, "the same again", do[cellwire.Service](w, "PATCH", at, cellwire.ServicePatch{Disabled: &yes}).
		DisabledReason, why)
	if got := do[cellwire.Service](w, "PATCH", at,
		cellwire.ServicePatch{DisabledReason: &none}); got.DisabledReason != "" || !got.Disabled {
		t.Errorf("without a reason: %+v", got)
	}
	do[cellwire.Service](w, "PATCH", at, cellwire.ServicePatch{DisabledReason: &why})
	if got := do[cellwire.Service](w, "PATCH", at, cellwire.ServicePatch{Disabled: &no}); got.Disabled ||
		got.DisabledReason != "" {
		t.Errorf("enabled: %+v", got)
	}
	w.refused(400, cellwire.CodeBadRequest, "PATCH", at, cellwire.ServicePatch{DisabledReason: &why})
}

// TestHostComesBackToALocalDelete: a server that was deleted while its host was silent is gone for
// its owner at once. Its host gets WantGone until it reports, also after the allocations are freed.
func TestHostComesBackToALocalDelete(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	w.active(1, "h1")
	w.pass(time.Hour)
	for range 2 {
		got := do[cellwire.DeleteAnswer](w, "POST", "/v1/servers/"+sid(1)+"/delete",
			cellwire.DeleteRequest{Kind: cellwire.DeleteNormal})
		if !got.Local || !got.Server.Deleted {
			t.Errorf("deleted: %+v", got)
		}
	}
	w.call("freed", 1)
	if got := decodeAs[cellwire.DeleteAnswer](t, w.call("delete", 1).Body.Bytes()); got.Local {
		t.Error("freed, and it asks to be freed again")
	}
	w.register("h1")
	same(t, "its work", wants(t, w.work("h1", 0, "")), map[int]cellwire.Want{1: cellwire.WantGone})
	w.report("h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportGone})
	w.report("h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportGone})
	same(t, "its work then", wants(t, w.work("h1", 0, "")), map[int]cellwire.Want{})
}

// TestRestoreOnADownHost: the server is active when its host is back and has settled it, and an
// answer about an older wish counts for nothing.
func TestRestoreOnADownHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	w.active(1, "h1")
	w.call("soft", 1)
	shutdown := w.work("h1", 0, "").Items[0]
	if shutdown.Want != cellwire.WantShutdown {
		t.Fatalf("the wish is %s", shutdown.Want)
	}
	w.report("h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown,
		Revision: shutdown.Server.Revision})
	w.pass(time.Hour)
	restoring := do[cellwire.Server](w, "POST", "/v1/servers/"+sid(1)+"/restore", nil)
	same(t, "restored again", do[cellwire.Server](w, "POST", "/v1/servers/"+sid(1)+"/restore", nil), restoring)
	if restoring.TaskState != cellwire.TaskRestoring || restoring.DeletedAt != nil {
		t.Errorf("restoring: %+v", restoring)
	}
	if got := do[cellwire.StatesAnswer](w, "POST",
		"/v1/servers/states", cellwire.StatesRequest{UUIDs: []string{sid(1)}}).States; got[0].Gone() {
		t.Errorf("it counts as gone while it is restored: %+v", got[0])
	}
	w.register("h1")
	if why := w.reports("h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportSettled,
		PowerState: plugins.PowerShutdown, Revision: shutdown.Server.Revision}); why[0] == "" {
		t.Error("a report about the shutdown was taken for one about the restore")
	}
	item := w.work("h1", 0, "").Items[0]
	testproc.Equal(t, item.Want, cellwire.WantRunning, "the wish is %s")
	w.report("h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportSettled, PowerState: plugins.PowerRunning,
		Revision: item.Server.Revision})
	if got := w.server(1); got.VMState != cellwire.VMActive || got.TaskState != "" ||
		got.PowerState != plugins.PowerRunning {
		t.Errorf("restored: %+v", got)
	}
}
