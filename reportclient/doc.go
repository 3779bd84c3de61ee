// SPDX-License-Identifier: Apache-2.0

// Package reportclient reports for one agent: it caches the agent's provider trees as Placement has
// them, plans the writes that turn them into the desired trees, and sends these writes.
//
//	Tree() ──▶ cached tree ◀── GET in_tree; and, of each provider whose generation
//	                           moved, inventories, traits and aggregates
//	Plan(known, desired) ── pure ──▶ []Operation ── Apply() ──▶ PUT, POST, DELETE,
//	                                               each with the provider's generation
//	PlanReshape(known, desired, before, after) ── the same, with what moves in one POST /reshaper
//
// # Cost
//
// A tree that was read less than the refresh interval ago costs no request, only a TCP probe of
// Placement (a connection, closed at once). Verifying it costs one GET (in_tree lists the
// generations, and every change of a provider raises its generation), plus three for each provider
// that moved. A change costs one write per provider and kind (inventory, aggregates, traits), plus
// one for each custom class or trait that Placement has not seen from us before.
//
// Providers that share something through an aggregate are shown beside the tree. They cost nothing
// while no provider of the tree is in an aggregate, and then one GET more per 100 aggregates for
// each verification, and three for each sharing provider that moved.
//
// A client that sets aggregates with a microversion before 1.19 does not raise the generation (Nova
// uses 1.19). Such aggregates are seen when the provider is next read. Before aggregates are
// written, they are read once more, so that none is lost.
//
// # Reshape
//
// Inventory that is allocated can only move together with its allocations.
// [Client.AllocationsForProviderTree] gathers them (one GET per provider and per consumer), a
// driver edits tree and allocations, [NewReshapePlan] puts what moves, and nothing else, into one
// [Reshape], and Apply posts it once:
//
//	ReshapeLog.Begin ─▶ POST /reshaper
//	  ├─ 204 ─────────────────────────▶ happened: noted without reading
//	  ├─ 409 concurrent_update ───────▶ ErrConflict: all forgotten, compute again
//	  ├─ any other refusal ───────────▶ ErrReshapeRefused, with what to do
//	  └─ no answer, 5xx, garbage ─ compare
//	       ├─ as it would be ─────────▶ happened
//	       ├─ as before ──────────────▶ did not: fenced off, then ErrConflict
//	       └─ neither, or no answer ──▶ unknown: Placement is unavailable
//
// A reshape costs one request. The generations afterwards are known without reading. Placement
// raises the generation of a provider whose inventory moves: by one for its interim inventory,
// unless it will have none; by one if allocations touch it; and by one for its final inventory. If
// only allocations of a provider change, it raises the generation by at least one.
//
// Comparing costs one GET per provider and consumer of the reshape. A request that may still be on
// its way is fenced off with a write that changes nothing but a generation, so that "it did not
// happen" stays true.
//
// # Errors
//
// Requests are sent by package placementclient, which retries and authenticates. Every refused or
// lost request is a [*RequestError] that wraps one of the sentinels below, so callers decide with
// errors.Is. [ErrConflict] means that another client wrote: the client has already forgotten what
// it knew of that provider, and the caller reads the tree again and recomputes. Nothing is ever
// written again blindly.
package reportclient
