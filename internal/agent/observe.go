// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"

	"github.com/compute-agent/compute-agent/internal/agent/telemetry"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// observers are told the same, each in turn; the steps of one are within the contexts of those before it.
type observers []resourcetracker.Observer

// Begin implements [resourcetracker.Observer].
func (all observers) Begin(ctx context.Context, step resourcetracker.Step, driver, node string) (context.Context, func(error)) {
	ends := make([]func(error), 0, len(all))
	for _, o := range all {
		var end func(error)
		ctx, end = o.Begin(ctx, step, driver, node)
		ends = append(ends, end)
	}
	return ctx, func(err error) {
		for _, end := range ends {
			end(err)
		}
	}
}

// Count implements [resourcetracker.Observer].
func (all observers) Count(event resourcetracker.Event, driver, node string, n int) {
	for _, o := range all {
		o.Count(event, driver, node, n)
	}
}

// observer is who is told what trackers do.
func (a *Agent) observer() resourcetracker.Observer {
	all := observers{a.metrics, passes{a.driverMoved}}
	if a.tracing != nil {
		all = append(all, a.tracing)
	}
	return all
}

// passes tells of the end of every pass.
type passes struct{ ended func() }

// Begin implements [resourcetracker.Observer].
func (p passes) Begin(ctx context.Context, step resourcetracker.Step, _, _ string) (context.Context, func(error)) {
	if step == resourcetracker.StepPass {
		return ctx, func(error) { p.ended() }
	}
	return ctx, func(error) {}
}

// Count implements [resourcetracker.Observer].
func (passes) Count(resourcetracker.Event, string, string, int) {}

// observeRequest is told of each request to Placement.
func (a *Agent) observeRequest(ctx context.Context, req *http.Request, route string) (done func(status int, err error)) {
	counted := a.metrics.Request(ctx, req, route)
	if a.tracing == nil {
		return counted
	}
	traced := a.tracing.Request(ctx, req, route)
	return func(status int, err error) {
		counted(status, err)
		traced(status, err)
	}
}

// startTracing begins to trace if a collector is configured. It comes before anything that is traced; stop delivers what is
// left, for a bounded time.
func (a *Agent) startTracing(ctx context.Context) (stop func(), err error) {
	c := a.cfg.Tracing
	if c.Endpoint == "" {
		return func() {}, nil
	}
	a.tracing, err = telemetry.NewTracing(ctx, telemetry.TracingConfig{Endpoint: c.Endpoint, SampleRatio: c.SampleRatio, Host: a.cfg.Agent.Host, Logger: a.log})
	if err != nil {
		return nil, err
	}
	a.log.Info().Str("endpoint", c.Endpoint).Float64("sample_ratio", c.SampleRatio).Msg("Traces of passes are sent to their collector.")
	return func() { a.tracing.Close(ctx) }, nil
}
