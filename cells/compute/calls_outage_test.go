// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/tenant"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The API is made for these.
var (
	_ Scheduler     = (*scheduler.Scheduler)(nil)
	_ tenant.Quotas = (*quota.Quotas)(nil)
)

// TestCallsInAnOutage goes through the calls with cells, quotas and boots as they are: only
// nothing is scheduled. A cell ends in the middle.
func TestCallsInAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ctx := context.Background()
	c := newCloud(t, Options{})
	servers := c.realCells()
	must := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	gatherer := c.api.gatherer
	placement, err := placementcalls.New(
		placementclient.Config{Endpoint: func(context.Context) (string, error) {
			return "",
				placementclient.ErrUnavailable
		}})
	must(err)
	quotas, err := quota.New(quota.Options{Store: c.store, Gatherer: gatherer,
		Defaults: apidb.QuotaSet{"instances": 3, "cores": 20, "ram": 51200}, Logger: zerolog.Nop()})
	must(err)
	boots, err := scheduler.New(scheduler.Options{Store: c.store, Gatherer: gatherer, Placement: placement,
		Quota: quotas, Logger: zerolog.Nop()})
	must(err)
	c.api.scheduler, c.api.quota = boots, quotas
	c.api.setDeps()
	c.withFlavors()
	for n := 1; n <= 2; n++ {
		client, err := cellclient.New(cellclient.Config{URL: servers[n].URL})
		must(err)
		host := fmt.Sprintf("h%d", n)
		_, err = client.Report(ctx, host,
			cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: uuid(1000 + n), Name: host}}})
		must(err)
		must(c.store.MapNodes(ctx, []apidb.Node{{UUID: uuid(1000 + n), Name: host, Host: host, CellUUID: cellUUID(n)}}))
		s := server(n, fmt.Sprintf("s%d", n))
		s.VMState, s.TaskState, s.ID, s.HostUp, s.Host, s.Node, s.NodeUUID = cellwire.VMBuilding, cellwire.TaskSpawning,
			0, false, host, host, uuid(1000+n)
		s = c.has(n, s)
		_, err = client.Insert(ctx, s)
		must(err)
		_, err = client.Release(ctx, s.UUID)
		must(err)
	}
	ask := func(who, method, path, body string, status int, says string) reply {
		t.Helper()
		got := c.do(who, "2.69", method, "/v2.1"+path, body)
		if got.status != status || got.message() != says {
			t.Fatalf("%s %s %s: %d %s, not %d %s", who, method, path, got.status, got.text, status, says)
		}
		return got
	}
	const body = `{"server":{"name":"n1","imageRef":"` + image + `","flavorRef":"1","networks":"none"}}`
	hosts := func(want ...string) []any {
		t.Helper()
		got := ask(administrator, "GET", "/os-services", "", 200, "")
		testproc.Same(t, gocmp.Diff(want, got.hosts()))
		return got.body["services"].([]any)
	}
	used := func(want float64) {
		t.Helper()
		if got := ask(member, "GET", "/limits", "", 200, "").
			body["limits"].(map[string]any)["absolute"].(map[string]any)["totalInstancesUsed"]; got != want {
			t.Errorf("%v servers are used, not %v", got, want)
		}
	}

	services := hosts("h1", "h2")
	h2 := services[1].(map[string]any)["id"].(string)
	changed := ask(administrator, "PUT", "/os-services/"+
		h2, `{"status":"disabled","disabled_reason":"tired","forced_down":true}`, 200,
		"").body["service"].(map[string]any)
	if changed["status"] != "disabled" || changed["state"] != "down" || changed["disabled_reason"] != "tired" ||
		changed["forced_down"] != true {
		t.Errorf("changed: %v", changed)
	}
	ask(administrator, "PUT", "/os-services/"+h2, `{"status":"enabled","forced_down":false}`, 200, "")
	ask(administrator, "DELETE", "/os-services/"+h2,
		"", 409, "conflictingRequest: Unable to delete compute service that is hosting instances. Migrate or delete "+
			"the instances first.")
	gone := func(stopping bool) {
		t.Helper()
		client, err := cellclient.New(cellclient.Config{URL: servers[2].URL})
		must(err)
		_, err = client.Report(ctx,
			"h3", cellwire.HostReport{Version: "1",
				Nodes: []cellwire.ReportedNode{{UUID: uuid(1003), Name: "h3"}}, Stopping: stopping})
		must(err)
	}
	gone(false)
	must(c.store.MapNodes(ctx, []apidb.Node{{UUID: uuid(1003), Name: "h3", Host: "h3", CellUUID: cellUUID(2)}}))
	h3 := hosts("h1", "h2", "h3")[2].(map[string]any)["id"].(string)
	ask(administrator, "DELETE", "/os-services/"+h3,
		"", 409, "conflictingRequest: Unable to delete compute service whose agent reports to its cell. Stop "+
			"compute-agent on the host, or take away its [cell_client], and delete the service when it is down.")
	gone(true)
	ask(administrator, "DELETE", "/os-services/"+h3, "", 204, "")
	hosts("h1", "h2")
	if mapped, err := c.store.Hosts(ctx); err != nil || len(mapped) != 2 {
		t.Errorf("mapped are %v, %v", mapped, err)
	}
	used(2)
	first := ask(member, "POST", "/servers", body, 202, "").body["server"].(map[string]any)["id"].(string)
	if got := ask(member, "GET", "/servers/"+first, "",
		200, "").body["server"].(map[string]any); got["status"] != "BUILD" || got["name"] != "n1" {
		t.Errorf("asked for: %v", got)
	}
	used(3)
	ask(member, "POST", "/servers", body, 403,
		"forbidden: Quota exceeded for instances: Requested 1, but already used 3 of 3 instances")
	ask(member, "DELETE", "/servers/"+first, "", 204, "")
	ask(member, "GET", "/servers/"+first, "", 404, "itemNotFound: Instance "+first+" could not be found.")
	ask(member, "DELETE", "/servers/"+first, "", 404, "itemNotFound: Instance "+first+" could not be found.")

	servers[1].CloseClientConnections()
	servers[1].Close()
	const isDown = "computeFault: NovaException: The server's cell is not responding. Try again when it is back."
	hosts("h2", "h1:3")
	used(2)
	ask(member, "POST", "/servers", body, 403,
		"forbidden: Policy doesn't allow os_compute_api:servers:create:cell_down to be performed. "+
			"Servers of the project are in a cell that does not answer, and new ones are refused until it does. Try "+
			"again later.")
	ask(member2, "POST", "/servers", body, 202, "")
	ask(administrator, "POST", "/servers", body, 202, "")
	ask(member, "DELETE", "/servers/"+uuid(1), "", 500, isDown)
	ask(member, "POST", "/servers/"+uuid(1)+"/action", `{"restore":null}`, 500, isDown)
	if m, err := c.store.Mapping(ctx, uuid(1)); err != nil || m.Queued() {
		t.Errorf("what could not be deleted is queued for delete: %v %v", m, err)
	}
	ask(member, "POST", "/servers/"+uuid(2)+"/action", `{"restore":null}`, 409,
		"conflictingRequest: Cannot 'restore' instance "+uuid(2)+" while it is in vm_state building")
	ask(member, "DELETE", "/servers/"+uuid(2), "", 204, "")
	if m, err := c.store.Mapping(ctx, uuid(2)); err != nil || !m.Queued() {
		t.Errorf("what was deleted is not queued for delete: %v %v", m, err)
	}
}
