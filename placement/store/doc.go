// SPDX-License-Identifier: Apache-2.0

// Package store keeps a ledger in an SQL database, in the schema of OpenStack
// Placement itself and four tables more:
//
//	ledger_version     how many commits there were: the compare-and-swap that
//	                   lets several servers share one database
//	ledger_changes     what each of the last commits changed, so that the other
//	                   servers can follow without reading everything
//	ledger_hosts       what each host may report of itself
//	ledger_migrations  which steps of this program's schema were run
//
// A commit is one transaction. Its first statement moves ledger_version from
// the value the changes are based on: if that matches no row, another server
// committed first and nothing is written. The changed rows follow, and last
// the rows of ledger_changes, with a token of the commit: after a COMMIT that
// had no answer, it says whether that happened.
//
// An SQLite file belongs to one process: nothing is asked before a
// read, and ledger_changes is not written. Several servers share other
// databases.
package store
