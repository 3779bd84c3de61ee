// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// everyCall is each call of the protocol, as one that the cell takes, and who may do it.
var everyCall = []struct {
	method, target, body, who string
	status                    int
}{
	{"GET", "/v1/cell", "", "any", 200},
	{"POST", "/v1/servers/query", `{"limit":1}`, "api", 200},
	{"GET", "/v1/servers/" + sid(1), "", "api", 200},
	{"PUT", "/v1/servers/" + sid(2), "", "api", 400}, // no body: but who may is decided before
	{"PATCH", "/v1/servers/" + sid(1), `{"name":"other"}`, "api", 200},
	{"POST", "/v1/servers/" + sid(1) + "/release", "", "api", 200},
	{"POST", "/v1/servers/" + sid(3) + "/discard", "", "api", 204},
	{"POST", "/v1/servers/" + sid(1) + "/delete", `{"kind":"normal"}`, "api", 200},
	{"POST", "/v1/servers/" + sid(1) + "/restore", "", "api", 409},
	{"POST", "/v1/servers/" + sid(1) + "/freed", "", "api", 409},
	{"POST", "/v1/servers/" + sid(1) + "/power", `{"action":"stop"}`, "api", 409},
	{"GET", "/v1/servers/" + sid(1) + "/actions", "", "api", 200},
	{"POST", "/v1/servers/states", `{"uuids":["` + sid(1) + `"]}`, "api", 200},
	{"GET", "/v1/servers/unfinished?hidden_for=1&reclaim_after=1", "", "api", 200},
	{"GET", "/v1/survey?project_id=p1", "", "api", 200},
	{"GET", "/v1/services", "", "api", 200},
	{"PATCH", "/v1/services/" + sid(9), `{"disabled":true}`, "api", 404},
	{"DELETE", "/v1/services/" + sid(9), "", "api", 404},
	{"GET", "/v1/compute-nodes?unmapped=true", "", "api", 200},
	{"GET", "/v1/compute-nodes?servers=true", "", "api", 200},
	{"POST", "/v1/compute-nodes/mapped", `{"uuids":[]}`, "api", 204},
	{"POST", "/v1/compute-nodes/state", `{"problems":{}}`, "api", 204},
	{"PUT", "/v1/hosts/h1", `{"version":"1","nodes":[]}`, "h1", 200},
	{"GET", "/v1/hosts/h1/work?after=0", "", "h1", 200},
	{"GET", "/v1/hosts/h1/nodes/" + sid(9), "", "h1", 200},
	{"POST", "/v1/hosts/h1/reports", `{"reports":[]}`, "h1", 200},
}

func TestEveryCall(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	w.release(building(1, "h1"))
	for _, c := range everyCall {
		if got := w.send(c.method, c.target, c.body); got.Code != c.status {
			t.Errorf("%s %s: answered %d %s, want %d", c.method, c.target, got.Code, got.Body, c.status)
		}
	}
}

func TestRefusals(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	w.release(building(1, "h1"))
	other := building(1, "h1")
	other.Name = "another"
	for _, c := range []struct {
		method, target string
		body           any
		status         int
		code           cellwire.Code
	}{
		{"GET", "/", nil, 404, cellwire.CodeNoCall},
		{"GET", "/v1/servers", nil, 404, cellwire.CodeNoCall},
		{"GET", "//v1/cell", nil, 404, cellwire.CodeNoCall},
		{"GET", "/v1/cell/", nil, 404, cellwire.CodeNoCall},
		{"GET", "/v1/x/../cell", nil, 404, cellwire.CodeNoCall},
		{"DELETE", "/v1/servers/" + sid(1), nil, 405, cellwire.CodeBadRequest},
		{"POST", "/v1/cell", nil, 405, cellwire.CodeBadRequest},
		{"GET", "/v1/servers/" + sid(7), nil, 404, cellwire.CodeNotFound},
		{"GET", "/v1/servers/" + strings.ToUpper(sid(0x5e)), nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/servers/query", nil, 405, cellwire.CodeBadRequest},
		{"PUT", "/v1/servers/" + sid(1), other, 409, cellwire.CodeExists},
		{"PUT", "/v1/servers/" + sid(7), other, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/servers/" + sid(7), `{"uuid":"` + sid(7) + `","surprise":1}`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/servers/" + sid(7), `{"uuid":"` + sid(7) + `"} {}`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/servers/" + sid(7), `{"uuid":`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/servers/" + sid(7), `[]`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/servers/" + sid(7), strings.Repeat(" ", 5<<20), 413, cellwire.CodeTooLarge},
		{"POST", "/v1/servers/" + sid(7) + "/release", nil, 404, cellwire.CodeNotFound},
		{"POST", "/v1/servers/" + sid(1) + "/discard", nil, 409, cellwire.CodeConflict},
		{"POST", "/v1/servers/" + sid(7) + "/delete", `{"kind":"normal"}`, 404, cellwire.CodeNotFound},
		{"POST", "/v1/servers/" + sid(1) + "/delete", `{"kind":"gently"}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/" + sid(1) + "/delete", `{}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/" + sid(7) + "/restore", nil, 404, cellwire.CodeNotFound},
		{"POST", "/v1/servers/" + sid(1) + "/restore", nil, 409, cellwire.CodeConflict},
		{"POST", "/v1/servers/" + sid(7) + "/freed", nil, 404, cellwire.CodeNotFound},
		{"POST", "/v1/servers/" + sid(1) + "/freed", nil, 409, cellwire.CodeConflict},
		{"POST", "/v1/servers/states", cellwire.StatesRequest{UUIDs: slices.Repeat([]string{sid(1)}, cellwire.MaxStates+
			1)}, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/states", `{"uuids":["x"]}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{"limit":100000}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{"limit":1,"sort":[{"key":"surname"}]}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{"limit":1,"after":["a","b"]}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{"limit":1,"after":[1.5]}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{"limit":1,"name_pattern":"a)(b"}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{"limit":1,"name_pattern":"(?=x)"}`, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", cellwire.ServerQuery{Limit: 1, NamePattern: strings.Repeat("x", 2000)},
			400, cellwire.CodeBadRequest},
		{"POST", "/v1/servers/query", `{"limit":1,"deleted":"perhaps"}`, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/servers/unfinished?hidden_for=-1", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/servers/unfinished?reclaim_after=99999999999", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/servers/unfinished?hidden_for=1&hidden_for=2", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/services?host=h1", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/survey?project_id=%zz", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/survey?only=hosts", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/compute-nodes?unmapped=perhaps", nil, 400, cellwire.CodeBadRequest},
		{"PATCH", "/v1/services/" + sid(9), `{}`, 404, cellwire.CodeNotFound},
		{"POST", "/v1/compute-nodes/mapped", `{"uuids":["x"]}`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/hosts/a%2fb", `{}`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/hosts/" + strings.Repeat("h", 256), `{}`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/hosts/h1", `{"nodes":[{"uuid":"x","name":"n"}]}`, 400, cellwire.CodeBadRequest},
		{"PUT", "/v1/hosts/h1", cellwire.HostReport{Nodes: []cellwire.ReportedNode{{UUID: sid(1), Name: "n"},
			{UUID: sid(2), Name: "n"}}}, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/hosts/h9/work", nil, 404, cellwire.CodeNotFound},
		{"GET", "/v1/hosts/h1/work?after=x", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/hosts/h1/work?after=-1", nil, 400, cellwire.CodeBadRequest},
		{"GET", "/v1/hosts/h1/work?since=1", nil, 400, cellwire.CodeBadRequest},
		{"POST", "/v1/hosts/h1/reports", cellwire.Reports{Reports: make([]cellwire.Report, cellwire.MaxReports+1)}, 413,
			cellwire.CodeTooLarge},
	} {
		t.Run(c.method+" "+c.target[:min(len(c.target), 60)], func(t *testing.T) {
			refusal(t, send(t, w.cell, c.method, c.target, c.body), c.status, c.code)
		})
	}
	testproc.Contains(t, w.send("GET", "/resource_providers", nil).Body.String(),
		"This is a cell of compute-agent, which has no /resource_providers.", "a client of Placement: %s")
	if got := w.send("POST", "/v1/servers/"+sid(1), nil).Header().Get("Allow"); got != "GET, PUT, PATCH" {
		t.Errorf("a wrong method allows %q", got)
	}
	w.refused(400, cellwire.CodeBadRequest, "POST", "/v1/servers/query", `{"limit":1}`,
		func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
	if got := w.send("POST", "/v1/servers/query", `{"limit":1}`,
		func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") }); got.Code != 200 {
		t.Errorf("JSON is refused: %s", got.Body)
	}
	testproc.Equal(t, w.send("HEAD", "/v1/cell", nil).Code, 200, "HEAD: %d")
}

// brokenStore is a store of which some calls fail.
type brokenStore struct {
	celldb.Store
	err error
}

func (b brokenStore) Server(context.Context, string, celldb.Moment) (cellwire.Server, error) {
	if b.err == nil {
		panic("/secret/panic")
	}
	return cellwire.Server{}, b.err
}

// TestFailures: a mistake or a broken database is an answer in JSON that tells the client nothing
// of the inside, and the log all.
func TestFailures(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		err    error
		status int
		code   cellwire.Code
		log    string
	}{
		"a panic": {nil, 500, cellwire.CodeInternal, "/secret/panic"},
		"an unavailable store": {fmt.Errorf("%w: /secret/path", celldb.ErrUnavailable), 503,
			cellwire.CodeUnavailable, "/secret/path"},
		"an unknown error":       {errors.New("/secret/path"), 500, cellwire.CodeInternal, "/secret/path"},
		"the end of the request": {context.Canceled, 503, cellwire.CodeUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, func(config *cell.Config) { config.Store = brokenStore{config.Store, c.err} })
			if message := w.refused(c.status, c.code,
				"GET", "/v1/servers/"+sid(1), nil); strings.Contains(message, "secret") {
				t.Errorf("the client gets %q", message)
			}
			if got := w.log.String(); !strings.Contains(got, c.log) || (c.log == "") != (got == "") {
				t.Errorf("the log is %q", got)
			}
		})
	}
}

// TestRequestsForAnotherCell: under a wrong address a cell does not answer for another one, whose
// servers it does not know.
func TestRequestsForAnotherCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, func(c *cell.Config) { c.Name = "cell one/1" })
	w.register("h1")
	for name, want := range map[string]int{"": 200, "cell%20one%2F1": 200, "cell1": 421} {
		for _, target := range []string{"/v1/cell", "/v1/services", "/v1/hosts/h1/work"} {
			got := w.send("GET", target, nil, func(r *http.Request) { r.Header.Set(cellwire.HeaderCell, name) })
			if got.Code != want || want == 421 && !strings.Contains(got.Body.String(), `"another_cell"`) {
				t.Errorf("GET %s for %q: answered %d %s, want %d", target, name, got.Code, got.Body, want)
			}
		}
	}
}

func TestCellInfo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	got := do[cellwire.CellInfo](w, "GET", "/v1/cell", nil)
	if got.Name != "cell1" || got.Version != "1.2.3" || !got.Now.Equal(start) || got.Epoch == "" {
		t.Errorf("it is %+v", got)
	}
}

func TestUnfinished(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(1), building(1, "h1"))
	w.pass(5 * time.Second)
	do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(2), building(2, "h1"))
	w.active(3, "h1")
	w.active(4, "h1")
	w.call("soft", 3)
	w.report("h1", cellwire.Report{UUID: sid(3), Kind: cellwire.ReportSettled, PowerState: plugins.PowerShutdown,
		Revision: w.server(3).Revision})
	w.call("soft", 4) // its host never settles it
	w.pass(2 * time.Minute)
	w.release(building(5, "h1"))
	w.call("delete", 5) // the host is silent by now
	w.pass(time.Second)
	w.call("restore", 4)
	one := func(n int, since time.Duration) cellwire.UnfinishedServer {
		return cellwire.UnfinishedServer{UUID: sid(n), ProjectID: "p1", Since: start.Add(since)}
	}
	w.refused(409, cellwire.CodeConflict, "POST", "/v1/servers/"+sid(4)+"/restore", nil) // it is not softly deleted yet
	at := "/v1/servers/unfinished?"
	info := do[cellwire.CellInfo](w, "GET", "/v1/cell", nil)
	if info.Epoch == "" || info.Revision < 10 {
		t.Errorf("the cell is %+v", info)
	}
	same(t, "with all times", do[cellwire.Unfinished](w, "GET", at+"hidden_for=0&reclaim_after=1", nil),
		cellwire.Unfinished{
			Epoch: info.Epoch, Revision: info.Revision,
			Hidden:      []cellwire.UnfinishedServer{one(1, 0), one(2, 5*time.Second)},
			Unfreed:     []cellwire.UnfinishedServer{one(5, 2*time.Minute+5*time.Second)},
			Reclaimable: []cellwire.UnfinishedServer{one(3, 5*time.Second), one(4, 5*time.Second)},
		})
	same(t, "with later times", do[cellwire.Unfinished](w, "GET", at+"hidden_for=122&reclaim_after=122", nil),
		cellwire.Unfinished{
			Epoch: info.Epoch, Revision: info.Revision,
			Hidden:  []cellwire.UnfinishedServer{one(1, 0)},
			Unfreed: []cellwire.UnfinishedServer{one(5, 2*time.Minute+5*time.Second)},
		})
	w.call("freed", 5)
	w.call("discard", 1)
	info = do[cellwire.CellInfo](w, "GET", "/v1/cell", nil)
	same(t, "without reclaiming", do[cellwire.Unfinished](w, "GET", at, nil),
		cellwire.Unfinished{Epoch: info.Epoch, Revision: info.Revision,
			Hidden: []cellwire.UnfinishedServer{one(2, 5*time.Second)}})
}

func TestStatesAndDiscovery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1", "h2")
	do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(1), building(1, "h1"))
	w.release(building(2, "h1"))
	w.active(3, "h2")
	w.active(4, "h2")
	w.call("soft", 4)
	w.report("h2", cellwire.Report{UUID: sid(4), Kind: cellwire.ReportSettled, Revision: w.server(4).Revision})
	w.release(unplaced(5))
	foreign := building(6, "h1")
	foreign.ProjectID = "p2"
	w.release(foreign)
	w.release(unplaced(7))
	w.call("delete", 7)
	got := do[cellwire.StatesAnswer](w, "POST",
		"/v1/servers/states", cellwire.StatesRequest{UUIDs: []string{sid(7), sid(1), sid(2), sid(4), sid(99)}})
	same(t, "the states", got.States, []cellwire.ServerState{
		{UUID: sid(1), VMState: "building", TaskState: "spawning", Hidden: true},
		{UUID: sid(2), VMState: "building", TaskState: "spawning"},
		{UUID: sid(4), VMState: "soft-delete"}, {UUID: sid(7), VMState: "deleted", Deleted: true}})
	discovery := do[cellwire.Discovery](w, "GET", "/v1/survey?project_id=p1", nil)
	same(t, "the usage: neither hidden, softly deleted nor deleted ones", discovery.Usage,
		cellwire.Usage{Instances: 3, Cores: 6, RAM: 1536})
	if len(discovery.Services) != 2 || !discovery.Services[0].Up || discovery.Services[0].Binary != "nova-compute" {
		t.Errorf("the services are %+v", discovery.Services)
	}
	same(t, "the nodes", discovery.Nodes,
		[]cellwire.ComputeNode{{UUID: nodeUUID("h1"), Host: "h1", Name: "h1-node", Auth: "none"},
			{UUID: nodeUUID("h2"), Host: "h2", Name: "h2-node", Auth: "none"}})
	same(t, "without hosts", do[cellwire.Discovery](w, "GET", "/v1/survey?project_id=p1&only=usage", nil),
		cellwire.Discovery{Usage: discovery.Usage, Services: []cellwire.Service{}, Nodes: []cellwire.ComputeNode{}})
	if got := do[cellwire.Discovery](w, "GET", "/v1/survey?project_id=empty", nil).Usage; got != (cellwire.Usage{}) {
		t.Errorf("a project without servers uses %+v", got)
	}
}
