// SPDX-License-Identifier: Apache-2.0

// Package metrics shows how a Placement service is doing, to Prometheus: requests by route and status, commits to the
// database with their latency and batch size, conflicts, catching up with other servers, and the size of what is kept.
//
//	placement/api ──Answered, Searched──▶ ┌─────────┐
//	placement/ledger ──Committed, Followed─▶│ Metrics │──▶ GET /metrics
//	current snapshot, requests under way ──▶└─────────┘    (read when asked)
//
// Labels have values out of small fixed sets only, so that no client can make the number of series grow.
package metrics
