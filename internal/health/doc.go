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
// A new condition needs
//
//   - its code (definitions.go) and its definition (definitions.toml);
//   - the fact that it follows from, in the status of the part that knows it; what the agent itself
//     knows is a field of Problems, which internal/agent/conditions.go sets, with a case in
//     conditions_test.go there. A fact is a state: of an event, such as a clock that stepped, the
//     part that saw it says for how long it is one. What the part has to
//     learn first from a cell is a field of an answer (cellwire.HostState), which older agents
//     ignore: a report (HostReport) with a new one is refused by older cells;
//   - its finding, with a row in TestFindings: evaluate.go, or identity.go for certificates;
//   - its section in docs/runbooks/conditions.md: go test ./internal/health -update writes it with
//     "Means" and "Do", and a person the rest, without which the test fails;
//   - go test ./internal/agent/telemetry -update, for the list of series. The metric, its alerts
//     and `status` have it from the definition;
//   - CHANGELOG.md.
//
// Only [Tracker.Evaluate] decides whether the agent is degraded, and why. [Definition] describes
// each code, and docs/runbooks/conditions.md has the same text. The types are those of the control
// socket and of `--output json`: fields are added, never renamed. The package has no clock and does
// no I/O.
package health
