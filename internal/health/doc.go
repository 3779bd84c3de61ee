// SPDX-License-Identifier: Apache-2.0

// Package health decides how the agent is doing: a [Status] with a set of named conditions. Each
// condition has a code for programs, a severity, its effect on guests and scheduling, and what an
// operator can do about it.
//
//	pluginhost.Status ───────────┐
//	resourcetracker.Status ──────┼─▶ Facts ──▶ findings ──▶ Tracker.Judge ──▶ Status
//	cell, disabled nodes ────────┤             (evaluate.go)  (summary.go)
//	problems of the agent ───────┘                  ▲
//	                                    Definition of each code (definitions.go)
//
// Only [Tracker.Judge] decides whether the agent is degraded, and why. [Definition] describes each
// code, and docs/runbooks/conditions.md has the same text. The types are those of the control
// socket and of `--output json`: fields are added, never renamed. The package has no clock and does
// no I/O.
package health
