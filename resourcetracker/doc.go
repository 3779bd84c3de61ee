// SPDX-License-Identifier: Apache-2.0

// Package resourcetracker is the loop that keeps Placement saying what a driver says: one [Tracker] per virt driver, one
// pass per compute node and turn.
//
//	            ┌──────────── every update_resources_interval, on events, after a back-off ───────────┐
//	            ▼                                                                                     │
//	driver.AvailableNodes ─▶ for each node:                                                           │
//	   journal                   a reshape without an answer? compare with Placement                  │
//	   placement.Tree            what Placement says (no request while it is fresh)                   │
//	   driver.UpdateProviderTree what the node can give, edited into a copy                           │
//	   └ ReshapeNeeded, and start-up lasts:                                                           │
//	       placement.AllocationsForProviderTree, driver.UpdateProviderTree on fresh copies, guard     │
//	   guard                     nothing impossible, nothing foreign                                  │
//	   decorate                  COMPUTE_NODE, OWNER_NOVA                                              │
//	   placement.Plan            the difference, as ordered writes ── empty: done ────────────────────┤
//	   placement.Apply           ── conflict: read again and compute again, four times at most ───────┘
//
// What a pass may not do: read the absence of a driver as the absence of inventory. On any error Placement is left as it
// is, the node is shown as degraded with the cause and the remedy, and the next pass comes after a back-off.
//
// A reshape takes place only while start-up lasts, which for each node is until its first complete pass. It is checked as a
// whole before anything is written (see guardReshape), and goes into package journal before it is posted. What is refused is a
// [*ReshapeError] with all offenders and the way out.
//
// Errors are fatal only at start-up, and only where going on would hurt: a [*FatalError] says so. With [Config].Hold, the node
// of a refused reshape is held instead.
package resourcetracker
