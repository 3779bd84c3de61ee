// SPDX-License-Identifier: Apache-2.0

// Package serverstate is the state machine of a server in its cell, the checks of what clients
// and hosts give a cell, and the rule by which a node belongs to a host,
// [NodeOwnership.Changes], whose tests are in cells/celldb, owners_test.go. It does no I/O and
// reads no clock: package celldb reads a [Record], runs a transition of it and writes it, in one
// transaction.
//
// The transitions are the only place where the state of a server changes. All are idempotent; each
// reports whether it changed anything, or refuses with a [cellwire.Error] and changes nothing:
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
//	                       deleted, unfreed, cleanup due   (down: MarkFreed ends one, gone both)
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
// [Record.WantOn] is what follows from the state: what a host has to do about the server. While a
// server moves, its [Migration] says what is wanted of the hosts beside its own.
package serverstate
