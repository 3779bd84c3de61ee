// SPDX-License-Identifier: Apache-2.0

// Package identity keeps an agent from reporting as another host: it remembers, beside the uuid in
// compute_id, which host and machine this state directory belongs to and which compute nodes
// Placement is known to have had, and refuses to go on where that does not fit.
//
//	compute_id      the uuid of the host's own compute node, in Nova's format; may be
//	                provisioned, copied, kept over a reinstallation
//	identity.json   what this agent knows of itself: that uuid, the host's name, a hash of the
//	                machine's id, the nodes it reported
//
// At start-up, before anything is written ([State.Update]):
//
//	compute_id   host name   machine    then
//	is missing                          refused, if the state directory shows an earlier start
//	differs                             refused: exchanged without `compute-agent adopt`
//	same         same        same       go on
//	same         same        differs    go on with a warning: reinstalled, or moved to another
//	                                    machine. A machine id that is new at every boot (a system
//	                                    without a lasting /etc) must not keep a host down
//	same         differs     same       refused: the host was renamed. Go on if it has never
//	                                    reported anything
//	same         differs     differs    refused: a copy of another machine's state directory
//	same         differs     unknown    refused: one of the two
//
// And for each node, at start-up, when Placement does not know it ([State.CheckNewNode]): refused
// if it did know it once, or if it is new and the driver finds guests of a cloud on it: guests with
// an owner, a project or a user. Those created by hand do not count. Either the URL leads to a
// wrong Placement, or that one has lost its database; reporting the inventory of running guests as
// free would have a scheduler give it away a second time. `compute-agent adopt --as-new` says that
// it is meant.
//
// A host that gets another name takes the names of its resource providers with it: [PlanRenames].
//
// The machine's id itself is confidential (machine-id(5)); what is kept is a hash for this
// application alone.
package identity
