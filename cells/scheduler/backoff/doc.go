// SPDX-License-Identifier: Apache-2.0

// Package backoff puts off what failed: the builds of servers and migrations, each for itself, with
// waits that double. It has no clock of its own.
//
//	due ── Failed ──────────────────▶ put off ───────────┐
//	    ── Unanswered, Unwritten ───▶ unanswered ────────┤ the wait ends
//	    ── PlacementFailed ─────────▶ Placement is out ──┴──────────────▶ due
//	    ── Succeeded ───────────────▶ forgotten
//
// Unanswered is a server whose request Placement fails while it answers others: it alone is put
// off, and counted, because its request may never be answered. If Placement fails the writes for
// several servers and carries out none, it is Placement that fails.
package backoff
