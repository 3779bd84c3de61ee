// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/reportclient"
)

// requests count what is asked of Placement.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	writes   *prometheus.CounterVec
	begun    atomic.Int64
	routes   *names
}

// maxRoutes bounds the routes; the client has about fifteen.
const maxRoutes = 40

func newRequests() *requests {
	r := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_placement_requests_total", Help: "Requests to Placement, repetitions of one counted as one, by the status of the answer, or none if no answer came.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_placement_request_duration_seconds", Help: "Time from a request's first try to the end of the answer.", Buckets: durations,
		}, []string{"route", "method"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_writes_total", Help: "Writes that Placement carried out, by kind.",
		}, []string{"kind"}),
		routes: &names{most: maxRoutes},
	}
	for _, k := range writeKinds { // what never happened is shown as 0, so that a rate can be taken from the start
		r.writes.WithLabelValues(k.String())
	}
	r.writes.WithLabelValues(other)
	return r
}

func (r *requests) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.duration, r.writes}
}

// writeKinds are the kinds of writes by their requests.
var writeKinds = map[string]reportclient.Kind{
	"PUT /resource_classes/{name}":               reportclient.EnsureClass,
	"PUT /traits/{name}":                         reportclient.EnsureTrait,
	"POST /resource_providers":                   reportclient.CreateProvider,
	"PUT /resource_providers/{uuid}":             reportclient.UpdateProvider,
	"DELETE /resource_providers/{uuid}":          reportclient.DeleteProvider,
	"PUT /resource_providers/{uuid}/inventories": reportclient.SetInventories,
	"PUT /resource_providers/{uuid}/aggregates":  reportclient.SetAggregates,
	"PUT /resource_providers/{uuid}/traits":      reportclient.SetTraits,
	"POST /reshaper":                             reportclient.ReshapeTree,
}

// Request notes that a request to Placement begins; what it returns notes how it ended. It fits into
// [placementclient.Config].Observe.
func (m *Metrics) Request(_ context.Context, req *http.Request, route string) (done func(status int, err error)) {
	r := m.requests
	r.begun.Add(1)
	began, method := m.now(), req.Method
	return func(status int, err error) {
		route := r.routes.label(route)
		said := "none"
		if status != 0 {
			said = strconv.Itoa(status)
		}
		r.total.WithLabelValues(route, method, said).Inc()
		r.duration.WithLabelValues(route, method).Observe(m.now().Sub(began).Seconds())
		if method == http.MethodGet || err != nil {
			return
		}
		kind := other
		if k, known := writeKinds[method+" "+route]; known {
			kind = k.String()
		}
		r.writes.WithLabelValues(kind).Inc()
	}
}
