// SPDX-License-Identifier: Apache-2.0

// Package apidb is the API database of the compute API: what is known of all cells without asking them. Cell mappings and which database each cell
// has, host and node mappings, instance mappings with queued_for_delete, request specifications, build requests, claims, quotas and flavors.
//
// What an answer says of a server in a cell that is down comes from here and nowhere else: so a mapping and a specification are written before
// a server gets to a cell.
//
// [Store] is what the rest of the program uses; [Open] makes one of an SQLite file, with a write-ahead log and one fsync for each commit, before
// it is acknowledged. Everything that belongs together is one method and one transaction, so that a process may end between any two calls.
//
// The schema has numbered steps (sql/). A file that is new or empty gets all of them; one that lacks some is for [OpenAndUpgrade] and
// [Migrate] alone, so that a service does not upgrade it by accident. The file is marked as this program's (application_id), and one of another
// program is refused untouched.
//
// One rare thing cannot be promised: when the disk fails at the very fsync of a commit, the change may be there after a crash of the
// machine although an error was returned.
package apidb
