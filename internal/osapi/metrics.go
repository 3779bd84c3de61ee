// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/version"
)

// MetricsPage is what Prometheus reads of one process. It is safe for concurrent use.
type MetricsPage struct{ *prometheus.Registry }

// NewMetricsPage makes a page with the metrics of the build, of the Go runtime and of the process.
// The name of the build's begins with prefix; does is what the build does, such as "serves".
func NewMetricsPage(prefix, does string) MetricsPage {
	p := MetricsPage{prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: "Always 1; the labels say which build " + does + ".",
		ConstLabels: prometheus.Labels{"version": version.Number(), "go": version.Go()},
	})
	build.Set(1)
	p.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return p
}

// WatchDenied adds whether a deny list can be used, and the age of one that is fetched from
// elsewhere; nothing for none.
func (p MetricsPage) WatchDenied(denied *pki.DenyFile) {
	if denied == nil {
		return
	}
	p.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "compute_agent_deny_list_usable",
		Help: "Whether the list of hosts that are refused can be used: 0 if all hosts are refused, because it is " +
			"damaged, missing or too old. Only where there is one.",
	}, func() float64 {
		if denied.Get().Err() != nil {
			return 0
		}
		return 1
	}))
	if _, followed := denied.Age(); !followed {
		return
	}
	p.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "compute_agent_deny_list_age_seconds",
		Help: "Time since the list of hosts that are refused was fetched last; it is fetched every 15 s. Only where " +
			"the list is fetched from elsewhere.",
	}, func() float64 {
		age, _ := denied.Age()
		return age.Seconds()
	}))
}

// WatchCertificates adds when the certificates expire that the process shows to others, by their
// files. "" is left out.
func (p MetricsPage) WatchCertificates(paths ...string) {
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if path == "" {
			continue
		}
		p.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "compute_agent_service_certificate_expiry_time_seconds",
			Help: "When a certificate that the service shows to others expires, in seconds since the Unix " +
				"epoch; 0 if it cannot be read. Only with TLS.",
			ConstLabels: prometheus.Labels{"file": path},
		}, func() float64 { return expiry(path) }))
	}
}

// expiry is when the first certificate of a file expires, or 0.
func expiry(path string) float64 {
	file, err := files.Read(path)
	if err != nil {
		return 0
	}
	list, err := pki.Certificates(file.Data, path)
	if err != nil {
		return 0
	}
	return float64(list[0].NotAfter.Unix())
}

// Handler answers GET /metrics in the formats that Prometheus reads.
func (p MetricsPage) Handler() http.Handler {
	return promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// AnswerMetrics count the answers of a service, and time them. Make them with NewAnswerMetrics. It
// is an Observer.
type AnswerMetrics struct {
	untimed   string
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec

	// known has the series of each kind of Answer so far, so that counting one looks up no labels.
	known atomic.Pointer[map[answerLabels]answerSeries]
	grow  sync.Mutex // held while known is replaced
}

var _ Observer = (*AnswerMetrics)(nil)

// AnswerMetricsOptions say how a service counts its answers.
type AnswerMetricsOptions struct {
	// Prefix begins the names.
	Prefix string
	// Help describes the durations; "" for the usual text.
	Help string
	// Buckets are the bounds of the durations, in seconds.
	Buckets []float64
	// Untimed is the route of requests that wait for something to happen: they are counted only.
	Untimed string
}

// answerLabels are the labels of the series of an Answer.
type answerLabels struct {
	route, method string
	status        int
}

type answerSeries struct {
	requests prometheus.Counter
	duration prometheus.Observer // nil for what is not timed
}

// unmatchedRoute is the route of requests with an unknown path, or refused before it was looked at.
const unmatchedRoute = "unmatched"

// NewAnswerMetrics makes metrics that have counted nothing yet, on a page.
func NewAnswerMetrics(p MetricsPage, o AnswerMetricsOptions) *AnswerMetrics {
	if o.Help == "" {
		o.Help = "Time from a request's headers to its answer."
	}
	m := &AnswerMetrics{
		untimed: o.Untimed,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: o.Prefix + "http_requests_total",
			Help: "Requests that were answered. The route is a pattern, or unmatched for any other path.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: o.Prefix + "http_request_duration_seconds", Help: o.Help, Buckets: o.Buckets,
		}, []string{"route", "method"}),
	}
	m.known.Store(&map[answerLabels]answerSeries{})
	p.MustRegister(m.requests, m.durations)
	return m
}

// Answered implements Observer. Cost: about 0.1 µs and no allocation.
func (m *AnswerMetrics) Answered(a Answer) {
	labels := answerLabels{a.Route, a.Method, a.Status}
	s, known := (*m.known.Load())[labels]
	if !known {
		s = m.add(labels)
	}
	s.requests.Inc()
	if s.duration != nil {
		s.duration.Observe(a.Duration.Seconds())
	}
}

func (m *AnswerMetrics) add(labels answerLabels) answerSeries {
	m.grow.Lock()
	defer m.grow.Unlock()
	route := labels.route
	if route == "" {
		route = unmatchedRoute
	}
	s := answerSeries{requests: m.requests.WithLabelValues(route, labels.method, strconv.Itoa(labels.status))}
	if route != m.untimed {
		s.duration = m.durations.WithLabelValues(route, labels.method)
	}
	all := maps.Clone(*m.known.Load())
	all[labels] = s
	m.known.Store(&all)
	return s
}
