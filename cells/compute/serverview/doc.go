// SPDX-License-Identifier: Apache-2.0

// Package serverview is what the calls about servers have in common: how a server is found, read
// and shown.
//
//	request ─▶ Servers.Mapping: may the caller know of it ─▶ Placed: in which cell, or being built
//	                                                            └─▶ Read, Current: as it is now
//	                                                                  └─▶ View ─▶ Whole, Brief, …
//
// [View] writes a server as a microversion and a caller have it; the schemas beside it are the same
// for the reference. The package has no calls: those are in serverlist and servers, which do not
// know each other.
package serverview
