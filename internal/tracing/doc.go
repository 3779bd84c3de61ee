// SPDX-License-Identifier: Apache-2.0

// Package tracing makes the spans of all services, and delivers them to an OTLP collector.
//
//	client ──▶ compute API ──▶ scheduler ─┬─▶ Placement ─▶ transaction ─▶ commit
//	                                      └─▶ cell ─ ─ work ─ ─▶ agent ─┬─▶ driver's process
//	                                                                    └─▶ Placement
//
// [Tracing.Server] begins the span of a request, [Tracing.Root] that of other work, and
// [Tracing.Continue] that of work whose trace context was stored, as that of a server which is
// built. Everything below those has its parent in the context and needs no Tracing: [Child] and
// [Outgoing]. Without a span in the context these two do nothing, and allocate nothing.
//
// The trace of a request that is not part of another one has the id of the request as its id,
// without "req-" and dashes: the request id leads to the trace.
//
// Whether a trace is recorded is decided once, where it begins. A service accepts the decision of
// those that it trusts: other services, hosts and administrators. To all others it gives a trace of
// its own, which is sampled by its own ratio and linked to theirs: a tenant can neither have
// everything recorded nor add spans to the traces of others.
//
// Spans have the ids of requests, routes, hosts and projects. They have no paths, queries, bodies
// or texts of errors that answer a client: these can hold what users sent.
//
// Tracing is off unless a collector is configured. A collector that is down has no effect on a
// service: spans wait in a bounded queue and are dropped when it is full.
package tracing
