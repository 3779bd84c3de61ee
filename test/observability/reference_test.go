// SPDX-License-Identifier: Apache-2.0

package observability_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// services are the processes that serve metrics, each with the page that its tests recorded.
var services = []struct{ name, page string }{
	{"The agent", "../../internal/agent/telemetry/testdata/metrics.txt"},
	{"Placement", "../../placement/testdata/metrics.txt"},
	{"The compute API", "../../cells/testdata/api.txt"},
	{"A cell", "../../cells/testdata/cell.txt"},
}

// open are labels whose values are not a fixed set, with what they are: of one metric, or of all.
// The pages must have all values of all other labels.
var open = map[string]string{
	"cell": "name of a cell", "driver": "name of a driver",
	"node": "name of a node; beyond 500 `other`", "go": "version of Go",
	"version": "version of the build", "method": "HTTP method", "route": "pattern of a path", "status": "HTTP status",

	"compute_agent_placement_requests_total/status":              "HTTP status, or `none` without an answer",
	"compute_agent_placement_requests_total/route":               "pattern of a path; beyond 40 `other`",
	"compute_agent_placement_request_duration_seconds/route":     "pattern of a path; beyond 40 `other`",
	"compute_agent_service_certificate_expiry_time_seconds/file": "path of the certificate",

	"compute_agent_api_enrolment_refusals_total/code": "error code of the enrolment service",
	"placement_conflicts_total/code":                  "error code of Placement",
}

// metric is one metric of the reference.
type metric struct {
	name, kind, help string
	services         []string
	// labels are its labels, each with the recorded values.
	labels map[string][]string
}

// unit is the unit of a metric, which its name ends with.
func (m *metric) unit() string {
	name := strings.TrimSuffix(m.name, "_total")
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_bytes") || strings.Contains(name, "_bytes_"):
		return "bytes"
	case strings.HasSuffix(name, "_info"):
		return "1"
	case strings.HasPrefix(m.help, "1 "):
		return "0 or 1"
	}
	return "count"
}

// isOpen is what the values of a label are if they are not a fixed set.
func (m *metric) isOpen(label string) (what string, is bool) {
	if what, is = open[m.name+"/"+label]; !is {
		what, is = open[label]
	}
	return what, is
}

// values describes the values of a label.
func (m *metric) values(label string) string {
	if label == "code" && m.name == "compute_agent_conditions" {
		return "a [condition](runbooks/conditions.md)"
	}
	if what, is := m.isOpen(label); is {
		return what
	}
	values := slices.Compact(slices.Sorted(slices.Values(m.labels[label])))
	return "`" + strings.Join(values, "`, `") + "`"
}

var (
	helpLine   = regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`)
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (\S+) (\w+)$`)
	sampleLine = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// reference is what the pages of all services have, by name. A metric of several services has one
// meaning.
func reference(t *testing.T) map[string]*metric {
	t.Helper()
	all := map[string]*metric{}
	for _, service := range services {
		content := testproc.Try(os.ReadFile(service.page)).Or(t)
		page := string(content)
		help := map[string]string{}
		for _, m := range helpLine.FindAllStringSubmatch(page, -1) {
			help[m[1]] = m[2]
		}
		for _, m := range typeLine.FindAllStringSubmatch(page, -1) {
			known := all[m[1]]
			if known == nil {
				known = &metric{name: m[1], kind: m[2], help: help[m[1]], labels: map[string][]string{}}
				all[m[1]] = known
			}
			known.services = append(known.services, service.name)
			if known.kind != m[2] || known.help != help[m[1]] {
				t.Errorf("%s means something else in %s than in %s", m[1], service.name, known.services[0])
			}
		}
		for _, m := range sampleLine.FindAllStringSubmatch(page, -1) {
			known := find(all, m[1])
			if known == nil {
				t.Fatalf("%s: %s has no type", service.page, m[1])
			}
			for _, l := range labelPair.FindAllStringSubmatch(m[2], -1) {
				if l[1] != "le" {
					known.labels[l[1]] = append(known.labels[l[1]], l[2])
				}
			}
		}
	}
	for _, d := range health.Definitions() {
		if !slices.Contains(all["compute_agent_conditions"].labels["code"], string(d.Code)) {
			t.Errorf("compute_agent_conditions has no %s", d.Code)
		}
	}
	return all
}

// find is the metric of a series, which may be one of a histogram's.
func find(all map[string]*metric, series string) *metric {
	if m := all[series]; m != nil {
		return m
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if m := all[strings.TrimSuffix(series, part)]; m != nil && m.kind == "histogram" {
			return m
		}
	}
	return nil
}

// table is the reference of one service, or of several together.
func table(all map[string]*metric, title string, of func(*metric) bool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "## %s\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n", title)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		if !of(m) {
			continue
		}
		labels := []string{}
		for _, label := range slices.Sorted(maps.Keys(m.labels)) {
			labels = append(labels, "`"+label+"`: "+m.values(label))
		}
		meaning := m.help
		if len(m.services) > 1 {
			meaning += " Served by: " + strings.Join(m.services, ", ") + "."
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n",
			m.name, m.kind, m.unit(), strings.Join(labels, "<br>"), meaning)
	}
	return out.String() + "\n"
}

// TestReference: docs/metrics.md has every metric of every service. Run it with -update after the
// tests of the services, see the package's documentation.
func TestReference(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all := reference(t)
	var out strings.Builder
	for _, service := range services {
		out.WriteString(table(all, service.name,
			func(m *metric) bool { return len(m.services) == 1 && m.services[0] == service.name }))
	}
	out.WriteString(table(all, "Several services", func(m *metric) bool { return len(m.services) > 1 }))
	golden.Section(t, "../../docs/metrics.md", "<!-- metrics: begin -->",
		"<!-- metrics: end -->", strings.TrimSuffix(out.String(), "\n"))
}

// notMetrics are names in the docs that look like metrics and are not.
var notMetrics = regexp.MustCompile(
	`^placement_(client|tls|metrics|listen|url|user|server|db|api|candidates|enforcement\w*|req_\w+|\w*time\w*)$`)

// TestDocsNameExistingMetrics: a metric in any page of the docs is in the reference.
func TestDocsNameExistingMetrics(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all := reference(t)
	pages, err := filepath.Glob("../../docs/*.md")
	more, errMore := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil || errMore != nil || len(pages) < 10 || len(more) == 0 {
		t.Fatal(err, errMore, len(pages), len(more))
	}
	name := regexp.MustCompile("`((?:compute_agent|placement)_\\w+)(?:\\{([^}]*)\\})?`")
	label := regexp.MustCompile(`(\w+)(?:=~?"([^"]*)")?`)
	for _, page := range append(pages, more...) {
		content := testproc.Try(os.ReadFile(page)).Or(t)
		for _, m := range name.FindAllStringSubmatch(string(content), -1) {
			known := find(all, m[1])
			if known == nil {
				if !notMetrics.MatchString(m[1]) {
					t.Errorf("%s names %s, which is not a metric", page, m[1])
				}
				continue
			}
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				known.check(t, page, l[1], l[2])
			}
		}
	}
}

// check fails the test where the metric has no such label, or the label never has the values, which
// may be a regular expression.
func (m *metric) check(t *testing.T, where, label, values string) {
	t.Helper()
	if label == "job" || label == "instance" || label == "cluster" || label == "le" { // Prometheus adds them
		return
	}
	recorded := m.labels[label]
	if recorded == nil {
		t.Errorf("%s: %s has no label %s", where, m.name, label)
		return
	}
	if _, is := m.isOpen(label); is || values == "" {
		return
	}
	for value := range strings.SplitSeq(values, "|") {
		if !strings.HasPrefix(value, "$") && !slices.Contains(recorded, value) {
			t.Errorf("%s: %s never has %s=%q", where, m.name, label, value)
		}
	}
}
