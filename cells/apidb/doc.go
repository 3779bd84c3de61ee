// SPDX-License-Identifier: Apache-2.0

// Package apidb is the API database of the compute API: what is known of all cells without asking them. Cell mappings and which database each cell
// has, host and node mappings, instance mappings with queued_for_delete, request specifications, build requests, claims, quotas and flavors.
//
// What an answer says of a server in a cell that is down comes from here and nowhere else: so a mapping and a specification are written before
// a server gets to a cell.
//
// [Store] is what the rest of the program uses; package sqlite below makes one of a file. Everything that belongs together is one
// method and one transaction, so that a process may end between any two calls.
package apidb
