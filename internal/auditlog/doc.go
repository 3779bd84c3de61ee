// SPDX-License-Identifier: Apache-2.0

// Package auditlog keeps who changed what, from what to what: one JSON object per line in a file
// that is only appended to, and entries with fields in systemd's journal.
//
//	service ── Write, Enqueue ──▶ queue ──▶ one goroutine ──▶ file (rotated), journal
//	                                              │
//	                            what cannot be written is kept, up to a bound, and tried again
//
// A [Record] is one request or command that changed something, with a [Change] for each thing that
// it changed. A service writes a record after the change is durable and before it answers. The
// record is then with the kernel: it outlives the process, and with [Options].Sync the machine.
//
// A log that cannot be written does not stop the service, unless [Options].Required says so: then
// [Log.Refusal] is an error until all records are written, and services refuse writes with it.
//
// Values in a record are facts about things, never secrets: no user_data, key material or tokens.
//
// [Reader] reads the files of a log in order, also while they are written. [Search] finds one
// request in the logs of all services: in records, in lines in JSON and in entries of the journal.
package auditlog
