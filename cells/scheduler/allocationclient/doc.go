// SPDX-License-Identifier: Apache-2.0

// Package allocationclient is the scheduler's client of Placement: it reads allocation candidates,
// and claims and releases allocations.
//
//	resourcerequest.Request ──▶ Candidates ──▶ []Candidate ── Claim ──▶ 204
//	                                                            │
//	          ErrConflict            same candidate again ◀─────┤ 409
//	          ErrConsumerConflict    read Allocations, Claim ◀──┤ 409
//	          ErrInsufficientCapacity      next candidate ◀─────┤ 409
//	          ErrOutcomeUnknown      read before retrying ◀─────┘ no answer
//
// All but [ErrConsumerConflict] are errors of package placementclient. Every write carries the
// consumer generation, so that concurrent writers cannot undo each other.
package allocationclient
