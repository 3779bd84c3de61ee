// SPDX-License-Identifier: Apache-2.0

// Package placement puts a Placement service together: a database, the ledger on it, and the HTTP
// API on the ledger.
//
//	        ┌──────────────── Server ────────────────┐
//	HTTP ──▶│ api ──▶ ledger (all state, in memory) ──┼──▶ store: a file, or servers
//	        └──────────▲──────────────────────────────┘
//	Direct ────────────┘  (the same handler, without a socket)
//
// New opens a service and Serve serves it on a listener until its context ends. NewDirect gives
// programs that must work while no service runs, such as an offline upgrade, an http.RoundTripper
// on the same handler in their own process.
//
// Commands for operators work on the same database: ManagedDatabase opens it or asks the service
// that has it open, adopts a database of OpenStack's Placement and hands it back, upgrades its
// schema and deletes records that nothing needs. The package also has the service's admin socket,
// its configuration and its metrics.
package placement
