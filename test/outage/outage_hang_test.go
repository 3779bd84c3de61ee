// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// cellTimeout is what cells have in the worlds in which they hang, and slack what a request may
// take beside it: less than once more the timeout, so that waiting twice is noticed.
const (
	cellTimeout = 6 * time.Second
	slack       = 5 * time.Second
)

// hangLane are cells that hang, or answer what no cell answers. Project p1 has servers in cell1 and
// cell2, p2 in cell2 only, p3 in cell1 only.
var hangLane = lane{build: hangWorld, cases: []aCase{
	{31, "hung_cell_list", func(t *testing.T, w *world) {
		w.frozen(t, "cell1")
		a := w.api.get(t, of("p1"), "2.69", "/servers").within(t, cellTimeout+slack)
		w.lists(t, a, "web1?", "lost", "web2")
		if a.took < cellTimeout {
			t.Errorf("it took %v: the cell was not given its time", a.took)
		}
		w.lists(t, w.api.get(t, of("p1"), "2.68", "/servers").within(t, cellTimeout+slack), "lost", "web2")
		w.thawed(t, "cell1")
	}},
	{32, "hung_cell_detail", func(t *testing.T, w *world) {
		w.frozen(t, "cell1")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers/detail").within(t, cellTimeout+slack), "web1?", "lost", "web2")
		w.show(t, of("p1"), "2.69", "web1").within(t, cellTimeout+slack).status(t, 200)
		w.thawed(t, "cell1")
	}},
	{32, "hung_cell_with_pings", func(t *testing.T, w *world) {
		pinged := w.another(t, "pinged", append(pinging, hurried)...)
		w.lists(t, pinged.get(t, of("p1"), "2.69", "/servers"), "lost", "web2", "web1")
		w.frozen(t, "cell1")
		pinged.process.Await(t, 0, "A cell is down.", `"cell1"`, "it has answered no request and no ping for ") // without a request
		for range 5 {                                                                                           // no client waits for it
			w.lists(t, pinged.get(t, of("p1"), "2.69", "/servers/detail").within(t, cellTimeout/2), "web1?", "lost", "web2")
		}
		w.cells["cell1"].process.Thaw(t)
		pinged.process.Await(t, 0, "A cell is up again.", `"cell1"`)
		w.lists(t, pinged.get(t, of("p1"), "2.69", "/servers"), "lost", "web2", "web1")
		for _, event := range []string{"A cell is down.", "A cell is up again."} {
			if n := pinged.process.Count(0, event); n != 1 {
				t.Errorf("%q is logged %d times", event, n)
			}
		}
	}},
	{32, "cell_that_begins_to_hang", func(t *testing.T, w *world) {
		pinged := w.another(t, "begins", append(pinging, `compute_api.cell_timeout = "10m"`)...)
		p := w.betweenOnce(t, "cell1")
		defer p.fails(nil)
		p.fails(func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == "/v1/servers/query" { // The cell has the request, and begins to hang now.
				w.frozen(t, "cell1")
			}
			return true
		})
		w.lists(t, pinged.get(t, of("p1"), "2.69", "/servers"), "web1?", "lost", "web2") // which does not take ten minutes
		p.fails(nil)
		w.thawed(t, "cell1")
	}},
	{32, "compute_api_started_during_a_hang", func(t *testing.T, w *world) {
		w.frozen(t, "cell1")
		late := w.another(t, "late", hurried)
		w.lists(t, late.get(t, of("p1"), "2.69", "/servers").within(t, cellTimeout+slack), "web1?", "lost", "web2")
		w.thawed(t, "cell1")
		w.lists(t, late.get(t, of("p1"), "2.69", "/servers"), "lost", "web2", "web1")
	}},
	{25, "marker_in_a_hung_cell", func(t *testing.T, w *world) {
		w.frozen(t, "cell1")
		w.api.get(t, of("p1"), "2.69", "/servers?marker="+w.id(t, "web1")).within(t, cellTimeout+slack).fault(t, "serviceUnavailable", 503)
		w.thawed(t, "cell1")
	}},
	{59, "cells_of_the_project_only", func(t *testing.T, w *world) {
		own := w.another(t, "own59", hurried, "compute_api.instance_list_per_project_cells = true")
		w.frozen(t, "cell1")
		a := own.get(t, of("p2"), "2.69", "/servers")
		w.lists(t, a, "only2")
		if a.took >= cellTimeout {
			t.Errorf("it took %v: cell1 was asked", a.took)
		}
		a = own.get(t, adminOf("p2"), "2.69", "/servers").within(t, cellTimeout+slack)
		w.lists(t, a, "only2")
		if a.took < cellTimeout {
			t.Errorf("an administrator waited for %v only: cell1 was not asked", a.took)
		}
		w.lists(t, own.get(t, of("p3"), "2.69", "/servers").within(t, cellTimeout+slack), "only1?")
		w.thawed(t, "cell1")
	}},
	{63, "fifty_lists_during_a_hang", func(t *testing.T, w *world) {
		crowded := w.another(t, "crowded", hurried)
		w.frozen(t, "cell1")
		answers := make([]*answer, 50)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = crowded.get(t, of("p1"), "2.69", "/servers") })
		}
		all.Wait()
		for _, a := range answers {
			if a == nil {
				t.Fatal("a list had no answer")
			}
			w.lists(t, a.within(t, cellTimeout+slack), "web1?", "lost", "web2")
		}
		w.thawed(t, "cell1")
		w.lists(t, crowded.get(t, of("p1"), "2.69", "/servers"), "lost", "web2", "web1")
		if left := crowded.goroutines(t, "cells/compute."); len(left) > 0 { // pings and the scheduler ask cells from other packages
			t.Errorf("%d goroutines are left; the first:\n%s", len(left), left[0])
		}
	}},
	{33, "slow_cell", func(t *testing.T, w *world) {
		const takes = cellTimeout * 7 / 10
		p := w.betweenOnce(t, "cell1")
		p.fails(func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			delay := time.NewTimer(takes)
			defer delay.Stop()
			select {
			case <-delay.C:
			case <-r.Context().Done():
			}
			return true
		})
		defer p.fails(nil)
		// The marker of the last page is in the slow cell, which is so asked twice.
		for path, want := range map[string][]string{
			"/servers": {"lost", "web2", "web1"}, "/servers/detail": {"lost", "web2", "web1"},
			"/servers?limit=2&sort_key=display_name": {"web2", "web1"}, "/servers?sort_key=display_name&marker=" + w.id(t, "web1"): {"lost"},
		} {
			a := w.api.get(t, of("p1"), "2.69", path)
			w.lists(t, a, want...)
			if a.took < takes {
				t.Errorf("%s took %v: the cell was not slow", path, a.took)
			}
		}
	}},
	{34, "cell_that_answers_wrongly", func(t *testing.T, w *world) {
		p := w.betweenOnce(t, "cell1")
		defer p.fails(nil)
		for name, f := range map[string]fault{
			"error of its database": says(500, "application/json", `{"code": "internal", "message": "no such table: instances"}`),
			"unavailable":           says(503, "application/json", `{"code": "unavailable", "message": "the database is locked"}`),
			"garbage":               says(200, "application/json", "\x00\x01garbage"),
			"another program":       says(200, "text/html", "<html>It works!</html>"),
			"other JSON":            says(200, "application/json", `{"servers": []}`),
			"null":                  says(200, "application/json", "null"),
			"nothing":               says(200, "application/json", ""),
			"a redirect":            says(302, "text/plain", "elsewhere"),
			"forbidden":             says(403, "application/json", `{"code": "forbidden", "message": "no"}`),
			"half a body":           half,
			"no answer":             breaks,
			"a body without an end": p.stuck,
			"a hang":                p.hangs,
		} {
			t.Log(name)
			p.fails(f)
			w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers").within(t, cellTimeout+slack), "web1?", "lost", "web2")
			if name == "a hang" || name == "a body without an end" {
				continue
			}
			w.lists(t, w.api.get(t, of("p1"), "2.68", "/servers/detail"), "lost", "web2")
			if s := w.show(t, of("p1"), "2.69", "web1").server(t); s["status"] != "UNKNOWN" || len(s) != 10 {
				t.Errorf("%s: web1 is %v", name, s)
			}
			w.show(t, of("p1"), "2.68", "web1").fault(t, "computeFault", 500)
			if s := w.api.get(t, admin, "2.69", "/os-services?host=c1h1").services(t); len(s) != 1 || len(s[0]) != 3 || !isUnknown(s[0]) {
				t.Errorf("%s: the service is %v", name, s)
			}
		}
		p.fails(nil)
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "lost", "web2", "web1")
	}},
	{34, "all_ways_at_once", func(t *testing.T, w *world) {
		p := w.betweenOnce(t, "cell1")
		defer p.fails(nil)
		p.fails(says(500, "application/json", `{"code": "internal", "message": "no such table: instances"}`))
		w.frozen(t, "cell2")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers").within(t, cellTimeout+slack), "web2?", "web1?", "lost")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?limit=50").within(t, cellTimeout+slack), "lost")
		p.fails(nil)
		w.thawed(t, "cell2")
	}},
	{35, "cell_that_dies_between_two_batches", func(t *testing.T, w *world) {
		p := w.betweenOnce(t, "cell1")
		defer p.fails(nil)
		// With this limit three cells are asked for 100 rows at a time.
		const many, limit = 120, 150
		paged := w.another(t, "paged", unhurried, fmt.Sprintf("compute_api.max_limit = %d", limit))
		filled := w.fill(t, "p35", "cell1", many)
		w.boot(t, "p35", "beside", "c2h1")
		if got := len(paged.get(t, of("p35"), "2.69", "/servers").servers(t)); got != many+1 {
			t.Fatalf("%d servers are listed before, not %d", got, many+1)
		}
		p.fails(func(_ http.ResponseWriter, r *http.Request, n int) bool {
			if r.URL.Path == "/v1/servers/query" && n == 2 {
				w.down(t, "cell1")
				panic(http.ErrAbortHandler)
			}
			return true
		})
		servers := paged.get(t, of("p35"), "2.69", "/servers").servers(t)
		if n := p.requests("/v1/servers/query"); n != 2 {
			t.Fatalf("the cell was asked for %d batches: the case was not tested", n)
		}
		seen := map[any]bool{}
		for _, s := range servers {
			if seen[s["id"]] {
				t.Errorf("%v is there twice", s["id"])
			}
			seen[s["id"]] = true
			if isUnknown(s) != slices.Contains(filled, fmt.Sprint(s["id"])) {
				t.Errorf("%v: a server of the cell that died is UNKNOWN, and no other", s)
			}
		}
		if len(servers) != many+1 {
			t.Errorf("%d servers are listed, not %d", len(servers), many+1)
		}
		w.revive(t, "cell1")
	}},
}}

// pinging pings cells. Those that are well have much time for an answer on a machine that does
// other things as well.
var pinging = []string{`compute_api.cell_ping_interval = "500ms"`, `compute_api.cell_down_time = "10s"`}

// hurried gives cells cellTimeout.
var hurried = fmt.Sprintf("compute_api.cell_timeout = %q", cellTimeout)

func hangWorld(t *testing.T) *world {
	w := newWorld(t, plan{api: []string{hurried}})
	w.begin(t, "p1", "web1", "c1h1")
	w.begin(t, "p1", "web2", "c2h1")
	w.bury(t, "p1", "lost")
	w.begin(t, "p2", "only2", "c2h1")
	w.begin(t, "p3", "only1", "c1h1")
	w.settled(t, "ERROR", "lost")
	w.settled(t, "ACTIVE", "web1", "web2", "only1", "only2")
	return w
}

// frozen freezes a cell for a case; the end of the case thaws it in any case.
func (w *world) frozen(t *testing.T, cell string) {
	t.Helper()
	p := w.cells[cell].process
	p.Freeze(t)
	t.Cleanup(func() { _ = p.Signal(syscall.SIGCONT) })
}

// thawed has a cell go on, and waits until it is used.
func (w *world) thawed(t *testing.T, cell string) {
	t.Helper()
	w.cells[cell].process.Thaw(t)
	eventually(t, cell+" answers", func() error {
		for _, s := range w.api.get(t, admin, "2.69", "/servers?all_tenants=1").servers(t) {
			if isUnknown(s) {
				return fmt.Errorf("%s is UNKNOWN", w.name(s["id"]))
			}
		}
		return nil
	})
}

// betweenOnce is between for a lane: the same proxy for all its cases.
func (w *world) betweenOnce(t *testing.T, cell string) *proxy {
	t.Helper()
	if w.proxies[cell] == nil {
		w.proxies[cell] = w.between(t, cell)
	}
	return w.proxies[cell]
}

// goroutines ends the process with a list of its goroutines, and returns those that have one of the
// functions in their stacks.
func (a *api) goroutines(t *testing.T, functions ...string) []string {
	t.Helper()
	check(t, a.process.Signal(syscall.SIGQUIT))
	<-a.process.Done()
	all := strings.Split(strings.Join(a.process.Lines(), "\n"), "\n\ngoroutine ")
	if !strings.Contains(strings.Join(all, ""), "cells/gather.(*Gatherer).Run") { // which is there always
		t.Fatalf("the process did not say what its goroutines are:\n%s", all)
	}
	var found []string
	for _, g := range all {
		if slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(g, f) }) {
			found = append(found, g)
		}
	}
	return found
}

// fill puts many servers of a project into a cell as they are long after their boot failed there:
// without host and guest.
func (w *world) fill(t *testing.T, project, cell string, n int) []string {
	t.Helper()
	client, err := cellclient.New(cellclient.Config{URL: w.cells[cell].url})
	check(t, err)
	defer client.CloseIdle()
	var ids []string
	for i := range n {
		s := cellwire.Server{
			UUID: uuid.NewString(), ProjectID: project, UserID: "u-" + project, Name: fmt.Sprintf("%s-%d", project, i), ImageRef: image,
			Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 512, RootGB: 1}}, VMState: cellwire.VMError, CreatedAt: time.Now(),
		}
		w.mu.Lock()
		w.names[s.UUID] = s.Name
		w.mu.Unlock()
		_, err := client.Insert(t.Context(), s)
		check(t, err)
		_, err = client.Release(t.Context(), s.UUID)
		check(t, err)
		ids = append(ids, s.UUID)
	}
	w.editing(t, func(file string) {
		for _, id := range ids {
			edit(t, file, `INSERT INTO instance_mappings (instance_uuid, cell_id, project_id, user_id, created_at, queued_for_delete)
				SELECT ?, id, ?, ?, ?, 0 FROM cell_mappings WHERE name = ?`, id, project, "u-"+project, time.Now().UnixMicro(), cell)
		}
	})
	return ids
}
