// SPDX-License-Identifier: Apache-2.0

// Package osapi is an HTTP server in the style of OpenStack's services: what Placement, the compute
// API and a cell have in common, and the small servers beside them.
//
//	Listen ──▶ Server ──────▶ Service.Serve ──▶ Handler of the API ──▶ Service
//	           connections,   request id,       Exchange: Authenticate,  Explain, Encode: errors
//	           headers, TLS   bounds            Body, Send; Routes       panics, metrics, log
//
// A [Service] serves each request as an [Exchange]. The API embeds the exchange in a type of its
// own, which is its [Handler]. An error that Handle returns becomes an [Error], which each API
// writes in its own form. [Routes] finds the handler for a path with net/http's patterns.
//
// [Server] serves clients on a network, and bounds what they may use. [KeySocket] is a socket for
// this machine's administrators. [MetricsServer] serves Prometheus and probes. [TurnAway] answers
// the clients of a service that cannot start. [AnswerMetrics] are the metrics that a Service adds
// to the [MetricsPage] of its process.
//
// An [Authenticator] finds out who sends a request: [NoAuth] believes the request, [TokenAuth] has
// a list of tokens, and internal/keystone asks Keystone. A server with NoAuth listens only where
// [IsLoopback] says that no other machine can reach it. Package oslopolicy decides what a policy
// allows.
package osapi
