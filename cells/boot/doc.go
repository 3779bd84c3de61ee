// SPDX-License-Identifier: Apache-2.0

// Package boot sees servers into cells and out of them: create, schedule, delete, restore, and what has to be put right when a
// process died in between.
//
//	Create ──▶ API database: mapping (no cell), specification, build request ──▶ 202
//	             │
//	scheduler    ▼            one worker per server at a time, at most Workers together
//	  candidates ─▶ Claim (API database) ─▶ PUT /allocations ─▶ quota again ─▶ Insert (cell, hidden)
//	     ▲                                                          │              │
//	     └───────────────── next candidate ◀────────────────────────┴──────────────┤
//	                                                                               ▼
//	  nowhere ─▶ Insert into cell0, with the fault ─────────────────────────▶ Place (API database): the one decision where it is
//	                                                                               ▼
//	                                                          Release (cell: visible, its host begins) ─▶ Built
//
// A process may end after each arrow. A build request that is still there is taken up again: from the beginning while the server is
// placed nowhere, at Release when it is. What no build request leads to any more the reconciler finds: claims, hidden rows, deleted
// rows whose allocations are left, flags that say something else than the cell.
//
// A cell that has lost its database, or has an older copy of it, is noticed by the epoch and the revision in what it answers to the reconciler, which
// then leaves it alone until the right one is back or an operator has accepted what there is: see [Compare].
//
// A time-out is never read as "not done": what may have happened is either repeated so that repeating changes nothing (Release,
// Delete), or left to be found by what was written before it (a claim before allocations, a hidden row before a decision).
//
// # Cost
//
// A boot is, beside the API database: one survey of each cell when it is asked for; then GET /allocation_candidates and PUT
// /allocations, one survey of each cell for the second look at the quota, and an insert and a release in one cell. The services of
// all cells are asked for once for all that is scheduled together. Where Placement has more candidates than it gives at once, and none of these
// takes the server, the hosts are asked for one by one. A reconciler's round is one request to each cell that is up, and
// one more to those with servers to compare.
package boot
