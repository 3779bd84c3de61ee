// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestEvictHostListsWhatItMayHaveRead: the servers on the host, with what is secret of them, and
// none of other hosts; the host's service takes no new ones.
func TestEvictHostListsWhatItMayHaveRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ctx, url := t.Context(), servedCell(t)
	client := testproc.Try(cellclient.New(cellclient.Config{URL: url})).Or(t)
	nodes := map[string]string{"h416": "aaaaaaaa-0000-4000-8000-000000000001", "h417": "bbbbbbbb-0000-4000-8000-000000000002"}
	for host, node := range nodes {
		testproc.Try(client.Report(ctx, host, cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: node, Name: host}}})).Or(t)
	}
	for i, s := range []cellwire.Server{
		{Name: "web", Host: "h417", UserData: "c2VjcmV0", Metadata: map[string]string{"role": "front", "db": "x"}, KeyName: "laptop", KeyData: "ssh-ed25519 AAAA", ImageRef: "image1"},
		{Name: "plain", Host: "h417"},
		{Name: "elsewhere", Host: "h416", UserData: "c2VjcmV0"},
	} {
		s.UUID = strings.Replace("00000000-0000-4000-8000-00000000000N", "N", string(rune('1'+i)), 1)
		s.ProjectID, s.UserID, s.Node, s.NodeUUID, s.VMState, s.TaskState = "p1", "u1", s.Host, nodes[s.Host], cellwire.VMBuilding, cellwire.TaskSpawning
		s.Flavor, s.CreatedAt = cellwire.Flavor{ID: "f1", Flavor: plugins.Flavor{Name: "small", VCPUs: 1, MemoryMB: 64}}, time.Now()
		testproc.Try(client.Insert(ctx, s)).Or(t)
		testproc.Try(client.Release(ctx, s.UUID)).Or(t)
	}
	services, err := shutOut(ctx, client, "h417", "stolen from rack 7")
	if err != nil || len(services) != 1 || !services[0].ForcedDown || !services[0].Disabled {
		t.Errorf("%+v, %v", services, err)
	}
	servers := testproc.Try(exposed(ctx, client, "h417")).Or(t)
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

// TestListHostsShowsTwoHolders: an operator sees which hosts have shown a key of before, when and
// from where, as long as they are enrolled.
func TestListHostsShowsTwoHolders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	refused := &apidb.KeyConflict{At: at.Add(time.Hour), From: "192.0.2.17", Key: "ab12"}
	enrolled := func(host string, change func(*apidb.Enrolment)) apidb.Enrolment {
		e := apidb.Enrolment{Host: host, State: apidb.Enrolled, EnrolledAt: at.Add(-time.Hour), EnrolledFrom: "192.0.2.9", Issued: at}
		change(&e)
		return e
	}
	list := []apidb.Enrolment{
		enrolled("h1", func(*apidb.Enrolment) {}),
		enrolled("h2", func(e *apidb.Enrolment) { e.Conflict, e.RenewedFrom = refused, "198.51.100.7" }),
		enrolled("h3", func(e *apidb.Enrolment) { e.Conflict = refused }),
		enrolled("h4", func(e *apidb.Enrolment) { e.Conflict, e.State = refused, apidb.Evicted }),
	}
	var out bytes.Buffer
	testproc.Check(t, printEnrolments(&out, list, nil, false))
	_, got, _ := strings.Cut(out.String(), "\n\n")
	want := "Hosts whose identity two machines have, or that were restored from a copy (if not, evict them: compute-agent cells manage evict-host HOST):\n" +
		"  host h2: renewed last at 2026-11-23T12:00:00Z from 198.51.100.7; the key of 192.0.2.17 was refused at 2026-11-23T13:00:00Z\n" +
		"  host h3: joined at 2026-11-23T11:00:00Z from 192.0.2.9; the key of 192.0.2.17 was refused at 2026-11-23T13:00:00Z\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if v := enrolmentViewOf(list[1], nil); v.Conflict == nil || *v.Conflict != (conflictView{refused.At, "192.0.2.17", "ab12"}) || v.Renewed != "198.51.100.7" {
		t.Errorf("in JSON: %+v", v)
	}
}
