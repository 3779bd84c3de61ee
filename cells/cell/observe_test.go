// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/wire"
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

func (s *seen) Answered(a cell.Answer) { s.add("%s %s %d %s", a.Method, a.Route, a.Status, a.Duration) }

func (s *seen) Reported(kind wire.ReportKind, taken bool) { s.add("%s %t", kind, taken) }

// TestObserver: one line for each request and report, of words that no client can make up.
func TestObserver(t *testing.T) {
	s := &seen{}
	w := begin(t, func(c *cell.Config) { c.Observer = s })
	const uuid = "5e000000-0000-4000-8000-000000000001"
	w.send("PUT", "/v1/hosts/h1", wire.HostReport{Version: "1"})
	w.send("PUT", "/v1/servers/"+uuid, wire.Server{UUID: uuid, ProjectID: "p", Name: "a", Host: "h1", Node: "n1", VMState: wire.VMBuilding, TaskState: wire.TaskSpawning,
		Flavor: wire.Flavor{ID: "1", VCPUs: 1, MemoryMB: 128}, CreatedAt: start})
	w.send("POST", "/v1/servers/"+uuid+"/release", nil)
	w.send("POST", "/v1/hosts/h1/reports", wire.Reports{Reports: []wire.Report{
		{UUID: uuid, Kind: wire.ReportSpawned, PowerState: wire.PowerRunning},
		{UUID: "5e000000-0000-4000-8000-000000000002", Kind: wire.ReportGone},
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
		"  405 0s",
		"  404 0s",
		"POST /v1/servers/states 413 0s",
	}
	if d := cmp.Diff(want, s.lines); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// breaks is a store that panics.
type breaks struct{ celldb.Store }

func (breaks) Info(context.Context) (celldb.Info, error) { panic("a mistake") }

// TestObserverOfAMistake: what panicked is counted as it was answered.
func TestObserverOfAMistake(t *testing.T) {
	s := &seen{}
	w := begin(t, func(c *cell.Config) { c.Observer, c.Store = s, breaks{c.Store} })
	if got := w.send("GET", "/v1/cell", nil); got.Code != http.StatusInternalServerError {
		t.Error(got.Code)
	}
	if d := cmp.Diff([]string{"GET /v1/cell 500 0s"}, s.lines); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestWaiting: those who wait for work are counted while they do.
func TestWaiting(t *testing.T) {
	w := begin(t)
	w.send("PUT", "/v1/hosts/h1", wire.HostReport{Version: "1"})
	first := do[wire.Work](w, "GET", "/v1/hosts/h1/work?after=0&wait=0", nil)
	if n := w.cell.Waiting(); n != 0 {
		t.Errorf("%d wait after an answer", n)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.send("GET", fmt.Sprintf("/v1/hosts/h1/work?after=%d&epoch=%s&wait=60", first.Revision, first.Epoch), nil, func(r *http.Request) { *r = *r.WithContext(ctx) })
	}()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for w.cell.Waiting() != 1 {
		select {
		case <-deadline.C:
			t.Fatal("nobody waits")
		case <-ticker.C:
		}
	}
	end()
	<-ended
	if n := w.cell.Waiting(); n != 0 {
		t.Errorf("%d wait after the client went away", n)
	}
}
