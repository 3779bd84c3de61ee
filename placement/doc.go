// SPDX-License-Identifier: Apache-2.0

// Package placement puts a Placement service together: a database, the ledger on it, and the HTTP
// API on the ledger.
//
//	        ┌──────────────── Server ────────────────┐
//	HTTP ──▶│ api ──▶ ledger (all state, in memory) ──┼──▶ store: SQLite
//	        └──────────▲──────────────────────────────┘
//	Direct ────────────┘  (the same handler, without a socket)
//
// New opens a service and Serve serves it on a listener until its context ends. Direct gives
// programs that must work while no service runs, such as an offline upgrade, an http.RoundTripper
// on the same handler in their own process.
package placement
