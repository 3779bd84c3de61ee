// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// metricsClock is a manual clock.
type metricsClock struct{ at time.Time }

func newMetricsClock() *metricsClock {
	return &metricsClock{time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (c *metricsClock) now() time.Time { return c.at }

// metricsHandler is metrics of either kind.
type metricsHandler interface{ Handler() http.Handler }

// metricsText is what Prometheus reads.
func metricsText(t *testing.T, m metricsHandler) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	return w.Body.String()
}

// samples are the lines of the page that begin with one of the names and are no buckets.
func samples(t *testing.T, m metricsHandler, names ...string) []string {
	t.Helper()
	out := []string{}
	for line := range strings.Lines(metricsText(t, m)) {
		for _, name := range names {
			if strings.HasPrefix(line, name) && !strings.Contains(line, "_bucket") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out
}

// apiSources is an API of two cells and one that was not asked yet.
type apiSources struct {
	clock  *metricsClock
	cells  []apidb.Cell
	states []gather.CellState
	err    error
}

func newAPISources(c *metricsClock) *apiSources {
	cells := []apidb.Cell{{UUID: apidb.Cell0UUID, Name: "cell0"}, {UUID: "c1", Name: "cell1"},
		{UUID: "c2", Name: "cell2", Disabled: true}}
	return &apiSources{clock: c, cells: cells, states: []gather.CellState{
		{Cell: cells[0], State: gather.OK, Since: c.at.Add(-time.Hour), Requests: gather.Counts{Answered: 7},
			Pings: gather.Counts{Answered: 3600}, PingTime: 1500 * time.Microsecond},
		{
			Cell: cells[1], State: gather.TimedOut, Since: c.at.Add(-90 * time.Second),
			Requests: gather.Counts{Answered: 100, TimedOut: 3, Failed: 2}, NotSent: 40,
			Pings: gather.Counts{TimedOut: 45, Failed: 1},
		},
		// one of that name that was removed
		{Cell: apidb.Cell{UUID: "c9", Name: "cell1"}, State: gather.Failed, Requests: gather.Counts{Failed: 5}},
	}}
}

func (s *apiSources) sources() apiMetricSources {
	return apiMetricSources{
		Cells:  func(context.Context) ([]apidb.Cell, error) { return s.cells, s.err },
		States: func() []gather.CellState { return s.states },
		Databases: func(context.Context) (map[string]apidb.CellDatabase, error) {
			return map[string]apidb.CellDatabase{"c1": {CellUUID: "c1",
				Suspect: &apidb.CellMark{Epoch: "e", Revision: 1}}, "c2": {CellUUID: "c2"}}, s.err
		},
		Pending:    func(context.Context) (int64, int64, error) { return 4, 2, s.err },
		InFlight:   func() int64 { return 3 },
		Scheduling: func() bool { return true },
		Writable:   func() bool { return s.err == nil },
	}
}

// apiDay is a bit of everything.
func apiDay() *apiMetrics {
	c := newMetricsClock()
	m := newAPIMetrics(c.now)
	for range 2 {
		m.Answered(osapi.Answer{Route: "/v2.1/servers/{id}", Method: "GET", Status: 200,
			Duration: 250 * time.Millisecond})
	}
	m.Answered(osapi.Answer{Route: "/v2.1/servers", Method: "POST", Status: 202, Duration: time.Second})
	m.Answered(osapi.Answer{Method: osapi.OtherMethod, Status: 404})
	m.Built(scheduler.Placed)
	m.Built(scheduler.PutOff)
	m.Built(scheduler.PutOff)
	m.Corrected(scheduler.FreedDeleted)
	m.Watch(newAPISources(c).sources())
	return m
}

// servers is a store of one answer.
type servers struct {
	celldb.Store
	clock *metricsClock
	err   error
}

func (s servers) Insert(context.Context, cellwire.Server, celldb.Moment) (cellwire.Server, error) {
	s.clock.at = s.clock.at.Add(10 * time.Millisecond)
	return cellwire.Server{}, s.err
}

func (s servers) Report(
	context.Context, serverstate.Reporter, cellwire.HostReport, celldb.Moment,
) (cellwire.Service, []cellwire.NodeProblem, error) {
	s.clock.at = s.clock.at.Add(time.Millisecond)
	return cellwire.Service{}, nil, nil
}

func cellSources(counts *int, err error) cellMetricSources {
	return cellMetricSources{
		Check:    func(context.Context) error { return err },
		Writable: func() bool { return err == nil },
		Nodes: func(context.Context) (celldb.NodeCounts, error) {
			return celldb.NodeCounts{Present: 3, Absent: 1, Claimed: 2}, err
		},
		Hosts: func(context.Context) ([]cellwire.Service, error) {
			return []cellwire.Service{{Up: true}, {Up: true}, {Up: true, Disabled: true}, {Disabled: true}}, err
		},
		Servers: func(context.Context) (map[string]int64, error) {
			*counts++
			return map[string]int64{cellwire.VMActive: 40, cellwire.VMError: 1, "paused": 2, "rescued": 3}, err
		},
		Waiting: func() int { return 3 },
	}
}

// cellDay is a bit of everything.
func cellDay(t *testing.T) *cellMetrics {
	t.Helper()
	c := newMetricsClock()
	m := newCellMetrics(c.now)
	m.Answered(osapi.Answer{Route: "/v1/servers/{uuid}", Method: "GET", Status: 200, Duration: 5 * time.Millisecond})
	m.Answered(osapi.Answer{Route: cell.WorkRoute, Method: "GET", Status: 200, Duration: time.Minute})
	m.Answered(osapi.Answer{Status: 404})
	m.Reported(cellwire.ReportSpawned, true)
	m.Reported(cellwire.ReportGone, false)
	m.Reported(cell.UnknownKind, false)
	counts := 0
	m.Watch(cellSources(&counts, nil))
	store := m.measuredStore(servers{clock: c})
	testproc.Try(store.Insert(t.Context(), cellwire.Server{}, celldb.Moment{})).Or(t)
	if _, _, err := store.Report(t.Context(), serverstate.Reporter{Host: "h1"}, cellwire.HostReport{},
		celldb.Moment{}); err != nil {
		t.Fatal(err)
	}
	full := fmt.Errorf("%w: the disk is full", celldb.ErrUnavailable)
	if _, err := m.measuredStore(servers{clock: c, err: full}).
		Insert(t.Context(), cellwire.Server{}, celldb.Moment{}); !errors.Is(err, full) {
		t.Fatal(err)
	}
	return m
}

// TestExposition are the whole pages, which docs/metrics.md is made of, but for what the Go runtime
// and the process say of themselves. Time stands still.
func TestExposition(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		audit := testproc.Try(auditlog.Open(auditlog.Options{File: filepath.Join(dir, "audit.log")})).Or(t)
		defer func() { _ = audit.Close() }()
		denied, err := pki.FollowDenyFile(filepath.Join(dir, "denied"),
			pki.Source{URL: "https://192.0.2.1"}, zerolog.Nop())
		testproc.Check(t, err)
		api, cell := apiDay(), cellDay(t)
		api.MustRegister(audit.Collector())
		cell.MustRegister(audit.Collector())
		cell.WatchDenied(denied)
		own := filepath.Join(dir, "own")
		testproc.Check(t, pki.CreateDenyFile(own))
		api.WatchDenied(testproc.Try(pki.OpenDenyFile(own, zerolog.Nop())).Or(t))
		cell.WatchCertificates("/etc/compute-agent/cell1.pem")
		api.WatchCertificates("", "/etc/compute-agent/compute-api.pem", "/etc/compute-agent/compute-api.pem")
		for file, m := range map[string]metricsHandler{"testdata/api.txt": api, "testdata/cell.txt": cell} {
			golden.Metrics(t, file, metricsText(t, m))
		}
	})
}

// TestAPIDatabaseAway: the page is there without it, cells are those of before, and what is not
// known is not shown.
func TestAPIDatabaseAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newMetricsClock()
	m, s := newAPIMetrics(c.now), newAPISources(c)
	m.Watch(s.sources())
	names := []string{"compute_agent_api_database_up", "compute_agent_api_cell_database_suspect",
		"compute_agent_api_build_requests", "compute_agent_api_claims_open", "compute_agent_api_cell_up"}
	before := samples(t, m, names...)
	s.err = apidb.ErrUnavailable
	after := samples(t, m, names...)
	cells := []string{`compute_agent_api_cell_up{cell="cell0"} 1`, `compute_agent_api_cell_up{cell="cell1"} 0`}
	want := []string{"compute_agent_api_build_requests 4"}
	for i, suspect := range []int{0, 1, 0} {
		want = append(want, fmt.Sprintf(`compute_agent_api_cell_database_suspect{cell="cell%d"} %d`, i, suspect))
	}
	want = append(want, cells...)
	want = append(want, "compute_agent_api_claims_open 2", "compute_agent_api_database_up 1")
	testproc.Samef(t, cmp.Diff(want, before), "with it")
	testproc.Samef(t, cmp.Diff(append(cells, "compute_agent_api_database_up 0"), after), "without it")
}

// TestCellRemoved: one that was deleted is not shown forever.
func TestCellRemoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newMetricsClock()
	m, s := newAPIMetrics(c.now), newAPISources(c)
	m.Watch(s.sources())
	s.cells = s.cells[:1]
	if got := samples(t, m, `compute_agent_api_cell_up`); len(got) != 1 || !strings.Contains(got[0], "cell0") {
		t.Errorf("shown are %v", got)
	}
}

// TestServerCountIsCached: the servers are counted at most once within 15 s, for all callers. They
// are counted again after that, and also when the clock was set back.
func TestServerCountIsCached(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newMetricsClock()
	m := newCellMetrics(c.now)
	counts := 0
	m.Watch(cellSources(&counts, nil))
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{0, 1}, {14 * time.Second, 1}, {time.Second, 2}, {0, 2}, {-time.Hour, 3}} {
		c.at = c.at.Add(step.pass)
		if got := samples(t, m, `compute_agent_cell_instances{vm_state="active"}`); len(got) != 1 ||
			counts != step.want {
			t.Errorf("%+v: counted %d times, shown %v", step, counts, got)
		}
	}
}

// TestCellDatabaseAway: the page is there without it.
func TestCellDatabaseAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := newCellMetrics(nil)
	counts := 0
	m.Watch(cellSources(&counts, celldb.ErrUnavailable))
	want := []string{"compute_agent_cell_database_up 0", "compute_agent_cell_long_polls 3"}
	testproc.Same(t, cmp.Diff(want, samples(t, m, "compute_agent_cell_database_up", "compute_agent_cell_hosts",
		"compute_agent_cell_instances", "compute_agent_cell_long")))
}

// BenchmarkAnswered is what metrics add to a request.
func BenchmarkAnswered(b *testing.B) {
	m := newAPIMetrics(nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Answered(osapi.Answer{Route: "/v2.1/servers/{id}", Method: "GET",
				Status: 200, Duration: time.Millisecond})
		}
	})
}
