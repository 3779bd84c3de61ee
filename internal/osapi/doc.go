// SPDX-License-Identifier: Apache-2.0

// Package osapi is what the HTTP servers of this program have in common: Placement, the compute API, a
// cell, and the small ones beside them.
//
//	listener ──▶ Server ──▶ handler of the service
//	  bounds for connections,     Authenticator: who sends the request
//	  headers and TLS             oslopolicy: what the policy allows
//
// [Server] serves clients on a network, with bounds for what they may take; [Until] serves sockets of
// this machine's administrators. [Authenticator] finds out who sends a request: [NoAuth] believes it (for
// one machine), [TokenFile] knows tokens, and placement/keystone asks Keystone. A server that believes
// everybody listens where [IsLoopback] says that only this machine can reach it.
package osapi
