// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// seen is an Observer that keeps lines.
type seen struct {
	mu    sync.Mutex
	lines []string
}

func (s *seen) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *seen) Answered(a osapi.Answer) {
	s.add("%s %s %d %s", a.Method, a.Route, a.Status, a.Duration)
}

func (s *seen) Reported(kind cellwire.ReportKind, taken bool) { s.add("%s %t", kind, taken) }

func (s *seen) NodeRefused(why cellwire.NodeProblemCode) { s.add("node refused: %s", why) }

func (s *seen) Limited() { s.add("limited") }

// TestObserver: one line for each request and report, of words that no client can make up.
func TestObserver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := &seen{}
	w := begin(t, func(c *cell.Config) { c.Observer = s })
	const uuid = "5e000000-0000-4000-8000-000000000001"
	w.send("PUT", "/v1/hosts/h1", cellwire.HostReport{Version: "1"})
	w.send("PUT", "/v1/servers/"+uuid, cellwire.Server{UUID: uuid, ProjectID: "p", Name: "a", Host: "h1", Node: "n1",
		VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
		Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 128}}, CreatedAt: start})
	w.send("POST", "/v1/servers/"+uuid+"/release", nil)
	w.send("POST", "/v1/hosts/h1/reports", cellwire.Reports{Reports: []cellwire.Report{
		{UUID: uuid, Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning},
		{UUID: "5e000000-0000-4000-8000-000000000002", Kind: cellwire.ReportGone},
		{UUID: uuid, Kind: "made up"},
	}})
	w.send("POST", "/v1/servers/"+uuid+"/freed", nil)
	w.send("DELETE", "/v1/servers/"+uuid, nil)
	w.send("MAKE-UP", "/v1/made/up", nil)
	w.send("POST", "/v1/servers/states", strings.Repeat("x", 5<<20))
	want := []string{
		"PUT /v1/hosts/{host} 200 0s",
		"PUT /v1/servers/{uuid} 200 0s",
		"POST /v1/servers/{uuid}/release 200 0s",
		"spawned true", "gone false", "unknown false",
		"POST /v1/hosts/{host}/reports 200 0s",
		"POST /v1/servers/{uuid}/freed 409 0s",
		"DELETE  405 0s",
		"other  404 0s",
		"POST /v1/servers/states 413 0s",
	}
	testproc.Same(t, cmp.Diff(want, s.lines))
}

// breaks is a store that panics.
type breaks struct{ celldb.Store }

func (breaks) Info(context.Context) (celldb.Info, error) { panic("a mistake") }

// TestObserverOfAMistake: what panicked is counted as it was answered.
func TestObserverOfAMistake(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := &seen{}
	w := begin(t, func(c *cell.Config) { c.Observer, c.Store = s, breaks{c.Store} })
	testproc.Equal(t, w.send("GET", "/v1/cell", nil).Code, http.StatusInternalServerError, "GET /v1/cell: %v")
	testproc.Same(t, cmp.Diff([]string{"GET /v1/cell 500 0s"}, s.lines))
}

// damaged is a store in which one server cannot be read.
type damaged struct{ celldb.Store }

func (damaged) Server(context.Context, string, celldb.Moment) (cellwire.Server, error) {
	return cellwire.Server{}, fmt.Errorf("%w: %w: page 7", celldb.ErrUnavailable, celldb.ErrDamaged)
}

// TestDamagedDatabaseIsNotUsedAgain: when one request finds damage, all others are refused from
// then on, with one line in the log.
func TestDamagedDatabaseIsNotUsedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, func(c *cell.Config) { c.Store = damaged{c.Store} })
	testproc.Check(t, w.cell.Check(t.Context()))
	do[cellwire.CellInfo](w, "GET", "/v1/cell", nil)
	for _, path := range []string{"/v1/servers/" + sid(1),
		"/v1/cell", "/v1/services", "/v1/servers/" + sid(1), "/v1/survey"} {
		if got := w.send("GET", path, nil); got.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	testproc.ErrorIs(t, w.cell.Check(t.Context()), celldb.ErrDamaged, "readiness is %v")
	if n := strings.Count(w.log.String(), `"level":"error"`); n != 1 {
		t.Errorf("%d lines: %s", n, w.log.String())
	}
}

// TestWaiting: those who wait for work are counted while they do.
func TestWaiting(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.send("PUT", "/v1/hosts/h1", cellwire.HostReport{Version: "1"})
	first := do[cellwire.Work](w, "GET", "/v1/hosts/h1/work?after=0&wait=0", nil)
	testproc.Equal(t, w.cell.Waiting(), 0, "%d wait after an answer")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.send("GET", fmt.Sprintf("/v1/hosts/h1/work?after=%d&epoch=%s&wait=60", first.Revision, first.Epoch), nil,
			func(r *http.Request) { *r = *r.WithContext(ctx) })
	}()
	testproc.Eventually(t, testproc.Patience,
		"a request waits", testproc.True(func() bool { return w.cell.Waiting() == 1 }))
	end()
	<-ended
	testproc.Equal(t, w.cell.Waiting(), 0, "%d wait after the client went away")
}
