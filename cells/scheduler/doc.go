// SPDX-License-Identifier: Apache-2.0

// Package scheduler decides where a server goes and carries it there: quota, candidates from
// Placement, the boot protocol, deletion, and reconciliation after a process died in between.
//
//	Create ──▶ quota ──▶ API database: mapping (no cell), request spec, build request ──▶ 202
//	             │
//	scheduler    ▼            one worker per server at a time, at most Workers together
//	  candidates ▶ Claim (API database) ▶ PUT /allocations ▶ quota again ▶ Insert (cell, hidden)
//	     ▲                                                       │            │
//	     └───────────────── next candidate ◀─────────────────────┴────────────┤
//	                                                                          ▼
//	  no host ─▶ Insert into cell0, with the fault ───▶ Place (API database): commits the cell
//	                                                                          ▼
//	                                      Release (cell: visible, its host starts) ─▶ Built
//
// Host aggregates, mirrored to Placement, and server groups say which hosts a server may go to; the
// servers of one group are built one after the other.
//
// A process may end after each arrow. The next scheduler resumes every build request: from the
// beginning while the server has no cell, at Release when it has one. The reconciler finds what no
// build request leads to: claims, hidden rows, allocations of deleted rows, mappings that differ
// from the cell.
//
// The reconciler detects a cell that lost its database, or has an older copy, by the epoch and the
// revision in the cell's answers. It leaves such a cell alone until the right database is back or
// an operator accepts the one there is: see [cellmappings.Compare].
//
// The host for a migration is chosen in the same way, and claimed with one POST /allocations for
// two consumers. The cell stores the migration; the API database has nothing about it.
//
// A timeout never means "not done". An operation that may have happened is either repeated (Release
// and Delete are idempotent) or found later by the record written before it: a claim before
// allocations, a hidden row before Place. The claim of a server in cell0 stays after Built until
// the reconciler clears it. Such a server has no allocations, so Placement would accept a late
// request for some, and only the claim records that one was sent.
//
// # Several processes
//
// Create, Delete and Restore work in every process of an API database. Building, reconciling,
// reclaiming and discovery are for the process that holds the lease. Its writes to the API database
// check the lease in the same transaction ([Options.Fenced]). It confirms the lease before each
// request to a cell or to Placement that only one process may send. Its changes in cells have its
// term, so that a cell refuses those that arrive after a change of a later holder. So a process
// that was stopped, and continues after another one took over, does not undo what the other one
// did.
//
// # Placement
//
// Package resourcerequest makes the requests of a flavor, and package placementcalls asks for
// their candidates, claims them and releases allocations. Hosts with NUMA cells as resource
// providers and hosts without are asked in different ways, at the same time; what is preferred is
// asked for first (docs/decisions/0019). Without any such provider there is one request.
//
// # Cost
//
// Beside the API database, a boot costs one discovery of each cell on creation, then GET
// /allocation_candidates (two where some hosts have NUMA cells as providers, which GET /traits says
// every five seconds) and PUT /allocations, one discovery of each cell for the second quota
// check, and an insert and a release in one cell. All servers scheduled together share one services
// request per cell. If Placement has more candidates than it returned and none of these takes the
// server, the scheduler asks host by host. A reconciler round is one request to each cell that is
// up, and one more to those with servers to compare.
package scheduler
