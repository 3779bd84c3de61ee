// SPDX-License-Identifier: Apache-2.0

// Package cell is the HTTP service of a cell: package wire's protocol over a database of package celldb, for the compute API and for the agents of the
// cell's hosts.
//
//	compute API ──┐                       ┌─▶ celldb.Store
//	              ├─▶ who? ─▶ what? ─▶ do ┤
//	agents ───────┘                       └─▶ bells, one for each host: a change rings, and who waits for work looks again
//
// It keeps nothing in memory but who waits: a cell may be killed at any time and goes on where its database is.
package cell
