// SPDX-License-Identifier: Apache-2.0

// Package ledger is Placement's state machine: resource providers and their
// trees, inventories, traits and aggregates, consumers and their allocations,
// and the rules by which they change.
package ledger
