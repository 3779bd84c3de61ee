// SPDX-License-Identifier: Apache-2.0

// Package auditlog keeps who changed what, from what to what: one JSON object per line in a file
// that is only appended to, and entries with fields in systemd's journal.
//
//	service ── Intend ── commit ── Write, Enqueue ── answer
//	              └────────┬─────────────┘
//	                     queue ──▶ one goroutine ──▶ file (rotated), journal
//	                                     │
//	              what cannot be written is kept, up to a bound, and tried again
//
// A [Record] is one request or command that changed something, with a [Change] for each thing that
// it changed. A service writes two records with the same ID: one with the outcome Intended before
// the change is committed, and one after the commit and before it answers. If the service is killed
// in between, only the first one is there. A written record is in the kernel, so that it outlives
// the process. With [Options].Sync, the first record is also synced to the disk; the second one is
// synced with the next first one.
//
// If the log cannot be written, the service goes on, unless [Options].Required is set. Then a
// change is made only after its intent was written, and [Log.Refusal] returns an error, with which
// services refuse writes, until all records are written.
//
// Values in a record are facts about things, never secrets: no user_data, key material or tokens.
//
// [Reader] reads the files of a log in order, also while they are written. [Search] finds one
// request in the logs of all services, the [Sources]: in records, in lines in JSON and in the
// journal.
package auditlog
