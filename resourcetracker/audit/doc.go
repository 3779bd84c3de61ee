// SPDX-License-Identifier: Apache-2.0

// Package audit compares the allocations on a compute node with the guests that its driver lists.
// [Compare] is pure: it takes the answers of Placement and the driver, and returns findings, each
// with the reason if it must not be healed. [Auditor] asks the drivers and Placement, and heals.
//
//	what Placement says ([reportclient.Holdings]) ─┐              Node: orphaned allocations,
//	what the driver says ([plugins.Guest])        ─┼─▶ Compare ─▶ guests, over-committed
//	what the agent remembers (Sighting)           ─┤              inventories
//	what its cell says (Server)                   ─┘
//
// An allocation is orphaned when its consumer is no guest that the driver lists. That alone is no
// reason to delete it: the consumer may be a migration, whose uuid no hypervisor knows; a guest
// that is about to be built; or something that Nova does not know of. So it is taken for forgotten
// only with proof, all of which must hold:
//
//   - every driver of the host has listed its guests just now, completely, and none of them is this
//     consumer;
//   - the agent has seen the driver list this very consumer before, or an operator says that it was
//     removed;
//   - it has been gone from the list, and the allocation has not been written, for a while
//     ([Proof].MinAge): a guest that is rebooted hard is not defined for a moment, and one that
//     comes back from another host is given its allocation before it arrives;
//   - the allocation was not written after it had gone: what is given to a guest that is
//     unavailable is for its return, and a live migration may wait for hours in a queue; or an
//     operator names it;
//   - the driver lists some guest on the node: one that lists none may look at the wrong
//     hypervisor, and a guest whose definition is lost is there again after a hard reboot; or an
//     operator names it;
//   - the consumer does not change meanwhile (its generation).
//
// If the host has a cell, the cell lists the servers that are on the host, or move from it or to
// it. Neither a guest that is kept so that its server can go back, nor the allocations of its
// migration are a finding. The allocations of a server stay as long as the cell has the server,
// also if its guest is missing. Nothing is written while the cell does not answer.
//
// A provider of the tree that shares its inventory with other hosts (MISC_SHARES_VIA_AGGREGATE)
// counts as shared storage does: its consumers may be guests of other hosts, and what is held of it
// stays.
//
// A guest without allocations gets them only if the driver knows all that it has and whose it is,
// and only if it holds nothing anywhere: while it moves between hosts, what it holds is elsewhere.
// Amounts that differ are reported and never changed: Placement has what the scheduler decided, and
// an operator must find out which of the two is right.
package audit
