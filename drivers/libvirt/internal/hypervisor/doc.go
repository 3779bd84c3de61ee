// SPDX-License-Identifier: Apache-2.0

// Package hypervisor keeps one connection to libvirt and makes it safe to use: every call has a
// deadline, although libvirt's library has none, and it reconnects to a daemon that was stopped or
// hung.
//
//	driver ── Call(ctx, link, …) ──▶ Link ── one goroutine ──▶ Conn (libvirt*.go, cgo)
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
// What it needs of libvirt is the interface [Conn]. The files libvirt*.go implement it, and are the
// one place that touches libvirt's library. They need cgo and the build tag libvirt_dlopen, with
// which the library is loaded when the first connection is made: the binary is built without
// libvirt's headers and starts, with a clear error, on a machine without the library. Every
// reference to an object of the library is given back before a call returns, and closing a
// connection fails if one is left. One call, that for the states of all domains, is made past the
// library's Go binding (libvirt_states.go says why). Everything else is pure Go.
package hypervisor
