// SPDX-License-Identifier: Apache-2.0

// Package binding is the one place that touches libvirt's library: it makes of it what
// internal/hypervisor asks for.
//
// It needs cgo and the build tag libvirt_dlopen, with which the library is loaded when the first
// connection is made: the binary is built without libvirt's headers and starts, with a clear error,
// on a machine without the library.
//
// Every reference to an object of the library is given back before a call returns, and closing a
// connection fails if one is left. One call, that for the states of all domains, is made past the
// library's Go binding (states.go says why).
package binding
