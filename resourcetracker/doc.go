// SPDX-License-Identifier: Apache-2.0

// Package resourcetracker is the loop that keeps Placement up to date with a driver: one [Tracker]
// per virt driver, one pass per compute node at a time.
//
//	every update_resources_interval, on events, after a back-off:
//	driver.AvailableNodes ─▶ for each node:
//	   journal                   a reshape without an answer? compare with Placement
//	   reportclient.Tree         what Placement says (no request while it is cached)
//	   ownership.Strip           without what the agent itself added
//	   driver.UpdateProviderTree what the node can give, edited into a copy
//	   └ ReshapeNeeded or a newer layout, and start-up lasts:
//	       its allocations, the driver's steps on new copies, driver.Guests
//	       on the tree that comes of it, reshape.Draft.Check
//	   providertree.Check        nothing impossible
//	   ownership.Merge           others' items stay; COMPUTE_NODE, OWNER_NOVA and
//	                             provider.yaml are added
//	   ownership.Drain           what goes and is in use stays, closed, until it is free
//	   reportclient.Plan         the difference, as ordered writes; empty: done
//	   reportclient.Apply        conflict: read and compute again, four times at most
//
// A pass must not read the absence of a driver as the absence of inventory. On any error Placement
// is left as it is, the node is shown as degraded with cause and hint, and the next pass comes
// after a back-off.
//
// What is ours of a node is recorded by package ownership, in memory and in the state directory:
// the union of old and new before a pass writes, the new after it. A pass that writes nothing
// touches no file.
//
// A reshape takes place only while start-up lasts, which for each node is until its first complete
// pass. It is checked as a whole before anything is written (see package reshape), and goes into
// package journal before it is posted. What is refused is an error of package reshape with all
// violations and a hint. Afterwards what guests hold is compared with the driver's list
// ([Config].Compare), until both agree.
//
// Errors are fatal only at start-up, and only where continuing would do harm: then they are a
// [*FatalError]. With [Config].Hold, which is the agent's default, a refused reshape or identity is
// not fatal: its node is held, and the other nodes are reported.
package resourcetracker
