// SPDX-License-Identifier: Apache-2.0

// Package soak holds the tests that the bundled Placement loses nothing.
//
//	clients ──HTTP──▶ Placement (in process, or the real binary, killed and
//	   │               started again)
//	   ▼
//	a history: which client asked what, from when to when, and what was answered
//	   │
//	   ▼
//	porcupine: is there an order of the requests, each between its call and
//	its answer, in which a small sequential Placement answers the same?
//
// The sequential Placement (model) knows providers, inventories, consumers,
// allocations and generations of one tree, and answers with whole bodies. A
// request whose answer never came may have been done, all of it, or not at
// all. What is read after a crash is part of the history, so an acknowledged
// write that is lost, a write that is done by half and a generation that went
// back are all found. Wrappers that break a promise each show that the
// checker would notice.
//
// The histories on databases are of three servers on the three nodes of a
// Galera cluster, and on PostgreSQL with a standby; any request goes to any
// server. Servers and nodes are killed, stopped and cut off in networks of
// their own, disks are full, standbys are promoted:
//
//	clients ──▶ server 0   server 1   server 2      each on a host
//	                │          │          │         (a network namespace)
//	             node 0 ═══ node 1 ═══ node 2       each with a small disk
//
// When all is healed, a write through each server settles what became of the
// requests without an answer, all servers must show the same, and at the end
// placement db check finds the same digest on each node. A search for an order
// that is given up fails the test. These tests need root, for the networks.
//
// Other tests take the disk away: full, read-only, damaged. The tests are
// short under go test, and those on databases minutes long under make
// test-databases; with SOAK=10m in the environment (make soak) each of the
// storms goes on for that long. They have SQLite, or the engine of -database,
// but for those that are about a file and the disk below it. All print their
// seed, which make soak SEED=N repeats.
package soak
