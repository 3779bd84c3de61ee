// SPDX-License-Identifier: Apache-2.0

// Package placementcalls has the requests of the scheduler to Placement: for allocation candidates,
// for claims and releases of allocations, for the capacity of compute nodes, and the mirror of host
// aggregates.
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
//
// Host aggregates say where a server may be, and their hosts are mirrored to Placement:
//
//	aggregates, AggregateOptions, the server ─▶ DestinationOf ─▶ Destination: those of its host
//	API database ─▶ Mirror ─▶ Placement: the aggregates of resource providers
package placementcalls
