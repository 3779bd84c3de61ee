// SPDX-License-Identifier: Apache-2.0

// Package hypervisor keeps one connection to libvirt and makes it safe to use: every call has a
// deadline, although libvirt's library has none, and it reconnects to a daemon that was stopped or
// hung.
//
//	driver ── Call(ctx, link, …) ──▶ Link ── one goroutine ──▶ Conn (internal/binding, cgo)
//	                                  ├─ connects, one attempt at a time, with back-off
//	                                  ├─ is notified when the connection breaks
//	                                  ├─ leaves a connection to a call that does not come back
//	                                  └─ reports when it is available again
//	driver ◀─ Next ── Watcher ◀── EventLog ◀── events of domains and node devices,
//	                                           "everything" with each new connection
//
// [Domains] lists domains with a [Key] that says, without a look at its XML, whether a domain has
// most probably stayed as it was.
//
// The package is pure Go: what it needs of libvirt is the interface [Conn].
package hypervisor
