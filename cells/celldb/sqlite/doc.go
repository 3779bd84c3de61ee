// SPDX-License-Identifier: Apache-2.0

// Package sqlite keeps a cell's database in an SQLite file: in pure Go, with a write-ahead log and one fsync for each commit, before it is
// acknowledged; only the signs of life of hosts, which come again in seconds, wait for the next commit's.
//
// One process at a time has the file open: a change wakes the hosts that wait for it in that process.
package sqlite
