// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// template is what databases of the cell of the tests begin as.
var template = dbservers.NewTemplate(func(dsn string) (*celldb.DB, error) {
	return celldb.Open(context.Background(), dsn, "cell1", celldb.Options{})
})

// start is when the tests' clocks begin.
var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// world is a cell with a manual clock.
type world struct {
	t     testing.TB
	path  string
	store *celldb.DB
	cell  *cell.Cell
	log   bytes.Buffer

	mu  sync.Mutex
	now time.Time
}

// begin starts a cell on a new database.
func begin(t testing.TB, change ...func(*cell.Config)) *world {
	t.Helper()
	w := unattended(t, change...)
	t.Cleanup(func() { w.close() })
	return w
}

// unattended is a cell that the caller closes.
func unattended(t testing.TB, change ...func(*cell.Config)) *world {
	t.Helper()
	w := &world{t: t, path: template.Fresh(t), now: start}
	w.open(change...)
	return w
}

// open starts a cell on the database that is there.
func (w *world) open(change ...func(*cell.Config)) {
	w.t.Helper()
	var err error
	if w.store, err = celldb.Open(context.Background(), w.path, "cell1", celldb.Options{}); err != nil {
		w.t.Fatal(err)
	}
	c := cell.Config{Store: w.store, Auth: cell.NoAuth(), Version: "1.2.3", Now: w.clock, Logger: zerolog.New(&w.log)}
	for _, f := range change {
		f(&c)
	}
	if w.cell, err = cell.New(c); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.t.Helper()
	testproc.NoError(w.t, w.store.Close())
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// send sends a request, with the body as JSON unless it is a string, and returns status and body.
func (w *world) send(method, target string, body any, change ...func(*http.Request)) *httptest.ResponseRecorder {
	w.t.Helper()
	return send(w.t, w.cell, method, target, body, change...)
}

func send(
	t testing.TB, h http.Handler, method, target string, body any, change ...func(*http.Request),
) *httptest.ResponseRecorder {
	t.Helper()
	var text []byte
	switch body := body.(type) {
	case nil:
	case string:
		text = []byte(body)
	default:
		var err error
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	r := httptest.NewRequest(method, target, bytes.NewReader(text))
	for _, f := range change {
		f(r)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	if kind := answer.Header().Get("Content-Type"); answer.Code != http.StatusNoContent && kind != "application/json" {
		t.Errorf("%s %s: answered %d as %q: %s", method, target, answer.Code, kind, answer.Body)
	}
	return answer
}

// do sends a request that succeeds, and decodes the answer.
func do[T any](w *world, method, target string, body any) (answer T) {
	w.t.Helper()
	got := w.send(method, target, body)
	if got.Code == http.StatusNoContent {
		return answer
	}
	if got.Code != http.StatusOK {
		w.t.Fatalf("%s %s: answered %d: %s", method, target, got.Code, got.Body)
	}
	decoder := json.NewDecoder(got.Body)
	decoder.DisallowUnknownFields()
	testproc.Checkf(w.t, decoder.Decode(&answer), "%s %s", method, target)
	return answer
}

// refused sends a request that is refused with the status and the code.
func (w *world) refused(
	status int, code cellwire.Code, method, target string, body any, change ...func(*http.Request),
) string {
	w.t.Helper()
	return refusal(w.t, w.send(method, target, body, change...), status, code)
}

func refusal(t testing.TB, got *httptest.ResponseRecorder, status int, code cellwire.Code) string {
	t.Helper()
	var e cellwire.Error
	testproc.NoErrorf(t, json.Unmarshal(got.Body.Bytes(), &e), "the refusal is %q", got.Body)
	if got.Code != status || e.Code != code || e.Message == "" {
		t.Errorf("answered %d %s, want %d %s", got.Code, got.Body, status, code)
	}
	return e.Message
}

// uuid is the n-th of a kind.
func uuid(kind, n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, n) }

func sid(n int) string { return uuid(0x5e, n) }

// building is a server as the scheduler inserts it.
func building(n int, host string) cellwire.Server {
	description := "to build"
	return cellwire.Server{
		UUID: sid(n), ProjectID: "p1", UserID: "u1", Name: fmt.Sprint("server-", n), Description: &description,
		Hostname: fmt.Sprint("server-", n),
		Flavor: cellwire.Flavor{ID: "1",
			Flavor: plugins.Flavor{Name: "small", VCPUs: 2,
				MemoryMB: 512, RootGB: 5, ExtraSpecs: map[string]string{"trait:CUSTOM_X": "required"}}},
		Zone: "nova", Metadata: map[string]string{"k": "v"}, Tags: []string{"blue"}, UserData: "QQ==",
		KeyName: "my key", KeyData: "ssh-ed25519 AAAA", DiskConfig: "AUTO", Reservation: "r-1",
		Host: host, Node: host + "-node", NodeUUID: uuid(0x90de, 1), VMState: cellwire.VMBuilding,
		TaskState: cellwire.TaskSpawning,
		CreatedAt: start.Add(time.Duration(n) * time.Second), TrustedCerts: []string{"c1"},
	}
}

// register lets hosts show life.
func (w *world) register(hosts ...string) (state cellwire.HostState) {
	w.t.Helper()
	for _, host := range hosts {
		state = do[cellwire.HostState](w, "PUT",
			"/v1/hosts/"+host,
			cellwire.HostReport{Version: "9",
				Nodes: []cellwire.ReportedNode{{UUID: nodeUUID(host), Name: host + "-node"}}})
	}
	return state
}

func nodeUUID(host string) string {
	return uuid(0x90de, int([]byte(host)[len(host)-1]))
}

// release inserts and releases a server.
func (w *world) release(s cellwire.Server) cellwire.Server {
	w.t.Helper()
	do[cellwire.Server](w, "PUT", "/v1/servers/"+s.UUID, s)
	return do[cellwire.Server](w, "POST", "/v1/servers/"+s.UUID+"/release", nil)
}

// active makes a server that runs.
func (w *world) active(n int, host string) cellwire.Server {
	w.t.Helper()
	w.release(building(n, host))
	w.report(host, cellwire.Report{UUID: sid(n), Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
	return w.server(n)
}

func (w *world) server(n int) cellwire.Server {
	w.t.Helper()
	return do[cellwire.Server](w, "GET", "/v1/servers/"+sid(n), nil)
}

// report sends one report and wants it taken.
func (w *world) report(host string, r cellwire.Report) {
	w.t.Helper()
	testproc.Equal(w.t, w.reports(host, r)[0], "", "%s reported %+v: refused: %s", host, r)
}

func (w *world) reports(host string, r ...cellwire.Report) []string {
	w.t.Helper()
	got := do[cellwire.ReportsAnswer](w, "POST", "/v1/hosts/"+host+"/reports", cellwire.Reports{Reports: r}).Refused
	if len(got) != len(r) {
		w.t.Fatalf("%d reports have %d answers", len(r), len(got))
	}
	return got
}

func (w *world) work(host string, after int64, epoch string) cellwire.Work {
	w.t.Helper()
	return do[cellwire.Work](w, "GET", fmt.Sprintf("/v1/hosts/%s/work?after=%d&epoch=%s", host, after, epoch), nil)
}

// wants are the wants of some work, by the number of the server.
func wants(t testing.TB, work cellwire.Work) map[int]cellwire.Want {
	t.Helper()
	got := map[int]cellwire.Want{}
	for _, item := range work.Items {
		var n int
		testproc.Try(fmt.Sscanf(strings.TrimPrefix(item.Server.UUID, sid(0)[:24]), "%x", &n)).Or(t)
		got[n] = item.Want
	}
	return got
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	testproc.Samef(t, cmp.Diff(want, got), "%s", what)
}

// call does a call on a server by its short name.
func (w *world) call(op string, n int) *httptest.ResponseRecorder {
	w.t.Helper()
	switch op {
	case "insert":
		return w.send("PUT", "/v1/servers/"+sid(n), inserted(n))
	case "delete":
		return w.send("POST", "/v1/servers/"+sid(n)+"/delete", cellwire.DeleteRequest{Kind: cellwire.DeleteNormal})
	case "soft":
		return w.send("POST", "/v1/servers/"+sid(n)+"/delete", cellwire.DeleteRequest{Kind: cellwire.DeleteSoft})
	case "start", "stop", "reboot", "reboot-hard":
		return w.send("POST", "/v1/servers/"+sid(n)+"/power", cellwire.PowerRequest{Action: cellwire.PowerAction(op)})
	}
	return w.send("POST", "/v1/servers/"+sid(n)+"/"+op, nil)
}

// inserted is what the model's servers are inserted as.
func inserted(n int) cellwire.Server {
	if hostOf(n) != "" {
		return building(n, hostOf(n))
	}
	return unplaced(n)
}

// unplaced is a server for cell0.
func unplaced(n int) cellwire.Server {
	s := building(n, "")
	s.Node, s.NodeUUID, s.VMState, s.TaskState = "", "", cellwire.VMError, ""
	s.Fault = &cellwire.Fault{Code: 500, Message: "No valid host was found.", Created: start}
	return s
}

func decodeAs[T any](t interface{ Fatalf(string, ...any) }, body []byte) (value T) {
	if err := json.Unmarshal(body, &value); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return value
}
