// SPDX-License-Identifier: Apache-2.0

// Package ledger is Placement's state machine: resource providers and their
// trees, inventories, traits and aggregates, consumers and their allocations,
// the generations that guard them, and the rules by which they change. It
// follows OpenStack Placement 8.0.0, with its later fix for providers that
// are over-committed (LP#2104040). It does no I/O of its own.
//
//	          reads                                writes
//	Snapshot(ctx) ── version asked ──┐     Update(ctx, fn) ─▶ queue
//	                                 ▼                          │ one goroutine
//	        ┌──────────────────────────────┐   run each fn on top of the last,
//	        │ current: an immutable        │   each in a Tx that is dropped on error
//	        │ Snapshot, read without locks │                    │
//	        └──────────────────────────────┘   Store.Commit: the rows that changed,
//	                      ▲                    and version v → v+1 if it still is v
//	                      └──── publish ◀───────────────────────┘ then answer all
//
// A Snapshot is made of the containers of package pmap: the next one shares everything
// that did not change, so the cost of a write does not depend on the size of
// the cloud, and readers never wait.
//
// Several servers can share one store. A server that finds that the version
// moved reads what the others changed, refreshes its snapshot and, in a write,
// runs its functions again. What one server acknowledged is in every later
// Snapshot of the others.
//
// What a try to commit a batch means for its writes, by the error of Store.Commit:
//
//	outcome           error               answer              then
//	committed         none                the snapshot
//	conflict          ErrVersionConflict  none                all run again on the newest state
//	rowsDiffer        ErrReload           none                the state is loaded, all run again
//	rowRefused        ErrRow, of several  none                each gets a commit of its own
//	                  ErrRow, of one      the error
//	unknownShared     ErrOutcomeUnknown   the error           the next write reads the version
//	unknownExclusive  the same, with no   the error, and why  before the answer the state is
//	                  other process       loading fails       loaded, or else at the next call
//	failed            any other           the error
//
// From the second try on, rows that differ give each write a commit of its own; one that has its
// own is a DuplicateName if the error is also ErrDuplicate and loading finds no newer version.
// If loading fails, or the lock or the version of the next try, all are answered that; after
// maxTries, ErrBusy. A conflict is no try if the newest version was assumed and not read.
// A write that its function refuses is answered that, except on top of one that was not committed.
//
// Tx.Touched is what a transaction changed, before and after: for rules about
// it, which run last in the transaction, and for the audit log.
//
// The rules live in Tx, one file for each part of Placement; the indexes in
// draft; Store, with its row types, is the interface to package store.
// The standard names are those of os-resource-classes and os-traits, kept as
// data files.
package ledger
