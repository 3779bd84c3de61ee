// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// inCell is a cell that has a host with servers.
type inCell struct {
	*cellclient.Client
	url, host, node string
	t               *testing.T
}

func serversInCell(t *testing.T, host, node string, servers ...string) inCell {
	t.Helper()
	c := inCell{url: servedCell(t), host: host, node: node, t: t}
	c.Client = testproc.Try(cellclient.New(cellclient.Config{URL: c.url})).Or(t)
	c.reports(false)
	for i, uuid := range servers {
		testproc.Try(c.Insert(t.Context(), cellwire.Server{
			UUID: uuid, Name: fmt.Sprint("server ", i+1),
			ProjectID: "p", UserID: "u", Host: host, Node: host, NodeUUID: node,
			VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning, CreatedAt: time.Now(),
			Flavor: cellwire.Flavor{ID: "f1", Flavor: plugins.Flavor{Name: "small", VCPUs: 1, MemoryMB: 64}},
		})).Or(t)
		testproc.Try(c.Release(t.Context(), uuid)).Or(t)
	}
	return c
}

// reports has the host report to the cell, for the last time or not.
func (c inCell) reports(last bool) {
	c.t.Helper()
	report := cellwire.HostReport{Version: "1",
		Nodes: []cellwire.ReportedNode{{UUID: c.node, Name: c.host}}, Stopping: last}
	testproc.Try(c.Report(c.t.Context(), c.host, report)).Or(c.t)
}

const bob, carol = "99999999-0000-4000-8000-00000000000b", "99999999-0000-4000-8000-00000000000c"

// TestDeleteHostWithServers: a host is unmapped with servers or other consumers only if their
// number is named, and its resource providers are removed only if nothing holds anything of them. A
// command that is refused changes nothing.
func TestDeleteHostWithServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	cell := serversInCell(t, "h1", secondNode, alice, bob)
	const child = "aaaaaaaa-0000-4000-8000-0000000000aa"
	s.request(http.MethodPost, "/resource_providers", `{"name": "h1", "uuid": "`+secondNode+`"}`, nil)
	s.request(http.MethodPost, "/resource_providers",
		`{"name": "h1_gpu", "uuid": "`+child+`", "parent_provider_uuid": "`+secondNode+`"}`, nil)
	s.request(http.MethodPut, "/resource_providers/"+
		secondNode+"/traits", `{"traits": ["COMPUTE_NODE"], "resource_provider_generation": 0}`, nil)
	for uuid, class := range map[string]string{secondNode: "VCPU", child: "VGPU"} {
		generation := map[bool]int{true: 1}[uuid == secondNode]
		s.request(http.MethodPut, "/resource_providers/"+uuid+"/inventories",
			fmt.Sprintf(`{"inventories": {%q: {"total": 8}}, "resource_provider_generation": %d}`, class, generation),
			nil)
	}
	hold := func(consumer, provider, class string) {
		s.request(http.MethodPut, "/allocations/"+consumer, fmt.Sprintf(
			`{"allocations": {%q: {"resources": {%q: 1}}}, "project_id": "p", "user_id": "u", `+
				`"consumer_generation": null}`, provider, class), nil)
	}
	hold(alice, secondNode, "VCPU")
	hold(carol, child, "VGPU")
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(s.dir, cells.APIDatabase), apidb.Options{})).Or(t)
	for name, url := range map[string]string{"cell1": cell.url, "cell2": "http://127.0.0.1:1"} {
		made := testproc.Try(store.CreateCell(t.Context(), apidb.Cell{Name: name, URL: url})).Or(t)
		host := map[string]string{"cell1": "h1", "cell2": "h2"}[name]
		node := map[string]string{"cell1": secondNode, "cell2": "aaaaaaaa-0000-4000-8000-0000000000bb"}[name]
		testproc.Check(t, store.MapNodes(t.Context(),
			[]apidb.Node{{UUID: node, Name: host, Host: host, CellUUID: made.UUID}}))
	}
	testproc.Check(t, store.Close())
	configured := filepath.Join(s.dir, "api.toml")
	testproc.Check(t, os.WriteFile(configured, fmt.Appendf(nil, "[placement_client]\nurl = %q\n", s.url), 0o600))
	run := func(want int, parts []string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		args = append(append([]string{"cells", "manage"}, args...), "--config", configured, "--state-dir", s.dir)
		code := execute(t.Context(), args, &out, &out)
		for _, part := range parts {
			testproc.Contains(t, out.String(), part, "%v does not say %q:\n%s", args, part)
		}
		testproc.Equal(t, code, want, "ended with %d: %v\n%s", args, &out)
		return out.String()
	}
	mapped := func(want bool) {
		t.Helper()
		if got := strings.Contains(run(cli.ExitDone, nil, "list-hosts"), "h1 "); got != want {
			t.Errorf("h1 is mapped: %v", got)
		}
	}
	all := []string{"host h1 has servers (2): " + alice + " (server 1), " + bob + " (server 2)",
		"other consumers of its resource providers (1): " + carol, "--with-servers 3"}
	run(cli.ExitProtect, all, "delete-host", "h1")
	run(cli.ExitProtect, all, "delete-host", "h1", "--with-servers", "2")
	run(cli.ExitProtect, all, "delete-host", "h1", "--with-servers", "unknown")
	run(cli.ExitUsage, []string{"must be a number"}, "delete-host", "h1", "--with-servers", "some")
	run(cli.ExitProtect, []string{"its agent reports to its cell"}, "delete-host", "h1",
		"--with-servers", "3", "--remove-providers")
	cell.reports(true)
	run(cli.ExitProtect, []string{"consumer " + alice + " holds some of h1",
		"consumer " + carol + " holds some of h1_gpu"},
		"delete-host", "h1", "--with-servers", "3", "--remove-providers")
	mapped(true)
	run(cli.ExitProtect, []string{"what is on host h2 is not known", "cell cell2", "--with-servers unknown"},
		"delete-host",
		"h2")
	run(cli.ExitDone, []string{"Unmapped host h2"}, "delete-host", "h2", "--with-servers", "unknown")
	run(cli.ExitDone, []string{"Unmapped host h1", "below h1 (" + secondNode + "), and are in use"},
		"delete-host", "h1", "--with-servers", "3")
	mapped(false)
	s.hasNames("h1", "h1_gpu")
	for _, consumer := range []string{alice, carol} {
		s.request(http.MethodDelete, "/allocations/"+consumer, "", nil)
	}
	cellDown := []string{"cell cell2"} // which may have servers of a host that is mapped to no cell
	run(cli.ExitProtect, cellDown, "delete-host", "h1", "--with-servers", "2", "--remove-providers")
	run(cli.ExitDone, []string{"Removed its resource providers from Placement: h1_gpu (" +
		child + "), h1 (" + secondNode + ")"},
		"delete-host", "h1", "--with-servers", "unknown", "--remove-providers")
	s.hasNames()
	notMapped := []string{"host h11 is not mapped; `compute-agent cells manage list-hosts` lists all",
		"--remove-providers"}
	run(cli.ExitFailed, notMapped, "delete-host", "h11", "--with-servers", "unknown")
}

// TestAdoptOfAHostWithServers: the servers that the cell has on a host under its former name are
// shown, and without their number neither its name nor its identity changes.
func TestAdoptOfAHostWithServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.agent()()
	root := s.identity()
	s.request(http.MethodPut, "/allocations/"+alice, `{"allocations": {"`+root+
		`": {"resources": {"VCPU": 2}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`, nil)
	cell := serversInCell(t, "cn1", root, bob)
	at := func(name, url string) {
		s.host(name, own(name))
		path := filepath.Join(s.dir, "agent.toml")
		text := testproc.Try(os.ReadFile(path)).Or(t)
		testproc.Check(t, os.WriteFile(path, fmt.Appendf(text, "[cell_client]\nurl = %q\n", url), 0o600))
	}
	at("cn9", "http://127.0.0.1:1")
	for _, given := range [][]string{nil, {"--with-servers", "1"}} { // 1 is what Placement has
		s.says(cli.ExitProtect, append([]string{"adopt", "--rename", "--yes"}, given...),
			"it is not known which servers the cell has on this host", "--with-servers unknown")
	}
	s.says(cli.ExitDone, []string{"adopt", "--rename", "--dry-run"},
		"It is not known which servers the cell has on this host: ",
		"The command is refused without --with-servers unknown.", "cn1 → cn9")
	at("cn9", cell.url)
	all := []string{"servers that the cell has on this host: 1, " + bob + " (server 1)",
		"other consumers of its resource providers: 1", "the cell knows them by the name cn1", "--with-servers 2"}
	s.says(cli.ExitDone, []string{"adopt", "--rename", "--dry-run"}, "Servers that the cell has on this host: 1, "+bob,
		"cn1 → cn9", "The command is refused without --with-servers 2.")
	s.says(cli.ExitProtect, []string{"adopt", "--rename", "--yes"}, all...)
	s.says(cli.ExitProtect, []string{"adopt", "--rename", "--yes", "--with-servers", "1"}, all...)
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", root, "--rename", "--yes"}, "--with-servers 2")
	s.says(cli.ExitUsage, []string{"adopt", "--rename", "--yes", "--with-servers", "-1"}, "must be a number")
	s.hasNames("cn1", "cn1_gpu0")
	s.says(cli.ExitDone, []string{"adopt", "--rename", "--yes", "--with-servers", "2"}, "Done:",
		"rename resource provider cn1_gpu0")
	s.hasNames("cn9", "cn9_gpu0")
}

// TestNodeWithServersIsNotRemoved: a node that its driver does not name any more stays as long as
// the cell has a server on it, also without allocations, and while the cell does not answer.
func TestNodeWithServersIsNotRemoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1")+`, {name = "cn1-b", uuid = "`+secondNode+`", inventories = {VCPU = {total = 8}}}`)
	s.reports("cn1", "cn1-b", "cn1_gpu0")
	s.host("cn1", own("cn1"))
	cell := serversInCell(t, "cn1", secondNode, bob)
	path := filepath.Join(s.dir, "agent.toml")
	without := testproc.Try(os.ReadFile(path)).Or(t)
	for url, says := range map[string]string{"http://127.0.0.1:1": "it is not known which servers the cell has on it",
		cell.url: "the cell has the server " + bob + " (server 1) on it"} {
		testproc.Check(t,
			os.WriteFile(path, fmt.Appendf(bytes.Clone(without), "[cell_client]\nurl = %q\n", url), 0o600))
		s.says(cli.ExitProtect, []string{"node", "remove", "cn1-b", "--yes"}, says)
		s.hasNames("cn1", "cn1-b", "cn1_gpu0")
	}
	testproc.Check(t, os.WriteFile(path, without, 0o600))
	s.says(cli.ExitDone, []string{"node", "remove", "cn1-b", "--yes"})
	s.hasNames("cn1", "cn1_gpu0")
}
