// SPDX-License-Identifier: Apache-2.0

// Package domain reads and writes libvirt's XML of a domain.
//
// [Parse] reads the host's resources of any domain (processors, memory, devices) and its owner.
// [Write] writes the XML of an instance from its specification and a [Decision], the hardware that
// it gets. Parse returns what Write wrote: a mark in the domain's metadata, in the agent's own
// namespace, has what libvirt's elements cannot hold. The mark also distinguishes the agent's
// instances from all other domains, which the agent never touches.
//
//	libvirt ──XML──▶ Parse ──▶ Domain ──▶ assignment: what is used, what is free
//	                                          │
//	libvirt ◀──XML── Write ◀── Decision ◀─────┘
package domain
