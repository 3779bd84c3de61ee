// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/internal/agent/telemetry"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// scene is metrics with a fake clock.
type scene struct {
	*telemetry.Metrics
	t   *testing.T
	now time.Time
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.Metrics = telemetry.NewMetrics(func() time.Time { return s.now })
	return s
}

// page returns the /metrics page.
func (s *scene) page() string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		s.t.Fatal(w.Code, w.Body)
	}
	return w.Body.String()
}

// samples returns the lines of the page with one of the prefixes, without buckets.
func (s *scene) samples(prefixes ...string) []string {
	s.t.Helper()
	out := []string{}
	for line := range strings.Lines(s.page()) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) && !strings.Contains(line, "_bucket") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out
}

// step runs one step of a pass of the given duration.
func (s *scene) step(ctx context.Context, step resourcetracker.Step, took time.Duration, err error) {
	_, end := s.Begin(ctx, step, "libvirt", "cn1")
	s.now = s.now.Add(took)
	end(err)
}

func (s *scene) request(method, route string, status int, err error) {
	req := httptest.NewRequest(method, "http://placement/x", nil)
	done := s.Request(s.t.Context(), req, route)
	s.now = s.now.Add(50 * time.Millisecond)
	done(status, err)
}

// day produces samples of every metric.
func (s *scene) day() {
	ctx, end := s.Begin(s.t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
	s.step(ctx, resourcetracker.StepRead, 100*time.Millisecond, nil)
	s.step(ctx, resourcetracker.StepDriver, 200*time.Millisecond, &plugins.ReshapeNeeded{Reason: "GPUs"})
	reshape, endReshape := s.Begin(ctx, resourcetracker.StepReshape, "libvirt", "cn1")
	s.step(reshape, resourcetracker.StepGather, 300*time.Millisecond, nil)
	s.step(reshape, resourcetracker.StepDriver, 400*time.Millisecond, nil)
	endReshape(nil)
	s.step(ctx, resourcetracker.StepGuard, time.Millisecond, nil)
	s.request("POST", "/reshaper", 204, nil)
	s.step(ctx, resourcetracker.StepApply, 500*time.Millisecond, nil)
	end(nil)
	s.Count(resourcetracker.EventWrite, "libvirt", "cn1", 2)
	s.Count(resourcetracker.EventConflict, "libvirt", "cn1", 1)
	s.Count(resourcetracker.EventDrift, "libvirt", "cn1", 3)
	s.request("GET", "/resource_providers", 200, nil)
	s.request("PUT", "/resource_providers/{uuid}/inventories", 409, errors.New("conflict"))
	s.request("GET", "/resource_providers", 0, errors.New("connection refused"))
	for _, state := range []pluginhost.State{
		pluginhost.Discovered, pluginhost.Verified, pluginhost.Starting, pluginhost.Configured, pluginhost.Healthy,
		pluginhost.Degraded, pluginhost.Backoff, pluginhost.Quarantined, pluginhost.NotInstalled,
		pluginhost.Incompatible, pluginhost.Refused, pluginhost.Disabled, pluginhost.Stopped,
	} {
		s.PluginTransition("libvirt", state)
	}
	s.failures()
	s.Watch(func() health.Status {
		return health.Status{
			Started: s.now.Add(-time.Hour), Placement: health.Placement{Requests: 9},
			Identity: &health.Identity{Host: "cn1", Expires: time.Unix(1_900_000_000, 0), Renewed: 4, Failed: 1},
			Cell: &health.Cell{Status: worker.Status{Up: true, Servers: 7, Waiting: 1,
				Counts: worker.Counts{Spawns: worker.Outcomes{Succeeded: 5, Failed: 2},
					Destroys: worker.Outcomes{Succeeded: 3}}}},
			Conditions: []health.Condition{{Code: health.CredentialsRefused},
				{Code: health.CredentialsRefused}, {Code: health.DriftFound}},
			Drivers: []health.Driver{{
				Name: "libvirt",
				Plugin: health.Plugin{Status: pluginhost.Status{State: "healthy", Restarts: 2, Replacements: 1},
					Usage: &pluginhost.Usage{Processes: 2, Threads: 14, MemoryBytes: 25 << 20, OpenFiles: 19}},
				MissingSince: s.now.Add(-time.Minute),
				Warnings:     []pluginhost.Warning{{Name: "fan"}, {Name: "gpu-clock"}},
				Report: resourcetracker.Status{Nodes: []resourcetracker.NodeStatus{
					{Name: "cn1", State: resourcetracker.Reporting, LastSuccess: s.now.Add(-90 * time.Second)},
					{Name: "cn2", State: resourcetracker.Degraded, DisabledReason: "a fan"},
				}},
			}},
		}
	})
}

// failures produces samples of every outcome that is not a success.
func (s *scene) failures() {
	failed := errors.New("it failed")
	for _, err := range []error{failed, &reshape.Error{Problem: "no capacity"}} {
		ctx, end := s.Begin(s.t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
		for _, step := range []resourcetracker.Step{resourcetracker.StepRead, resourcetracker.StepDriver,
			resourcetracker.StepGuard, resourcetracker.StepApply} {
			s.step(ctx, step, 0, failed)
		}
		_, endReshape := s.Begin(ctx, resourcetracker.StepReshape, "libvirt", "cn1")
		s.step(ctx, resourcetracker.StepGather, 0, failed)
		s.step(ctx, resourcetracker.StepDriver, 0, failed)
		endReshape(err)
		end(err)
	}
	ctx, _ := s.Begin(s.t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
	for _, step := range []resourcetracker.Step{resourcetracker.StepGuard, resourcetracker.StepApply} {
		_, end := s.Begin(ctx, resourcetracker.StepReshape, "libvirt", "cn1")
		end(nil)
		s.step(ctx, step, 0, failed)
	}
}

// TestExposition compares the whole page, except metrics of the Go runtime and the process.
func TestExposition(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newScene(t)
	s.day()
	golden.Metrics(t, "testdata/metrics.txt", s.page())
}

func TestReshapesCountByOutcome(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	refused := &reshape.Error{Problem: "no"}
	for name, c := range map[string]struct {
		compute, guard, apply error
		want                  string
	}{
		"the driver fails":    {errors.New("it crashed"), nil, nil, "failed"},
		"the driver refuses":  {refused, nil, nil, "refused"},
		"the guard refuses":   {nil, refused, nil, "refused"},
		"Placement conflicts": {nil, nil, errors.New("conflict"), "failed"},
		"Placement refuses":   {nil, nil, fmt.Errorf("%w: 403", reportclient.ErrReshapeRefused), "refused"},
		"it succeeds":         {nil, nil, nil, "done"},
	} {
		s := newScene(t)
		ctx, end := s.Begin(t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
		s.step(ctx, resourcetracker.StepRead, 0, nil)
		s.step(ctx, resourcetracker.StepReshape, 0, c.compute)
		if c.compute == nil {
			s.step(ctx, resourcetracker.StepGuard, 0, c.guard)
		}
		if c.compute == nil && c.guard == nil {
			s.step(ctx, resourcetracker.StepApply, 0, c.apply)
		}
		// The next attempt of the pass needs no reshape.
		s.step(ctx, resourcetracker.StepRead, 0, nil)
		s.step(ctx, resourcetracker.StepGuard, 0, nil)
		s.step(ctx, resourcetracker.StepApply, 0, nil)
		end(nil)
		var want []string
		for _, outcome := range []string{"done", "failed", "refused"} { // those that did not happen are there, too
			n := 0
			if outcome == c.want {
				n = 1
			}
			want = append(want, fmt.Sprintf(`compute_agent_reshapes_total{driver="libvirt",outcome=%q} %d`, outcome, n))
		}
		testproc.Samef(t, cmp.Diff(want, s.samples("compute_agent_reshapes_total")), "%s", name)
	}
}

// TestDriverCallOutsideOfPassCounts covers dry runs.
func TestDriverCallOutsideOfPassCounts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newScene(t)
	s.step(t.Context(), resourcetracker.StepDriver, time.Second, nil)
	want := []string{
		`compute_agent_driver_call_duration_seconds_sum{driver="libvirt",outcome="succeeded"} 1`,
		`compute_agent_driver_call_duration_seconds_count{driver="libvirt",outcome="succeeded"} 1`,
	}
	testproc.Same(t, cmp.Diff(want, s.samples("compute_agent_driver", "compute_agent_pass")))
}

// TestNodeStartsAtZero: what has not happened to a node is there as 0.
func TestNodeStartsAtZero(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newScene(t)
	_, end := s.Begin(t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
	end(nil)
	want := []string{
		`compute_agent_conflicts_total{driver="libvirt",node="cn1"} 0`,
		`compute_agent_drift_total{driver="libvirt",node="cn1"} 0`,
		`compute_agent_node_writes_total{driver="libvirt",node="cn1"} 0`,
		`compute_agent_passes_total{driver="libvirt",node="cn1",outcome="failed"} 0`,
		`compute_agent_passes_total{driver="libvirt",node="cn1",outcome="succeeded"} 1`,
	}
	testproc.Same(t, cmp.Diff(want, s.samples("compute_agent_passes_total",
		"compute_agent_conflicts", "compute_agent_drift", "compute_agent_node_writes")))
}

func TestNumberOfSeriesIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newScene(t)
	nodes := []resourcetracker.NodeStatus{}
	for i := range 3000 {
		name := fmt.Sprintf("cn%d", i)
		_, end := s.Begin(t.Context(), resourcetracker.StepPass, "libvirt", name)
		end(nil)
		s.Count(resourcetracker.EventWrite, "libvirt", name, 1)
		nodes = append(nodes, resourcetracker.NodeStatus{Name: name, State: resourcetracker.Reporting,
			LastSuccess: s.now.Add(-time.Duration(i) * time.Second)})
		s.request("GET", fmt.Sprintf("/%d", i), 200, nil)
	}
	s.Watch(func() health.Status {
		return health.Status{Drivers: []health.Driver{{Name: "libvirt", Report: resourcetracker.Status{Nodes: nodes}}}}
	})
	for name, limit := range map[string]int{
		"compute_agent_passes_total": 2 * 501, "compute_agent_node_writes_total": 501,
		"compute_agent_last_sync_age_seconds{": 501, "compute_agent_placement_requests_total": 41,
	} {
		if got := len(s.samples(name)); got != limit {
			t.Errorf("%s has %d series, want %d", name, got, limit)
		}
	}
	if got := s.samples(`compute_agent_passes_total{driver="libvirt",node="other",outcome="succeeded"}`); len(got) !=
		1 || !strings.HasSuffix(got[0], " 2500") {
		t.Errorf("all others together: %v", got)
	}
	if got := s.samples(`compute_agent_last_sync_age_seconds{driver="libvirt",node="other"}`); len(got) != 1 ||
		!strings.Contains(got[0], " 2999") {
		t.Errorf("the oldest of the others: %v", got)
	}
}

// TestRetriesNeverDecrease includes requests that have started but not been sent yet.
func TestRetriesNeverDecrease(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newScene(t)
	tries := int64(0)
	s.Watch(func() health.Status { return health.Status{Placement: health.Placement{Requests: tries}} })
	const name = "compute_agent_placement_request_retries_total"
	for _, c := range []struct {
		begin int
		tries int64
		want  string
	}{{1, 0, "0"}, {0, 1, "0"}, {1, 5, "3"}, {1, 5, "3"}, {0, 6, "3"}, {1, 8, "4"}} {
		for range c.begin {
			s.Request(t.Context(), httptest.NewRequest(http.MethodGet, "http://placement/", nil), "/")
		}
		tries = c.tries
		testproc.Samef(t, cmp.Diff([]string{name + " " + c.want}, s.samples(name)), "%+v", c)
	}
}

// BenchmarkMetrics measures what metrics add to a steady pass.
func BenchmarkMetrics(b *testing.B) {
	m := telemetry.NewMetrics(nil)
	b.ReportAllocs()
	for b.Loop() {
		ctx, end := m.Begin(b.Context(), resourcetracker.StepPass, "libvirt", "cn1")
		for _, step := range []resourcetracker.Step{resourcetracker.StepRead, resourcetracker.StepDriver,
			resourcetracker.StepGuard, resourcetracker.StepApply} {
			_, endStep := m.Begin(ctx, step, "libvirt", "cn1")
			endStep(nil)
		}
		end(nil)
	}
}
