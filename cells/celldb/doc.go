// SPDX-License-Identifier: Apache-2.0

// Package celldb is a cell's database: its servers, the services of its hosts and their compute nodes. [Store] is what a cell does with it;
// [Open] makes one of an SQLite file.
//
// What may become of a server is decided here and nowhere else, by the transitions of a [Record]. They know no database and no clock, and a
// store runs each in a transaction. All of them may be repeated:
//
//	Insert ──▶ hidden ──Discard──▶ erased
//	             │ Release
//	             ▼
//	   building ──spawned──▶ active ◀──power──▶ stopped       building ──failed──▶ error
//	             ╲             │ Delete(soft)  ▲ settled
//	              ╲            ▼               │
//	               ╲     soft-deleting ──settled──▶ soft-delete ──Restore──▶ restoring
//	                ╲          │
//	                 ╲         ▼ Delete(normal), from any state
//	                  ╰──▶ deleting ──gone──▶ deleted        (its host shows life)
//	                       deleted, unfreed, cleanup due     (it does not: Freed ends the one, gone both)
//
// Each change of a row raises the cell's revision in the same transaction, so that a host can ask for what is newer than what it knows.
package celldb
