// SPDX-License-Identifier: Apache-2.0

// Package enrolment gives hosts their certificates.
//
//	operator: Invite, Evict ──▶ API database ◀── Service ◀── /v1/join ──── Join (the command)
//	    └── Token, good once ──▶ Join            Authority ◀── /v1/renew ── Renewer (the agent)
//
// An operator invites a host. Its name, cell and compute nodes come from the enrolment in the API
// database, never from the request for a certificate. A [Token] is valid for one key, until it
// expires. If it is sent again with the same key it is answered again, so that a lost answer does
// no harm. Compute nodes that the operator did not name are bound to the host when it first names
// them, and then stay.
//
// A host renews its certificate by showing the present one, each time with a new key. The host's
// key is the last one that it has shown; a new key counts as soon as it is shown. So if two
// machines have one identity, one of them is refused, and both are logged. An expired certificate
// can still be renewed for the grace time, for hosts that were switched off. Only [Evict] ends an
// identity.
package enrolment
