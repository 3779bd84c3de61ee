// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// recordedServer numbers the servers of the recordings.
func recordedServer(n int) string { return fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012x", n) }

// recordedCloud has the servers of nova_servers.json in real cells: two on h1 and two on h2 that
// are being built, and one in cell0. act does what the host of a server did.
func recordedCloud(t *testing.T) (c *cloud, act func(hostDid)) {
	t.Helper()
	c = newCloud(t, Options{})
	_, quotas := c.withCalls()
	quotas.defaults["metadata_items"] = 128
	cells := c.realCells()
	must := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	client := func(cell int) *cellclient.Client {
		t.Helper()
		made, err := cellclient.New(cellclient.Config{URL: cells[cell].URL})
		must(err)
		return made
	}
	origin := func(last string) context.Context {
		return cellwire.WithOrigin(t.Context(),
			cellwire.Origin{RequestID: "req-aaaaaaaa-0000-4000-8000-" + last, UserID: "u-p1", ProjectID: "p1"})
	}
	hosts := map[string]string{}
	for n, host := range []string{"h1", "h1", "h2", "", "h2"} {
		s := server(n+1, fmt.Sprintf("s%d", n+1))
		s.UUID, s.ID, s.HostUp, s.Host, s.Node = recordedServer(n+1), 0, false, host, host
		s.VMState, s.TaskState = cellwire.VMBuilding, cellwire.TaskSpawning
		cell := 1
		if host == "" {
			s.VMState, s.TaskState, cell = cellwire.VMError, "", 0
		} else {
			s.NodeUUID = nodeUUID(int(host[1] - '0'))
			_, err := client(cell).Report(t.Context(),
				host, cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: s.NodeUUID, Name: host}}})
			must(err)
		}
		hosts[s.UUID] = host
		s = c.has(cell, s)
		_, err := client(cell).Insert(origin(fmt.Sprintf("f%011x", n+1)), s)
		must(err)
		_, err = client(cell).Release(origin(fmt.Sprintf("f%011x", n+1)), s.UUID)
		must(err)
	}
	report := func(r cellwire.Report) {
		t.Helper()
		answer, err := client(1).Reports(t.Context(), hosts[r.UUID], []cellwire.Report{r})
		must(err)
		if answer.Refused[0] != "" {
			t.Fatalf("%+v is refused: %s", r, answer.Refused[0])
		}
	}
	settled := func(uuid string, power plugins.PowerState) {
		t.Helper()
		is, err := client(1).Server(t.Context(), uuid)
		must(err)
		report(cellwire.Report{UUID: uuid, Kind: cellwire.ReportSettled, PowerState: power, Revision: is.Revision})
	}
	return c, func(did hostDid) {
		t.Helper()
		switch did.Does {
		case "spawned":
			report(cellwire.Report{UUID: did.Server, Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
		case "failed":
			report(cellwire.Report{UUID: did.Server,
				Kind: cellwire.ReportFailed, Fault: &cellwire.Fault{Code: 500, Message: "no disk"}})
		case "started":
			settled(did.Server, plugins.PowerRunning)
		case "stopped":
			settled(did.Server, plugins.PowerShutdown)
		case "rebooted":
			settled(did.Server, plugins.PowerShutdown)
			settled(did.Server, plugins.PowerRunning)
		case "deleted":
			_, err := client(1).Delete(origin("ffffffffffff"), did.Server, cellwire.DeleteNormal)
			must(err)
			report(cellwire.Report{UUID: did.Server, Kind: cellwire.ReportGone})
		default:
			t.Fatalf("no host does %q", did.Does)
		}
	}
}

// TestServerCallsAsInNova goes through power actions, names, metadata, tags and the history of
// servers as Nova 26 answered, with cells as they are.
func TestServerCallsAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, act := recordedCloud(t)
	const name = "itemNotFound: Instance "
	const none, one = name + "aaaaaaaa-0000-4000-8000-000000000000 could not be found.",
		name + "aaaaaaaa-0000-4000-8000-000000000001 could not be found."
	except := map[string]ours{
		"actions-marker-odd": {why: "Nova's sentence has None for the marker", status: 400,
			says: "badRequest: Marker req-nothing could not be found."},
	}
	for _, call := range []string{"start", "stop", "tags", "tags-replace", "tags-delete", "tag-add", "tag-delete"} {
		except[call+"-missing"] = ours{why: "Nova speaks of a mapping to a cell in some calls; a client knows no cells",
			status: 404, says: none}
	}
	for _, call := range []string{"tags-replace", "tags-delete", "tag-add", "tag-delete"} {
		except[call+"-member2"] = ours{why: "Nova's 403 tells other projects that there is such a server", status: 404,
			says: one}
	}
	var known aliases
	c.replayWith(&known, recordedCalls(t, "nova_servers.json"), except, known.normalOf, act)
}

// TestHypervisorsAsInNova lists and shows hypervisors as Nova 26 answered.
func TestHypervisorsAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	boots.capacities = map[string]placementcalls.Capacity{}
	var services []cellwire.Service
	var nodes []cellwire.ComputeNode
	for n, host := range []string{"h1", "h2", "h3"} {
		service := cellwire.Service{UUID: fmt.Sprintf("5e200000-0000-4000-8000-%012d", n), ID: int64(n + 1), Host: host,
			Binary: "nova-compute", Up: n < 2, Disabled: n == 2}
		if service.Disabled {
			service.DisabledReason = "broken"
		}
		services = append(services, service)
		nodes = append(nodes, cellwire.ComputeNode{UUID: nodeUUID(n), Host: host, Name: host,
			Details: cellwire.NodeDetails{HypervisorType: "QEMU", HypervisorVersion: 1}})
		testproc.Check(
			t,
			c.store.MapNodes(
				t.Context(), []apidb.Node{{UUID: nodeUUID(n), Name: host, Host: host, CellUUID: cellUUID(1)}},
			),
		)
		boots.capacities[nodeUUID(n)] = placementcalls.Capacity{CPUs: 4, CPUsUsed: 1, MemoryMB: 4096,
			MemoryMBUsed: 512, DiskGB: 100, DiskGBUsed: 40}
	}
	nodes[0].Servers, nodes[1].Servers = 2, 2
	for n, host := range []string{"h1", "h1", "h2", "", "h2"} {
		if host == "" {
			continue
		}
		s := server(n+1, fmt.Sprintf("s%d", n+1))
		s.UUID, s.ID, s.Host, s.Node = recordedServer(n+1), int64(len(c.cell(1).servers)+1), host, host
		c.has(1, s)
	}
	c.cell(1).fail = func(r *http.Request, _ int) (*http.Response, error) {
		switch r.URL.RequestURI() {
		case "/v1/services":
			return answerJSON(map[string]any{"services": services})
		case "/v1/compute-nodes?servers=true":
			return answerJSON(map[string]any{"compute_nodes": nodes})
		}
		return nil, nil
	}
	except := map[string]ours{}
	for _, list := range []string{"list", "detail"} {
		for _, with := range []string{"limit", "marker"} {
			except["pattern-"+with+"/"+list] = ours{
				why: "Nova loses the sentence that it has", status: 400,
				says: "badRequest: Paging over hypervisors with the hypervisor_hostname_pattern query parameter is " +
					"not supported.",
			}
		}
	}
	var known aliases
	c.replayWith(&known, recordedCalls(t, "nova_hypervisors.json"), except, known.normalOf, nil)
}
