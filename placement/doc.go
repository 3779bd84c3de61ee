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
// Commands for operators work on the same database. ManagedDatabase reads it, upgrades its schema
// and makes the consumer records that it lacks, in the service of this process that has it open if
// there is one. Adopt takes over a database of OpenStack's Placement, and HandBack gives it back.
// The package also has the service's admin socket, its configuration and its metrics.
package placement
