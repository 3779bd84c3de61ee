// SPDX-License-Identifier: Apache-2.0

// Package osapi is an HTTP server in the style of OpenStack's services: what Placement, the compute
// API and a cell have in common, and the small servers beside them.
//
//	Listen ──▶ Server ──────▶ Service.Serve ──▶ Handler of the API ──▶ Service
//	           connections,   request id,       Exchange: Authenticate,  Explain, Encode: errors
//	           headers, TLS   bounds            Body, Send; Routes       panics, metrics, log
//
// A [Service] serves each request as an [Exchange] that the API embeds in a type of its own, and
// which is its [Handler]. Whatever Handle returns becomes an [Error], which each API writes in its
// own form. [Routes] finds what an API has for a path with net/http's patterns. [Server] serves
// clients on a network, with bounds for what they may take; [KeySocket] is a socket of this
// machine's administrators, and [MetricsServer] serves Prometheus and probes; [TurnAway] answers
// who waits for a service that cannot start. [AnswerMetrics] are what a Service adds to the
// [MetricsPage] of its process. [Authenticator] finds out who sends a request: [NoAuth] believes it
// (for one machine), [TokenAuth] knows tokens, and internal/keystone asks Keystone. A server that
// believes everybody listens where [IsLoopback] says that only this machine can reach it. What a
// policy allows is below, in oslopolicy.
package osapi
