// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// servedCell serves a cell named cell1 until the test ends, and returns its URL.
func servedCell(t *testing.T) string {
	t.Helper()
	one := testproc.Try(cells.NewCell(t.Context(), cells.CellConfig{
		Name: "cell1", Database: filepath.Join(t.TempDir(), "cell.db"), Auth: cell.NoAuth(), Logger: zerolog.Nop(),
	})).Or(t)
	l := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	ended := make(chan error)
	go func() { ended <- one.Serve(t.Context(), l) }()
	t.Cleanup(func() {
		testproc.NoError(t, <-ended)
		testproc.NoError(t, one.Close())
	})
	return "http://" + l.Addr().String()
}

// deployment is one with an empty API database.
func deployment(t *testing.T) *Deployment {
	t.Helper()
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(t.TempDir(), "api.db"), apidb.Options{})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, store.Close()) })
	gatherer := gather.New(gather.Options{
		Client: func(c apidb.Cell) (*cellclient.Client, error) {
			return cellclient.New(cellclient.Config{URL: c.URL, Cell: c.Name})
		},
		Timeout: testproc.Patience, Logger: zerolog.Nop(),
	})
	t.Cleanup(gatherer.CloseIdle)
	return &Deployment{Store: store, Gatherer: gatherer}
}

// TestEvictHostListsWhatItMayHaveRead: the servers on the host, with what is secret of them, and
// none of other hosts; the host's service takes no new ones.
func TestEvictHostListsWhatItMayHaveRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ctx, url := t.Context(), servedCell(t)
	client := testproc.Try(cellclient.New(cellclient.Config{URL: url})).Or(t)
	nodes := map[string]string{"h416": "aaaaaaaa-0000-4000-8000-000000000001",
		"h417": "bbbbbbbb-0000-4000-8000-000000000002"}
	for host, node := range nodes {
		testproc.Try(client.Report(ctx, host,
			cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: node, Name: host}}})).Or(t)
	}
	for i, s := range []cellwire.Server{
		{Name: "web", Host: "h417", UserData: "c2VjcmV0", Metadata: map[string]string{"role": "front", "db": "x"},
			KeyName: "laptop", KeyData: "ssh-ed25519 AAAA", ImageRef: "image1"},
		{Name: "plain", Host: "h417"},
		{Name: "elsewhere", Host: "h416", UserData: "c2VjcmV0"},
	} {
		s.UUID = strings.Replace("00000000-0000-4000-8000-00000000000N", "N", string(rune('1'+i)), 1)
		s.ProjectID, s.UserID, s.Node, s.NodeUUID, s.VMState, s.TaskState = "p1", "u1", s.Host, nodes[s.Host],
			cellwire.VMBuilding, cellwire.TaskSpawning
		s.Flavor, s.CreatedAt =
			cellwire.Flavor{ID: "f1", Flavor: plugins.Flavor{Name: "small", VCPUs: 1, MemoryMB: 64}}, time.Now()
		testproc.Try(client.Insert(ctx, s)).Or(t)
		testproc.Try(client.Release(ctx, s.UUID)).Or(t)
	}
	d := deployment(t)
	cell1 := testproc.Try(d.Store.CreateCell(ctx, apidb.Cell{Name: "cell1", URL: url})).Or(t)
	testproc.Check(t, d.Store.MapNodes(ctx,
		[]apidb.Node{{UUID: nodes["h417"], Name: "h417", Host: "h417", CellUUID: cell1.UUID}}))
	found := testproc.Try(d.EvictHost(ctx, EvictOptions{Host: "H417", Reason: "stolen from rack 7"})).Or(t)
	if s := found.Services; len(s) != 1 || !s[0].ForcedDown || !s[0].Disabled || s[0].Cell != "cell1" {
		t.Errorf("the services are %+v", s)
	}
	testproc.Same(t, cmp.Diff([]Node{{nodes["h417"], "h417"}}, found.Nodes))
	testproc.Same(t, cmp.Diff([]ExposedServer{
		{UUID: "00000000-0000-4000-8000-000000000002", Name: "plain", Project: "p1", Cell: "cell1",
			Where: "here", MetadataKeys: []string{}},
		{UUID: "00000000-0000-4000-8000-000000000001", Name: "web", Project: "p1", Cell: "cell1", Where: "here",
			UserData: true, MetadataKeys: []string{"db", "role"}, KeyPair: "laptop", Image: "image1"},
	}, found.Servers))
	answer := testproc.Try(json.Marshal(found)).Or(t)
	if bytes.Contains(answer, []byte("c2VjcmV0")) {
		t.Errorf("the user data are in the answer: %s", answer)
	}
}

// TestEvictionByAWrongClock: an eviction is not dated by a clock that is not that of the cells.
func TestEvictionByAWrongClock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := deployment(t)
	for name, url := range map[string]string{"cell1": servedCell(t), "cell2, down": "http://127.0.0.1:1"} {
		testproc.Try(d.Store.CreateCell(t.Context(), apidb.Cell{Name: name, URL: url})).Or(t)
	}
	for ahead, refused := range map[time.Duration]bool{
		0: false, time.Minute: false, -time.Minute: false, 365 * 24 * time.Hour: true, -time.Hour: true,
	} {
		d.Now = func() time.Time { return time.Now().Add(ahead) }
		err := d.checkClock(t.Context(), "h417")
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "that of cell cell1 differ by") {
			t.Errorf("%v ahead: %v", ahead, err)
		}
	}
}
