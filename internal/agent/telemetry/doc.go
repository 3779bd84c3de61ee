// SPDX-License-Identifier: Apache-2.0

// Package telemetry exports what one agent does: metrics for Prometheus, and spans for
// internal/tracing.
//
//	resourcetracker.Observer ──┬─▶ Metrics ──▶ GET /metrics
//	requests to Placement    ──┤
//	calls of drivers         ──┴─▶ spans ──▶ internal/tracing
//	the agent's status ──▶ Metrics (read at each scrape)
//
// Metric names begin with compute_agent_. The number of series is bounded by the configuration:
// nodes and routes beyond a limit share the label value "other".
//
// A trace is one pass:
//
//	pass
//	├── read ──── GET /resource_providers   (with traceparent, so that Placement's spans join)
//	├── driver ── Driver/UpdateProviderTree
//	├── reshape ─┬ gather ── GET …
//	│            └ driver
//	├── guard
//	└── apply ─── PUT /resource_providers/{uuid}/inventories
package telemetry
