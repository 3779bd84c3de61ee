// SPDX-License-Identifier: Apache-2.0

// Package transactor keeps a Placement's state: one goroutine runs transactions of package ledger
// one after the other and commits them in batches to a store, and readers take snapshots. It does
// no I/O of its own.
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
package transactor
