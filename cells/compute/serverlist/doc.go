// SPDX-License-Identifier: Apache-2.0

// Package serverlist has the calls of the compute API that list servers: GET /servers and GET
// /servers/detail. A list is one sorted page out of the pages of many cells.
//
//	query, filters ─▶ listRequest ─▶ build requests (API database) ─┐
//	                       ├─▶ all cells at once, merged ───────────┼─▶ page ─▶ serverview.View
//	                       └─▶ mappings of cells that are down ─────┘
//
// [Deps.Routes] are the calls. A cell that is down takes no other cell's servers away; its own are
// minimal records, from what the API database knows of them.
package serverlist
