// SPDX-License-Identifier: Apache-2.0

// Package pki is who a certificate is for, a CA that makes some, and which hosts are refused
// whatever they show.
//
//	NewRequest ──▶ ParseRequest ──▶ Authority.Sign ──▶ a certificate for an Identity
//	Peer ──▶ Identity ──▶ DenyList.Check     at each request: a connection outlives a certificate
//
// A certificate of compute-agent's own CA says of itself what it is: urn:compute-agent:host:NAME
// or urn:compute-agent:service:NAME, a URI among its alternative names. A host's also has
// urn:uuid:NODE for each compute node that the host was enrolled for, and
// urn:compute-agent:cell:NAME for its cell. A certificate of another CA,
// without such a URI, is known by its names only: those of the compute API are configured, and all
// others are hosts.
package pki
