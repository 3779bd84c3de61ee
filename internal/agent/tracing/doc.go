// SPDX-License-Identifier: Apache-2.0

// Package tracing sends traces of what the agent does to a collector that speaks OTLP over HTTP: one trace for each pass.
//
//	pass
//	├── read ──── GET /resource_providers        (with traceparent, so that Placement's spans hang below)
//	├── driver
//	├── reshape ─┬ gather ── GET …
//	│            └ driver
//	├── guard
//	└── apply ─── PUT /resource_providers/{uuid}/inventories
//
// It is off unless a collector is configured. A collector that is down disturbs nobody: spans wait in a bounded queue and are dropped beyond it,
// and the log has a line when it fails and one when it is well again.
package tracing
