// SPDX-License-Identifier: Apache-2.0

// Package agentruns finds two machines with one identity: which runs of agents report as one host.
//
//	Process ── cellwire ────────────────────────────────▶ Agents.Add ──▶ Live, SeveralAgents
//	ProcessSender ── Compute-Agent-Process, a header ──▶ ReadProcessHeader ──▶ Watch.Add
//	ProcessSender ◀── the turn, and who else reports ─── Agents.Answer
//
// A name or a certificate does not say which process has it: a cloned disk has both. [Agents] are
// the runs that report as one host to one server, each with the token of its [Process]; there is
// what distinguishes two that live at the same time from one that was restarted. A cell and the
// enrolment service keep them in their databases, Placement in the memory of a [Watch].
package agentruns
