// SPDX-License-Identifier: Apache-2.0

// Package fleet simulates the agents of many hosts: what they ask of Placement and of their cell,
// and what that costs the servers. docs/scaling.md has the figures.
//
// TestFleet runs real report clients, each with its own connections, from its own address, against
// Placement servers that are processes of their own, on SQLite files or on one database. There are
// no drivers: each client reports a tree that follows from the agent's number. The agents' clocks
// are simulated, so that an hour of a fleet takes as long as its requests do:
//
//	schedule ── the agent whose turn is next ──▶ worker: Tree, Plan, Apply ──▶ server
//	   ▲                                                  │
//	   └── when its next pass is, by the tracker's rule ◀─┘
//
// The phases of a run: create (all agents start on a Placement without their trees), restart (all
// start again, on trees that are there) and steady (all go on). The requests of each agent are
// checked against what its life so far must have cost.
//
// TestCell runs real workers of agents, without guests, against one cell, in real time: workers
// wait in requests of half a minute, which the cell measures with its own clock.
//
// The sizes of `go test` are small; `make fleet` and `make fleet-cell` measure.
package fleet
