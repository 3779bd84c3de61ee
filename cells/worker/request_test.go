// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRequestIsNamed: what is done for a request of a client names it to the driver and in the log,
// also when it is tried again.
func TestRequestIsNamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		const request = "req-11111111-2222-4333-8444-555555555555"
		s.driver.spawnErrs = []error{errors.New("the image cannot be reached"), nil}
		s.placement.grant(1)
		s.cell.change(1, func(r *row) { r.request = request })
		s.start()
		s.pass(time.Minute)
		s.expect(1, active)
		testproc.Samef(t, cmp.Diff([]string{request, request}, s.driver.requests), "requests that the driver was given")
		for _, message := range []string{"Retrying", "Created the guest of a server."} {
			if !regexp.MustCompile(`"request_id":"` + request + `".*` + message).MatchString(s.log.String()) {
				t.Errorf("the line %q has no request id:\n%s", message, &s.log)
			}
		}
	})
}

// TestWorkIsTraced: what is done for a request is a part of its trace, each attempt, and so are the
// calls of the driver. Without a trace context there are no spans.
func TestWorkIsTraced(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	collector := otlp.NewCollector(t)
	spans, err := tracing.New(t.Context(),
		tracing.Config{Endpoint: collector.URL, SampleRatio: 1, Service: "compute-agent"})
	testproc.Check(t, err)
	inScene(t, func(s *scene) {
		s.spans = spans
		s.driver.spawnErrs = []error{errors.New("the image cannot be reached"), nil}
		s.placement.grant(1)
		s.placement.grant(2)
		s.cell.change(1, func(r *row) { r.trace = "00-" + trace + "-" + parent + "-01" })
		s.start()
		s.pass(time.Minute)
		s.expect(1, active)
		s.cell.change(2, func(*row) {}) // not before: the driver's error is for the first one
		s.pass(time.Minute)
		s.expect(2, active)
		slices.Sort(s.driver.traces)
		testproc.Samef(t, cmp.Diff([]string{"", trace, trace}, s.driver.traces), "traces that the driver is called in")
	})
	spans.Close(t.Context())
	failed := 0
	for _, s := range collector.Spans() {
		if s.Name != "bring to present" || s.Trace != trace || s.Parent != parent ||
			s.Attributes[tracing.KeyHost] == "" || s.Attributes[tracing.KeyServer] == "" {
			t.Errorf("the span: got %+v, want the trace of the request, with host and server", s)
		}
		if s.Failed {
			failed++
		}
	}
	if n := len(collector.Spans()); n != 2 || failed != 1 {
		t.Errorf("%d spans, of which %d failed; want 2 and 1", n, failed)
	}
}

// traceOf is the id of the trace of a context; "" for none.
func traceOf(ctx context.Context) string {
	parts := strings.Split(tracing.Traceparent(ctx), "-")
	if len(parts) != 4 {
		return ""
	}
	return parts[1]
}
