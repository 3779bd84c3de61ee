// SPDX-License-Identifier: Apache-2.0

// Package libvirtd finds out whether a libvirt daemon answers on this machine, and starts a private
// one where none does (a container, a machine without systemd, a test).
//
//	Find ──▶ Probe: connect, one RPC, answer        /run/libvirt/libvirt-sock-ro, …  → "qemu:///system"
//	StartPrivate ──▶ Daemon                          RUNTIME/libvirt-sock             → "qemu+unix:///system?socket=…"
//
// A private daemon shares nothing with a daemon of the system: its configuration, sockets, state
// and capabilities cache are its own. As root it lives in a mount namespace in which /run/libvirt,
// /var/lib/libvirt, /var/cache/libvirt and /etc/libvirt are directories of the caller's; as another
// user it is a session daemon with XDG directories of the caller's. So several can run beside each
// other, and none starts a network or a guest that the system has marked for automatic start.
//
// The package speaks to daemons without libvirt's library, hence without cgo.
package libvirtd
