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
// Other tests take the disk away: full, read-only, damaged. The tests are
// short under go test; with SOAK=10m in the environment (make soak) each of
// the storms goes on for that long.
package soak
