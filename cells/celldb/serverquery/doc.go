// SPDX-License-Identifier: Apache-2.0

// Package serverquery turns a [cellwire.ServerQuery] into SQL on the table of servers of package
// celldb, for SQLite, MySQL and PostgreSQL. It runs no statement.
//
//	ServerQuery ──Check──▶ Statement ──▶ rows, in order, of which a page begins after a key
//	                       Residual  ──▶ of MySQL and PostgreSQL: patterns, tags and metadata,
//	                                     which are looked at in the rows that come
//
// SQLite looks at patterns itself, by a function that this package makes known to its driver.
//
// Its tests are in cells/celldb, where the statements are run on all engines: query_test.go has any
// query, beside a filter and a sort over all servers, plan_internal_test.go which index answers.
package serverquery
