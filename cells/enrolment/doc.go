// SPDX-License-Identifier: Apache-2.0

// Package enrolment gives hosts their certificates.
//
//	operator: Invite, Evict ──▶ API database ◀── Service ◀── /v1/join ──── Join (the command)
//	    └── Token, good once ──▶ Join            Authority ◀── /v1/renew ── Renewer (the agent)
//
// A host is what an operator invited: its name, cell and compute nodes come from the enrolment in
// the API database, and nothing of them from a request for a certificate. A [Token] is good once:
// for one key, until it expires; sending it again with the same key is answered again, so that a
// lost answer does no harm. Compute nodes that the operator did not name are bound when the host
// names them first, and then stay.
//
// Certificates are renewed with themselves, each time with a new key. The last key that was shown
// is the host's; a renewed one counts from when it is shown on. Of two machines with one identity,
// one is refused, therefore, and both are logged. An expired certificate can still be renewed for
// the grace time, for hosts that were switched off: what ends an identity is [Evict].
package enrolment
