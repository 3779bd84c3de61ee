// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// movable lets hosts show life whose drivers can do all that there is.
func (w *world) movable(hosts ...string) {
	w.t.Helper()
	for _, host := range hosts {
		do[cellwire.HostState](w, "PUT", "/v1/hosts/"+host,
			cellwire.HostReport{Version: "9", Nodes: []cellwire.ReportedNode{
				{UUID: nodeUUID(host), Name: host + "-node",
					Abilities: []string{plugins.AbilityMigrate, plugins.AbilityConsole}},
			}})
	}
}

// othersServers makes servers in the states in which one can be that is not on host h3, and returns
// their numbers. The migration of server n is sid(500+n).
func (w *world) othersServers() map[string]int {
	w.t.Helper()
	w.movable("h1", "h2", "h3")
	moment := celldb.Moment{Now: w.clock(), DownTime: time.Hour}
	on := func(n int) cellwire.Server {
		s := building(n, "h1")
		s.NodeUUID = nodeUUID("h1")
		return s
	}
	active := func(n int) {
		w.t.Helper()
		w.release(on(n))
		w.report("h1", cellwire.Report{UUID: sid(n), Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
	}
	step := func(n int, step cellwire.MigrationStep) {
		w.t.Helper()
		testproc.Try(w.store.Step(context.Background(), sid(500+n), step, moment)).Or(w.t)
	}
	migrates := func(n int, wanted, chosen string) {
		w.t.Helper()
		active(n)
		q := cellwire.MigrateRequest{UUID: sid(500 + n), Type: cellwire.MigrationCold, Host: wanted}
		testproc.Try(w.store.Migrate(context.Background(), sid(n), q, moment)).Or(w.t)
		if chosen != "" {
			step(n, cellwire.MigrationStep{Destination: &cellwire.MigrationDestination{Host: chosen, Node: chosen +
				"-node", NodeUUID: nodeUUID(chosen)}})
		}
	}
	reports := func(host string, n int, kind cellwire.ReportKind) {
		w.t.Helper()
		w.report(host, cellwire.Report{UUID: sid(n), Kind: kind, Migration: sid(500 + n),
			Revision: w.server(n).Revision, PowerState: plugins.PowerRunning})
	}
	active(1)
	w.release(on(2))
	do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(3), on(3))
	active(4)
	w.call("delete", 4)
	migrates(5, "h3", "")
	migrates(6, "", "h2")
	migrates(7, "", "h2")
	reports("h1", 7, cellwire.ReportDeparted)
	migrates(8, "", "h2")
	reports("h1", 8, cellwire.ReportDeparted)
	reports("h2", 8, cellwire.ReportArrived)
	migrates(10, "", "h3")
	reports("h1", 10, cellwire.ReportDeparted)
	reports("h3", 10, cellwire.ReportArrived)
	step(10, cellwire.MigrationStep{Revert: true})
	reports("h3", 10, cellwire.ReportLeft)
	step(10, cellwire.MigrationStep{GivenBack: true})
	reports("h1", 10, cellwire.ReportSettled)
	return map[string]int{
		"active": 1, "building": 2, "not released": 3, "being deleted": 4, "wanted here, and not decided": 5,
		"departing": 6, "arriving": 7, "resized": 8, "back from here": 10,
	}
}

// agents is another process of the cell, which asks for certificates. It has the streams of its
// own.
func (w *world) agents() {
	w.t.Helper()
	var err error
	w.cell, err = cell.New(cell.Config{
		Store: w.store, Auth: cell.MutualTLS([]string{"api"}), Version: "1.2.3", StreamWait: time.Minute,
		Now: w.clock, Logger: zerolog.Nop(),
	})
	testproc.Check(w.t, err)
}

// upgrading is a request for a stream.
func upgrading(r *http.Request) {
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", cellwire.StreamProtocol)
}

// probe is a request of host h3, or of h9, which is not registered, with names that stand for
// others: UUID a server, MOVE its migration, HOST a host, NODE a node, STREAM a stream.
type probe struct{ path, body string }

// answer is all that the host gets for a probe, with the names instead of what they stood for.
func (w *world) answer(method string, p probe, names ...string) string {
	w.t.Helper()
	who := identityOf("h3", nodeUUID("h3"))
	if strings.Contains(p.path, "/h9/") {
		who = identityOf("h9")
	}
	words := strings.NewReplacer(names...)
	got := w.send(method, words.Replace(p.path), words.Replace(p.body), withIdentity(who), upgrading)
	got.Header().Del(osapi.HeaderRequestID) // of chance
	header := testproc.Try(json.Marshal(got.Header())).Or(w.t)
	text := fmt.Sprintf("%d %s\n%s", got.Code, header, got.Body)
	for i := 0; i < len(names); i += 2 {
		text = strings.ReplaceAll(text, names[i+1], names[i])
	}
	return text
}

// probes are those of each call of agents.
func probes() map[string][]probe {
	const reports = "POST /v1/hosts/{host}/reports"
	all := map[string][]probe{
		"GET /v1/cell": {{"/v1/cell", ""}},
		"PUT /v1/hosts/{host}": {
			{"/v1/hosts/HOST", `{"version":"9","nodes":[]}`},
			{"/v1/hosts/h3", `{"version":"9","nodes":[{"uuid":"` + nodeUUID("h3") +
				`","name":"h3-node"},{"uuid":"NODE","name":"n"}]}`},
			{"/v1/hosts/h3", `{"version":"9","nodes":[{"uuid":"` + nodeUUID("h3") +
				`","name":"h3-node"},{"uuid":"UUID","name":"n"}]}`},
		},
		"GET /v1/hosts/{host}/work": {{"/v1/hosts/HOST/work?after=0", ""}},
		reports:                     {{"/v1/hosts/HOST/reports", `{"reports":[]}`}},
		"GET /v1/hosts/{host}/nodes/{node}": {{"/v1/hosts/HOST/nodes/NODE", ""}, {"/v1/hosts/h3/nodes/NODE", ""},
			{"/v1/hosts/h3/nodes/UUID", ""}},
		"GET /v1/hosts/{host}/streams/{id}": {{"/v1/hosts/HOST/streams/STREAM", ""},
			{"/v1/hosts/h3/streams/STREAM", ""}, {"/v1/hosts/h3/streams/UUID", ""}},
		"GET /v1/hosts/{host}/arrivals/{uuid}": {{"/v1/hosts/HOST/arrivals/UUID", ""},
			{"/v1/hosts/h3/arrivals/UUID", ""}, {"/v1/hosts/h9/arrivals/UUID", ""}},
	}
	for _, kind := range append(cell.ReportKinds(), "unknown") {
		for _, rest := range []string{
			`"power_state":1`, `"power_state":99`, `"power_state":1,"migration":"MOVE"`,
			`"power_state":99,"migration":"MOVE"`,
			`"power_state":1,"migration":"` + sid(777) + `"`, `"power_state":1,"migration":"MOVE","offer":"\u0000"`,
			`"power_state":1,"migration":"MOVE","revision":1,"fault":{"code":500,"message":"no"}`,
		} {
			for _, host := range []string{"h3", "h9"} {
				all[reports] = append(all[reports],
					probe{"/v1/hosts/" + host + "/reports",
						fmt.Sprintf(`{"reports":[{"uuid":"UUID","kind":%q,%s}]}`, kind, rest)})
			}
		}
	}
	return all
}

// TestAHostLearnsNothingOfOthersServers: each call of the protocol has the same answer for a uuid
// of which there is nothing and for that of another host's, byte for byte.
func TestAHostLearnsNothingOfOthersServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	states := w.othersServers()
	w.agents()
	asked := probes()
	for _, call := range cell.Calls() {
		name, forAgents := call.Method+" "+call.Path, call.For != "the compute API"
		tries := asked[name]
		if delete(asked, name); !forAgents {
			tries = []probe{{strings.ReplaceAll(call.Path, "{uuid}", "UUID"), `{}`}}
		}
		if len(tries) == 0 {
			t.Errorf("%s is not tried", name)
		}
		for _, p := range tries {
			for state, n := range states {
				w.pass(time.Second) // for the limit of a host's requests
				none := w.answer(call.Method, p, "UUID", sid(99), "MOVE", sid(599), "HOST",
					"h8", "NODE", nodeUUID("h8"))
				if allowed := forAgents &&
					!strings.Contains(p.path, "HOST"); allowed == strings.HasPrefix(none, "403 ") {
					t.Fatalf("%s %v: %s", name, p, none)
				}
				if diff := cmp.Diff(none, w.answer(call.Method, p, "UUID", sid(n), "MOVE", sid(500+n), "HOST", "h1",
					"NODE", nodeUUID("h1"))); diff != "" {
					t.Errorf("%s %v: the server of another host that is %s (-unknown +other's)\n%s",
						name, p, state, diff)
				}
			}
		}
	}
	if len(asked) > 0 {
		t.Errorf("these are no calls: %v", asked)
	}
}

// TestAHostLearnsNothingOfOthersStreams: the id of a stream that waits for another host is answered
// as one that was never given.
func TestAHostLearnsNothingOfOthersStreams(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.othersServers()
	w.agents()
	h1 := withIdentity(identityOf("h1", nodeUUID("h1")))
	work := func(after int64, epoch string) cellwire.Work {
		t.Helper()
		got := w.send("GET", fmt.Sprintf("/v1/hosts/h1/work?after=%d&epoch=%s&wait=60", after, epoch), nil, h1)
		return decodeAs[cellwire.Work](t, got.Body.Bytes())
	}
	now := work(0, "")
	opening, cancel := context.WithCancel(t.Context())
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		w.send("GET", "/v1/servers/"+sid(1)+"/stream?purpose=console", nil,
			withIdentity(serviceIdentity("api", "api")), upgrading,
			func(r *http.Request) { *r = *r.WithContext(opening) })
	}()
	for len(now.Streams) == 0 {
		now = work(now.Revision, now.Epoch)
	}
	id := now.Streams[0].ID
	for _, p := range probes()["GET /v1/hosts/{host}/streams/{id}"] {
		none := w.answer("GET", p, "STREAM", strings.Repeat("A", len(id)), "HOST", "h8", "UUID", sid(99))
		if diff := cmp.Diff(none, w.answer("GET", p, "STREAM", id, "HOST", "h1", "UUID", sid(1))); diff != "" {
			t.Errorf("%v (-unknown +other's)\n%s", p, diff)
		}
	}
	if now = work(0, ""); len(now.Streams) != 1 || now.Streams[0].ID != id {
		t.Errorf("the stream does not wait any more: %+v", now.Streams)
	}
	cancel()
	<-opened
}
