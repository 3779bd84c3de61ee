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
// it changed. A service writes a record before the change is committed, whose outcome is Intended,
// and one with the same ID after that and before it answers. Of what a kill interrupts the first
// one alone is there. A record is then with the kernel: it outlives the process. With
// [Options].Sync the first one outlives the machine, with all changes; the second one is synced
// with the next of those.
//
// A log that cannot be written does not stop the service, unless [Options].Required says so: then
// no change is made whose intent was not written, and [Log.Refusal] is an error until all records
// are written, with which services refuse writes before they begin.
//
// Values in a record are facts about things, never secrets: no user_data, key material or tokens.
//
// [Reader] reads the files of a log in order, also while they are written. [Search] finds one
// request in the logs of all services, the [Sources]: in records, in lines in JSON and in the
// journal.
package auditlog
