// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// requestHeader is the line of `openstack --debug` with the id that the compute API gave the
// request which made a server.
var requestHeader = regexp.MustCompile(`POST call to compute for \S+/servers used request id (req-[0-9a-f-]{36})`)

// TestRequestIsFollowed: `openstack server create` shows one request id. With that, `compute-agent
// logs` shows the lines of all services in their order, and the collector has one trace, whose id
// it is, of what all of them did.
func TestRequestIsFollowed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	collector := otlp.NewCollector(t)
	traced := []string{"COMPUTE_AGENT_TRACING_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=100"}
	logged := append([]string{"COMPUTE_AGENT_LOG_LEVEL=debug"}, traced...)
	m := newMovers(t, logged, "cn1")

	s := m.o.run("--debug", "server", "create", "--flavor",
		"1", "--image", "", "--network", "none", "--format", "value", "-c", "id", "one")
	found := requestHeader.FindStringSubmatch(s.Err)
	if s.Code != 0 || found == nil {
		t.Fatalf("openstack, without the request id of POST /servers: %+v", s)
	}
	request, server := found[1], strings.TrimSpace(s.Out)
	m.until("the server is active", func() bool { return m.status(server) == "ACTIVE" })
	m.logs(t, request)

	// The spans of the agent are the last: they end when the guest is there.
	trace := strings.ReplaceAll(strings.TrimPrefix(request, "req-"), "-", "")
	var spans []otlp.Span
	all := []string{
		"compute-api POST /v2.1/servers",
		"compute-api POST /v2.1/servers > compute-api schedule > compute-api candidates > compute-api GET " +
			"/allocation_candidates > placement GET /allocation_candidates",
		"compute-api POST /v2.1/servers > compute-api schedule > compute-api try host > compute-api PUT " +
			"/allocations/{uuid} > placement PUT /allocations/{consumer} > placement transaction > placement commit",
		"compute-api POST /v2.1/servers > compute-api schedule > compute-api try host > compute-api claim",
		"compute-api POST /v2.1/servers > compute-api schedule > compute-api try host > compute-api place",
		"compute-api POST /v2.1/servers > compute-api schedule > compute-api try host > compute-api PUT " +
			"/v1/servers/{uuid} > cell PUT /v1/servers/{uuid}",
		"compute-api POST /v2.1/servers > compute-api schedule > compute-api try host > compute-api POST " +
			"/v1/servers/{uuid}/release > cell POST /v1/servers/{uuid}/release",
		"compute-api POST /v2.1/servers > compute-api schedule > compute-api try host > compute-api POST " +
			"/v1/servers/{uuid}/release > cell POST /v1/servers/{uuid}/release > " +
			"compute-agent bring to present > compute-agent Instances/Spawn",
	}
	missing := func() []string {
		spans = slices.DeleteFunc(collector.Spans(), func(s otlp.Span) bool { return s.Trace != trace })
		tree := otlp.SpanTree(spans, func(s otlp.Span) string { return s.Service + " " + s.Name })
		return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(tree, one) })
	}
	for deadline := timeout(); len(missing()) > 0; {
		select {
		case <-collector.Arrived():
		case <-deadline:
			t.Fatalf("no spans\n%s\namong\n%s", strings.Join(missing(), "\n"),
				strings.Join(otlp.SpanTree(spans, func(s otlp.Span) string { return s.Service + " " + s.Name }), "\n"))
		}
	}
	for _, s := range spans {
		// Placement and the cell give each request an id of their own.
		if own, given := s.Attributes[tracing.KeyRequestID], s.Attributes[tracing.KeyGlobalRequestID]; own != request &&
			given != request || s.Failed {
			t.Errorf("%s %s has the request ids %q and %q; failed: %v", s.Service, s.Name, own, given, s.Failed)
		}
	}
	first := spans[slices.IndexFunc(spans, func(s otlp.Span) bool { return s.Name == "POST /v2.1/servers" })]
	if first.Attributes[tracing.KeyProjectID] != project || first.Attributes["http.response.status_code"] != "202" {
		t.Errorf("%+v", first)
	}
	spawn := spans[slices.IndexFunc(spans, func(s otlp.Span) bool { return s.Name == "bring to present" })]
	if spawn.Attributes[tracing.KeyServer] != server || spawn.Attributes[tracing.KeyHost] != "cn1" {
		t.Errorf("%+v", spawn)
	}
	if content, _ := collector.Content(); strings.Contains(content, "admin:"+project) {
		t.Error("the collector got a token")
	}
}

// logs checks what `compute-agent logs` shows of a request that made a server.
func (m *movers) logs(t *testing.T, request string) {
	t.Helper()
	words := []string{"logs", request, "--output", "json"}
	dir := t.TempDir()
	keep := func(name string, lines []string) {
		path := filepath.Join(dir, name+".log")
		check(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		words = append(words, "--file", path)
	}
	m.agents["cn1"].Await(t, 0, request, "Created the guest of a server.")
	m.agents["cn1"].Await(t, 0, request, "Created the instance.") // its pipe may be slower than its answer
	keep("placement", m.world.Placement.Lines())
	keep("compute-api", m.world.API.Lines())
	for name, cell := range m.world.Cells {
		keep(name, cell.Lines())
	}
	keep("cn1", m.agents["cn1"].Lines())
	out, code := binaries.Run(t, "compute-agent", words...)
	if code != 0 {
		t.Fatalf("compute-agent logs ended with %d:\n%s", code, out)
	}
	// Some of the lines, in the order in which they happened. When the others come is chance: the
	// compute API logs a request after it has told the scheduler of it, and the agent a line of the
	// driver when it reads it.
	want := []string{"request", "Carried out a change for the compute API.", "Created the guest of a server."}
	others := map[string]bool{"compute API request": false, "Created the instance.": false}
	var got []string
	for line := range strings.Lines(out) {
		var entry struct {
			Message string `json:"message"`
			Fields  map[string]any
		}
		check(t, json.Unmarshal([]byte(line), &entry))
		if slices.Contains(want, entry.Message) && !slices.Contains(got, entry.Message) {
			got = append(got, entry.Message)
		}
		if _, is := others[entry.Message]; is {
			others[entry.Message] = true
		}
	}
	for message, found := range others {
		if !found {
			t.Errorf("no line %q in\n%s", message, out)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("lines in the order in which each came first (-want +got):\n%s\n%s", d, out)
	}
}
