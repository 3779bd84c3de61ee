// SPDX-License-Identifier: Apache-2.0

// Package cellmappings keeps the mappings of the API database in step with the cells: those of
// hosts and nodes (Nova's discover_hosts), and those of servers.
//
//	cells: nodes of hosts ──┐             ┌─▶ API database: hosts, nodes, enrolments
//	                        ├─▶ Discover ─┤
//	API database ───────────┘             └─▶ cells: which nodes are mapped, problems
//
//	API database: mappings, queued_for_delete ──┐
//	              databases seen of cells       ├─▶ Compare, Differing
//	cell: epoch and revision, states of servers ┘
//
// [Discover] says which hosts may be mapped. [Compare] says whether the database of a cell is the
// right one, and [Differing] which mappings say something else about a deletion than their cell. A
// cell detects nothing of this itself: its database may be an older copy, which is consistent.
//
// The scheduler does it periodically, and discovers hosts when a server finds none; the audit
// discovers them as a repair, and an operator with a command.
//
// Its tests are in cells/scheduler, discover_test.go, enrolled_test.go and guard_test.go.
package cellmappings
