// SPDX-License-Identifier: Apache-2.0

// Package celldb is the database of a cell: its servers, the services of its hosts and their
// compute nodes. [Store] is what a cell uses; [Open] opens a SQLite file.
//
// The transitions of a [Record] are the state machine of a server, and the only place where its
// state changes. They are pure functions, all idempotent, and a store runs each in a transaction:
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
//	                  ╰──▶ deleting ──gone──▶ deleted        (its host is up)
//	                       deleted, unfreed, cleanup due   (it is down: Freed ends one, gone both)
//
//	active ──Power(stop)──▶ powering-off ──settled──▶ stopped
//	stopped ──Power(start)──▶ powering-on ──settled──▶ active
//	active ──Power(reboot)──▶ rebooting ──settled──▶ reboot_started ──settled──▶ active
//
//	active ──Migrate──▶ resize_prep ──destination──▶ resize_migrating ──departed──▶ resize_finish
//	  resize_finish ──arrived──▶ resized ──confirm, left──▶ active (there)
//	                             resized ──revert, left, given back──▶ resize_reverting (back)
//	  a fault ──given back──▶ resize_reverting ──settled──▶ active (back)
//	active ──Migrate──▶ rebuilding ──destination, arrived──▶ active (there)       an evacuation
//
// While a server moves, a [Migration] says what is wanted of the hosts beside its own.
//
// Each change of a row raises the cell's revision in the same transaction, so that a host can ask
// for what is newer than its own revision.
package celldb
