// SPDX-License-Identifier: Apache-2.0

// Package cells is a Nova-compatible compute API over several cells that keeps answering while a
// cell is down.
//
//	clients ──▶ compute ──▶ scheduler ──▶ apidb        answered without asking a cell
//	               │          │     └───▶ Placement
//	               └────┬─────┘
//	                    ▼
//	                 gather ─▶ cellclient ─▶ cell ─▶ celldb        one process per cell
//	                               HTTP       ▲
//	                                          │ HTTP, long poll
//	                                        worker                 in the agent of each host
//
// This package assembles them: [NewAPI] is the process of the compute API, [NewCell] that of one
// cell. Package worker, which internal/agent runs, is the agent's side.
//
// A cell is a process with its own database. If it is killed, hangs or sends invalid answers, it is
// down: lists show its servers with what the API database has of them, and all other requests work.
//
// Metric labels have values from small fixed sets, and cell names, which an administrator chooses.
// No client can increase the number of series.
package cells
