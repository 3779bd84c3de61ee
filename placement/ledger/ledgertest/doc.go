// SPDX-License-Identifier: Apache-2.0

// Package ledgertest has what tests of a ledger and of its stores share: a
// naive model of Placement's rules (maps and loops, no cleverness), random
// writes, and a plain picture of a snapshot to compare by.
package ledgertest
