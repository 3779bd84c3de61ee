// SPDX-License-Identifier: Apache-2.0

// Package worker is what an agent does for its cell: it shows life, asks what servers shall be on its host, has the driver make and
// remove their guests, and reports what is so.
//
//	          heartbeats ───────────▶ PUT  /v1/hosts/H
//	cell ───▶ long poll ──▶ servers ◀─ GET  /v1/hosts/H/work       newest want of each
//	             │             │
//	             │             ├─▶ one task for each server that is not as wanted: Spawn, Destroy, SetPower, one after the other
//	             │             └─▶ looks: Instances() compared with what the cell has been told
//	             └──────── outbox ───▶ POST /v1/hosts/H/reports     batched, repeated until the cell took them
//
// Nothing is kept on disk. The cell says what shall be so, the driver what is so, and Placement what was granted; after a restart of any of
// them, or when the cell's database is another one, all of it is compared anew. The calls of the driver are idempotent, so that one whose
// outcome is not known is made again.
//
// What protects data:
//   - A guest is removed only if the cell says that this very server shall be gone. A cell that is away, or forgot a server, or begins with an
//     empty database, removes nothing: guests that no row is about are told of once and never touched.
//   - What is left of an attempt to make a guest is removed only by the process that made it, and never if it runs: a row that says building may come
//     from a backup.
//   - A guest is made only for a server that was never active, and that has allocations at that moment. One that was made and is not there any
//     more is reported as PowerNoState.
//   - Allocations are removed only after the driver has said that nothing of the guest is left. If Destroy says that the guest of that uuid is
//     none that the agent had made, the guest stays. Its allocations go if the server was never active, as that guest cannot be the server then; if
//     it was, they are what the guest uses, and they stay, and the server is not reported as gone, until somebody has looked at the guest.
package worker
