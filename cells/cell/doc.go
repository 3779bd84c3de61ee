// SPDX-License-Identifier: Apache-2.0

// Package cell is the HTTP service of a cell: the protocol of package cellwire over a database of
// package celldb, for the compute API and the agents of the cell's hosts.
//
//	compute API ──┐                                          ┌─▶ celldb.Store
//	              ├─▶ authenticate ─▶ authorize ─▶ handle ───┤
//	agents ───────┘                                          └─▶ broadcasts: a change wakes the
//	                                                             long polls of its host
//
// It keeps only the waiting requests in memory: a cell may be killed at any time, and continues
// from its database. Streams end with it: it pairs the end of a client with that of an agent, which
// learns of it by its long poll, and carries bytes between them within the bounds of the purpose.
// Cell.connect is the whole way of a stream; who may ask for one is decided before.
//
// Several processes may serve one cell from a database of servers: each finds in it what the others
// changed, and wakes the hosts that wait here for that.
package cell
