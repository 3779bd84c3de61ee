// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// metricSamples are the lines of /metrics that begin with one of the names and are no buckets.
func metricSamples(t *testing.T, m *metrics, names ...string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	var out []string
	for line := range strings.Lines(w.Body.String()) {
		for _, name := range names {
			if strings.HasPrefix(line, name) && !strings.Contains(line, "_bucket") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out
}

func TestMetricsCountRequests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := newMetrics()
	const inventories = "/resource_providers/{uuid}/inventories"
	for range 2 {
		m.Answered(osapi.Answer{Route: inventories,
			Method: "GET", Status: 200, Duration: 250 * time.Millisecond, Sent: 100})
	}
	m.Answered(osapi.Answer{Route: inventories, Method: "PUT", Status: 409, Code: "placement.concurrent_update",
		Duration: time.Second, Received: 30, Sent: 7})
	m.Answered(osapi.Answer{Route: inventories, Method: "PUT", Status: 403, Code: "placement.hosts.not_admitted"})
	m.Answered(osapi.Answer{Method: "GET", Status: 404, Code: "placement.undefined_code"})
	m.HostLimited()
	want := []string{
		`placement_conflicts_total{code="placement.concurrent_update"} 1`,
		`placement_host_over_capacity_total 1`,
		`placement_host_writes_limited_total 1`,
		`placement_http_received_bytes_total 30`,
		`placement_http_request_duration_seconds_sum{method="GET",route="/resource_providers/{uuid}/inventories"} 0.5`,
		`placement_http_request_duration_seconds_count{method="GET",route="/resource_providers/{uuid}/inventories"} 2`,
		`placement_http_request_duration_seconds_sum{method="GET",route="unmatched"} 0`,
		`placement_http_request_duration_seconds_count{method="GET",route="unmatched"} 1`,
		`placement_http_request_duration_seconds_sum{method="PUT",route="/resource_providers/{uuid}/inventories"} 1`,
		`placement_http_request_duration_seconds_count{method="PUT",route="/resource_providers/{uuid}/inventories"} 2`,
		`placement_http_requests_total{method="GET",route="/resource_providers/{uuid}/inventories",status="200"} 2`,
		`placement_http_requests_total{method="GET",route="unmatched",status="404"} 1`,
		`placement_http_requests_total{method="PUT",route="/resource_providers/{uuid}/inventories",status="403"} 1`,
		`placement_http_requests_total{method="PUT",route="/resource_providers/{uuid}/inventories",status="409"} 1`,
		`placement_http_sent_bytes_total 207`,
	}
	if diff := cmp.Diff(want,
		metricSamples(t, m, "placement_http_", "placement_conflicts", "placement_host_")); diff != "" {
		t.Errorf("want -, shown +\n%s", diff)
	}
}

func TestMetricsCountCommitsAndSearches(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := newMetrics()
	m.Committed(transactor.Commit{Outcome: transactor.Conflict, Writes: 3, Changes: 9, Duration: time.Second})
	m.Committed(transactor.Commit{Outcome: transactor.Durable, Writes: 4, Refused: 1, Changes: 10,
		Duration: time.Second})
	m.Followed(transactor.Follow{Versions: 5, Duration: time.Second})
	m.Followed(transactor.Follow{Versions: 1, Whole: true, Duration: time.Second})
	m.Searched(api.Search{Candidates: 10, Steps: 500})
	want := []string{
		`placement_candidates_returned_sum 10`,
		`placement_candidates_returned_count 1`,
		`placement_candidates_search_steps_sum 500`,
		`placement_candidates_search_steps_count 1`,
		`placement_commit_duration_seconds_sum 2`,
		`placement_commit_duration_seconds_count 2`,
		`placement_commit_writes_sum 4`,
		`placement_commit_writes_count 1`,
		`placement_commits_total{outcome="conflict"} 1`,
		`placement_commits_total{outcome="durable"} 1`,
		`placement_commits_total{outcome="failed"} 0`,
		`placement_commits_total{outcome="reload"} 0`,
		`placement_commits_total{outcome="unknown"} 0`,
		`placement_committed_changes_total 10`,
		`placement_follow_duration_seconds_sum 2`,
		`placement_follow_duration_seconds_count 2`,
		`placement_followed_versions_total 6`,
		`placement_follows_total{read="changes"} 1`,
		`placement_follows_total{read="whole"} 1`,
		`placement_writes_refused_total 1`,
	}
	if diff := cmp.Diff(want, metricSamples(t, m, "placement_commit", "placement_follow", "placement_candidates",
		"placement_writes")); diff != "" {
		t.Errorf("want -, shown +\n%s", diff)
	}
}

// TestExposition compares the whole page of a service, which docs/metrics.md is made of, except for
// the metrics of the Go runtime and the process. Time stands still.
func TestExposition(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		audit := testproc.Try(auditlog.Open(auditlog.Options{File: filepath.Join(dir, "audit.log")})).Or(t)
		defer func() { _ = audit.Close() }()
		denied, err := pki.FollowDenyFile(filepath.Join(dir, "denied"),
			pki.Source{URL: "https://192.0.2.1"}, zerolog.Nop())
		testproc.Check(t, err)
		s := testproc.Try(New(t.Context(), Config{
			Database: "sqlite://" + filepath.Join(dir, "placement.db"), Auth: Auth{Strategy: NoAuth}, Audit: audit,
			Denied: denied, Logger: zerolog.Nop(),
		})).Or(t)
		defer func() { _ = s.Close() }()
		s.metrics.Answered(osapi.Answer{Route: "/allocations/{consumer}", Method: "PUT", Status: 409,
			Code: "placement.concurrent_update", Duration: time.Second, Received: 30, Sent: 7})
		s.metrics.Committed(transactor.Commit{Outcome: transactor.Durable, Writes: 4, Changes: 10,
			Duration: time.Second})
		s.metrics.Searched(api.Search{Candidates: 10, Steps: 500})
		s.metrics.WatchCertificates("/etc/compute-agent/placement.pem")
		w := httptest.NewRecorder()
		s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		golden.Metrics(t, "testdata/metrics.txt", w.Body.String())
	})
}

// BenchmarkMetricsAnswered is what metrics add to a request.
func BenchmarkMetricsAnswered(b *testing.B) {
	m := newMetrics()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Answered(osapi.Answer{Route: "/resource_providers", Method: "GET", Status: 200,
				Duration: time.Millisecond, Sent: 100})
		}
	})
}
