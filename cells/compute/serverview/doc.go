// SPDX-License-Identifier: Apache-2.0

// Package serverview is what the calls about servers have in common, how a server is found, read
// and shown, and the calls that list servers.
//
//	request ─▶ Servers.Mapping: may the caller know of it ─▶ Placed: in which cell, or being built
//	                                                            └─▶ Read, Current: as it is now
//	                                                                  └─▶ View ─▶ Whole, Brief, …
//
// [View] writes a server as a microversion and a caller have it; the schemas beside it are the same
// for the reference.
//
// A list is one sorted page out of the pages of many cells:
//
//	query, filters ─▶ listRequest ─▶ build requests (API database) ─┐
//	                       ├─▶ all cells at once, merged ───────────┼─▶ page ─▶ View
//	                       └─▶ mappings of cells that are down ─────┘
//
// [Lists.Routes] are the calls; all others are in servers. A cell that is down takes no other
// cell's servers away; its own are minimal records, from what the API database knows of them.
package serverview
