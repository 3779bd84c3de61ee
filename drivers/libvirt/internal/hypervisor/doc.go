// SPDX-License-Identifier: Apache-2.0

// Package hypervisor keeps one connection to libvirt and makes it safe to use: every call has a deadline although libvirt's
// library knows none, and a daemon that is away, hangs or comes back is an ordinary event.
//
//	driver ── Call(ctx, link, …) ──▶ Link ── one goroutine ──▶ Conn (internal/binding, cgo)
//	                                  ├─ connects, one attempt at a time, with back-off
//	                                  ├─ hears when the connection breaks
//	                                  └─ tells when it is there again
//
// The package is pure Go: what it needs of libvirt is the interface [Conn].
package hypervisor
