// SPDX-License-Identifier: Apache-2.0

// Package health says how the agent is: a [Status], and in it a set of named conditions. Each condition has a code by
// which programs know it, a severity, what it means for guests and for scheduling, and what an operator can do about it.
//
//	plugins/host.Status ─────────┐
//	resourcetracker.Status ──────┼─▶ Facts ──▶ findings ──▶ Tracker.Judge ──▶ Status: state, summary, conditions since when
//	cell, disabled nodes ────────┤             (evaluate.go)  (summary.go)
//	problems that agent recorded ┘                  ▲
//	                                    Definition of each code (definitions.go)
//
// Whether the agent is degraded, and why, is decided in [Tracker.Judge] alone. All that is known of a code stands in its
// [Definition], and docs/operators.md has the same table. The types are what the control socket sends and what
// `--output json` prints: fields are added to, not renamed. The package has no clock and does no I/O.
package health
