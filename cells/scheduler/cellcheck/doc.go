// SPDX-License-Identifier: Apache-2.0

// Package cellcheck compares what a cell says of its servers with what the API database has:
// whether the database of the cell is the right one, and which instance mappings say something else
// about a deletion. The scheduler's reconciler, the audit and the operator's commands use it.
//
//	API database: mappings, queued_for_delete ──┐
//	              databases seen of cells       ├─▶ Compare, Differing
//	cell: epoch and revision, states of servers ┘
//
// A cell detects nothing of this itself: its database may be an older copy, which is consistent.
package cellcheck
