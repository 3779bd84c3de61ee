// SPDX-License-Identifier: Apache-2.0

// Package metrics counts, for Prometheus, what one agent does: its passes, what its drivers and Placement take, what it writes and moves, and
// how it is.
//
//	resourcetracker.Observer ──┐
//	reportclient's requests  ──┼─▶ Metrics ──▶ GET /metrics
//	the agent's status       ──┘ (read when somebody looks)
//
// Names begin with compute_agent_. How many series there are is bounded by the configuration, and not by what happens: nodes and routes beyond a
// bound count together, as "other".
package metrics
