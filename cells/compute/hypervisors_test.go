// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// nodeUUID numbers compute nodes.
func nodeUUID(n int) string { return fmt.Sprintf("90de0000-0000-4000-8000-%012d", n) }

// withNodes gives cell1 the hosts h1 and h2, with three servers on h1, and cell2 the host h3, which
// is down and disabled.
func withNodes(t *testing.T) (*cloud, *fakeScheduler) {
	t.Helper()
	c := newCloud(t, Options{MaxLimit: 10})
	boots, _ := c.withCalls()
	for n := range 3 {
		c.has(1, server(n+1, fmt.Sprint("s", n+1)))
	}
	boots.capacities = map[string]placementcalls.Capacity{
		nodeUUID(1): {CPUs: 8, CPUsUsed: 3, MemoryMB: 4096, MemoryMBUsed: 512, DiskGB: 100, DiskGBUsed: 40},
		nodeUUID(2): {CPUs: 4, MemoryMB: 2048, DiskGB: 50}, nodeUUID(3): {CPUs: 2},
	}
	hosts := func(services, nodes any) func(r *http.Request, n int) (*http.Response, error) {
		return func(r *http.Request, _ int) (*http.Response, error) {
			switch r.URL.RequestURI() {
			case "/v1/services":
				return answerJSON(map[string]any{"services": services})
			case "/v1/compute-nodes?servers=true":
				return answerJSON(map[string]any{"compute_nodes": nodes})
			}
			return nil, nil
		}
	}
	service := func(id int64, host string) cellwire.Service {
		return cellwire.Service{UUID: fmt.Sprintf("5e200000-0000-4000-8000-%012d", id), ID: id, Host: host,
			Binary: "nova-compute", Up: true}
	}
	away := service(1, "h3")
	away.Up, away.Disabled, away.DisabledReason = false, true, "broken"
	c.cell(1).fail = hosts([]cellwire.Service{service(2, "h2"), service(1, "h1")}, []cellwire.ComputeNode{
		{UUID: nodeUUID(2), Host: "h2", Name: "H2"},
		{UUID: nodeUUID(1), Host: "h1", Name: "h1", Servers: 3,
			Details: cellwire.NodeDetails{HypervisorType: "QEMU", HypervisorVersion: 7002001, HostIP: "192.0.2.7"}},
		{UUID: nodeUUID(9), Host: "forgotten", Name: "h9"},
	})
	unmapped := service(2, "unmapped") // it reports to its cell, and no person enrolled it
	c.cell(2).fail = hosts([]cellwire.Service{away, unmapped}, []cellwire.ComputeNode{
		{UUID: nodeUUID(3), Host: "h3", Name: "h3"}, {UUID: nodeUUID(4), Host: "unmapped", Name: "h4"},
	})
	for n, cell := range map[int]int{1: 1, 2: 1, 3: 2} {
		host := fmt.Sprint("h", n)
		testproc.Check(
			t,
			c.store.MapNodes(
				t.Context(), []apidb.Node{{UUID: nodeUUID(n), Name: host, Host: host, CellUUID: cellUUID(cell)}},
			),
		)
	}
	return c, boots
}

// hypervisors are the names in an answer, with their ids before 2.53, and the numbers of servers.
func (r reply) hypervisors() string {
	var out []string
	all, _ := r.body["hypervisors"].([]any)
	for _, one := range all {
		h := one.(map[string]any)
		text := fmt.Sprint(h["hypervisor_hostname"], " ", h["state"], " ", h["status"])
		if n, is := h["id"].(float64); is {
			text += fmt.Sprint(" ", n)
		}
		if servers, is := h["servers"].([]any); is {
			text += fmt.Sprintf(" with %d", len(servers))
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestHypervisorLists(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, _ := withNodes(t)
	const all = "h1 up enabled, H2 up enabled, h3 down disabled"
	for _, tt := range []struct {
		version, path string
		status        int
		names         string // or the refusal
		link          string
	}{
		{version: "2.69", path: "", status: 200, names: all},
		{version: "2.69", path: "/detail", status: 200, names: all},
		{version: "2.1", path: "", status: 200, names: "h1 up enabled 1, H2 up enabled 2, h3 down disabled 1"},
		{version: "2.32", path: "?limit=1", status: 200, names: "h1 up enabled 1, H2 up enabled 2, h3 down disabled 1"},
		{version: "2.33", path: "?limit=2", status: 200,
			names: "h1 up enabled 1, H2 up enabled 2", link: "os-hypervisors?limit=2&marker=2"},
		{version: "2.53", path: "/detail?limit=1&marker=" + nodeUUID(1), status: 200, names: "H2 up enabled",
			link: "os-hypervisors/detail?limit=1&marker=" + nodeUUID(2)},
		{version: "2.53", path: "?marker=" + nodeUUID(9),
			status: 400, names: "badRequest: marker [" + nodeUUID(9) + "] not found"},
		{version: "2.53", path: "?limit=x", status: 400,
			names: "badRequest: Invalid input for query parameters limit. Value: x. 'x' does not match '^[0-9]*$'"},
		{version: "2.53", path: "?hypervisor_hostname_pattern=h2", status: 200, names: "H2 up enabled"},
		{version: "2.53", path: "?hypervisor_hostname_pattern=Q", status: 404,
			names: "itemNotFound: No hypervisor matching 'Q' could be found."},
		{version: "2.53", path: "?hypervisor_hostname_pattern=h&limit=1", status: 400,
			names: "badRequest: Paging over hypervisors with the hypervisor_hostname_pattern query parameter is " +
				"not supported."},
		{version: "2.53", path: "?with_servers=true",
			status: 200, names: "h1 up enabled with 3, H2 up enabled, h3 down disabled"},
		{version: "2.52", path: "/H/search", status: 200,
			names: "h1 up enabled 1, H2 up enabled 2, h3 down disabled 1"},
		{version: "2.52", path: "/h1/servers", status: 200, names: "h1 up enabled 1 with 3"},
		{version: "2.52", path: "/q/servers", status: 404,
			names: "itemNotFound: No hypervisor matching 'q' could be found."},
		{version: "2.53", path: "/h1/servers", status: 404, names: "itemNotFound: The resource could not be found."},
	} {
		got := c.ask(administrator, tt.version, "/v2.1/os-hypervisors"+tt.path)
		names := got.hypervisors()
		if got.status >= 400 {
			names = got.message()
		}
		if got.status != tt.status || names != tt.names {
			t.Errorf("%s %s: %d %s, not %d %s", tt.version, tt.path, got.status, names, tt.status, tt.names)
		}
		link := ""
		if links, is := got.body["hypervisors_links"].([]any); is {
			link = strings.TrimPrefix(links[0].(map[string]any)["href"].(string), "http://compute/v2.1/")
		}
		testproc.Equal(t, link, tt.link, "%s %s: the next page is %q", tt.version, tt.path)
	}
	c.cell(1).fail = refused
	if got := c.ask(administrator, "2.69", "/v2.1/os-hypervisors/detail"); got.hypervisors() != "h3 down disabled" {
		t.Errorf("with cell1 down: %d %s", got.status, got.text)
	}
}

func TestHypervisor(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, boots := withNodes(t)
	capacity := map[string]any{
		"vcpus": 8.0, "memory_mb": 4096.0, "local_gb": 100.0, "vcpus_used": 3.0, "memory_mb_used": 512.0,
		"local_gb_used": 40.0, "free_ram_mb": 3584.0, "free_disk_gb": 60.0,
		"current_workload": 0.0, "running_vms": 3.0, "disk_available_least": 60.0,
	}
	with := func(more map[string]any) map[string]any {
		for name, value := range capacity {
			if _, is := more[name]; !is {
				more[name] = value
			}
		}
		return more
	}
	got := c.ask(administrator, "2.69", "/v2.1/os-hypervisors/"+nodeUUID(1))
	want := with(map[string]any{
		"id": nodeUUID(1), "hypervisor_hostname": "h1", "state": "up", "status": "enabled", "hypervisor_type": "QEMU",
		"hypervisor_version": 7002001.0, "host_ip": "192.0.2.7",
		"cpu_info": map[string]any{}, "service": map[string]any{"id": "5e200000-0000-4000-8000-000000000001",
			"host": "h1", "disabled_reason": nil},
	})
	testproc.Samef(t, gocmp.Diff(map[string]any{"hypervisor": want}, got.body), "%d", got.status)
	got = c.ask(administrator, "2.1", "/v2.1/os-hypervisors/2")
	old, _ := got.body["hypervisor"].(map[string]any)
	if old["hypervisor_hostname"] != "H2" || old["cpu_info"] != "" || old["id"] != 2.0 {
		t.Errorf("before 2.28: %d %s", got.status, got.text)
	}
	// An agent of an older version reports no details of its nodes.
	for name, want := range map[string]any{"hypervisor_type": nil, "hypervisor_version": 0.0, "host_ip": nil} {
		if is, has := old[name]; !has || is != want {
			t.Errorf("%s is %v", name, is)
		}
	}
	got = c.ask(administrator, "2.69", "/v2.1/os-hypervisors/statistics") // of those that are enabled
	sums := with(map[string]any{"count": 2.0, "vcpus": 12.0, "memory_mb": 6144.0, "local_gb": 150.0,
		"free_ram_mb": 5632.0, "free_disk_gb": 110.0, "disk_available_least": 110.0})
	testproc.Samef(t, gocmp.Diff(map[string]any{"hypervisor_statistics": sums}, got.body), "%d", got.status)
	refusal := func(who, version, path string, status int, says string) {
		t.Helper()
		if got := c.ask(who, version, "/v2.1/os-hypervisors"+path); got.status != status || got.message() != says {
			t.Errorf("%s %s: %d %s, not %d %s", version, path, got.status, got.message(), status, says)
		}
	}
	refusal(administrator, "2.53", "/"+nodeUUID(9), 404,
		"itemNotFound: Hypervisor with ID '"+nodeUUID(9)+"' could not be found.")
	refusal(administrator, "2.53", "/1", 400, "badRequest: Invalid uuid 1")
	refusal(administrator, "2.52", "/h1", 404, "itemNotFound: Hypervisor with ID 'h1' could not be found.")
	refusal(administrator, "2.69", "/"+nodeUUID(1)+"/uptime", 501,
		"notImplemented: The requested functionality is not supported.")
	for path, rule := range map[string]string{"": "list", "/detail": "list-detail", "/statistics": "statistics",
		"/" + nodeUUID(1): "show", "/" + nodeUUID(1) + "/uptime": "uptime"} {
		refusal(member, "2.69", path, 403,
			"forbidden: Policy doesn't allow os_compute_api:os-hypervisors:"+rule+" to be performed.")
	}
	boots.err = fmt.Errorf("%w: connection refused", placementcalls.ErrCapacityUnknown)
	refusal(administrator, "2.69", "/detail", 503,
		"serviceUnavailable: The Placement service cannot be used now, so what hypervisors have is not known. Send "+
			"the request again later.")
	if got := c.ask(administrator, "2.69", "/v2.1/os-hypervisors"); got.status != 200 {
		t.Errorf("a list without details needs Placement: %d %s", got.status, got.text)
	}
}
