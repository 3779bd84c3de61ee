// SPDX-License-Identifier: Apache-2.0

// Package quota counts what a project uses, or a user of it, and says what it may still boot.
//
//	API database: mappings, build requests ──┐
//	all cells at once: usage                 ├─▶ usage ──┐
//	or Placement: usages                     ┘           ├─▶ Check, Recheck
//	API database: limits of the project ─────────────────┘
//
// [Quotas] counts usage in all cells at once, and adds the build requests that no cell has yet. As
// in Nova, a server that is being deleted counts until it is deleted. For a cell that is down,
// Quotas counts the mappings and flavors in the API database, so usage stays exact during an outage
// but for what was being deleted there, where Nova omits that cell. As the specification "Handling
// a down cell" wants, a project with living servers in a cell that is down cannot boot, unless
// policy allows it.
//
// With CountFromPlacement, instances come from the API database and cores and RAM from Placement:
// no cell is asked. As in Nova, this starts when all mappings of the project are migrated.
package quota
