// SPDX-License-Identifier: Apache-2.0

// Package resourcetracker is the loop that keeps Placement saying what a driver says: one [Tracker] per virt driver, one
// pass per compute node and turn.
//
//	            ┌──────────── every update_resources_interval, on events, after a back-off ───────────┐
//	            ▼                                                                                     │
//	driver.AvailableNodes ─▶ for each node:                                                           │
//	   placement.Tree            what Placement says (no request while it is fresh)                   │
//	   driver.UpdateProviderTree what the node can give, edited into a copy                           │
//	   guard                     nothing impossible, nothing foreign                                  │
//	   decorate                  COMPUTE_NODE, OWNER_NOVA                                              │
//	   placement.Plan            the difference, as ordered writes ── empty: done ────────────────────┤
//	   placement.Apply           ── conflict: read again and compute again, four times at most ───────┘
//
// What a pass may not do: read the absence of a driver as the absence of inventory. On any error Placement is left as it
// is, the node is shown as degraded with the cause and the remedy, and the next pass comes after a back-off.
//
// Errors are fatal only at start-up, and only where going on would hurt: a [*FatalError] says so.
package resourcetracker
