// SPDX-License-Identifier: Apache-2.0

// Package apidb is the database of the compute API, with everything that the API knows of all cells
// without asking them: cell mappings and the database that each cell has; host and node mappings;
// instance mappings with queued_for_delete; request specs, build requests and claims; quotas,
// flavors, host aggregates, server groups and key pairs; and enrolments, which say which hosts may
// have a certificate, and for which nodes.
//
// The API shows servers of a cell that is down from here and nowhere else. Therefore a mapping and
// a request spec are written before a server is inserted into a cell.
//
// The rest of the program uses [Store]. [Open] opens a SQLite file, for one process, or a database
// of MariaDB, MySQL or PostgreSQL servers, which several processes may use at the same time. Each
// method is one transaction, and changes that belong together are one method, so that a process may
// end between any two calls. Only one writer of a database writes at a time.
//
// The schema has numbered steps (sql/), the same for all engines. A new or empty database gets all
// of them. One that lacks some is opened by [OpenAndUpgrade] and [Migrate] only, so that a service
// does not upgrade it by accident. The file is marked as this program's (application_id), and in a
// database of servers there is the table api_schema; a database of another program is rejected and
// left unchanged.
//
// If the disk fails during the fsync of a commit, the change may be there after a crash of the
// machine although an error was returned.
package apidb
