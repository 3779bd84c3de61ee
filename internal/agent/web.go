// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Metrics implements [control.MetricsSource].
func (a *Agent) Metrics() http.Handler { return a.telemetry.Handler() }

// DriverOf implements [control.DriverSource].
func (a *Agent) DriverOf(pid int) string {
	for _, plugin := range a.host.Status() {
		if plugin.PID > 0 && processes.InFamily(pid, plugin.PID) {
			return plugin.Name
		}
	}
	return ""
}

// listenMetrics listens on [metrics] listen. It returns nil if none is configured.
func listenMetrics(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w; choose another address, or none", err)
	}
	return l, nil
}

// serveMetrics serves metrics and probes until ctx ends. A failure only affects metrics.
func (a *Agent) serveMetrics(ctx context.Context, l net.Listener) {
	a.log.Info().Stringer("address", l.Addr()).Msg("Serving metrics.")
	server := osapi.MetricsServer{Metrics: a.Metrics(), Ready: a.Readiness, Logger: a.log}
	if err := server.Serve(ctx, l); err != nil {
		a.log.Error().Err(err).
			Msg("The metrics server failed. The agent keeps working; restart it to serve metrics again.")
	}
}

// Readiness implements [control.MetricsSource].
func (a *Agent) Readiness(context.Context) osapi.Readiness {
	if why := a.unready(); why != "" {
		return osapi.Readiness{Lines: []string{why}}
	}
	return osapi.Readiness{Ready: true, Lines: []string{"ready"}}
}

// unready returns why the agent is not ready: an unfinished first pass, or a critical condition; ""
// if it is ready.
func (a *Agent) unready() string {
	drivers := a.drivers.active()
	for _, d := range drivers {
		select {
		case <-d.tracker.Ready():
		default:
			return "driver " + d.name + ": the first pass has not finished yet"
		}
	}
	for _, c := range a.currentStatus().Conditions {
		if c.Severity == health.Critical {
			return c.String()
		}
	}
	return ""
}
