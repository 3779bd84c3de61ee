// SPDX-License-Identifier: Apache-2.0

// Package sqldb is the database kit of Placement's store, of the API database and of the databases
// of cells. It owns everything that is not a query:
//
//	Open        finds and locks a file, protects it, connects, and brings its schema up to date
//	DB.Write    one transaction, acknowledged only if it is in the files that the path names
//	DB.Read     one snapshot
//	DB.Backup   a consistent copy while the database is in use
//
// Package engine below it has the errors, which say what is wrong with a database and what to do
// about it, the addresses of databases, and what differs from one database engine to the other.
//
// # One process
//
// One process has an SQLite file open. Two locks keep others out:
//
//   - flock(2) on PATH-lock, taken before anything else. It is what our own processes ask, and it
//     is of an open file: a second [Open] in the same process is refused, too.
//   - SQLite's VFS unix-excl, which holds the POSIX lock of the file itself from the first read on,
//     so that other programs (sqlite3, OpenStack Placement) get "database is locked". It keeps the
//     index of the write-ahead log in memory; there is no file PATH-shm.
//
// POSIX takes all locks of a process on a file away when the process closes any descriptor of it.
// So this package looks into a file itself only while it holds PATH-lock and SQLite does not have
// the file open, and nothing else in this program may open it. What must work beside a running
// server asks that server.
//
// # Protection of the files
//
//   - A write is not acknowledged unless the path still names the files that the process has open.
//     SQLite itself goes on writing to a file that was deleted, renamed or replaced, and the writes
//     are lost.
//   - [DB.Problem] says whether writes fail, after a failed one until a write succeeds again. A
//     goroutine looks once a second, and logs when it begins and when it is over.
//   - A directory that once had a database has a marker file, so that a service does not start with
//     an empty database because the file was lost. A write-ahead log without its file is refused as
//     well.
//   - PATH-lock notes the newest version that was acknowledged, where there is one
//     ([DB.RecordVersion]), so that an older copy, or a file whose write-ahead log was removed, is
//     noticed.
//
// # Steps of a schema
//
// To change tables, add the next step, such as sql/0004_name.sql, in the package of the database:
//
//  1. Write SQL with words for what engines have differently: id $id, name $text(255) NOT NULL,
//     size $int NOT NULL, seen_at $time NOT NULL; steps.go has all. A table with $text ends with
//     ") $innodb;". Texts of cells are $bytes. Semicolons end lines.
//  2. What one engine alone needs is $sqlite(…), $mysql(…) or $postgres(…), around a clause, a line
//     or a statement; $servers(…) is the last two. Commas and lines that are left over go.
//  3. Let it run twice, and beside older programs: MariaDB commits each statement by itself. What
//     takes something away from older programs is a step with "-- contract" as its first line.
//  4. Run go test ./internal/sqldb: it shows what each engine gets, and the lines for
//     testdata/released-steps. From the release on, the step never changes.
//  5. Run go test ./the/package -args -database=mariadb, and with postgresql.
//
// # Several processes
//
// Each process that has a database of servers open has a row in the table that [Schema] names, with
// a number that grows while the process lives. So [Migrate] refuses a step that older programs
// cannot live with, by the names of those that do; and an offline migration is alone on a database.
package sqldb
