// SPDX-License-Identifier: Apache-2.0

// Package dbfile guards the files of an SQLite database while a process has it open, and when it is
// created:
//
//   - A write is not acknowledged unless the path still names the files that the process has open. SQLite
//     itself goes on writing to a file that was deleted, renamed or replaced, and the writes are lost.
//   - [File.Problem] says whether writes fail, after a failed one until a write succeeds again. A
//     goroutine looks once a second, and logs when it begins and when it is over.
//   - A directory that once had a database has a marker file, so that a service does not start with an
//     empty database because the file was lost.
package dbfile
