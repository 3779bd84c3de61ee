// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/compute-agent/compute-agent/internal/agent/telemetry"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// receiver is a collector that stores spans, or refuses them.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	refuse int // status
	spans  map[string]*otlp.Span
	path   string
	host   string
	all    []byte // the bodies of all requests, unpacked
}

// secret is the token of the agent in its requests to Placement.
const secret = "a-secret-token"

func newReceiver(t *testing.T) *receiver {
	r := &receiver{spans: map[string]*otlp.Span{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path = req.URL.Path
	if r.refuse != 0 {
		w.WriteHeader(r.refuse)
		return
	}
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	content, err := io.ReadAll(body)
	r.all = append(r.all, content...)
	var request collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(content, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, rs := range request.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "host.name" {
				r.host = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans[string(s.SpanId)] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// tree returns each span's path of names from its root, sorted.
func (r *receiver) tree() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []string{}
	for _, s := range r.spans {
		path := s.Name
		for p := r.spans[string(s.ParentSpanId)]; p != nil; p = r.spans[string(p.ParentSpanId)] {
			if !bytes.Equal(p.TraceId, s.TraceId) {
				path = "ANOTHER TRACE"
			}
			path = p.Name + " > " + path
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

func start(t *testing.T, endpoint string, ratio float64, log io.Writer) *telemetry.Tracing {
	t.Helper()
	for _, name := range []string{"HTTP_PROXY", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		t.Setenv(name, "http://127.0.0.1:1") // must be ignored
	}
	tr, err := telemetry.NewTracing(t.Context(), telemetry.TracingConfig{Endpoint: endpoint, SampleRatio: ratio, Host: "host-1", Logger: zerolog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// pass runs one pass whose write is refused; server is Placement.
func pass(t *testing.T, tr *telemetry.Tracing, server *httptest.Server) {
	t.Helper()
	client, err := reportclient.New(reportclient.Config{Config: placementclient.Config{
		URL: server.URL, Transport: server.Client().Transport, Observe: tr.Request,
		Authorize: func(_ context.Context, headers http.Header) error {
			headers.Set("X-Auth-Token", secret)
			return nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := tr.Begin(t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
	read, endRead := tr.Begin(ctx, resourcetracker.StepRead, "libvirt", "cn1")
	_, err = client.Tree(read, "11111111-0000-4000-8000-000000000001", "cn1")
	endRead(err)
	reshape, endReshape := tr.Begin(ctx, resourcetracker.StepReshape, "libvirt", "cn1")
	for _, step := range []resourcetracker.Step{resourcetracker.StepGather, resourcetracker.StepDriver} {
		_, endStep := tr.Begin(reshape, step, "libvirt", "cn1")
		endStep(nil)
	}
	endReshape(nil)
	_, endApply := tr.Begin(ctx, resourcetracker.StepApply, "libvirt", "cn1")
	endApply(errors.New("refused"))
	end(errors.New("refused"))
	tr.Count(resourcetracker.EventWrite, "libvirt", "cn1", 1)
}

// TestSpansArriveWithParents includes the traceparent header that Placement gets, and that spans
// do not have the token.
func TestSpansArriveWithParents(t *testing.T) {
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
	for _, path := range []string{"", "/", "/v1/traces"} {
		r := newReceiver(t)
		parents, tokens = nil, nil
		tr := start(t, r.URL+path, 1, io.Discard)
		pass(t, tr, server)
		tr.Close(t.Context())
		want := []string{"pass", "pass > apply", "pass > read", "pass > read > GET /", "pass > reshape", "pass > reshape > driver", "pass > reshape > gather"}
		if d := cmp.Diff(want, r.tree()); d != "" {
			t.Errorf("endpoint with path %q (-want +got):\n%s", path, d)
		}
		if r.path != "/v1/traces" || r.host != "host-1" {
			t.Errorf("sent to %s, of %s", r.path, r.host)
		}
		r.checkSpans(t, parents)
		if !slices.Equal(tokens, []string{secret}) || bytes.Contains(r.all, []byte(secret)) {
			t.Errorf("Placement got the tokens %q; the collector got %q", tokens, r.all)
		}
	}
}

// checkSpans checks attributes and status of each span.
func (r *receiver) checkSpans(t *testing.T, parents []string) {
	t.Helper()
	for _, s := range r.spans {
		attributes := map[string]string{}
		for _, a := range s.Attributes {
			attributes[a.Key] = a.Value.GetStringValue()
		}
		failed := s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR
		switch s.Name {
		case "pass", "apply":
			if !failed || s.Status.Message != "refused" || attributes["compute_agent.node"] != "cn1" || attributes["compute_agent.driver"] != "libvirt" {
				t.Errorf("%s: %v, %v", s.Name, s.Status, attributes)
			}
		case "GET /":
			want := "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
			if len(parents) != 1 || parents[0] != want || s.Kind != otlp.Span_SPAN_KIND_CLIENT || !failed {
				t.Errorf("traceparent %q, want %q; kind %v, %v", parents, want, s.Kind, s.Status)
			}
			if attributes["http.request.method"] != "GET" || attributes["url.template"] != "/" || !strings.HasPrefix(attributes["openstack.request_id"], "req-") {
				t.Errorf("%v", attributes)
			}
		case "gather", "driver", "reshape":
			if failed {
				t.Errorf("%s: %v", s.Name, s.Status)
			}
		}
	}
}

func TestRatioZeroExportsNothing(t *testing.T) {
	r := newReceiver(t)
	tr := start(t, r.URL, 0, io.Discard)
	ctx, end := tr.Begin(t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
	req := httptest.NewRequest(http.MethodGet, "http://placement/", nil)
	tr.Request(ctx, req, "/")(200, nil)
	end(nil)
	tr.Close(t.Context())
	if got := r.tree(); len(got) != 0 {
		t.Errorf("ratio 0, and there are spans: %v", got)
	}
	if p := req.Header.Get("Traceparent"); !strings.HasSuffix(p, "-00") {
		t.Errorf("traceparent says that the trace is sampled: %q", p)
	}
}

// TestFailingCollectorIsLoggedOnce: no span waits for the collector.
func TestFailingCollectorIsLoggedOnce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := newReceiver(t)
	r.refuse = http.StatusBadRequest
	var log bytes.Buffer
	tr := start(t, r.URL, 1, &log)
	for range 2000 { // several batches
		_, end := tr.Begin(t.Context(), resourcetracker.StepPass, "libvirt", "cn1")
		end(nil)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // the agent is stopping
	tr.Close(ended)
	r.Close()
	if n := strings.Count(log.String(), "Cannot deliver traces"); n != 1 || !strings.Contains(log.String(), r.URL) {
		t.Errorf("%d lines: %s", n, log.String())
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestInvalidEndpoint(t *testing.T) {
	for _, endpoint := range []string{"", "collector", "http://", "::"} {
		if _, err := telemetry.NewTracing(t.Context(), telemetry.TracingConfig{Endpoint: endpoint}); err == nil {
			t.Errorf("%q is accepted", endpoint)
		}
	}
}

// BenchmarkTracing measures what tracing adds to a steady pass.
func BenchmarkTracing(b *testing.B) {
	for name, ratio := range map[string]float64{"sampled": 1, "not sampled": 0} {
		b.Run(name, func(b *testing.B) {
			tr, err := telemetry.NewTracing(b.Context(), telemetry.TracingConfig{Endpoint: "http://127.0.0.1:1", SampleRatio: ratio, Logger: zerolog.Nop()})
			if err != nil {
				b.Fatal(err)
			}
			defer tr.Close(b.Context())
			b.ReportAllocs()
			for b.Loop() {
				ctx, end := tr.Begin(b.Context(), resourcetracker.StepPass, "libvirt", "cn1")
				for _, step := range []resourcetracker.Step{resourcetracker.StepRead, resourcetracker.StepDriver, resourcetracker.StepGuard, resourcetracker.StepApply} {
					_, endStep := tr.Begin(ctx, step, "libvirt", "cn1")
					endStep(nil)
				}
				end(nil)
			}
		})
	}
}
