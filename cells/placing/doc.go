// SPDX-License-Identifier: Apache-2.0

// Package placing is the scheduler's client of Placement: which hosts could take a server, claim one, move the claim, give it
// back, and what a project uses.
//
//	flavor ── RequestOf ──▶ Request ── Candidates ──▶ []Candidate ── Claim / Move ──▶ 204
//	                                                                     │
//	                     ErrGenerationConflict  same candidate again ◀───┤ 409
//	                     ErrConsumerConflict    it holds something:      │
//	                                            see Allocations, Move ◀──┤ 409
//	                     ErrNoRoom              next candidate ◀─────────┤ 409
//	                     ErrOutcomeUnknown      ask before doing more ◀──┘ no answer
//
// Every write carries the generation of the consumer, so that no two writers ever undo each other; and a write whose answer was
// lost is an error of its own, never one that says "it did not happen".
//
// # Cost
//
// Each method is one request, but that Release is two, and that a conflict costs one GET more, which tells the kinds of
// conflicts apart (Placement has one code for two of them).
package placing
