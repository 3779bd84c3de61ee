// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSpans: a write has spans of its transaction and its commit, a refused write has no commit,
// and a read has neither. A client that is not authenticated has no span.
func TestSpans(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := otlp.NewCollector(t)
	traced, err := tracing.New(t.Context(),
		tracing.Config{Endpoint: c.URL, SampleRatio: 1, Service: "placement", Logger: zerolog.Nop()})
	testproc.Check(t, err)
	h := newAPI(t, func(cfg *api.Config) { cfg.Tracing = traced })
	const request = "req-11111111-2222-4333-8444-555555555555"
	calls(t, h,
		call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":"node","uuid":"` + rp1 + `"}`,
			status: 200, headers: []string{"X-Openstack-Request-Id: " + request}},
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/inventories", version: "1.39",
			body: `{"resource_provider_generation":7,"inventories":{}}`, status: 409},
		call{method: "GET", path: "/resource_providers/" + rp1, version: "1.39", status: 200},
		call{method: "GET", path: "/unknown/" + rp1, version: "1.39", status: 404},
		call{method: "GET", path: "/resource_providers",
			version: "1.39", headers: []string{"-X-Auth-Token"}, status: 401},
	)
	traced.Close(t.Context())
	want := []string{
		"GET", "GET /resource_providers/{uuid}", "POST /resource_providers", "POST /resource_providers > transaction",
		"POST /resource_providers > transaction > commit",
		"PUT /resource_providers/{uuid}/inventories", "PUT /resource_providers/{uuid}/inventories > transaction",
	}
	testproc.Samef(t, cmp.Diff(want, c.Tree()), "spans")
	post, put := c.Named(t, "POST /resource_providers"), c.Named(t, "PUT /resource_providers/{uuid}/inventories")
	if post.Attributes[tracing.KeyGlobalRequestID] != request ||
		post.Attributes[tracing.KeyProjectID] != "admin" || post.Failed {
		t.Errorf("the span of POST is %+v, want the request's ids and no failure", post)
	}
	if put.Attributes["http.response.status_code"] != "409" ||
		put.Attributes[tracing.KeyError] != "placement.concurrent_update" || put.Failed {
		t.Errorf("the span of PUT is %+v, want the status 409 with its code and no failure", put)
	}
	if content, _ := c.Content(); strings.Contains(content, rp1) {
		t.Error("spans have paths")
	}
	if slices.ContainsFunc(c.Spans(), func(s otlp.Span) bool { return s.Service != "placement" }) {
		t.Errorf("spans: got %+v, want all of the service placement", c.Spans())
	}
}
