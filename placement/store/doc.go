// SPDX-License-Identifier: Apache-2.0

// Package store keeps a ledger in an SQL database, in the schema of OpenStack
// Placement itself and two tables more:
//
//	ledger_version   how many commits there were: the compare-and-swap that
//	                 lets several servers share one database
//	ledger_changes   what each of the last commits changed, so that the other
//	                 servers can follow without reading everything
//
// A commit is one transaction: the changed rows, then the rows of
// ledger_changes, and last the statement that moves ledger_version from the
// value the changes are based on. If that matches no row, somebody else
// committed first and nothing is written.
//
// This package has what all databases share: loading, committing, following,
// migrations. A Dialect says what is different; each database has a package
// of its own that opens it (store/sqlite).
package store
