// SPDX-License-Identifier: Apache-2.0

// Package domain reads and writes libvirt's XML of a domain.
//
// [Parse] reads of any domain, whoever made it, what says where it is on the host: processors, memory, devices, and whose it is. [Write]
// makes the XML of an instance from what was asked for and a [Decision], which hardware it gets. What Write made, Parse gives back: a mark in
// the domain's metadata, under a name space of the agent's own, holds what libvirt has no place for. It also tells the agent's instances
// from all other domains, which the agent never touches.
//
//	libvirt ──XML──▶ Parse ──▶ Domain ──▶ assignment: who is where, what is free
//	                                          │
//	libvirt ◀──XML── Write ◀── Decision ◀─────┘
package domain
