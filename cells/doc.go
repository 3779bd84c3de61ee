// SPDX-License-Identifier: Apache-2.0

// Package cells is a Nova-compatible compute API over several cells that goes on answering when a cell is down.
//
//	clients ──▶ compute ──▶ quota, boot ──▶ apidb     what is known without asking a cell
//	               │             │
//	               └── listing ──┤
//	                             ▼
//	Placement ◀── placing      gather ──▶ cellclient ──HTTP──▶ cell ──▶ celldb     one process for each cell
//	    ▲                                                       ▲
//	    └───────────────────────── worker ──HTTP, long poll─────┘                 in the agent of each host
//
// This package puts it together: [NewAPI] is the process of the compute API, [NewCell] that of one cell. What an agent does for its cell is
// package worker, which internal/agent runs.
//
// A cell is a process with a database of its own. It can be killed, hang, or answer rubbish: each of that is a cell that is down. Its
// servers then appear with what the API database has of them, and everything else goes on as if it were not there.
package cells
