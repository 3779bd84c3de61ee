// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
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

// TestEvictionByAWrongClock: an eviction is not dated by a clock that is not that of the cells.
func TestEvictionByAWrongClock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(t.TempDir(), "api.db"), apidb.Options{})).Or(t)
	defer func() { testproc.Check(t, store.Close()) }()
	testproc.Try(store.CreateCell(t.Context(), apidb.Cell{Name: "cell1", URL: servedCell(t)})).Or(t)
	testproc.Try(store.CreateCell(t.Context(), apidb.Cell{Name: "cell2", URL: "http://127.0.0.1:1"})).Or(t) // down
	cfg := &config.Config{ComputeAPI: config.ComputeAPI{CellTimeout: testproc.Patience}}
	for ahead, refused := range map[time.Duration]bool{
		0: false, time.Minute: false, -time.Minute: false, 365 * 24 * time.Hour: true, -time.Hour: true,
	} {
		err := checkClock(t.Context(), store, cfg, "h417", func() time.Time { return time.Now().Add(ahead) })
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "that of cell cell1 differ by") {
			t.Errorf("%v ahead: %v", ahead, err)
		}
	}
}

// managed is the state directory of a compute API that does not run, with an authority, and runs
// the commands of `cells manage` there: each ends with an exit code, and says something.
func managed(t *testing.T, configuration string) (dir string, run func(want int, args ...string) string) {
	t.Helper()
	dir = t.TempDir()
	testproc.Try(pki.InitAuthority(filepath.Join(dir, "ca"), "ca", time.Now())).Or(t)
	configured := filepath.Join(dir, "api.toml")
	text := fmt.Appendf(nil, "[enrolment]\nlisten = \"127.0.0.1:1\"\nca_dir = %q\n%s", filepath.Join(dir, "ca"), configuration)
	testproc.Check(t, os.WriteFile(configured, text, 0o600))
	return dir, func(want int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		args = append(append([]string{"cells", "manage"}, args...), "--config", configured, "--state-dir", dir)
		if code := execute(t.Context(), args, &out, &out); code != want {
			t.Errorf("%v ends with %d:\n%s", args, code, &out)
		}
		return out.String()
	}
}

// TestAllowHost: a host that was evicted by a clock that was ahead is not invited before it is
// allowed, and each answer says what to do next.
func TestAllowHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, manage := managed(t, "")
	run := func(want int, part string, args ...string) {
		t.Helper()
		if out := manage(want, args...); !strings.Contains(out, part) {
			t.Errorf("%v says nothing of %q:\n%s", args, part, out)
		}
	}
	run(exitDone, "", "create", "--name", "cell1", "--url", "http://127.0.0.1:1")
	run(exitDone, "", "add-host", "h417", "--cell", "cell1")
	run(exitFailed, "did you mean h417?", "allow-host", "h471")
	run(exitFailed, "Evicted host h417", "evict-host", "H417")
	run(exitProtect, "add-host h417 --again", "allow-host", "h417")
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(dir, cells.APIDatabase), apidb.Options{})).Or(t)
	_, err := store.ChangeEnrolment(t.Context(), "h417", func(e *apidb.Enrolment) error {
		e.DeniedBefore = e.DeniedBefore.AddDate(1, 0, 0)
		return nil
	})
	testproc.Check(t, errors.Join(err, store.Close()))
	run(exitDone, " (cells manage allow-host)\n", "list-hosts")
	run(exitProtect, "cells manage allow-host", "add-host", "h417", "--cell", "cell1", "--again")
	run(exitDone, "Host h417 is refused with certificates from before", "allow-host", "h417")
	run(exitDone, "Invited again host h417", "add-host", "h417", "--cell", "cell1", "--again")
}

// TestDeleteHostOfNoCell: the nodes of a host that is evicted, and mapped to no cell, are freed;
// each cell that may have it is named.
func TestDeleteHostOfNoCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, run := managed(t, "[placement_client]\nurl = \"http://127.0.0.1:1\"\nretries = 0\n")
	run(exitDone, "create", "--name", "cell1", "--url", servedCell(t))
	run(exitDone, "create", "--name", "cell2", "--url", "http://127.0.0.1:1")
	run(exitDone, "add-host", "h417", "--cell", "cell2", "--node", secondNode+"=h417")
	run(exitFailed, "evict-host", "h417")
	out := run(exitDone, "delete-host", "h417", "--with-servers", "unknown")
	testproc.Contains(t, out, "Host h417 was mapped to no cell; what was kept of its name and its nodes is removed.", "it says: %s")
	testproc.Contains(t, out, "It is not known whether cell cell2 has the host", "it says: %s")
	if strings.Contains(out, "Cell  ") || strings.Contains(out, "cell1") {
		t.Errorf("of a cell that is not its own:\n%s", out)
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
		enrolled("h5", func(e *apidb.Enrolment) { e.Agents, e.ExpiresAt = twoAgents(at), at.Add(24*time.Hour) }),
		enrolled("h6", func(e *apidb.Enrolment) {
			e.Agents, e.ExpiresAt, e.State = twoAgents(at), at.Add(24*time.Hour), apidb.Evicted
		}),
	}
	var out bytes.Buffer
	testproc.Check(t, printEnrolments(&out, list, nil, false))
	_, got, _ := strings.Cut(out.String(), "\n\n")
	want := "Hosts whose identity two machines have, or that were restored from a copy (if not, evict them: compute-agent cells manage evict-host HOST):\n" +
		"  host h2: renewed last at 2026-11-23T12:00:00Z from 198.51.100.7; the key of 192.0.2.17 was refused at 2026-11-23T13:00:00Z\n" +
		"  host h3: joined at 2026-11-23T11:00:00Z from 192.0.2.9; the key of 192.0.2.17 was refused at 2026-11-23T13:00:00Z\n" +
		"  2 agents report as host h5: one that started at 2026-11-23T12:00:00Z and reports from 192.0.2.8 (boot id b1, machine m); " +
		"one that started at 2026-11-23T12:00:00Z and reports from 192.0.2.17 (boot id b2, machine m)\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if v := enrolmentViewOf(list[1], nil); v.Conflict == nil || *v.Conflict != (conflictView{refused.At, "192.0.2.17", "ab12"}) || v.Renewed != "198.51.100.7" {
		t.Errorf("in JSON: %+v", v)
	}
	if v := enrolmentViewOf(list[4], nil); len(v.Agents) != 2 {
		t.Errorf("in JSON: %+v", v)
	}
}

// twoAgents are those of a host that were both seen just now.
func twoAgents(started time.Time) pki.Agents {
	now := time.Now()
	agents := pki.Agents{Turn: 2, Until: now.Add(time.Hour).UnixMicro()}
	for i, address := range []string{"192.0.2.8", "192.0.2.17"} {
		agents.All = append(agents.All, pki.HostAgent{
			AgentProcess: pki.AgentProcess{Token: address, Boot: fmt.Sprint("b", i+1), Machine: "m", Started: started, Address: address}, First: 1, Shown: 2, Seen: now.UnixMicro(),
		})
	}
	return agents
}

// TestRevokeBesideTheService: the compute API that has the database open knows the hosts, whatever
// the case of the name that is given.
func TestRevokeBesideTheService(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := testproc.SocketDir(t)
	configured, list := filepath.Join(dir, "api.toml"), filepath.Join(dir, "denied")
	text := fmt.Appendf(nil, "[agent]\nstate_dir = %q\nruntime_dir = %[1]q\n[compute_api]\nlisten = %q\n[deny_list]\nfile = %q\n",
		dir, testproc.FreeAddress(t), list)
	testproc.Check(t, os.WriteFile(configured, text, 0o600))
	testproc.Check(t, pki.CreateDenyFile(list))
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(dir, cells.APIDatabase), apidb.Options{})).Or(t)
	testproc.Try(store.ChangeEnrolment(t.Context(), "h50", func(e *apidb.Enrolment) error {
		e.State, e.CellUUID = apidb.Enrolled, "00000001-0000-0000-0000-000000000000"
		return nil
	})).Or(t)
	testproc.Check(t, store.Close())
	var log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, []string{"cells", "api", "--config", configured}, &log, &log) }()
	testproc.Eventually(t, testproc.Patience, "the compute API has the database", func() error {
		if sqldb.HolderOf(filepath.Join(dir, cells.APIDatabase)).Socket == "" {
			return errors.New("no socket yet")
		}
		return nil
	})
	for name, want := range map[string]struct {
		code int
		text string
	}{"H50": {exitDone, "h50 is on the deny list"}, "h51": {exitProtect, "did you mean h50?"}} {
		var out bytes.Buffer
		code := execute(t.Context(), []string{"ca", "revoke", name, "--config", configured}, &out, &out)
		if code != want.code || !strings.Contains(out.String(), want.text) {
			t.Errorf("%s ends with %d: %s", name, code, &out)
		}
	}
	stop()
	if code := <-ended; code != exitDone {
		t.Errorf("exit code %d: %s", code, &log)
	}
}
