// SPDX-License-Identifier: Apache-2.0

// Package reportclient is a Placement client for one agent: it knows what Placement says of the agent's provider trees,
// works out what must be written so that Placement says something else, and writes it.
//
//	           ┌────────────────────────── Client ─────────────────────────┐
//	           │ cached tree  ◀── GET in_tree; inventories, traits, aggregates (only when the generation moved)
//	Tree() ────┤                                                            │
//	           └────────────────────────────────────────────────────────────┘
//	Plan(known, desired) ── pure ──▶ []Operation ── Apply() ──▶ PUT, POST, DELETE, each with the provider's generation
//
// # Cost
//
// A tree that was read less than the refresh interval ago costs no request, only a look whether Placement is there (a TCP
// connection, closed at once). Verifying it costs one GET (in_tree lists the
// generations, and every change of a provider raises its generation), plus three for each provider that moved. A change
// costs one write per provider and kind (inventory, aggregates, traits), plus one for each custom class or trait that
// Placement has not seen from us before.
//
// What the generation does not tell is aggregates that a client sets with a microversion before 1.19 (Nova uses 1.19). They
// are seen when the provider is next read, and looked at before aggregates are written, so that they are not lost.
//
// # Errors
//
// Every refused or lost request is a [*RequestError] that wraps one of the sentinels below, so callers decide with
// errors.Is. [ErrConflict] means that somebody else wrote: the client has already forgotten what it knew of that
// provider, and the caller reads the tree again and recomputes. Nothing is ever written again blindly.
package reportclient
