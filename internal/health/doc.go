// SPDX-License-Identifier: Apache-2.0

// Package health decides how the agent is doing: a [Status] with a set of named conditions. Each
// condition has a code for programs, a severity, its effect on guests and scheduling, and what an
// operator can do about it.
//
//	pluginhost.Status ───────────┐
//	resourcetracker.Status ──────┼─▶ Facts ──▶ findings ──▶ Tracker.Evaluate ──▶ Status
//	cell, disabled nodes ────────┤             (evaluate.go)  (summary.go)
//	problems of the agent ───────┘                  ▲
//	                                    Definition of each code (definitions.toml)
//
// A new condition needs its code (definitions.go) and definition (definitions.toml), the fact that
// it follows from, in the status of the part that knows it, its finding (evaluate.go) with a row in
// TestFindings, and a section in docs/runbooks/conditions.md, whose "Means" and "Do" go test
// -update writes. The metric and its alerts have it from there; go test ./internal/agent/telemetry
// -update writes the list of series.
//
// Only [Tracker.Evaluate] decides whether the agent is degraded, and why. [Definition] describes
// each code, and docs/runbooks/conditions.md has the same text. The types are those of the control
// socket and of `--output json`: fields are added, never renamed. The package has no clock and does
// no I/O.
package health
