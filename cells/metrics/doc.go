// SPDX-License-Identifier: Apache-2.0

// Package metrics shows how a compute API and how a cell is doing, to Prometheus.
//
//	compute ──Answered──────────▶ ┌─────┐
//	boot ─────Built, Corrected──▶ │ API │──▶ GET /metrics: compute_agent_api_…
//	cells, queue ────────────────▶└─────┘    (read when asked)
//	cell ─────Answered, Reported▶ ┌──────┐
//	celldb ───timed─────────────▶ │ Cell │──▶ GET /metrics: compute_agent_cell_…
//	hosts, servers ──────────────▶└──────┘   (read when asked; servers are counted every 15 s at most)
//
// Labels have values out of small fixed sets, and the names of cells, which an administrator gives. No client can make the number of series grow.
package metrics
