// SPDX-License-Identifier: Apache-2.0

// Package otlp is a collector of spans for tests.
package otlp

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is a server that takes spans by OTLP over HTTP, or refuses them.
type Collector struct {
	*httptest.Server

	mu      sync.Mutex
	refuse  int // status
	spans   []Span
	paths   map[string]bool
	content []byte
	arrived chan struct{}
}

// Span is a span that a [Collector] has.
type Span struct {
	Service, Host, Name string
	// Trace, ID and Parent are in hexadecimal; Parent is "" for a root. Links are the traces and
	// spans of links, with a dash between.
	Trace, ID, Parent string
	Links             []string
	Kind              trace.Span_SpanKind
	Failed            bool
	Message           string // of the failure
	Attributes        map[string]string
}

// NewCollector starts a collector that stops at the end of the test.
func NewCollector(t testing.TB) *Collector {
	c := &Collector{paths: map[string]bool{}, arrived: make(chan struct{}, 1)}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// Refuse has the collector refuse what follows with a status; 0: it accepts.
func (c *Collector) Refuse(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = status
}

// ServeHTTP takes spans.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths[r.URL.Path] = true
	if c.refuse != 0 {
		w.WriteHeader(c.refuse)
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	content, err := io.ReadAll(body)
	var request collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(content, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.content = append(c.content, content...)
	for _, of := range request.ResourceSpans {
		resource := attributes(of.Resource.Attributes)
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, spanOf(resource, s))
			}
		}
	}
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func spanOf(resource map[string]string, s *trace.Span) Span {
	out := Span{
		Service: resource["service.name"], Host: resource["host.name"], Name: s.Name,
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
		Parent: hex.EncodeToString(s.ParentSpanId),
		Kind:   s.Kind, Failed: s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR, Message: s.Status.GetMessage(),
		Attributes: attributes(s.Attributes),
	}
	for _, link := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(link.TraceId)+"-"+hex.EncodeToString(link.SpanId))
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.Key] = a.Value.GetStringValue()
		if n, is := a.Value.Value.(*common.AnyValue_IntValue); is {
			out[a.Key] = strconv.FormatInt(n.IntValue, 10)
		}
	}
	return out
}

// Arrived gets a value after spans have arrived.
func (c *Collector) Arrived() <-chan struct{} { return c.arrived }

// Spans are those that have arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Named is the one span with a name; the test fails if there is not one.
func (c *Collector) Named(t testing.TB, name string) Span {
	t.Helper()
	var found []Span
	for _, s := range c.Spans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans are named %q, want 1: %v", len(found), name, c.Tree())
	}
	return found[0]
}

// Content is all that was sent, unpacked, and the paths that it was sent to.
func (c *Collector) Content() (content string, paths []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for path := range c.paths {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return string(c.content), paths
}

// Tree has each span with those above it, as "pass > read > GET /", sorted. One whose parent is
// missing or in another trace begins with "? > ".
func (c *Collector) Tree() []string {
	return SpanTree(c.Spans(), func(s Span) string { return s.Name })
}

// SpanTree is [Collector.Tree] of some spans, with names of the test's.
func SpanTree(spans []Span, name func(Span) string) []string {
	byID := map[string]Span{}
	for _, s := range spans {
		byID[s.Trace+s.ID] = s
	}
	out := []string{}
	for _, s := range spans {
		path := []string{name(s)}
		for s.Parent != "" {
			parent, there := byID[s.Trace+s.Parent]
			if !there {
				path = append(path, "?")
				break
			}
			s = parent
			path = append(path, name(s))
		}
		slices.Reverse(path)
		out = append(out, strings.Join(path, " > "))
	}
	slices.Sort(out)
	return out
}
