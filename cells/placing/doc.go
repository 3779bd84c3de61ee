// SPDX-License-Identifier: Apache-2.0

// Package placing is the scheduler's client of Placement: which hosts could take a server, claim one, move the claim, give it
// back, and what a project uses.
//
//	flavor ── RequestOf ──▶ Request ── Candidates ──▶ []Candidate ── Claim / Move ──▶ 204
//	                                                                     │
//	                     ErrConflict           same candidate again ◀────┤ 409
//	                     ErrConsumerConflict   it holds something:       │
//	                                           see Allocations, Move ◀───┤ 409
//	                     ErrNoRoom             next candidate ◀──────────┤ 409
//	                     ErrOutcomeUnknown     ask before doing more ◀───┘ no answer
//
// All but ErrConsumerConflict are errors of package placementclient.
//
// Every write carries the generation of the consumer, so that no two writers ever undo each other; and a write whose answer was
// lost is an error of its own, never one that says "it did not happen".
//
// # Cost
//
// Each method is one request, but that Release is two, and that a conflict costs one GET more, which tells the kinds of
// conflicts apart (Placement has one code for two of them).
//
// # Extensions
//
// A request with several groups and no group_policy is served by the bundled Placement, and not by
// OpenStack's: docs/placement-extensions.md. It is sent with the header Placement-Extensions at the
// microversion that the header needs, and the header of the answer says whether it was granted. All
// other requests are the same for every Placement.
package placing
