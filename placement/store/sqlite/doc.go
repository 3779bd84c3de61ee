// SPDX-License-Identifier: Apache-2.0

// Package sqlite keeps a ledger in an SQLite file: in pure Go, with a
// write-ahead log and one fsync for each commit, before it is acknowledged.
// A file of OpenStack Placement is adopted where it is.
//
// Several processes may have the file open and stay right by ledger_version;
// a process that opens it exclusively keeps the others out and saves the
// questions.
package sqlite
