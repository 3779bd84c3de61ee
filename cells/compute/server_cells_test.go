// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cellTemplate is what databases of a cell begin as.
var cellTemplate = dbservers.NewTemplates(func(dsn, name string) (*celldb.DB, error) {
	return celldb.Open(context.Background(), dsn, name, celldb.Options{})
})

// realCells puts cells with databases of their own, behind sockets, in the place of the cloud's.
func (c *cloud) realCells() (servers []*httptest.Server) {
	c.t.Helper()
	for n := range 3 {
		name := fmt.Sprintf("cell%d", n)
		store := testproc.Try(celldb.Open(context.Background(), cellTemplate(name).Fresh(c.t), name, celldb.Options{})).
			Or(c.t)
		service, err := cell.New(cell.Config{Store: store,
			Auth: cell.NoAuth(), ServiceDownTime: time.Hour, StreamWait: time.Minute, Logger: zerolog.Nop()})
		testproc.Check(c.t, err)
		server := httptest.NewServer(service)
		c.t.Cleanup(func() {
			server.Close()
			testproc.NoError(c.t, store.Close())
		})
		testproc.Check(c.t,
			c.store.UpdateCell(context.Background(), apidb.Cell{UUID: cellUUID(n), Name: name, URL: server.URL}))
		servers = append(servers, server)
	}
	c.api.gatherer = gather.New(gather.Options{Timeout: time.Minute, Logger: zerolog.Nop(),
		Client: func(cell apidb.Cell) (*cellclient.Client, error) {
			return cellclient.New(cellclient.Config{URL: cell.URL})
		}})
	c.api.setDeps()
	return servers
}

// TestListsOfCells: lists, pages in every order, and single servers, with cells as they are, until
// one of them ends.
func TestListsOfCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{ListSkipsDownCells: true})
	servers := c.realCells()
	var all []string
	for n := 1; n <= 40; n++ {
		where := n % 3
		s := server(n, fmt.Sprintf("s%d", n%7)) // names that are there more than once
		s.VMState, s.TaskState, s.ID, s.HostUp = cellwire.VMBuilding, cellwire.TaskSpawning, 0, false
		s.Host, s.Node, s.NodeUUID = fmt.Sprintf("h%d", n%4), fmt.Sprintf("h%d", n%4), uuid(1000+n%4)
		if where == 0 {
			s.VMState, s.TaskState, s.Host, s.Node, s.NodeUUID = cellwire.VMError, "", "", "", ""
			s.Fault = &cellwire.Fault{Code: 500, Message: "No valid host was found.", Created: start}
		}
		s = c.has(where, s)
		ctx := context.Background()
		client := testproc.Try(cellclient.New(cellclient.Config{URL: servers[where].URL})).Or(t)
		if _, err := client.Insert(ctx, s); err != nil {
			t.Fatalf("insert: %v", err)
		}
		if n == 40 { // stays hidden
			continue
		}
		if _, err := client.Release(ctx, s.UUID); err != nil {
			t.Fatalf("release: %v", err)
		}
		all = append(all, s.UUID)
	}
	ids := func(path string) []string {
		var found []string
		for path != "" {
			got := c.ask(administrator, "2.69", path)
			if got.status != 200 {
				t.Fatalf("%s: %d %s", path, got.status, got.text)
			}
			for _, record := range got.body["servers"].([]any) {
				found = append(found, record.(map[string]any)["id"].(string))
			}
			path = got.next()
		}
		return found
	}
	newest := slices.Clone(all)
	slices.Reverse(newest)
	testproc.Same(t, gocmp.Diff(newest, ids("/v2.1/servers")))
	for _, key := range c.api.lists.Routes()[0].Query.Named("sort_key").Choices {
		for _, dir := range []string{"asc", "desc"} {
			found := ids("/v2.1/servers/detail?limit=7&sort_key=" + key + "&sort_dir=" + dir)
			slices.Sort(found)
			if !slices.Equal(found, all) {
				t.Errorf("by %s %s there are %d of %d servers, each once", key, dir, len(found), len(all))
			}
		}
	}
	for query, want := range map[string]int{"name=^s1$": 6,
		"host=h1": 7, "status=ERROR": 13, "status=BUILD": 26, "name=nothing": 0, "uuid=" + uuid(5): 1} {
		if found := ids("/v2.1/servers?" + query); len(found) != want {
			t.Errorf("%s: %d servers, not %d", query, len(found), want)
		}
	}
	shown := c.ask(member, "2.69", "/v2.1/servers/"+uuid(3))
	if record, is := shown.body["server"].(map[string]any); !is || record["status"] != "ERROR" ||
		record["fault"].(map[string]any)["message"] != "No valid host was found." {
		t.Errorf("a server without a host: got %d %s, want ERROR with the fault", shown.status, shown.text)
	}
	if hidden := c.ask(administrator, "2.69", "/v2.1/servers/"+uuid(40)); hidden.status != http.StatusNotFound {
		t.Errorf("one that is not released: %d %s", hidden.status, hidden.text)
	}

	servers[1].CloseClientConnections()
	servers[1].Close()
	down := 0
	for _, name := range c.ask(member, "2.69", "/v2.1/servers").names() {
		if len(name) > 7 && name[:7] == "UNKNOWN" {
			down++
		}
	}
	if down != 14 { // with the hidden one, whose mapping says that it is there
		t.Errorf("%d servers are unknown, not 14", down)
	}
	if got := c.ask(member, "2.69", "/v2.1/servers/"+uuid(4)); got.status != 200 ||
		got.body["server"].(map[string]any)["status"] != api.StatusUnknown {
		t.Errorf("a server of a cell that is down: got %d %s, want UNKNOWN", got.status, got.text)
	}
}
