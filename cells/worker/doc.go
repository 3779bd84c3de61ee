// SPDX-License-Identifier: Apache-2.0

// Package worker is an agent's client of its cell: it sends heartbeats, polls for the desired state
// of the servers on its host, has the driver create and remove their guests, and reports the
// results.
//
//	          heartbeats ───────────▶ PUT  /v1/hosts/H
//	cell ───▶ long poll ──▶ servers ◀─ GET  /v1/hosts/H/work     latest desired state of each
//	             │             │
//	             │             ├─▶ one task per server: Spawn, Destroy, SetPower and moves in turn
//	             │             └─▶ comparisons: Instances() against what the cell was sent
//	             └──────── outbox ───▶ POST /v1/hosts/H/reports   batched, repeated until accepted
//
// Nothing is kept on disk. The cell has the desired state, the driver the actual state, and
// Placement the allocations. After a restart of any of them, or when the cell has another database,
// everything is compared again. Driver calls are idempotent: a call with an unknown outcome is
// repeated.
//
// What protects data:
//   - A guest is removed only if the cell requests it for this very server. A cell that is down,
//     lost a server or starts with an empty database removes nothing: guests without a row are
//     logged once and left alone.
//   - The remains of a failed Spawn are removed only by the process that called Spawn, and never if
//     the guest runs: a row in state building may come from a backup.
//   - A guest is created only for a server that was never active and has allocations at that
//     moment. If a created guest disappears, its power state is reported as PowerNoState. A hard
//     reboot, which its owner asks for, makes it again over its disks, and never disks.
//   - Allocations are removed only after the driver reported that nothing of the guest is left. If
//     Destroy finds a guest with that uuid that the agent did not create, the guest stays. Its
//     allocations are removed if the server was never active, as the guest cannot be that server.
//     Otherwise the guest uses them: they stay, and the server is not reported as removed until an
//     operator resolves it.
//   - A server that moves never has two guests that run. The source shuts its guest down before the
//     destination is asked for one, and never starts it while the migration lasts: if something
//     else does, it is shut down again. A host that was evacuated and comes back removes its guest.
//     If the destination cannot create the guest, nothing is left of it there, and all allocations
//     stay for the cell, which takes the server back.
package worker
