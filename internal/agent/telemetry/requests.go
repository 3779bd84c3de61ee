// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/reportclient"
)

// requests counts requests to Placement.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	writes   *prometheus.CounterVec
	started  atomic.Int64
	routes   *names
}

// maxRoutes limits the routes with series of their own. The client has about fifteen.
const maxRoutes = 40

func newRequests() *requests {
	r := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_placement_requests_total",
			Help: "Requests to Placement by response status, or none without a response. Retries are not counted. " +
				"An agent with nothing to write sends one every tracker.association_refresh.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_placement_request_duration_seconds",
			Help: "Time from a request's first attempt to the end of the response.", Buckets: durations,
		}, []string{"route", "method"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_writes_total", Help: "Writes that Placement carried out, by kind.",
		}, []string{"kind"}),
		routes: &names{limit: maxRoutes},
	}
	for _, k := range writeKinds { // start at 0, so that a rate works from the first write
		r.writes.WithLabelValues(k.String())
	}
	r.writes.WithLabelValues(other)
	return r
}

func (r *requests) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.duration, r.writes}
}

// writeKinds maps requests to kinds of writes.
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

// Request records the start of a request to Placement; done records its end. It fits
// [placementclient.Config].Observe.
func (m *Metrics) Request(_ context.Context, req *http.Request, route string) (done func(status int, err error)) {
	r := m.requests
	r.started.Add(1)
	start, method := m.now(), req.Method
	return func(status int, err error) {
		route := r.routes.label(route)
		code := "none"
		if status != 0 {
			code = strconv.Itoa(status)
		}
		r.total.WithLabelValues(route, method, code).Inc()
		r.duration.WithLabelValues(route, method).Observe(m.now().Sub(start).Seconds())
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
