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
// What a try to commit a batch means for its writes, by the error of Store.Commit (Store and the
// errors are package ledger's):
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
// Exceptions to the table:
//
//   - rowsDiffer on a second or later try gives each write a commit of its own. A write that has
//     one is refused with DuplicateName if the error is also ErrDuplicate and the loaded state has
//     no newer version.
//   - If the state cannot be loaded, or the lock taken or the version read for the next try, all
//     writes are answered with that error; after maxTries tries, with ErrBusy.
//   - A conflict does not count as a try if the version was assumed to be the newest, not read.
//   - A write whose function returned an error is answered with that error. Not so if it ran after
//     a write of the batch that was not committed: then it gets the error of the commit.
package transactor
