// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	auditedNode   = "90de0000-0000-4000-8000-000000000001"
	auditedServer = "5e000000-0000-4000-8000-000000000001"
	// canary stands for what must not be in an audit log.
	canary    = "Y2FuYXJ5LW9mLXVzZXItZGF0YQ"
	publicKey = "AAAAC3NzaC1lZDI1NTE5AAAAIDdYXGbpsTE2fzyfO0JAzbXoEJcLeP3yjG4nCKSAr1uI"
)

// auditedWorld is a compute API and a cell that share an audit log.
type auditedWorld struct {
	api   *cells.API
	cell  *cellclient.Client
	audit *auditlog.Log
	file  string
}

func newAuditedWorld(t *testing.T, required bool) *auditedWorld {
	t.Helper()
	w := &auditedWorld{file: filepath.Join(t.TempDir(), "log", "audit.log")}
	var err error
	w.audit, err = auditlog.Open(auditlog.Options{File: w.file, Required: required, Logger: zerolog.Nop()})
	testproc.Check(t, err)
	t.Cleanup(func() { _ = w.audit.Close() })
	at := filepath.Join(t.TempDir(), "cell1.sock")
	during(t, newCell(t, "cell1", func(c *cells.CellConfig) { c.Audit = w.audit }).Serve, listen(t, at))
	w.api = newAPI(t, func(c *cells.APIConfig) { c.Audit = w.audit })
	if !required {
		_, err = w.api.Store().CreateCell(t.Context(), apidb.Cell{Name: "cell1", URL: "unix://" + at})
		testproc.Check(t, err)
	}
	w.cell, err = cellclient.New(cellclient.Config{URL: "unix://" + at, Cell: "cell1"})
	testproc.Check(t, err)
	t.Cleanup(w.cell.CloseIdle)
	return w
}

// call sends a request to the compute API and returns its request id.
func (w *auditedWorld) call(t *testing.T, method, path, body string, status int) string {
	t.Helper()
	return w.callIn(t.Context(), t, method, path, body, status)
}

func (w *auditedWorld) callIn(ctx context.Context, t *testing.T, method, path, body string, status int) string {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, "/v2.1"+path, strings.NewReader(body))
	r.Header = http.Header{"X-Auth-Token": {"admin:admin"}, "X-Roles": {"admin"}, "Content-Type": {"application/json"},
		"Openstack-Api-Version": {"compute 2.71"}}
	answer := httptest.NewRecorder()
	w.api.Handler().ServeHTTP(answer, r)
	if answer.Code != status {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, answer.Code, status, answer.Body)
	}
	return answer.Header().Get(osapi.HeaderRequestID)
}

func (w *auditedWorld) records(t *testing.T) (list []auditlog.Record) {
	t.Helper()
	r := auditlog.Reader{Paths: []string{w.file}}
	testproc.Check(t, r.Read(t.Context(), func(r auditlog.Record) error { list = append(list, r); return nil }))
	if r.Unreadable > 0 {
		t.Errorf("%d lines are no records", r.Unreadable)
	}
	return list
}

// TestAuditOfCells: the compute API records which client requested what, and changes in its
// database; the cell what its servers, services and hosts became, with the request and the sender
// of the compute API's client. There are no secrets in it, and a heartbeat, a read and a refused
// request have no record.
func TestAuditOfCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newAuditedWorld(t, false)
	ctx := t.Context()
	store := w.api.Store()
	w.call(t, "POST", "/flavors", `{"flavor":{"id":"1","name":"m1.small","vcpus":1,"ram":512,"disk":1}}`, 200)
	w.call(t, "POST", "/os-keypairs", `{"keypair":{"name":"key1","type":"ssh","public_key":"ssh-ed25519 `+publicKey+
		` me"}}`, 201)
	w.call(t, "PUT", "/os-quota-sets/p1", `{"quota_set":{"cores":40}}`, 200)
	w.call(t, "PUT", "/os-quota-sets/p1", `{"quota_set":{"cores":80}}`, 200)
	w.call(t, "GET", "/flavors", "", 200)
	w.call(t, "DELETE", "/flavors/none", "", 404)
	known := testproc.Try(store.Cells(ctx)).Or(t)
	report := cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: auditedNode, Name: "n1"}}}
	for range 3 { // a registration and two heartbeats
		testproc.Try(w.cell.Report(ctx, "h1", report)).Or(t)
	}
	testproc.Check(t, store.MapNodes(ctx,
		[]apidb.Node{{UUID: auditedNode, Name: "n1", Host: "h1", CellUUID: known[0].UUID}}))
	testproc.Check(t, store.RemapNode(ctx,
		apidb.Node{UUID: auditedNode, Name: "n1", Host: "h2", CellUUID: known[0].UUID}, "h1"))
	testproc.Check(t, store.RemapNode(ctx,
		apidb.Node{UUID: auditedNode, Name: "n1", Host: "h1", CellUUID: known[0].UUID}, "h2"))
	server := cellwire.Server{
		UUID: auditedServer, ProjectID: "p1", UserID: "u1", Name: "one", Host: "h1", Node: "n1", NodeUUID: auditedNode,
		VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
		CreatedAt: time.Now(), UserData: canary, KeyName: "key1", KeyData: "ssh-ed25519 " + publicKey,
		Metadata: map[string]string{"password": canary},
	}
	testproc.Check(t, store.CreateServers(ctx, []apidb.RequestSpec{{Server: server}}, nil))
	testproc.Try(w.cell.Insert(ctx, server)).Or(t)
	testproc.Check(t, store.Place(ctx, auditedServer, known[0].UUID))
	testproc.Try(w.cell.Release(ctx, auditedServer)).Or(t)
	testproc.Check(t, store.FinishBuild(ctx, auditedServer))
	_, err := w.cell.Reports(ctx,
		"h1", []cellwire.Report{{UUID: auditedServer, Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning}})
	testproc.Check(t, err)
	stop := w.call(t, "POST", "/servers/"+auditedServer+"/action", `{"os-stop":null}`, 202)
	marked := w.call(t, "POST", "/servers/"+auditedServer+"/metadata", `{"metadata":{"role":"`+canary+`"}}`, 200)
	w.call(t, "DELETE", "/servers/"+auditedServer, "", 204)
	services := testproc.Try(w.cell.Services(ctx)).Or(t)
	w.call(t, "PUT", "/os-services/"+services[0].UUID, `{"status":"disabled","disabled_reason":"stolen"}`, 200)

	var got []string
	for _, r := range w.records(t) {
		for i := range r.Changes {
			got = append(got, fmt.Sprintf("%s | %s | %s | %s", r.Service, r.Sender(), r.Operation(),
				r.Changes[i].String()))
		}
	}
	contains := func(parts ...string) {
		t.Helper()
		if !slices.ContainsFunc(got, func(line string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
		}) {
			t.Errorf("no line with %q", parts)
		}
	}
	contains("compute-api | - | scheduler | cell ", "created disabled false, name cell1")
	contains("compute-api | admin/admin | POST /v2.1/flavors | flavor 1 (m1.small): created")
	contains("keypair key1: created fingerprint ")
	contains("compute-api | admin/admin | PUT /v2.1/os-quota-sets/p1 | quota p1: cores none → 40")
	contains("quota p1: cores 40 → 80")
	contains("cell cell1 | host h1 | PUT /v1/hosts/h1 | host report h1: nodes {", auditedNode)
	contains("compute-api", "node "+auditedNode+" (n1) on host h1: created cell "+known[0].UUID)
	contains("compute-api", "node "+auditedNode+" (n1) on host h2: host h1 → h2")
	contains("compute-api", "server "+auditedServer+" (one): created", "user_data_bytes "+fmt.Sprint(len(canary)))
	contains("cell cell1", "PUT /v1/servers/"+auditedServer+" |", "hidden true")
	contains("server " + auditedServer + ": cell none → " + known[0].UUID)
	contains("cell cell1 | host h1 | POST /v1/hosts/h1/reports",
		"power_state 0 → 1, task_state spawning → none, vm_state building → active")
	contains("compute-api | admin/admin", "server "+auditedServer+": requested os-stop")
	contains("cell cell1 | admin/admin", "server "+auditedServer+" of n1 on host h1: task_state none → powering-off")
	contains("cell cell1 | admin/admin", "/delete", "task_state powering-off → deleting")
	contains("compute-api | admin/admin", "server "+auditedServer+": requested post metadata")
	contains("cell cell1 | admin/admin", "metadata {", "hmac-sha256:")
	contains("compute-api | admin/admin", "service "+services[0].UUID)
	contains("cell cell1 | admin/admin", "on host h1: disabled false → true, disabled_reason none → stolen")
	registrations := 0
	for _, r := range w.records(t) {
		if r.Method == http.MethodPut && r.Path == "/v1/hosts/h1" {
			registrations++
		}
	}
	testproc.Equal(t, registrations, 1, "%d records of the reports of the host")
	for _, id := range []string{stop, marked} { // one search finds what both services did
		filter, found := auditlog.Filter{RequestID: id}, map[string]bool{}
		for _, r := range w.records(t) {
			if _, ok := filter.Match(r); ok {
				found[r.Service] = true
			}
		}
		if !found["compute-api"] || !found["cell cell1"] {
			t.Errorf("request %s is recorded by %v", id, found)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
	text := testproc.Try(os.ReadFile(w.file)).Or(t)
	for _, secret := range []string{canary, publicKey} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the audit log has %s", secret)
		}
	}
}

// TestRequiredAuditOfCells: while a required log cannot be written, the compute API and the cell
// refuse changes; reads, and the reports of agents, go on.
func TestRequiredAuditOfCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, first := range []string{"flavor", "server"} { // either finds it out, and is refused
		w := newAuditedWorld(t, true)
		ctx := t.Context()
		dir := filepath.Dir(w.file)
		testproc.Check(t, os.RemoveAll(dir))
		testproc.Check(t, os.WriteFile(dir, nil, 0o600))
		insert := func() {
			t.Helper()
			testproc.Try(w.cell.Insert(ctx, cellwire.Server{
				UUID: auditedServer, ProjectID: "p1", UserID: "u1", Name: "one", Host: "h1", Node: "n1",
				NodeUUID: auditedNode, VMState: cellwire.VMBuilding,
				TaskState: cellwire.TaskSpawning, CreatedAt: time.Now(),
			})).ErrorHas(t, "audit log", "an insert: %v")
		}
		if first == "server" {
			insert()
		}
		w.call(t, "POST", "/flavors", `{"flavor":{"id":"1","name":"m1.small","vcpus":1,"ram":512,"disk":1}}`, 503)
		w.call(t, "GET", "/flavors/1", "", 404)
		insert()
		if list, err := w.cell.Servers(ctx, cellwire.ServerQuery{Limit: 1}); err != nil || len(list.Rows) > 0 {
			t.Errorf("a list: %+v, %v", list, err)
		}
		testproc.Try(w.cell.Report(ctx, "h2", cellwire.HostReport{Version: "1"})).Or(t)
	}
}

// TestRefusedActIsNotUnknown: a required log does not answer before the client of the compute API
// leaves. The intent of its request is closed, for it may be written later.
func TestRefusedActIsNotUnknown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newAuditedWorld(t, true)
	held := testproc.Try(os.Open(w.file)).Or(t)
	testproc.Check(t, unix.Flock(int(held.Fd()), unix.LOCK_EX)) // as a process that rotates the file
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w.callIn(ctx, t, "DELETE", "/servers/"+auditedServer, "", 503)
	testproc.Check(t, held.Close())
	testproc.Check(t, w.audit.Close())
	if text := string(testproc.Try(os.ReadFile(w.file)).Or(t)); !strings.Contains(text, `"outcome":"intended"`) {
		t.Errorf("the intent is not in the log:\n%s", text)
	}
	if records := w.records(t); len(records) > 0 {
		t.Errorf("records of what was refused: %+v", records)
	}
}
