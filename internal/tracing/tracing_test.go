// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	request      = "req-11111111-2222-4333-8444-555555555555"
	requestTrace = "11111111222243338444555555555555"
	global       = "req-99999999-2222-4333-8444-555555555555"
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientSpan   = "b7ad6b7169203331"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
	unsampled    = "00-" + clientTrace + "-" + clientSpan + "-00"
)

func start(t *testing.T, cfg tracing.Config, log io.Writer) *tracing.Tracing {
	t.Helper()
	for _, name := range []string{"HTTP_PROXY", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		t.Setenv(name, "http://127.0.0.1:1") // must be ignored
	}
	cfg.Service, cfg.Host, cfg.Logger = "placement", "host-1", zerolog.New(log)
	return testproc.Try(tracing.New(t.Context(), cfg)).Or(t)
}

// serve is a request that a service answers: it has a part of its own, and asks another service.
// The result is what that service was sent.
func serve(t *testing.T, tr *tracing.Tracing, a tracing.Arrival) http.Header {
	t.Helper()
	a.Began, a.RequestID = time.Unix(1, 0), request
	if a.Header == nil {
		a.Header = http.Header{}
	}
	ctx, span := tr.Server(t.Context(), a)
	within, part := tracing.Child(ctx, "part")
	req := httptest.NewRequest(http.MethodPut, "http://placement/allocations/a-uuid", nil)
	tracing.Outgoing(within, req, "/allocations/{uuid}")(409, errors.New("what a user wrote"))
	tracing.RecordSpan(within, "past", time.Unix(2, 0), time.Unix(3, 0), nil)
	part.End(nil)
	span.Set(tracing.KeyProjectID, "a-project")
	span.EndAnswer("POST", "/servers", 202, "", time.Unix(4, 0))
	return req.Header
}

// TestRequest: the spans of a request, with what they have and what they have not.
func TestRequest(t *testing.T) {
	for _, path := range []string{"", "/", "/v1/traces"} {
		c := otlp.NewCollector(t)
		tr := start(t, tracing.Config{Endpoint: c.URL + path, SampleRatio: 1}, io.Discard)
		sent := serve(t, tr, tracing.Arrival{GlobalRequestID: global})
		tr.Close(t.Context())
		want := []string{"POST /servers", "POST /servers > part", "POST /servers > part > PUT /allocations/{uuid}",
			"POST /servers > part > past"}
		testproc.Samef(t, cmp.Diff(want, c.Tree()), "endpoint with path %q", path)
		content, paths := c.Content()
		if !slices.Equal(paths, []string{"/v1/traces"}) ||
			strings.Contains(content, "a user wrote") || strings.Contains(content, "a-uuid") {
			t.Errorf("sent to %s: %q", paths, content)
		}
		for _, s := range c.Spans() {
			if s.Trace != requestTrace || s.Attributes[tracing.KeyRequestID] != request ||
				s.Service != "placement" || s.Host != "host-1" {
				t.Errorf("the span: got %+v, want the trace and the id of the request", s)
			}
		}
		server, client := c.Named(t, "POST /servers"), c.Named(t, "PUT /allocations/{uuid}")
		if server.Kind != tracev1.Span_SPAN_KIND_SERVER ||
			server.Failed || server.Attributes["http.route"] != "/servers" ||
			server.Attributes["http.response.status_code"] != "202" ||
			server.Attributes[tracing.KeyProjectID] != "a-project" ||
			server.Attributes[tracing.KeyGlobalRequestID] != global {
			t.Errorf("the span of the server: got %+v", server)
		}
		if client.Kind != tracev1.Span_SPAN_KIND_CLIENT ||
			!client.Failed || client.Message != "" || client.Attributes[tracing.KeyError] != "409" {
			t.Errorf("the span of the client: got %+v, want it failed with 409", client)
		}
		if got := sent.Get("Traceparent"); got != "00-"+
			client.Trace+"-"+client.ID+"-01" || sent.Get("X-Openstack-Request-Id") != request {
			t.Errorf("sent %v", sent)
		}
	}
}

// TestClientsTrace: whose trace context is accepted. A client that is not trusted can have nothing
// recorded, and adds nothing to traces that are not its own.
func TestClientsTrace(t *testing.T) {
	header := func(values ...string) http.Header {
		return http.Header{"Traceparent": values, "Tracestate": {"vendor=1"}}
	}
	for name, c := range map[string]struct {
		cfg     tracing.Config
		arrival tracing.Arrival
		trace   string // of the spans; "" for none
		link    bool
	}{
		"trusted": {tracing.Config{},
			tracing.Arrival{Header: header(clientParent), Trusted: true}, clientTrace, false},
		"trusted, not sampled": {tracing.Config{SampleRatio: 1},
			tracing.Arrival{Header: header(unsampled), Trusted: true}, "", false},
		"not trusted": {tracing.Config{SampleRatio: 1},
			tracing.Arrival{Header: header(clientParent)}, requestTrace, true},
		"not trusted, not sampled": {tracing.Config{SampleRatio: 1},
			tracing.Arrival{Header: header(unsampled)}, requestTrace, true},
		"not trusted, ratio 0": {tracing.Config{}, tracing.Arrival{Header: header(clientParent)}, "", false},
		"all are trusted": {tracing.Config{TrustClients: true},
			tracing.Arrival{Header: header(clientParent)}, clientTrace, false},
		"no context": {tracing.Config{SampleRatio: 1},
			tracing.Arrival{Trusted: true}, requestTrace, false},
		"two": {tracing.Config{SampleRatio: 1},
			tracing.Arrival{Header: header(clientParent, clientParent), Trusted: true}, requestTrace, false},
		"invalid": {tracing.Config{SampleRatio: 1},
			tracing.Arrival{Header: header("00-x"), Trusted: true}, requestTrace, false},
		"zero": {tracing.Config{SampleRatio: 1},
			tracing.Arrival{Header: header("00-" + strings.Repeat("0", 32) + "-" + clientSpan + "-01"), Trusted: true},
			requestTrace, false},
		"of a later version": {tracing.Config{},
			tracing.Arrival{Header: header("01" + clientParent[2:] + "-more"), Trusted: true}, clientTrace, false},
		"of a later version, too long": {tracing.Config{},
			tracing.Arrival{Header: header("01" + clientParent[2:] + "-" + strings.Repeat("a", 200)), Trusted: true},
			"", false},
	} {
		t.Run(name, func(t *testing.T) {
			collector := otlp.NewCollector(t)
			c.cfg.Endpoint = collector.URL
			tr := start(t, c.cfg, io.Discard)
			sent := serve(t, tr, c.arrival)
			tr.Close(t.Context())
			if sent.Get("Tracestate") != "" {
				t.Errorf("the client's state is sent on: %v", sent)
			}
			if c.trace == "" {
				if spans := collector.Spans(); len(spans) > 0 || !strings.HasSuffix(sent.Get("Traceparent"), "-00") {
					t.Errorf("%v; other services are sent %v", spans, sent)
				}
				return
			}
			s := collector.Named(t, "POST /servers")
			if s.Trace != c.trace || !strings.Contains(sent.Get("Traceparent"), c.trace) {
				t.Errorf("trace %s, want %s; sent %v", s.Trace, c.trace, sent)
			}
			if joined := c.trace == clientTrace; joined != (s.Parent == clientSpan) {
				t.Errorf("parent %s", s.Parent)
			}
			if links := []string{clientTrace + "-" + clientSpan}; c.link &&
				!slices.Equal(s.Links, links) || !c.link && s.Links != nil {
				t.Errorf("links %v", s.Links)
			}
		})
	}
}

// TestWorkContinuesItsTrace: work whose trace context was stored is part of that trace, in another
// process and later. Without a valid one there are no spans.
func TestWorkContinuesItsTrace(t *testing.T) {
	c := otlp.NewCollector(t)
	tr := start(t, tracing.Config{Endpoint: c.URL}, io.Discard)
	for _, stored := range []string{clientParent, unsampled, "", "no context"} {
		ctx, span := tr.Continue(t.Context(), "schedule", stored, request)
		_, part := tracing.Child(ctx, "part")
		part.End(nil)
		span.End(nil)
		if got := tracing.Traceparent(ctx); (got != "") != strings.HasPrefix(stored, "00-") {
			t.Errorf("stored %q, and the next work gets %q", stored, got)
		}
	}
	tr.Close(t.Context())
	testproc.Samef(t, cmp.Diff([]string{"? > schedule", "? > schedule > part"}, c.Tree()), "spans")
	if s := c.Named(t, "schedule"); s.Parent != clientSpan || s.Attributes[tracing.KeyRequestID] != request {
		t.Errorf("the span schedule: got %+v, want the client's span as its parent", s)
	}
}

// TestRatio: the fraction of what begins here, also of traces that have the ids of requests.
func TestRatio(t *testing.T) {
	c := otlp.NewCollector(t)
	tr := start(t, tracing.Config{Endpoint: c.URL, SampleRatio: 0.5}, io.Discard)
	const n = 1000
	for range n {
		_, span := tr.Server(t.Context(), tracing.Arrival{Header: http.Header{}, RequestID: request})
		span.EndAnswer("GET", "/", 200, "", time.Now())
	}
	tr.Close(t.Context())
	if got := len(c.Spans()); got < n/4 || got > 3*n/4 {
		t.Errorf("%d of %d at ratio 0.5", got, n)
	}
}

// TestFailingCollectorIsLoggedOnce: no span waits for the collector.
func TestFailingCollectorIsLoggedOnce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := otlp.NewCollector(t)
	c.Refuse(http.StatusBadRequest)
	var log bytes.Buffer
	tr := start(t, tracing.Config{Endpoint: c.URL, SampleRatio: 1}, &log)
	for range 2000 { // several batches
		_, span := tr.Root(t.Context(), "pass", "")
		span.End(nil)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // the service is stopping
	tr.Close(ended)
	c.Close()
	if n := strings.Count(log.String(), "Cannot deliver traces"); n != 1 || !strings.Contains(log.String(), c.URL) {
		t.Errorf("%d lines: %s", n, log.String())
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestInvalidEndpoint(t *testing.T) {
	for _, endpoint := range []string{"collector", "http://", "::"} {
		if _, err := tracing.New(t.Context(), tracing.Config{Endpoint: endpoint}); err == nil {
			t.Errorf("%q is accepted", endpoint)
		}
	}
}

// TestOffIsFree: without a collector nothing is allocated.
func TestOffIsFree(t *testing.T) {
	tr, err := tracing.New(t.Context(), tracing.Config{})
	if tr != nil || err != nil {
		t.Fatal(tr, err)
	}
	ctx, req, failed := t.Context(), httptest.NewRequest(http.MethodGet, "/", nil), errors.New("failed")
	if n := testing.AllocsPerRun(100, func() {
		ctx, span := tr.Server(ctx, tracing.Arrival{Header: req.Header, RequestID: request})
		ctx, work := tr.Continue(ctx, "work", clientParent, request)
		ctx, root := tr.Root(ctx, "pass", request)
		ctx, child := tracing.Child(ctx, "part")
		tracing.Outgoing(ctx, req, "/")(200, nil)
		tr.Request(ctx, req, "/")(200, nil)
		tracing.RecordSpan(ctx, "past", time.Time{}, time.Time{}, nil)
		for _, s := range []tracing.Span{child, root, work} {
			s.Set(tracing.KeyNode, "cn1")
			s.End(failed)
			s.EndWith(failed)
		}
		span.EndAnswer("GET", "/", 200, "", time.Time{})
		if tracing.Traceparent(ctx) != "" || tracing.Within(ctx) || span.Recorded() {
			t.Error("there is a span")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	tr.Close(ctx)
}
