// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Names of the services in spans; the agent's is compute-agent.
const (
	tracedPlacement  = "placement"
	tracedComputeAPI = "compute-api"
	tracedCell       = "cell"
)

// startTracing starts tracing of a service as [tracing] has it; nil if that names no collector.
// Close it after the service.
func startTracing(ctx context.Context, cfg *config.Config, service string, log zerolog.Logger) (*tracing.Tracing, error) {
	c := cfg.Tracing
	spans, err := tracing.New(ctx, tracing.Config{
		Endpoint: c.Endpoint, SampleRatio: c.SampleRatio, TrustClients: c.TrustClients, Service: service, Host: cfg.Agent.Host, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: tracing.endpoint: %w", config.ErrInvalid, err)
	}
	return spans, nil
}
