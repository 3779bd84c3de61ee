// SPDX-License-Identifier: Apache-2.0

// Package backup copies databases from one engine to another, and compares them. A backup is an
// SQLite file with the schema that the database has, whatever its engine is. So what was backed up
// from one engine can be restored to another:
//
//	Create   database ──▶ new file, while the database is in use
//	Restore  file ──▶ empty database, which gets its tables first
//	Check    database or file ──▶ Digest, the same for the same rows on each engine
//
// Each copy is read again after it was made. It is an error if its digest differs from that of the
// source. A backup that is restored or examined is copied first, and not changed itself.
//
// Its tests are in placement/store, backup_test.go and restored_test.go, and in cells/celldb,
// move_test.go; in internal/sqldb, patience_test.go and upgrade_test.go.
package backup
