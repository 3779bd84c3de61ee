// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/agent/telemetry"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	// secret is the token of the agent in its requests to Placement.
	secret = "a-secret-token"
	// passRequest is the id of the pass, and passTrace that of its trace.
	passRequest = "req-11111111-2222-4333-8444-555555555555"
	passTrace   = "11111111222243338444555555555555"
)

func start(t *testing.T, endpoint string, ratio float64) *telemetry.Telemetry {
	t.Helper()
	spans, err := tracing.New(t.Context(),
		tracing.Config{Endpoint: endpoint, SampleRatio: ratio, Service: "compute-agent",
			Host: "host-1", Logger: zerolog.Nop()})
	testproc.Check(t, err)
	all := &telemetry.Telemetry{Metrics: telemetry.NewMetrics(nil)}
	all.Trace(spans)
	return all
}

// pass runs one pass whose write is refused; server is Placement.
func pass(t *testing.T, all *telemetry.Telemetry, server *httptest.Server) (traceparent string) {
	t.Helper()
	client := testproc.Try(reportclient.New(reportclient.Config{Config: placementclient.Config{
		URL: server.URL, Transport: server.Client().Transport, Observe: all.Request, RequestID: plugins.RequestID,
		Authorize: func(_ context.Context, headers http.Header) error {
			headers.Set("X-Auth-Token", secret)
			return nil
		},
	}})).Or(t)
	tr := all.Observer()
	ctx, end := tr.Begin(plugins.WithRequestID(t.Context(), passRequest), resourcetracker.StepPass, "libvirt", "cn1")
	read, endRead := tr.Begin(ctx, resourcetracker.StepRead, "libvirt", "cn1")
	_, err := client.Tree(read, "11111111-0000-4000-8000-000000000001", "cn1")
	endRead(err)
	reshape, endReshape := tr.Begin(ctx, resourcetracker.StepReshape, "libvirt", "cn1")
	_, endGather := tr.Begin(reshape, resourcetracker.StepGather, "libvirt", "cn1")
	endGather(nil)
	driver, endDriver := tr.Begin(reshape, resourcetracker.StepDriver, "libvirt", "cn1")
	_, traceparent, called := all.DriverCall(driver, "libvirt", "Driver/UpdateProviderTree")
	called(status.Error(codes.Unavailable, "the name of a guest"))
	endDriver(nil)
	endReshape(nil)
	_, endApply := tr.Begin(ctx, resourcetracker.StepApply, "libvirt", "cn1")
	endApply(errors.New("refused"))
	end(errors.New("refused"))
	tr.Count(resourcetracker.EventWrite, "libvirt", "cn1", 1)
	return traceparent
}

// TestSpansOfAPass includes the traceparent that Placement and the driver get, and that spans have
// neither the token nor what a driver says.
func TestSpansOfAPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var mu sync.Mutex
	var parents, tokens []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		parents = append(parents, r.Header.Get("Traceparent"))
		tokens = append(tokens, r.Header.Get("X-Auth-Token"))
		mu.Unlock()
		http.Error(w, "not here", http.StatusForbidden)
	}))
	defer server.Close()
	r := otlp.NewCollector(t)
	all := start(t, r.URL, 1)
	driver := pass(t, all, server)
	all.Spans().Close(t.Context())
	want := []string{
		"pass", "pass > apply", "pass > read", "pass > read > GET /", "pass > reshape", "pass > reshape > driver",
		"pass > reshape > driver > Driver/UpdateProviderTree", "pass > reshape > gather",
	}
	testproc.Samef(t, cmp.Diff(want, r.Tree()), "spans")
	for _, s := range r.Spans() {
		if s.Trace != passTrace || s.Attributes[tracing.KeyRequestID] != passRequest || s.Host != "host-1" ||
			s.Service != "compute-agent" {
			t.Errorf("%+v is not of the pass", s)
		}
	}
	for _, name := range []string{"pass", "apply"} {
		if s := r.Named(t, name); !s.Failed || s.Message != "refused" || s.Attributes[tracing.KeyNode] != "cn1" ||
			s.Attributes[tracing.KeyDriver] != "libvirt" {
			t.Errorf("the span: got %+v, want it failed, with node and driver", s)
		}
	}
	get, call := r.Named(t, "GET /"), r.Named(t, "Driver/UpdateProviderTree")
	if want := []string{"00-" + get.Trace + "-" + get.ID + "-01"}; !slices.Equal(parents, want) {
		t.Errorf("Placement got %q, want %q", parents, want)
	}
	if want := "00-" + call.Trace + "-" + call.ID + "-01"; driver != want || !call.Failed ||
		call.Attributes[tracing.KeyError] != "Unavailable" {
		t.Errorf("the driver got %q, want %q; %+v", driver, want, call)
	}
	content, _ := r.Content()
	if !slices.Equal(tokens, []string{secret}) || strings.Contains(content, secret) ||
		strings.Contains(content, "the name of a guest") {
		t.Errorf("Placement got the tokens %q; the collector got %q", tokens, content)
	}
}

// BenchmarkTracing measures what tracing adds to a steady pass.
func BenchmarkTracing(b *testing.B) {
	for name, ratio := range map[string]float64{"sampled": 1, "not sampled": 0} {
		b.Run(name, func(b *testing.B) {
			all, err := tracing.New(b.Context(),
				tracing.Config{Endpoint: "http://127.0.0.1:1", SampleRatio: ratio, Logger: zerolog.Nop()})
			testproc.Check(b, err)
			defer all.Close(b.Context())
			tr := telemetry.Spans{Tracing: all}
			b.ReportAllocs()
			for b.Loop() {
				ctx, end := tr.Begin(b.Context(), resourcetracker.StepPass, "libvirt", "cn1")
				for _, step := range []resourcetracker.Step{resourcetracker.StepRead, resourcetracker.StepDriver,
					resourcetracker.StepGuard, resourcetracker.StepApply} {
					_, endStep := tr.Begin(ctx, step, "libvirt", "cn1")
					endStep(nil)
				}
				end(nil)
			}
		})
	}
}
