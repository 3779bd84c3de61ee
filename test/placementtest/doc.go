// SPDX-License-Identifier: Apache-2.0

// Package placementtest has what the tests of Placement's packages share.
//
// For the ledger and its stores: a naive [Model] of Placement's rules (maps and loops), random
// writes ([DrawOp]), a plain [Dump] of a snapshot to compare by, and stores in memory: [RowStore]
// keeps rows for several ledgers, [MemoryStore] counts commits.
//
// For the search for allocation candidates: a [Forest] is a set of provider trees as data, random
// or written by hand; [CandidateRequests] draws requests that suit it; [AllCandidates] finds every
// candidate straight from the rules, without regard for cost.
package placementtest
