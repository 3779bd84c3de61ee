// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Names of the services in spans.
const (
	TracedPlacement  = "placement"
	TracedComputeAPI = "compute-api"
	TracedCell       = "cell"
	tracedAgent      = "compute-agent"
)

// StartTracing starts tracing of a service, this agent or another one, as [tracing] has it; nil if
// that names no collector. Close it after the service, which delivers queued spans, for a limited
// time.
func StartTracing(
	ctx context.Context, cfg *config.Config, service string, log zerolog.Logger,
) (*tracing.Tracing, error) {
	c := cfg.Tracing
	spans, err := tracing.New(ctx, tracing.Config{
		Endpoint: c.Endpoint, SampleRatio: c.SampleRatio,
		TrustClients: c.TrustClients, Service: service, Host: cfg.Agent.Host, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: tracing.endpoint: %w", config.ErrInvalid, err)
	}
	return spans, nil
}
