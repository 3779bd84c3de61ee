// SPDX-License-Identifier: Apache-2.0

// Package sqlite keeps the API database of the compute API in an SQLite file: in pure Go, with a write-ahead log and one fsync for each
// commit, before it is acknowledged.
//
// Several processes may have the file open. Writes begin with SQLite's write lock, so whatever a method decides on what it read holds when
// it commits, also against other processes; reads are a snapshot and wait for nobody.
//
// The schema has numbered steps (sql/). A file that is new or empty gets all of them; one that lacks some is for [OpenAndUpgrade] and
// [Migrate] alone, so that nobody upgrades it by accident under a running program of another version. The file is marked as this
// program's (application_id), and one of another program is refused untouched.
//
// One rare thing cannot be promised: when the disk fails at the very fsync of a commit, the change may be there after a crash of the
// machine although an error was returned.
package sqlite
