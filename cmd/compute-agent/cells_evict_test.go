// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// TestEvictHostListsWhatItMayHaveRead: the servers on the host, with what is secret of them, and
// none of other hosts; the host's service takes no new ones.
func TestEvictHostListsWhatItMayHaveRead(t *testing.T) {
	dir := t.TempDir()
	one, err := cells.NewCell(t.Context(), cells.CellConfig{Name: "cell1", Database: filepath.Join(dir, "cell.db"), Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- one.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	})
	url := "http://" + l.Addr().String()
	client, err := cellclient.New(cellclient.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]string{"h416": "aaaaaaaa-0000-4000-8000-000000000001", "h417": "bbbbbbbb-0000-4000-8000-000000000002"}
	for host, node := range nodes {
		if _, err := client.Report(ctx, host, cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: node, Name: host}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range []cellwire.Server{
		{Name: "web", Host: "h417", UserData: "c2VjcmV0", Metadata: map[string]string{"role": "front", "db": "x"}, KeyName: "laptop", KeyData: "ssh-ed25519 AAAA", ImageRef: "image1"},
		{Name: "plain", Host: "h417"},
		{Name: "elsewhere", Host: "h416", UserData: "c2VjcmV0"},
	} {
		s.UUID = strings.Replace("00000000-0000-4000-8000-00000000000N", "N", string(rune('1'+i)), 1)
		s.ProjectID, s.UserID, s.Node, s.NodeUUID, s.VMState, s.TaskState = "p1", "u1", s.Host, nodes[s.Host], cellwire.VMBuilding, cellwire.TaskSpawning
		s.Flavor, s.CreatedAt = cellwire.Flavor{ID: "f1", Flavor: plugins.Flavor{Name: "small", VCPUs: 1, MemoryMB: 64}}, time.Now()
		if _, err := client.Insert(ctx, s); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Release(ctx, s.UUID); err != nil {
			t.Fatal(err)
		}
	}
	services, err := shutOut(ctx, client, "h417", "stolen from rack 7")
	if err != nil || len(services) != 1 || !services[0].ForcedDown || !services[0].Disabled {
		t.Errorf("%+v, %v", services, err)
	}
	servers, err := exposed(ctx, client, "h417")
	if err != nil {
		t.Fatal(err)
	}
	want := []exposedServer{
		{UUID: "00000000-0000-4000-8000-000000000002", Name: "plain", Project: "p1", Where: "here", MetadataKeys: []string{}},
		{UUID: "00000000-0000-4000-8000-000000000001", Name: "web", Project: "p1", Where: "here", UserData: true, MetadataKeys: []string{"db", "role"}, KeyPair: "laptop", Image: "image1"},
	}
	if !slices.EqualFunc(servers, want, func(a, b exposedServer) bool {
		return slices.Equal(a.MetadataKeys, b.MetadataKeys) && a.UUID == b.UUID && a.Name == b.Name && a.Project == b.Project && a.Where == b.Where && a.UserData == b.UserData && a.KeyPair == b.KeyPair && a.Image == b.Image
	}) {
		t.Errorf("the servers are %+v", servers)
	}
	var out bytes.Buffer
	if err := printEviction(&out, evictionView{Host: "h417", Servers: servers}); err != nil || !strings.Contains(out.String(), "db,role") || strings.Contains(out.String(), "c2VjcmV0") {
		t.Errorf("%v:\n%s", err, &out)
	}
}
